// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"unsafe"

	"ujoin.dev/go"
)

// What the test program runs as workers of its own.
var workers = map[string]ujoin.WorkerFunc{
	"describe": func(args ujoin.WorkerArgs) ([]byte, error) {
		_, nested := os.LookupEnv("UJOIN_WORKER")
		return fmt.Appendf(nil, "%d of %d, %q, %q, nested %v", args.Rank, args.Size, args.Args, args.Input, nested), nil
	},
	"nothing": func(ujoin.WorkerArgs) ([]byte, error) { return nil, nil },
	"empty":   func(ujoin.WorkerArgs) ([]byte, error) { return []byte{}, nil },
	"large":   func(ujoin.WorkerArgs) ([]byte, error) { return bytes.Repeat([]byte("x\x00"), 1<<20), nil },
	"fail":    func(ujoin.WorkerArgs) ([]byte, error) { return []byte("lost"), errEnough },
	"panic":   func(ujoin.WorkerArgs) ([]byte, error) { return nil, panicDeep() },
	"exit":    func(ujoin.WorkerArgs) ([]byte, error) { os.Exit(0); return nil, nil },
	"reduce": func(args ujoin.WorkerArgs) ([]byte, error) {
		x := []float64{float64(args.Rank + 1)}
		g, err := ujoin.NewGroup(context.Background(), &ujoin.GroupOptions{Rendezvous: args.Args[0], Rank: args.Rank,
			WorldSize: args.Size})
		if err != nil {
			return nil, err
		}
		defer func() { _ = g.Close() }()
		err = ujoin.AllReduce(context.Background(), g, nil, x, ujoin.Sum)
		return fmt.Append(nil, x[0]), err
	},
	"record": func(ujoin.WorkerArgs) ([]byte, error) {
		recordAndLeave(func() error { return errEnough })
		return nil, nil
	},
	"record panic": func(ujoin.WorkerArgs) ([]byte, error) { recordAndLeave(panicDeep); return nil, nil },
	"record child": func(args ujoin.WorkerArgs) ([]byte, error) {
		recordAndLeave(func() error { return waitForFailingChild(args.Args[0]) })
		return nil, nil
	},
	"record text": func(ujoin.WorkerArgs) ([]byte, error) {
		if err := ujoin.RecordError("it was me", "line 7", 23); err != nil {
			return nil, err
		}
		os.Exit(9)
		return nil, nil
	},
}

func panicDeep() error { panic("too deep") }

// recordAndLeave ends the worker as a program would that is no function worker, so that only Record has written the file.
func recordAndLeave(run func() error) {
	defer os.Exit(5) // also on the way of a panic
	_ = ujoin.Record(run)
}

func waitForFailingChild(logs string) error {
	p, err := ujoin.NewProcesses(ujoin.Spec{Function: "record text", Workers: 1, LogDir: logs})
	if err == nil {
		defer func() { _ = p.Close() }()
		err = p.Start(context.Background())
	}
	if err == nil {
		err = p.Wait(context.Background())
	}
	return err
}

// launchOnConsole runs a script in two workers on this process's console, and tells how many lines of one were dropped.
func launchOnConsole(policy, script, logs string) (uint64, error) {
	spec := ujoin.Spec{Name: "inner", Program: "sh", Args: []string{"-c", script}, Workers: 2, Tee: ujoin.StdAll,
		LogDir: logs, RunID: "run", Prefix: "${role_name}/${rank}> "}
	switch policy {
	case "ranks":
		spec.ConsoleRanks = []int{1}
	case "plain":
		spec.ConsoleRanks, spec.NoColour = []int{1}, true
	case "filter":
		spec.StdoutFilters, spec.StderrFilters = []string{"line 77", "1299"}, []string{"keep"}
		spec.RotateBytes, spec.RotateKeep = 4096, 2
	case "drop":
		spec.Console = ujoin.ConsoleDrop
	case "spill":
		spec.Console = ujoin.ConsoleSpill
	}
	p, err := ujoin.NewProcesses(spec)
	if err != nil {
		return 0, err
	}
	defer func() { _ = p.Close() }()
	if err := errors.Join(p.Start(context.Background()), p.Wait(context.Background())); err != nil {
		return 0, err
	}
	r, err := p.Result(0)
	return r.Dropped, err
}

