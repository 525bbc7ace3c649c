// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"ujoin.dev/go"
)

// shell is a job of workers that run a script, with output in files.
func shell(t *testing.T, workers int, script string) *ujoin.Processes {
	t.Helper()
	p, err := ujoin.NewProcesses(ujoin.Spec{Name: "job", Program: "sh", Args: []string{"-c", script}, Workers: workers,
		LogDir: t.TempDir(), RunID: "run", Redirects: ujoin.StdAll, Grace: 200 * time.Millisecond, Drain: patience / 60,
		PartialLine: time.Millisecond, Containment: ujoin.ContainmentGroup})
	ok(t, err)
	t.Cleanup(func() { ok(t, p.Close()) })
	return p
}

func TestWorkersThatEndWell(t *testing.T) {
	p := shell(t, 2, `echo "$A $B ${local_rank} $1"; echo problem >&2`)
	ok(t, p.SetEnv(ujoin.AllWorkers, "A", "all"))
	ok(t, p.SetEnv(1, "B", "")) // empty is not unset
	ok(t, p.SetEnv(0, "HOME", "/nowhere"))
	ok(t, p.UnsetEnv(0, "HOME"))
	ok(t, p.SetWorker(0, ujoin.Worker{Args: []string{"-c", `echo "$A ${HOME-unset} $(pwd) ${0##*/}"`}, Directory: "/"}))
	before, err := p.Result(0)
	if err != nil || before.State != ujoin.WorkerCreated || !before.Start.IsZero() {
		t.Fatalf("%+v %v", before, err)
	}
	ok(t, p.Start(within(t)))
	ok(t, p.Wait(within(t)))
	ok(t, p.Wait(within(t)))
	if p.Failed() || p.FirstFailure() != -1 || p.Report() != "" || p.Size() != 2 {
		t.Fatalf("failed: %v, first %d, %s", p.Failed(), p.FirstFailure(), p.Report())
	}
	for rank, want := range []string{"all unset / sh\n", "all  1 \n"} {
		r, err := p.Result(rank)
		ok(t, err)
		output, err := os.ReadFile(r.StdoutPath)
		ok(t, err)
		if r.State != ujoin.WorkerExited || r.ExitCode != 0 || r.Rank != rank || r.PID <= 0 || r.Failed || r.Stopped ||
			r.Containment != ujoin.ContainmentGroup || string(output) != want || r.StdoutBytes != uint64(len(output)) ||
			r.End.Before(r.Start) || r.PeakBytes == 0 {
			t.Errorf("%+v, output %q", r, output)
		}
	}
	_, err = p.Result(2)
	refused(t, err, ujoin.ErrInvalid, "2")
	refused(t, p.Start(within(t)), ujoin.ErrState, "")
	refused(t, p.SetEnv(0, "A", "1"), ujoin.ErrState, "")
}

func TestTheFirstFailureAndItsVictims(t *testing.T) {
	p := shell(t, 3, `test ${local_rank} = 1 || exec sleep 1000; echo "out of range" >&2; exit 7`)
	ok(t, p.Start(within(t)))
	refused(t, p.Wait(within(t)), ujoin.ErrChildFailed, "1")
	first, err := p.Result(1)
	ok(t, err)
	victim, err := p.Result(2)
	ok(t, err)
	if !p.Failed() || p.FirstFailure() != 1 || !first.Failed || first.ExitCode != 7 || victim.Failed || !victim.Stopped ||
		victim.State != ujoin.WorkerSignaled || victim.Signal != syscall.SIGTERM {
		t.Fatalf("%+v\n%+v", first, victim)
	}
	report := p.Report()
	_, cause, _ := strings.Cut(report, "Root Cause")
	if !strings.Contains(cause, "rank      : 1 ") || !strings.Contains(cause, "out of range") {
		t.Fatal(report)
	}
}

// A worker in this program's session, one of a job on several hosts that was started again.
func TestOneOfSeveralHosts(t *testing.T) {
	p, err := ujoin.NewProcesses(ujoin.Spec{Program: "sh", Workers: 1, FirstRank: 4, RestartCount: 2, SameSession: true,
		LogDir: t.TempDir(), RunID: "run", Redirects: ujoin.StdAll,
		Args: []string{"-c", "cat /proc/self/stat; echo problem >&2; exit 3"}})
	ok(t, err)
	defer func() { ok(t, p.Close()) }()
	ok(t, p.Start(within(t)))
	refused(t, p.Wait(within(t)), ujoin.ErrChildFailed, "")
	if !strings.Contains(p.Report(), "rank      : 4 (local_rank: 0)") {
		t.Error(p.Report())
	}
	r, err := p.Result(0)
	ok(t, err)
	problem, err := os.ReadFile(r.StderrPath)
	ok(t, err)
	if string(problem) != "problem\n" || r.StderrBytes != 8 || !strings.Contains(r.StderrPath, "/run/attempt_2/") {
		t.Errorf("%+v, %q", r, problem)
	}
	if r.LastOutput.IsZero() || r.UserTime+r.SystemTime <= 0 {
		t.Errorf("%+v", r)
	}
	if theirs, ours := session(t, r.StdoutPath), session(t, "/proc/self/stat"); theirs != ours {
		t.Errorf("the worker is in session %s, not %s", theirs, ours)
	}
}

