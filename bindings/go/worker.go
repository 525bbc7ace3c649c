// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"fmt"
	"os"
	"runtime/debug"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// WorkerArgs is what a function worker is told.
type WorkerArgs struct {
	Args  []string // of the job or the worker
	Input []byte   // Worker.Input
	Rank  int      // its index
	Size  int      // the number of workers
}

// WorkerFunc is a function that runs in a process of its own. What it returns goes to the launcher (WorkerResult.Value; nil:
// nothing). An error or a panic is a failure, with exit code 1 and the text as WorkerResult.Message.
type WorkerFunc func(args WorkerArgs) ([]byte, error)

// Register gives a function a name, in the launcher and in its workers alike, before WorkerMain: in init or first in main.
// For the whole process. ErrInvalid: the name is taken, empty or has a ':'.
func Register(name string, run WorkerFunc) error {
	const op = "Register"
	if err := checkText(op, name); err != nil {
		return err
	}
	if run == nil {
		return failed(StatusInvalid, op, "the function is nil")
	}
	return errorOf(cujoin.PctxRegister(name, cujoin.NewHandle(cujoin.WorkerFunc(func(a cujoin.WorkerArgs) ([]byte, error) {
		_ = os.Unsetenv("UJOIN_WORKER") // Go keeps variables of its own: a child would think that it is a worker
		return runWorker(run, WorkerArgs{a.Args, a.Input, int(a.Rank), int(a.Size)})
	}), nil)), nil)
}

func runWorker(run WorkerFunc, args WorkerArgs) (value []byte, err error) {
	defer func() {
		if panicked := recover(); panicked != nil {
			err = fmt.Errorf("panic: %v\n\n%s", panicked, debug.Stack())
		}
	}()
	return run(args)
}

// WorkerMain comes first in main of a program that starts functions of its own (Spec.Function): the program is executed
// again for each worker, and this call runs the function there. worker false: this is no worker, go on. Else leave with the
// code; err says why no function has run, if none is known by that name, say.
//
//	if worker, code, err := ujoin.WorkerMain(); worker {
//		if err != nil {
//			log.Print(err)
//		}
//		os.Exit(code)
//	}
func WorkerMain() (worker bool, code int, err error) {
	out := new(int32)
	f := cujoin.PctxWorkerMain(unsafe.Pointer(out))
	if f == nil {
		return false, 0, nil
	}
	return true, int(*out), endPlain(f)
}

// Record runs a function and records its failure, an error or a panic, in the file that TORCHELASTIC_ERROR_FILE names, if
// any, where the launcher finds it: see WorkerResult.Message. If the error is ErrChildFailed from a Processes.Wait in this
// goroutine, the record of the worker that failed first becomes this process's own, with its exit code. Go's runtime owns
// the signals of crashes: they are panics here.
func Record(run func() error) error {
	if run == nil {
		return failed(StatusInvalid, "Record", "the function is nil")
	}
	stack := ""
	c := call{shared: new(cujoin.Call)}
	f := cujoin.Record(func() error {
		defer func() {
			if value := recover(); value != nil {
				stack = string(debug.Stack())
				panic(value)
			}
		}()
		return run()
	}, c.shared)
	if value := c.shared.Panic; value != nil {
		_ = RecordError(fmt.Sprintf("panic: %v", value), stack, 0)
	}
	return c.end(f)
}

// RecordError writes error.json for this worker: message, traceback (may be ""), error code (0 = none). Does nothing where
// TORCHELASTIC_ERROR_FILE is not set. A later record replaces an earlier one.
func RecordError(message, traceback string, code int) error {
	return errorOf(cujoin.PctxRecordError(withoutNUL(message), withoutNUL(traceback), code), nil)
}
