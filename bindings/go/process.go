// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// Spec is a job: what all its workers have in common. The zero value of a field is its default.
type Spec struct {
	Name         string        // for prefixes and the report; default "worker"
	Program      string        // path, or name in PATH; no shell
	Function     string        // instead: a name given to Register, or "library.so:symbol" (an ujoin_worker_fn)
	Args         []string      // without the program's name; ${local_rank} is replaced
	Workers      int           // how many; their index is "rank" here
	LogDir       string        // default: a fresh temporary one if a file is needed; "/dev/null" = no files
	RunID        string        // default: random
	Prefix       string        // of console lines: ${role_name}, ${rank}, ${local_rank}, ${time}; default "[name<rank>]: "
	Grace        time.Duration // between the polite signal and SIGKILL; default 30 s
	Drain        time.Duration // for output that a grandchild still holds after a worker's end; default 1 s
	PartialLine  time.Duration // an unfinished line goes to the console after this; default 200 ms
	FirstRank    int           // added to the index in texts and prefixes (several hosts)
	RestartCount int           // attempt_<k> in the log directory
	Redirects    Std           // streams that go to files instead of the console
	Tee          Std           // streams that go to both
	Containment  Containment   // how workers and their descendants are held
	SameSession  bool          // stay on the terminal (one worker, for debuggers)

	StartMethod   StartMethod   // of functions; Go's runtime has threads, which a fork loses: only StartSpawn
	ConsoleRanks  []int         // only these on the console, others to their files or nowhere; nil = all
	StdoutFilters []string      // console lines with one of these also go to filtered_stdout.log of the attempt
	StderrFilters []string      // likewise
	Output        OutputFunc    // gets the lines of all streams, besides files and instead of an untouched console stream
	Console       ConsolePolicy // when the console is slower than the workers; default ConsoleBlock
	Binding       Binding       // placement on processors; default none
	RotateBytes   uint64        // a log file of this size becomes <name>.1, and a new one is begun; 0 = never
	RotateKeep    int           // old log files kept per stream; default 1; negative = none
	NoErrorFile   bool          // workers get no path for error.json
	NoColour      bool          // by default prefixes are coloured if the console is a terminal (and NO_COLOR is unset)
	StatusLine    bool          // if stderr is a terminal, its last line tells how the job stands, where no worker writes to it
}

// OutputFunc receives output of a worker: whole lines with their ends, or parts of 64 KiB, good for the call; stream is
// StdOut or StdErr. Runs on the goroutine in Wait, Stop or Close; meanwhile at most 1 MiB is kept, then the workers wait. An
// error or a panic ends that call. It may not use its Processes.
type OutputFunc func(rank int, stream Std, data []byte) error

// Worker is what one worker has of its own; a zero field leaves the job's.
type Worker struct {
	Program   string
	Args      []string // replaces the job's, if not nil
	Directory string   // working directory
	Redirects Std      // counts with StdSet, or if not 0
	Tee       Std

	Input     []byte             // for a function worker
	StdinFrom Stdin              // default: /dev/null, or what of the next two is given
	Stdin     []byte             // with StdinBytes
	StdinPath string             // with StdinFile
	CPUs      []int              // processors, with BindingList; memory comes from their nodes
	Limits    map[string]float64 // resource limits: "nofile": 4096, "core": 0; math.Inf(1) = unlimited
	Umask     *int

	// ExtraFiles are inherited by the worker, besides its standard streams: entry i becomes descriptor 3+i, if not nil. They
	// must stay open until Start. Every other descriptor is closed in the worker.
	ExtraFiles []*os.File
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
	looks *sync.Mutex // Health, whose texts live until its next call
	files []*os.File  // that workers inherit, until Start
	hooks int         // `hooks` if output goes to a function of the program's
}

// NewProcesses describes a job; starts nothing. A job without program and function needs a program for every worker
// (SetWorker). ErrInvalid: both program and function, no workers, unknown values.
func NewProcesses(spec Spec) (*Processes, error) {
	const op = "NewProcesses"
	texts := []string{spec.Name, spec.Program, spec.LogDir, spec.RunID, spec.Prefix, spec.Function}
	if err := checkText(op, slices.Concat(texts, spec.Args, spec.StdoutFilters, spec.StderrFilters)...); err != nil {
		return nil, err
	}
	if spec.StartMethod == StartFork || spec.StartMethod == StartForkserver {
		return nil, failed(StatusUnsupported, op, "StartMethod: a fork of a Go program has lost its runtime's threads; only "+
			"StartSpawn is possible")
	}
	facts := []int64{millisOption(spec.Grace), millisOption(spec.Drain), millisOption(spec.PartialLine),
		int64(spec.Workers), int64(spec.FirstRank), int64(spec.RestartCount), int64(spec.Redirects), int64(spec.Tee),
		int64(spec.Containment), flag(spec.SameSession), int64(spec.RotateBytes), int64(spec.RotateKeep),
		int64(spec.StartMethod), int64(spec.Console), int64(spec.Binding), flag(spec.NoErrorFile), flag(spec.NoColour),
		flag(spec.StatusLine)}
	list, args, pointer := block(texts), block(spec.Args), new(uintptr)
	ranks, out, err := numbers32(spec.ConsoleRanks), block(spec.StdoutFilters), block(spec.StderrFilters)
	user, how := uint64(0), plain
	if spec.Output != nil {
		how, user = hooks, cujoin.NewHandle(cujoin.OutputFunc(func(rank, stream int32, data []byte) error {
			return spec.Output(int(rank), Std(stream), data)
		}), nil)
	}
	f := cujoin.PctxCreate(address(list), address(args), int64(len(spec.Args)), address(facts), address(ranks),
		int64(len(ranks)), address(out), int64(len(spec.StdoutFilters)), address(err), int64(len(spec.StderrFilters)), user,
		unsafe.Pointer(pointer))
	if f != nil {
		return nil, errorOf(f, nil)
	}
	p := &Processes{
		r: newRef("process context", *pointer, cujoin.PctxDestroy), grace: spec.Grace, size: spec.Workers,
		looks: new(sync.Mutex), hooks: how,
	}
	runtime.AddCleanup(p, (*ref).close, p.r)
	return p, nil
}