func TestMain(m *testing.M) {
	for name, run := range workers {
		if err := ujoin.Register(name, run); err != nil {
			panic(err)
		}
	}
	if worker, code, err := ujoin.WorkerMain(); worker {
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
		}
		os.Exit(code)
	}
	os.Exit(m.Run())
}

// job makes a job with its output in files.
func job(t *testing.T, spec ujoin.Spec) *ujoin.Processes {
	t.Helper()
	if spec.LogDir == "" {
		spec.LogDir = t.TempDir()
		spec.Redirects |= ujoin.StdAll
	}
	spec.Workers = max(1, spec.Workers)
	p, err := ujoin.NewProcesses(spec)
	ok(t, err)
	t.Cleanup(func() { ok(t, p.Close()) })
	return p
}

// finish starts a job and waits for its end.
func finish(t *testing.T, p *ujoin.Processes) error {
	t.Helper()
	ok(t, p.Start(within(t)))
	return p.Wait(within(t))
}

func result(t *testing.T, p *ujoin.Processes, rank int) ujoin.WorkerResult {
	t.Helper()
	r, err := p.Result(rank)
	ok(t, err)
	return r
}

func stdout(t *testing.T, p *ujoin.Processes, rank int) string {
	t.Helper()
	text, err := os.ReadFile(result(t, p, rank).StdoutPath)
	ok(t, err)
	return string(text)
}

// ------------------------------------------------------------------------------------------------------------- functions

func TestFunctionsAsWorkers(t *testing.T) {
	p := job(t, ujoin.Spec{Function: "describe", Args: []string{"a", "rank ${local_rank}"}, Workers: 2,
		StartMethod: ujoin.StartSpawn})
	ok(t, p.SetWorker(1, ujoin.Worker{Input: []byte("b\x00c")}))
	ok(t, finish(t, p))
	for rank, want := range []string{`0 of 2, ["a" "rank 0"], "", nested false`,
		`1 of 2, ["a" "rank 1"], "b\x00c", nested false`} {
		if r := result(t, p, rank); string(r.Value) != want || r.State != ujoin.WorkerExited || r.Message != "" {
			t.Errorf("%+v", r)
		}
	}
	for name, want := range map[string]int{"nothing": -1, "empty": 0, "large": 2 << 20} {
		p := job(t, ujoin.Spec{Function: name})
		ok(t, finish(t, p))
		if r := result(t, p, 0); (r.Value == nil) != (want <= 0) || r.Value != nil && len(r.Value) != want {
			t.Errorf("%s: %d bytes", name, len(r.Value))
		}
	}
}

func TestFunctionsThatCommunicate(t *testing.T) {
	p := job(t, ujoin.Spec{Function: "reduce", Args: []string{"file://" + filepath.Join(t.TempDir(), "meet")}, Workers: 3})
	ok(t, finish(t, p))
	for rank := range 3 {
		if value := string(result(t, p, rank).Value); value != "6" {
			t.Errorf("rank %d: %q", rank, value)
		}
	}
}

func TestFunctionsThatFail(t *testing.T) {
	for name, want := range map[string]struct {
		state   ujoin.WorkerState
		code    int
		message string
	}{
		"fail":  {ujoin.WorkerExited, 1, "enough of it"},
		"panic": {ujoin.WorkerExited, 1, "panic: too deep"},
		"exit":  {ujoin.WorkerNoValue, 0, ""},
		"none":  {ujoin.WorkerExited, 1, `no function "none"`},
	} {
		p := job(t, ujoin.Spec{Function: name})
		refused(t, finish(t, p), ujoin.ErrChildFailed, "0")
		r := result(t, p, 0)
		if r.State != want.state || r.ExitCode != want.code || !strings.Contains(r.Message, want.message) || !r.Failed ||
			r.Value != nil || r.FailedAt.IsZero() {
			t.Errorf("%s: %+v", name, r)
		}
		if name == "panic" && !strings.Contains(r.Message, "panicDeep") {
			t.Errorf("no stack in %s", r.Message)
		}
	}
}