// session is the sixth field of what the system says of a process.
func session(t *testing.T, path string) string {
	t.Helper()
	stat, err := os.ReadFile(path)
	ok(t, err)
	return strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))[3]
}

func TestWorkersUnderAWarden(t *testing.T) {
	p, err := ujoin.NewProcesses(ujoin.Spec{Program: "sleep", Args: []string{"1000"}, Workers: 1, LogDir: "/dev/null",
		Containment: ujoin.ContainmentWarden})
	ok(t, err)
	ok(t, p.Start(within(t)))
	r, err := p.Result(0)
	if err != nil || r.Containment != ujoin.ContainmentWarden {
		t.Errorf("%+v %v", r, err)
	}
	ok(t, p.Stop(within(t), syscall.SIGTERM, patience))
	r, err = p.Result(0)
	if err != nil || r.Signal != syscall.SIGTERM || !r.Stopped {
		t.Errorf("%+v %v", r, err)
	}
	ok(t, p.Close())
}

func TestExtraFiles(t *testing.T) {
	reader, writer, err := os.Pipe()
	ok(t, err)
	_, err = writer.WriteString("through a pipe")
	ok(t, err)
	ok(t, writer.Close())
	file, err := os.Open("go.mod")
	ok(t, err)
	p := shell(t, 1, "cat <&4; head -n 1 <&6; ls /proc/self/fd")
	ok(t, p.SetWorker(0, ujoin.Worker{ExtraFiles: []*os.File{nil, reader, nil, file}}))
	runtime.GC() // they are kept
	ok(t, p.Start(within(t)))
	ok(t, reader.Close())
	ok(t, file.Close())
	ok(t, p.Wait(within(t)))
	r, err := p.Result(0)
	ok(t, err)
	output, err := os.ReadFile(r.StdoutPath)
	ok(t, err)
	// 3 is the directory that ls reads
	if want := "through a pipemodule ujoin.dev/go\n0\n1\n2\n3\n4\n6\n"; string(output) != want {
		t.Errorf("%q", output)
	}
	p = shell(t, 1, "true")
	refused(t, p.SetWorker(0, ujoin.Worker{ExtraFiles: []*os.File{file}}), ujoin.ErrInvalid, "ExtraFiles[0] is closed")
}

// Children of os/exec and workers run side by side, and each gets its own statuses.
func TestOwnChildrenAreLeftAlone(t *testing.T) {
	for _, containment := range []ujoin.Containment{ujoin.ContainmentGroup, ujoin.ContainmentWarden} {
		p, err := ujoin.NewProcesses(ujoin.Spec{Program: "sh", Args: []string{"-c", "sleep 0.${local_rank}; exit 0"},
			Workers: 3, LogDir: "/dev/null", Containment: containment})
		ok(t, err)
		ok(t, p.Start(within(t)))
		for code := range 20 {
			beside := exec.Command("sh", "-c", "exit "+strconv.Itoa(code+30))
			ok(t, beside.Start())
			var ended *exec.ExitError
			err := exec.Command("sh", "-c", "exit "+strconv.Itoa(code+1)).Run()
			if !errors.As(err, &ended) || ended.ExitCode() != code+1 {
				t.Fatalf("%v instead of %d", err, code+1)
			}
			if err := beside.Wait(); !errors.As(err, &ended) || ended.ExitCode() != code+30 {
				t.Fatalf("%v instead of %d", err, code+30)
			}
		}
		ok(t, p.Wait(within(t)))
		for rank := range 3 {
			if r, err := p.Result(rank); err != nil || r.State != ujoin.WorkerExited || r.ExitCode != 0 {
				t.Errorf("%+v %v", r, err)
			}
		}
		ok(t, p.Close())
	}
}

func TestTheBestContainment(t *testing.T) {
	p, err := ujoin.NewProcesses(ujoin.Spec{Program: "true", Workers: 1, LogDir: "/dev/null",
		Containment: ujoin.ContainmentBest})
	ok(t, err)
	ok(t, p.Start(within(t)))
	ok(t, p.Wait(within(t)))
	r, err := p.Result(0)
	if err != nil || (r.Containment != ujoin.ContainmentCgroup && r.Containment != ujoin.ContainmentWarden) {
		t.Errorf("%+v %v", r, err)
	}
	ok(t, p.Close())
}

