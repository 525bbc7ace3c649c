// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"runtime"
	"syscall"
	"time"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// Spec is a job: what all its workers have in common. The zero value of a field is its default.
type Spec struct {
	Name         string        // for prefixes and the report; default "worker"
	Program      string        // path, or name in PATH; no shell
	Args         []string      // without the program's name; ${local_rank} is replaced
	Workers      int           // how many; their index is "rank" here
	LogDir       string        // default: a fresh temporary one if a file is needed; "/dev/null" = no files
	RunID        string        // default: random
	Prefix       string        // of console lines: ${role_name}, ${rank}, ${local_rank}; default "[name<rank>]: "
	Grace        time.Duration // between the polite signal and SIGKILL; default 30 s
	Drain        time.Duration // for output that a grandchild still holds after a worker's end; default 1 s
	PartialLine  time.Duration // an unfinished line goes to the console after this; default 200 ms
	FirstRank    int           // added to the index in texts and prefixes (several hosts)
	RestartCount int           // attempt_<k> in the log directory
	Redirects    Std           // streams that go to files instead of the console
	Tee          Std           // streams that go to both
	Containment  Containment   // how workers and their descendants are held
	SameSession  bool          // stay on the terminal (one worker, for debuggers)
}

// Worker is what one worker has of its own; a zero field leaves the job's.
type Worker struct {
	Program   string
	Args      []string // replaces the job's, if not nil
	Directory string   // working directory
	Redirects Std      // counts with StdSet, or if not 0
	Tee       Std
}

// ParseStd reads "3" (all ranks) or "0:1,12:3" (rank:value) into one value per worker; ranks that are not named get
// StdNone. ErrInvalid: anything else, with the place.
func ParseStd(text string, workers int) ([]Std, error) {
	const op = "ParseStd"
	if err := checkText(op, text); err != nil {
		return nil, err
	}
	if workers < 0 {
		return nil, failed(StatusInvalid, op, "the number of workers is negative")
	}
	values := make([]Std, workers)
	if f := cujoin.PctxParseStd(text, address(values), int64(workers)); f != nil {
		return nil, errorOf(f, nil)
	}
	return values, nil
}

// AllWorkers is the rank that stands for all of them.
const AllWorkers = -1

// Processes is a set of worker processes, with their output and how they end.
type Processes struct {
	r     *ref
	grace time.Duration
	size  int
}

// NewProcesses describes a job; starts nothing. ErrInvalid: no program, no workers, unknown values.
func NewProcesses(spec Spec) (*Processes, error) {
	const op = "NewProcesses"
	texts := []string{spec.Name, spec.Program, spec.LogDir, spec.RunID, spec.Prefix}
	if err := checkText(op, append(texts[:len(texts):len(texts)], spec.Args...)...); err != nil {
		return nil, err
	}
	facts := []int64{millisOption(spec.Grace), millisOption(spec.Drain), millisOption(spec.PartialLine),
		int64(spec.Workers), int64(spec.FirstRank), int64(spec.RestartCount), int64(spec.Redirects), int64(spec.Tee),
		int64(spec.Containment), flag(spec.SameSession)}
	list, args, pointer := block(texts), block(spec.Args), new(uintptr)
	f := cujoin.PctxCreate(address(list), address(args), int64(len(spec.Args)), address(facts), unsafe.Pointer(pointer))
	if f != nil {
		return nil, errorOf(f, nil)
	}
	p := &Processes{newRef("process context", *pointer, cujoin.PctxDestroy), spec.Grace, spec.Workers}
	runtime.AddCleanup(p, (*ref).close, p.r)
	return p, nil
}

// alone runs a call that must be alone on the handle.
func (p *Processes) alone(op string, run func() *cujoin.Failure) error {
	if err := p.r.enter(op); err != nil {
		return err
	}
	defer p.r.leave()
	return endPlain(run())
}

// Size is the number of workers.
func (p *Processes) Size() int { return p.size }

// SetEnv sets a variable for one worker (or AllWorkers), over what it inherits. Before Start.
func (p *Processes) SetEnv(rank int, name, value string) error {
	return p.env(rank, name, value, false)
}

// UnsetEnv removes a variable for one worker (or AllWorkers). Before Start.
func (p *Processes) UnsetEnv(rank int, name string) error { return p.env(rank, name, "", true) }

func (p *Processes) env(rank int, name, value string, unset bool) error {
	const op = "Processes.SetEnv"
	if err := checkText(op, name, value); err != nil {
		return err
	}
	return p.alone(op, func() *cujoin.Failure {
		return cujoin.PctxSetEnv(p.r.pointer, rank, name, value, int(flag(unset)))
	})
}

// SetWorker gives one worker (or AllWorkers) a program, arguments, a directory or redirections of its own. Before Start.
func (p *Processes) SetWorker(rank int, worker Worker) error {
	const op = "Processes.SetWorker"
	if err := checkText(op, append([]string{worker.Program, worker.Directory}, worker.Args...)...); err != nil {
		return err
	}
	args := block(worker.Args)
	return p.alone(op, func() *cujoin.Failure {
		return cujoin.PctxSetWorker(p.r.pointer, rank, worker.Program, address(args), int64(len(worker.Args)),
			int(flag(worker.Args != nil)), worker.Directory, int(worker.Redirects), int(worker.Tee))
	})
}