func numbers32(list []int) []int32 {
	var raw []int32
	for _, n := range list {
		raw = append(raw, int32(n))
	}
	return raw
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

// SetWorker gives one worker (or AllWorkers) a program, arguments, directory, stdin, processors, limits, files or
// redirections of its own. Before Start.
func (p *Processes) SetWorker(rank int, worker Worker) error {
	const op = "Processes.SetWorker"
	texts := []string{worker.Program, worker.Directory, worker.StdinPath}
	if err := checkText(op, slices.Concat(texts, worker.Args)...); err != nil {
		return err
	}
	names, limits, err := hypers(op, worker.Limits)
	if err != nil {
		return err
	}
	umask := 0
	if worker.Umask != nil {
		umask = *worker.Umask
	}
	facts := []int64{int64(worker.Redirects), int64(worker.Tee), int64(worker.stdinFrom()), flag(worker.Umask != nil),
		int64(umask), flag(worker.Args != nil)}
	fds, err := descriptors(op, worker.ExtraFiles)
	if err != nil {
		return err
	}
	list, args, cpus := block(texts), block(worker.Args), numbers32(worker.CPUs)
	return p.alone(op, func() *cujoin.Failure {
		p.files = append(p.files, worker.ExtraFiles...)
		return cujoin.PctxSetWorker(p.r.pointer, rank, address(list), address(args), int64(len(worker.Args)), address(facts),
			address(worker.Input), int64(len(worker.Input)), address(worker.Stdin), int64(len(worker.Stdin)), address(cpus),
			int64(len(cpus)), address(names), address(limits), int64(len(worker.Limits)), address(fds),
			int64(len(fds)/2))
	})
}

// descriptors are pairs: one of this process, and its number in the worker.
func descriptors(op string, files []*os.File) ([]int32, error) {
	var raw []int32
	for i, file := range files {
		if file == nil {
			continue
		}
		fd := file.Fd()
		if fd == ^uintptr(0) {
			return nil, failed(StatusInvalid, op, fmt.Sprintf("ExtraFiles[%d] is closed", i))
		}
		raw = append(raw, int32(fd), int32(3+i))
	}
	return raw, nil
}

func (w Worker) stdinFrom() Stdin {
	switch {
	case w.StdinFrom != 0:
		return w.StdinFrom
	case w.Stdin != nil:
		return StdinBytes
	case w.StdinPath != "":
		return StdinFile
	}
	return 0
}

// Start starts all workers, or none. ErrSystem: which one could not be executed and why (Errno); those started before it
// are gone. ErrState: started before, or this is a function worker that has not passed
// WorkerMain. ErrInvalid: workers without a program. Where a log directory is in use, workers find TORCHELASTIC_ERROR_FILE
// set. Installs no signal handler and waits for no other child of this process.
func (p *Processes) Start(ctx context.Context) error {
	const op = "Processes.Start"
	c, err := p.r.begin(ctx, op, plain)
	if err != nil {
		return err
	}
	defer p.r.leave()
	defer func() { p.files = nil }() // not before: a file that nobody has is closed
	return c.end(cujoin.PctxStart(p.r.pointer, c.pointer()))
}

// Wait waits until all workers have ended well (nil), or one has failed and the others have been ended because of it
// (ErrChildFailed; see Report). ErrPending: neither before the context's end; the workers go on. All output is delivered
// before a final answer, and a later call answers the same. Runs Spec.Output.
func (p *Processes) Wait(ctx context.Context) error {
	const op = "Processes.Wait"
	c, err := p.r.begin(ctx, op, timed|p.hooks)
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
	FailedAt    time.Time // of a failed or stopped one: the time in its error file, else End; zero otherwise
	LastOutput  time.Time // zero if there was none
	UserTime    time.Duration
	SystemTime  time.Duration
	PeakBytes   uint64 // resident memory
	StdoutBytes uint64
	StderrBytes uint64
	Dropped     uint64 // lines of the console
	Value       []byte // what a function worker returned; nil if nothing
	Message     string // of error.json, else of the signal, else how to get one; "" if it did not fail
	Traceback   string // of error.json, else the last lines of stderr, or ""
	StdoutPath  string // "" if there is no file
	StderrPath  string
	ErrorPath   string // of the error.json that it wrote; "" if it wrote none
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
		Start: clock(r.StartNs), End: clock(r.EndNs), FailedAt: clock(r.FailedNs), LastOutput: clock(r.LastOutputNs),
		UserTime: micros(r.UserUs), SystemTime: micros(r.SystemUs), PeakBytes: r.PeakBytes,
		StdoutBytes: r.StdoutBytes, StderrBytes: r.StderrBytes,
		Dropped: r.DroppedLines, Value: r.Value, Message: r.Message, Traceback: r.Traceback, StdoutPath: r.StdoutPath,
		StderrPath: r.StderrPath, ErrorPath: r.ErrorPath}, nil
}