func TestWhatAFunctionMayNotBe(t *testing.T) {
	nothing := workers["nothing"]
	refused(t, ujoin.Register("nothing", nothing), ujoin.ErrInvalid, "taken")
	refused(t, ujoin.Register("a:b", nothing), ujoin.ErrInvalid, ":")
	refused(t, ujoin.Register("nil", nil), ujoin.ErrInvalid, "nil")
	for _, method := range []ujoin.StartMethod{ujoin.StartFork, ujoin.StartForkserver} {
		_, err := ujoin.NewProcesses(ujoin.Spec{Function: "nothing", Workers: 1, StartMethod: method})
		refused(t, err, ujoin.ErrUnsupported, "threads")
	}
	_, err := ujoin.NewProcesses(ujoin.Spec{Function: "nothing", Program: "sh", Workers: 1})
	refused(t, err, ujoin.ErrInvalid, "function")
	if worker, code, err := ujoin.WorkerMain(); worker || code != 0 || err != nil {
		t.Fatalf("%v %d %v", worker, code, err)
	}
}

func TestRecordsOfFailures(t *testing.T) {
	for name, want := range map[string][3]string{
		"record":       {"enough of it", "", "5"},
		"record panic": {"panic: too deep", "panicDeep", "5"},
		"record text":  {"it was me", "line 7", "9"},
		"record child": {"it was me", "line 7", "5"},
	} {
		p := job(t, ujoin.Spec{Function: name, Args: []string{t.TempDir()}})
		refused(t, finish(t, p), ujoin.ErrChildFailed, "")
		r := result(t, p, 0)
		if r.Message != want[0] || !strings.Contains(r.Traceback, want[1]) || fmt.Sprint(r.ExitCode) != want[2] ||
			filepath.Base(r.ErrorPath) != "error.json" || !strings.Contains(p.Report(), want[0]) {
			t.Errorf("%s: %+v", name, r)
		}
	}
	p := job(t, ujoin.Spec{Function: "record text", NoErrorFile: true})
	refused(t, finish(t, p), ujoin.ErrChildFailed, "")
	if r := result(t, p, 0); r.ErrorPath != "" || r.ExitCode != 9 || strings.Contains(r.Message, "it was me") {
		t.Errorf("without a file: %+v", r)
	}
}

func TestRecordInAProgramThatIsNoWorker(t *testing.T) {
	ok(t, ujoin.Record(func() error { return nil }))
	ok(t, ujoin.RecordError("nobody", "", 0))
	err := ujoin.Record(func() error { return errEnough })
	refused(t, err, errEnough, "enough of it")
	refused(t, err, ujoin.ErrCallback, "")
	if value := raised(func() { _ = ujoin.Record(func() error { panic(errEnough) }) }); value != errEnough {
		t.Fatalf("raised %v", value)
	}
	refused(t, ujoin.Record(nil), ujoin.ErrInvalid, "nil")
}

// ---------------------------------------------------------------------------------------------------------------- output

func TestOutputGoesToAFunction(t *testing.T) {
	var mu sync.Mutex
	got := map[string]string{}
	p := job(t, ujoin.Spec{Program: "sh", Args: []string{"-c", "echo out ${local_rank}; echo err >&2"}, Workers: 2,
		LogDir: "/dev/null", Output: func(rank int, stream ujoin.Std, data []byte) error {
			mu.Lock()
			defer mu.Unlock()
			got[fmt.Sprint(rank, stream)] += string(data)
			return nil
		}})
	ok(t, finish(t, p))
	want := map[string]string{"0 1": "out 0\n", "0 2": "err\n", "1 1": "out 1\n", "1 2": "err\n"}
	if fmt.Sprint(got) != fmt.Sprint(want) {
		t.Fatalf("%q", got)
	}
}