// Start starts all workers, or none. ErrSystem: which one could not be executed and why (Errno); those started before it
// are gone. ErrState: started before. Installs no signal handler and waits for no other child of this process.
func (p *Processes) Start(ctx context.Context) error {
	const op = "Processes.Start"
	c, err := p.r.begin(ctx, op, plain)
	if err != nil {
		return err
	}
	defer p.r.leave()
	return c.end(cujoin.PctxStart(p.r.pointer, c.pointer()))
}

// Wait waits until all workers have ended well (nil), or one has failed and the others have been ended because of it
// (ErrChildFailed; see Report). ErrPending: neither before the context's end; the workers go on. All output is delivered
// before a final answer, and a later call answers the same.
func (p *Processes) Wait(ctx context.Context) error {
	const op = "Processes.Wait"
	c, err := p.r.begin(ctx, op, timed)
	if err != nil {
		return err
	}
	defer p.r.leave()
	return c.waited(cujoin.PctxWait(p.r.pointer, waitMillis(ctx), c.pointer()))
}

// Failed is true if a worker has failed by itself; out of the last Wait, Stop or Close.
func (p *Processes) Failed() bool {
	if p.r.share("Processes.Failed") != nil {
		return false
	}
	defer p.r.unshare()
	return cujoin.PctxFailed(p.r.pointer) == 1
}

// FirstFailure is the worker that failed first, never a victim; -1 if none did.
func (p *Processes) FirstFailure() int {
	if p.r.share("Processes.FirstFailure") != nil {
		return -1
	}
	defer p.r.unshare()
	return cujoin.PctxFirstFailure(p.r.pointer)
}

// WorkerResult is what is known of a worker now, and how it ended.
type WorkerResult struct {
	State       WorkerState
	Rank        int
	PID         int
	ExitCode    int            // -1 unless exited
	Signal      syscall.Signal // 0 unless signaled
	Failed      bool           // by itself
	Stopped     bool           // ended because of another's failure, or on request: a victim, not a cause
	Containment Containment    // in force
	Start       time.Time
	End         time.Time // zero while it runs
	LastOutput  time.Time // zero if there was none
	UserTime    time.Duration
	SystemTime  time.Duration
	PeakBytes   uint64 // resident memory
	StdoutBytes uint64
	StderrBytes uint64
	StdoutPath  string // "" if there is no file
	StderrPath  string
}

// Result is what is known of a worker, at any time.
func (p *Processes) Result(rank int) (WorkerResult, error) {
	var r cujoin.WorkerResult
	err := p.alone("Processes.Result", func() (f *cujoin.Failure) {
		r, f = cujoin.PctxResultOf(p.r.pointer, rank)
		return f
	})
	if err != nil {
		return WorkerResult{}, err
	}
	return WorkerResult{State: WorkerState(r.State), Rank: int(r.Rank), PID: int(r.PID), ExitCode: int(r.ExitCode),
		Signal: syscall.Signal(r.Signal), Failed: r.Failed, Stopped: r.Stopped, Containment: Containment(r.Containment),
		Start: clock(r.StartNs), End: clock(r.EndNs), LastOutput: clock(r.LastOutputNs), UserTime: micros(r.UserUs),
		SystemTime: micros(r.SystemUs), PeakBytes: r.PeakBytes, StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes,
		StdoutPath: r.StdoutPath, StderrPath: r.StderrPath}, nil
}

func clock(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// Report is the failure for a person: first cause with rank, signal or exit code, last lines of its stderr where a file has
// them; then the others. "" if nothing failed.
func (p *Processes) Report() string {
	text := ""
	_ = p.alone("Processes.Report", func() *cujoin.Failure {
		text = cujoin.PctxReport(p.r.pointer)
		return nil
	})
	return text
}

// Signal sends a signal to one worker's process group (or those of AllWorkers).
func (p *Processes) Signal(rank int, signal syscall.Signal) error {
	const op = "Processes.Signal"
	if err := p.r.share(op); err != nil {
		return err
	}
	defer p.r.unshare()
	return endPlain(cujoin.PctxSignal(p.r.pointer, rank, int(signal)))
}

// Stop ends all workers: signal (0 = SIGTERM) to their groups, SIGKILL to what is left after the grace (0 = at once), then
// reads the rest of the output. May be repeated. ErrPending: the console does not take the
// output; ErrTimeout: a worker cannot be killed.
func (p *Processes) Stop(ctx context.Context, signal syscall.Signal, grace time.Duration) error {
	const op = "Processes.Stop"
	c, err := p.r.begin(ctx, op, plain)
	if err != nil {
		return err
	}
	defer p.r.leave()
	if grace == AtOnce {
		grace = 0
	}
	f := cujoin.PctxClose(p.r.pointer, int(signal), millisOption(grace), c.pointer())
	if f != nil && Status(f.Status) == StatusPending {
		_ = c.end(nil)
		return failed(StatusPending, op, "the console does not take the workers' output")
	}
	return c.waited(f)
}

// Kill kills all workers now and wakes whoever waits (ErrAborted). Does not wait for their end.
func (p *Processes) Kill() {
	if p.r.share("Processes.Kill") == nil {
		cujoin.PctxAbort(p.r.pointer)
		p.r.unshare()
	}
}

// Close ends workers that still run, with SIGTERM and the job's grace, waits for their end, and drops the handle. A Wait in
// another goroutine ends first: see Kill. Without Close the same happens in the background when the object is collected.
func (p *Processes) Close() error {
	if p.r.closed() {
		return nil
	}
	grace := p.grace
	if grace == 0 {
		grace = 30 * time.Second
	}
	err := p.Stop(context.Background(), 0, grace)
	p.r.close()
	return err
}