// WorkerHealth is what a worker does now; its group's words are its own.
type WorkerHealth struct {
	State       WorkerState
	Rank        int
	PID         int    // 0 = not started
	GroupPID    int    // the process that has the group: the worker, or one that it started
	GroupRank   int    // -1 = it has no group that tells; then only its state and output are known
	GroupSize   int    // ranks
	Groups      int    // that tell, 4 at most; the one described waits longest, else is busy longest, else is the first
	InOperation bool   // the operation has begun and is not complete
	InContext   bool   // a join context is armed
	Joined      bool   // it works for the others
	Broken      bool   // an operation has failed: the group is of no use any more
	Sequence    int64  // number of the operation that its group is in, or was in last, from 1; 0 = none yet
	Round       int64  // of the join context that is armed; -1 = none is
	Operation   string // such as "all_reduce": the last one that began
	WaitingFor  string // such as "all_reduce(sum, f32, 100)"; "" = it does not wait
	Missing     []int  // the ranks of its group that it waits for
	Group       string // the group's name
	Text        string // all this in one line for a person
	Since       time.Time
	LastOutput  time.Time // zero: nothing yet, or the stream is not read here
}

// Health is what a worker does now, out of memory that it shares with its groups: it is asked nothing, so this works for one
// that hangs; one that has died keeps what it was doing. At any time, from any goroutine.
func (p *Processes) Health(rank int) (WorkerHealth, error) {
	if err := p.r.share("Processes.Health"); err != nil {
		return WorkerHealth{}, err
	}
	defer p.r.unshare()
	p.looks.Lock()
	defer p.looks.Unlock()
	h, f := cujoin.PctxHealthOf(p.r.pointer, rank)
	if f != nil {
		return WorkerHealth{}, endPlain(f)
	}
	missing := make([]int, 0, len(h.Missing))
	for _, r := range h.Missing {
		missing = append(missing, int(r))
	}
	return WorkerHealth{State: WorkerState(h.State), Rank: int(h.Rank), PID: int(h.PID), GroupPID: int(h.GroupPID),
		GroupRank: int(h.GroupRank), GroupSize: int(h.GroupSize), Groups: int(h.Groups), InOperation: h.InOperation,
		InContext: h.InContext, Joined: h.Joined, Broken: h.Broken, Sequence: h.Sequence, Round: h.Round,
		Operation: h.Operation, WaitingFor: h.WaitingFor, Missing: missing, Group: h.Group, Text: h.Text,
		Since: clock(h.SinceNs), LastOutput: clock(h.LastOutputNs)}, nil
}

func clock(ns int64) time.Time {
	if ns == 0 {
		return time.Time{}
	}
	return time.Unix(0, ns)
}

// ReportJSON is all results as one JSON object: name, run_id, first_failure (a rank or null) and workers, a list by rank
// (times in seconds since 1970, signal by name, no values). "" when closed.
func (p *Processes) ReportJSON() string {
	text := ""
	_ = p.alone("Processes.ReportJSON", func() *cujoin.Failure {
		text = cujoin.PctxReportJSON(p.r.pointer)
		return nil
	})
	return text
}

// Report is the failure for a person: the other failures, then the first cause with time, host, rank, exit code, error file,
// and its traceback, message or last lines of stderr. "" if nothing failed.
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

// AskStop asks the workers for an agreed stop: their join contexts, also later ones, leave after the same round
// (Join.Stopped), and the workers have the time to save. It ends nobody; Stop does.
func (p *Processes) AskStop() error {
	const op = "Processes.AskStop"
	if err := p.r.share(op); err != nil {
		return err
	}
	defer p.r.unshare()
	return endPlain(cujoin.PctxStop(p.r.pointer))
}

// Stop ends all workers: signal (0 = SIGTERM) to their groups, SIGKILL to what is left after the grace (0 = at once), then
// reads the rest of the output. May be repeated. ErrPending: the console does not take the output; ErrTimeout: a worker
// cannot be killed. Runs Spec.Output.
func (p *Processes) Stop(ctx context.Context, signal syscall.Signal, grace time.Duration) error {
	const op = "Processes.Stop"
	c, err := p.r.begin(ctx, op, p.hooks)
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