func TestAnOutputFunctionThatFails(t *testing.T) {
	p := job(t, ujoin.Spec{Program: "echo", Args: []string{"x"}, LogDir: "/dev/null",
		Output: func(int, ujoin.Std, []byte) error { return errEnough }})
	err := finish(t, p)
	refused(t, err, errEnough, "enough of it")
	refused(t, err, ujoin.ErrCallback, "")
	calls := 0
	p = job(t, ujoin.Spec{Program: "echo", Args: []string{"x"}, LogDir: "/dev/null",
		Output: func(int, ujoin.Std, []byte) error {
			if calls++; calls == 1 {
				panic(errEnough)
			}
			return nil
		}})
	if value := raised(func() { _ = finish(t, p) }); value != errEnough {
		t.Fatalf("raised %v", value)
	}
}

func TestFiltersAndRotation(t *testing.T) {
	logs := t.TempDir()
	const script = "i=100; while [ $i -lt 1300 ]; do echo line $i; i=$((i+1)); done; echo keep this >&2; echo not that >&2"
	cmd := launcher("filter", script, logs)
	if text, err := cmd.Output(); err != nil || bytes.Count(text, []byte("\n")) != 2*1200 {
		t.Fatalf("%d bytes, %v", len(text), err)
	}
	attempt := filepath.Join(logs, "run", "attempt_0")
	for name, want := range map[string]int{"filtered_stdout.log": 11, "filtered_stderr.log": 1} {
		text, err := os.ReadFile(filepath.Join(attempt, name))
		if lines := bytes.Count(text, []byte("\n")); err != nil || lines != 2*want { // 770 to 779, 1299, of two workers
			t.Errorf("%s has %d lines: %v", name, lines, err)
		}
	}
	files, err := filepath.Glob(filepath.Join(attempt, "0", "stdout.log*"))
	if err != nil || len(files) != 3 { // 11,300 bytes
		t.Errorf("%v %v", files, err)
	}
	for _, file := range files {
		if info, err := os.Stat(file); err != nil || info.Size() > 4200 {
			t.Errorf("%v %v", info, err)
		}
	}
}

// launcher is this program again as a launcher, with a console of its own: it runs the script in two workers.
func launcher(policy, script, logs string) *exec.Cmd {
	cmd := exec.Command(os.Args[0], "-test.run=^TestHelperLauncher$")
	cmd.Env = append(os.Environ(), "UJOIN_TEST_LAUNCH="+policy, "UJOIN_TEST_SCRIPT="+script, "UJOIN_TEST_LOGS="+logs)
	return cmd
}

// TestHelperLauncher is the launcher; its stderr says how many lines of worker 0 were dropped.
func TestHelperLauncher(t *testing.T) {
	policy := os.Getenv("UJOIN_TEST_LAUNCH")
	if policy == "" {
		return
	}
	dropped, err := launchOnConsole(policy, os.Getenv("UJOIN_TEST_SCRIPT"), os.Getenv("UJOIN_TEST_LOGS"))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	fmt.Fprintln(os.Stderr, dropped)
	os.Exit(0)
}

func TestOneRankOnTheConsole(t *testing.T) {
	text, err := launcher("ranks", "echo hello", t.TempDir()).Output()
	if err != nil || string(text) != "inner/1> hello\n" {
		t.Fatalf("%q %v", text, err)
	}
}

