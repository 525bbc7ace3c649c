// SPDX-License-Identifier: Apache-2.0

// Package ujoin trains data-parallel models from Go: join contexts for uneven inputs, gradient reduction, sharded
// optimizers, collectives and worker processes, by the library libujoin.
//
//	group, err := ujoin.NewGroup(ctx, nil)
//	defer group.Close()
//	ddp, err := ujoin.NewDDP(group, params, &ujoin.DDPOptions{Division: ujoin.BySamples})
//	opt, err := ujoin.NewZero(group, ujoin.AdamW{LR: 3e-4}, params, nil)
//	err = ujoin.Join(ctx, []ujoin.Joinable{ddp, opt}, nil, func() error {
//		for b := range batches {
//			if err := ddp.Iteration(b.Samples, func(ready func(i int)) error { return backward(b, ready) }); err != nil {
//				return err
//			}
//			if err := opt.Step(); err != nil {
//				return err
//			}
//		}
//		return nil
//	})
//
// # Building
//
// The package uses cgo and finds libujoin by pkg-config (PKG_CONFIG_PATH for an unusual place); the program needs it at
// run time in the loader's path (LD_LIBRARY_PATH or ldconfig). With the build tag ujoin_static libujoin, libuv and the
// C++ library are linked into the program. With CGO_ENABLED=0 Go says "build constraints exclude all Go files": there is
// no version without cgo. After libujoin has moved, `go clean -cache`: the build cache does not notice.
//
// # Collective calls
//
// "Collective" means: every rank of the group makes this call, in the same order. A rank that leaves one out lets the
// others wait, until their deadline or until this rank closes its group.
//
// # Contexts
//
// Calls that may wait take a context.Context (or have a variant ...Context that does). Its end means one of two things:
//
//   - A wait (Work.Wait, Processes.Wait, Store.Get, Store.Wait, Group.Shutdown) gives up, and what it waited for lives on:
//     the error is ErrPending and the context's own. A store whose call was cancelled in the middle of an exchange with a
//     server cannot be used any more.
//   - Any other call is given up as by Group.Abort: it fails here and on the other ranks, and its group is broken. The
//     error is ErrCallback or ErrAborted and the context's own. The deadline of a context becomes the deadline of a
//     collective: ErrTimeout, with the missing ranks; it is also context.DeadlineExceeded.
//
// A call whose context is done already does nothing and returns its error. Cancellation is noticed within a tenth of a
// second. The first call with a context that can end installs the process's interrupt check of the library.
//
// # Memory
//
// Slices are used where they lie, without a copy. Those of a DDP, a Zero or work in flight are pinned until the library
// says that it is done with them, whatever becomes of the Go objects. Do not touch memory of work in flight. What Gradient
// (with BucketView), BucketData and RuleArrays give is not Go's memory: it is gone with the DDP, or after the hook's call.
//
// # Goroutines
//
// Objects may be used from any goroutine, by one call at a time: a second one gets ErrState. Free of that are the methods
// Abort, Kill, Test, Contributors, Stop, Ready, Signal, Gradient, and the getters without an error. Close may be called
// at any time and twice; what is in use is closed at the end of the call.
//
// # Callbacks
//
// Hooks, rules, closures and output functions run on the goroutine of the call that runs them. An error they return
// is wrapped by that call's error; a panic ends the call on all ranks, and goes on out of that call with the same value.
// runtime.Goexit (testing's FailNow) in a callback ends the program: C functions are on the stack. What a callback refers to
// lives as long as its object; an object that its own callback refers to is not found by the collector: close it.
//
// # Functions as workers
//
// Processes run programs, and functions of this program, each in a process of its own: name them with Register, and call
// WorkerMain first in main. The program is executed again for each worker. A fork cannot be had: Go's threads are lost.
package ujoin