func TestAProgramThatIsNotThere(t *testing.T) {
	p, err := ujoin.NewProcesses(ujoin.Spec{Program: filepath.Join(t.TempDir(), "none"), Workers: 2, LogDir: "/dev/null"})
	ok(t, err)
	err = p.Start(within(t))
	refused(t, err, ujoin.ErrSystem, "none")
	refused(t, err, syscall.ENOENT, "rank 0")
	ok(t, p.Close())
	ok(t, p.Close())
	refused(t, p.Start(within(t)), ujoin.ErrState, "closed")
	if p.Failed() || p.FirstFailure() != -1 || p.Report() != "" {
		t.Fatal("a closed object answers")
	}
}

func TestAWaitEndsAndTheWorkersGoOn(t *testing.T) {
	p := shell(t, 1, "exec sleep 1000")
	refused(t, p.AskStop(), ujoin.ErrState, "pctx_start")
	ok(t, p.Start(within(t)))
	short, cancel := soon()
	defer cancel()
	err := p.Wait(short)
	refused(t, err, ujoin.ErrPending, "")
	refused(t, err, context.DeadlineExceeded, "")
	ok(t, isCancelled(p.Wait(cancelled()), ujoin.ErrPending))
	r, err := p.Result(0)
	if err != nil || r.State != ujoin.WorkerRunning || !r.End.IsZero() {
		t.Fatalf("%+v %v", r, err)
	}
	ok(t, p.AskStop()) // it does not listen
	h, err := p.Health(0)
	if err != nil || h.State != ujoin.WorkerRunning || h.GroupRank != -1 || h.Round != -1 || len(h.Missing) != 0 ||
		h.Text != fmt.Sprintf("rank 0 (pid %d): no group", r.PID) {
		t.Fatalf("%+v %v", h, err)
	}
	_, err = p.Health(1)
	refused(t, err, ujoin.ErrInvalid, "rank is 1")
	refused(t, p.Wait(cancelled()), ujoin.ErrPending, "")
	ok(t, p.Signal(0, syscall.SIGTERM))
	refused(t, p.Wait(within(t)), ujoin.ErrChildFailed, "SIGTERM")
	refused(t, p.Signal(5, syscall.SIGTERM), ujoin.ErrInvalid, "5")
}

func TestKillWakesWhoWaits(t *testing.T) {
	p := shell(t, 2, "trap '' TERM; sleep 1000")
	ok(t, p.Start(within(t)))
	waiting := make(chan error, 1)
	go func() { waiting <- p.Wait(within(t)) }()
	p.Kill()
	refused(t, <-waiting, ujoin.ErrAborted, "")
}

func TestStopEndsWorkersThatDoNotListen(t *testing.T) {
	p := shell(t, 1, "trap '' TERM INT; echo ready; while :; do sleep 0.01; done")
	ok(t, p.Start(within(t)))
	until(t, "the worker's first line", func() bool {
		r, err := p.Result(0)
		ok(t, err)
		output, _ := os.ReadFile(r.StdoutPath)
		return string(output) == "ready\n"
	})
	ok(t, p.Stop(within(t), syscall.SIGINT, 100*time.Millisecond))
	r, err := p.Result(0)
	if err != nil || r.Signal != syscall.SIGKILL || !r.Stopped || r.Failed {
		t.Fatalf("%+v %v", r, err)
	}
}

// A job without grace is killed at once when it is closed.
func TestCloseWithoutGrace(t *testing.T) {
	p, err := ujoin.NewProcesses(ujoin.Spec{Program: "sh", Args: []string{"-c", "trap '' TERM; while :; do sleep 0.01; done"},
		Workers: 1, LogDir: "/dev/null", Grace: ujoin.AtOnce})
	ok(t, err)
	ok(t, p.Start(within(t)))
	r, err := p.Result(0)
	ok(t, err)
	ok(t, p.Close())
	if err := syscall.Kill(r.PID, 0); !errors.Is(err, syscall.ESRCH) {
		t.Fatalf("the worker is there after Close: %v", err)
	}
}

func TestParseStd(t *testing.T) {
	values, err := ujoin.ParseStd("0:1,2:3", 3)
	if err != nil || !slices.Equal(values, []ujoin.Std{ujoin.StdOut, ujoin.StdNone, ujoin.StdAll}) {
		t.Fatalf("%v %v", values, err)
	}
	_, err = ujoin.ParseStd("0:9", 1)
	refused(t, err, ujoin.ErrInvalid, "9")
	_, err = ujoin.ParseStd("3", -1)
	refused(t, err, ujoin.ErrInvalid, "negative")
}

// Workers that everybody has forgotten get SIGTERM in the background.
func TestForgottenWorkersEnd(t *testing.T) {
	pid := 0
	func() {
		p, err := ujoin.NewProcesses(ujoin.Spec{Program: "sleep", Args: []string{"1000"}, Workers: 1, LogDir: "/dev/null"})
		ok(t, err)
		ok(t, p.Start(within(t)))
		r, err := p.Result(0)
		ok(t, err)
		pid = r.PID
		ok(t, syscall.Kill(pid, 0))
		runtime.KeepAlive(p)
	}()
	collected(t, "the end of the worker", func() bool { return errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) })
}