// On a terminal prefixes are coloured, unless that is not wanted.
func TestColoursOfATerminal(t *testing.T) {
	for _, policy := range []string{"ranks", "plain"} {
		terminal, err := os.OpenFile("/dev/ptmx", os.O_RDWR, 0)
		ok(t, err)
		defer func() { _ = terminal.Close() }()
		number, unlock := uint32(0), uint32(0)
		for request, value := range map[uintptr]*uint32{syscall.TIOCGPTN: &number, syscall.TIOCSPTLCK: &unlock} {
			_, _, errno := syscall.Syscall(syscall.SYS_IOCTL, terminal.Fd(), request, uintptr(unsafe.Pointer(value)))
			if errno != 0 {
				t.Fatal(errno)
			}
		}
		console, err := os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
		ok(t, err)
		cmd := launcher(policy, "echo hello", t.TempDir())
		cmd.Env = slices.DeleteFunc(cmd.Env, func(v string) bool { return strings.HasPrefix(v, "NO_COLOR=") })
		cmd.Stdout = console
		ok(t, cmd.Run())
		buffer := make([]byte, 1000)
		n, err := terminal.Read(buffer)
		ok(t, err)
		ok(t, console.Close())
		text := string(buffer[:n])
		if !strings.Contains(text, "hello") || strings.Contains(text, "\x1b[") != (policy == "ranks") {
			t.Errorf("%s: %q", policy, text)
		}
	}
}

// A launcher whose console nobody reads until the workers have written all they have to say: it comes to the files, and
// the console gets what was kept.
func TestAConsoleThatIsSlow(t *testing.T) {
	const script = "i=0; while [ $i -lt 30000 ]; do echo $i 01234567890123456789012345678901234567890123456789012345678901; " +
		"i=$((i+1)); done"
	for _, policy := range []string{"drop", "spill"} {
		logs := t.TempDir()
		cmd := launcher(policy, script, logs)
		reader, writer, err := os.Pipe()
		ok(t, err)
		answer := &bytes.Buffer{}
		cmd.Stdout, cmd.Stderr = writer, answer
		ok(t, cmd.Start())
		t.Cleanup(func() { _ = cmd.Process.Kill() })
		ok(t, writer.Close())
		until(t, "the last line in the worker's file", func() bool {
			text, _ := os.ReadFile(filepath.Join(logs, "run", "attempt_0", "0", "stdout.log"))
			return bytes.Contains(text, []byte("\n29999 "))
		})
		text, err := io.ReadAll(reader)
		ok(t, err)
		if err := cmd.Wait(); err != nil {
			t.Fatalf("%s: %v %s", policy, err, answer)
		}
		dropped := strings.TrimSpace(answer.String())
		lines, noted := bytes.Count(text, []byte("\n")), bytes.Contains(text, []byte("left out"))
		if dropped == "0" || lines == 0 || lines >= 60000 || !noted {
			t.Errorf("%s: %d lines on the console, %s left out, noted %v", policy, lines, dropped, noted)
		}
	}
}

func TestTheReportAsJSON(t *testing.T) {
	p := job(t, ujoin.Spec{Name: "js", RunID: "one", Program: "sh", Args: []string{"-c", "kill -9 $$"}})
	refused(t, finish(t, p), ujoin.ErrChildFailed, "")
	var report struct {
		Name         string
		RunID        string `json:"run_id"`
		FirstFailure *int   `json:"first_failure"`
		Workers      []struct {
			Rank   int
			Signal string
		}
	}
	ok(t, json.Unmarshal([]byte(p.ReportJSON()), &report))
	if report.Name != "js" || report.RunID != "one" || *report.FirstFailure != 0 || report.Workers[0].Signal != "SIGKILL" {
		t.Fatal(p.ReportJSON())
	}
	ok(t, p.Close())
	if p.ReportJSON() != "" {
		t.Fatal("a closed object reports")
	}
}

// ------------------------------------------------------------------------------------------------ what workers are given

func TestStdin(t *testing.T) {
	file := filepath.Join(t.TempDir(), "in")
	ok(t, os.WriteFile(file, []byte("from a file"), 0o600))
	p := job(t, ujoin.Spec{Program: "cat", Workers: 4})
	ok(t, p.SetWorker(0, ujoin.Worker{Stdin: []byte("from\x00bytes")}))
	ok(t, p.SetWorker(1, ujoin.Worker{StdinPath: file}))
	ok(t, p.SetWorker(2, ujoin.Worker{StdinFrom: ujoin.StdinBytes, Stdin: []byte{}}))
	ok(t, finish(t, p))
	for rank, want := range []string{"from\x00bytes", "from a file", "", ""} {
		if text := stdout(t, p, rank); text != want {
			t.Errorf("rank %d: %q", rank, text)
		}
	}
	p = job(t, ujoin.Spec{Program: "cat", Workers: 2})
	ok(t, p.SetWorker(ujoin.AllWorkers, ujoin.Worker{StdinFrom: ujoin.StdinInherit}))
	refused(t, p.Start(within(t)), ujoin.ErrInvalid, "stdin")
}

func TestLimitsUmaskAndPrograms(t *testing.T) {
	umask := 0o027
	refused(t, job(t, ujoin.Spec{Workers: 2}).Start(within(t)), ujoin.ErrInvalid, "program")
	p := job(t, ujoin.Spec{Workers: 2})
	show := []string{"-c", "ulimit -n; ulimit -c; umask"}
	limits := map[string]float64{"nofile": 77, "core": 0}
	ok(t, p.SetWorker(0, ujoin.Worker{Program: "sh", Args: show, Limits: limits, Umask: &umask}))
	ok(t, p.SetWorker(1, ujoin.Worker{Program: "echo", Args: []string{"other"}}))
	ok(t, finish(t, p))
	if a, b := stdout(t, p, 0), stdout(t, p, 1); a != "77\n0\n0027\n" || b != "other\n" {
		t.Errorf("%q %q", a, b)
	}
	p = job(t, ujoin.Spec{Program: "true"})
	refused(t, p.SetWorker(0, ujoin.Worker{Limits: map[string]float64{"speed": math.Inf(1)}}), ujoin.ErrInvalid, "speed")
}

func TestPlacementOnProcessors(t *testing.T) {
	allowed := processors(t, "self")
	show := []string{"-c", "grep Cpus_allowed_list /proc/self/status"}
	p := job(t, ujoin.Spec{Program: "sh", Args: show, Binding: ujoin.BindingList})
	ok(t, p.SetWorker(0, ujoin.Worker{CPUs: allowed[len(allowed)-1:]}))
	ok(t, finish(t, p))
	if text := stdout(t, p, 0); !strings.HasSuffix(text, fmt.Sprintf("\t%d\n", allowed[len(allowed)-1])) {
		t.Errorf("list: %q", text)
	}
	for _, binding := range []ujoin.Binding{ujoin.BindingCompact, ujoin.BindingSpread} {
		p := job(t, ujoin.Spec{Program: "sleep", Args: []string{"1000"}, Workers: len(allowed), Binding: binding})
		ok(t, p.Start(within(t)))
		var all []int
		for rank := range len(allowed) {
			all = append(all, processors(t, fmt.Sprint(result(t, p, rank).PID))...)
		}
		slices.Sort(all)
		if !slices.Equal(all, allowed) { // one each
			t.Errorf("%v: %v of %v", binding, all, allowed)
		}
		ok(t, p.Stop(within(t), syscall.SIGKILL, ujoin.AtOnce))
	}
}

// processors that a process may use.
func processors(t *testing.T, pid string) []int {
	t.Helper()
	text, err := os.ReadFile("/proc/" + pid + "/status")
	ok(t, err)
	_, list, _ := strings.Cut(string(text), "Cpus_allowed_list:")
	list, _, _ = strings.Cut(strings.TrimSpace(list), "\n")
	var all []int
	for _, part := range strings.Split(list, ",") {
		var from, to int
		if n, _ := fmt.Sscanf(part, "%d-%d", &from, &to); n < 2 {
			to = from
		}
		for cpu := from; cpu <= to; cpu++ {
			all = append(all, cpu)
		}
	}
	return all
}
