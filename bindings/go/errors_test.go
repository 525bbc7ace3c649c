// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"ujoin.dev/go"
)

func TestVersionAndBackends(t *testing.T) {
	want := fmt.Sprintf("%d.%d.%d", ujoin.VersionMajor, ujoin.VersionMinor, ujoin.VersionPatch)
	if ujoin.Version() != want || ujoin.LibraryABIVersion() < ujoin.ABIVersion {
		t.Fatalf("library %s with ABI %d, header %s with ABI %d", ujoin.Version(), ujoin.LibraryABIVersion(), want,
			ujoin.ABIVersion)
	}
	available := map[string]bool{}
	for _, backend := range ujoin.Backends() {
		available[backend.Name] = backend.Available
	}
	if !available["self"] || !available["local"] {
		t.Fatalf("backends are %v", ujoin.Backends())
	}
}

func TestErrorsAreOfTheirKindOnly(t *testing.T) {
	kinds := map[ujoin.Status]error{
		ujoin.StatusPending: ujoin.ErrPending, ujoin.StatusInvalid: ujoin.ErrInvalid, ujoin.StatusState: ujoin.ErrState,
		ujoin.StatusUnsupported: ujoin.ErrUnsupported, ujoin.StatusNoMemory: ujoin.ErrNoMemory,
		ujoin.StatusTimeout: ujoin.ErrTimeout, ujoin.StatusAborted: ujoin.ErrAborted,
		ujoin.StatusPeerLost: ujoin.ErrPeerLost, ujoin.StatusMismatch: ujoin.ErrMismatch,
		ujoin.StatusExhausted: ujoin.ErrExhausted, ujoin.StatusSystem: ujoin.ErrSystem,
		ujoin.StatusBackend: ujoin.ErrBackend, ujoin.StatusCallback: ujoin.ErrCallback,
		ujoin.StatusChildFailed: ujoin.ErrChildFailed, ujoin.StatusInternal: ujoin.ErrInternal,
	}
	for status := range kinds {
		err := error(&ujoin.Error{Status: status, Text: "what happened"})
		for other, kind := range kinds {
			if errors.Is(err, kind) != (other == status) {
				t.Errorf("errors.Is(%v, %v) is %v", status, kind, other != status)
			}
		}
		if errors.Is(err, context.DeadlineExceeded) != (status == ujoin.StatusTimeout) {
			t.Errorf("%v and context.DeadlineExceeded", status)
		}
		if !strings.Contains(kinds[status].Error(), status.String()) || !strings.HasPrefix(status.String(), "UJOIN_") {
			t.Errorf("%d is called %q", status, kinds[status])
		}
	}
}

func TestSystemErrorsHaveTheirErrno(t *testing.T) {
	_, err := ujoin.NewStore(within(t), "file://"+filepath.Join(t.TempDir(), "none", "store"), nil)
	refused(t, err, ujoin.ErrSystem, "none")
	refused(t, err, syscall.ENOENT, "No such file")
	if e := (*ujoin.Error)(nil); !errors.As(err, &e) || e.Errno != syscall.ENOENT || e.Status != ujoin.StatusSystem {
		t.Fatalf("%#v", err)
	}
}

// Each goroutine may change its thread between two calls, so status and text must come in one.
func TestEachGoroutineGetsItsOwnText(t *testing.T) {
	var done sync.WaitGroup
	for goroutine := range 16 {
		g := alone(t)
		done.Add(1)
		go func() {
			defer done.Done()
			for i := range 2000 {
				root := 1000 + goroutine*2000 + i
				err := ujoin.Broadcast(context.Background(), g, []float32{1}, root)
				if problem := differs(err, ujoin.ErrInvalid, fmt.Sprintf("root is %d;", root)); problem != nil {
					t.Error(problem)
					return
				}
			}
		}()
	}
	done.Wait()
}

func TestWrongArgumentsHaveTheLibrarysText(t *testing.T) {
	ctx, g := within(t), alone(t)
	x := []float32{1, 2}
	refused(t, ujoin.AllReduce(ctx, g, x[:1], x, ujoin.Sum), ujoin.ErrInvalid, "send.count is 1; expected 2")
	refused(t, ujoin.AllReduce(ctx, g, nil, x, 9), ujoin.ErrInvalid, "reduce is 9")
	refused(t, ujoin.ReduceScatter(ctx, g, nil, x, ujoin.Sum), ujoin.ErrInvalid, "send.count is 0; expected 2")
	refused(t, ujoin.AllGather(ctx, g, x, x[:1]), ujoin.ErrInvalid, "send.count is 2; expected 1")
	_, err := ujoin.NewGroup(ctx, &ujoin.GroupOptions{Backend: "pigeon", WorldSize: 1})
	refused(t, err, ujoin.ErrUnsupported, "pigeon")
	_, err = ujoin.NewDDP(g, nil, nil)
	refused(t, err, ujoin.ErrInvalid, "nothing to train")
	_, err = ujoin.NewDDP(g, []ujoin.Param{ujoin.NewParam("w", x, nil)}, nil)
	refused(t, err, ujoin.ErrInvalid, `params[0] ("w").grad is NULL`)
	_, err = ujoin.NewDDP(g, []ujoin.Param{ujoin.NewParam("w", x, x, 3)}, nil)
	refused(t, err, ujoin.ErrInvalid, "its shape [3] has 3 elements")
	_, err = ujoin.NewZero(g, ujoin.SGD{}, []ujoin.Param{ujoin.NewParam("w", x, x), ujoin.NewParam("w", x, x)}, nil)
	refused(t, err, ujoin.ErrInvalid, `"w"`)
	_, err = ujoin.NewZero(g, ujoin.SGD{}, []ujoin.Param{ujoin.NewParam("w", x, x)},
		&ujoin.ZeroOptions{Hyper: map[string]float64{"speed": 1}})
	refused(t, err, ujoin.ErrInvalid, "speed")
	_, err = ujoin.NewJoin(nil, nil)
	refused(t, err, ujoin.ErrInvalid, "empty")
	_, err = ujoin.NewProcesses(ujoin.Spec{Program: "true"})
	refused(t, err, ujoin.ErrInvalid, "nprocs")
}

func TestWhatGoCanSeeIsRefusedInGo(t *testing.T) {
	ctx, g := within(t), alone(t)
	_, err := ujoin.NewStore(ctx, "memory://a\x00b", nil)
	refused(t, err, ujoin.ErrInvalid, `a\0b`)
	_, err = ujoin.NewJoinable(g, nil, nil)
	refused(t, err, ujoin.ErrInvalid, "hook is nil")
	_, err = ujoin.NewJoin([]ujoin.Joinable{nil}, nil)
	refused(t, err, ujoin.ErrInvalid, "joinables[0] is nil")
	_, err = ujoin.NewZero(g, nil, nil, nil)
	refused(t, err, ujoin.ErrInvalid, "rule is nil")
	_, err = ujoin.NewProcesses(ujoin.Spec{Program: "true", Workers: 1, Args: []string{"\x00"}})
	refused(t, err, ujoin.ErrInvalid, "NUL")
	value := raised(func() { ujoin.NewParam("w", make([]float32, 2), make([]float32, 3)) })
	if text := fmt.Sprint(value); !strings.Contains(text, `"w" has 2 elements, its gradient 3`) {
		t.Fatalf("NewParam panicked with %v", value)
	}
}

func TestAfterCloseCallsAreRefused(t *testing.T) {
	ctx, g := within(t), alone(t)
	w := []float32{1}
	params := []ujoin.Param{ujoin.NewParam("w", w, []float32{1})}
	ddp, err := ujoin.NewDDP(g, params, nil)
	ok(t, err)
	zero, err := ujoin.NewZero(g, ujoin.SGD{}, params, nil)
	ok(t, err)
	join, err := ujoin.NewJoin([]ujoin.Joinable{ddp, zero}, nil)
	ok(t, err)
	state, err := ujoin.NewState()
	ok(t, err)
	store, err := ujoin.NewStore(ctx, "memory://"+t.Name(), nil)
	ok(t, err)
	for _, closer := range []interface{ Close() error }{ddp, zero, join, state, store, g} {
		ok(t, closer.Close())
		ok(t, closer.Close()) // twice
	}
	refused(t, ddp.Forward(ctx, 1), ujoin.ErrState, "DDP.Forward: the DDP is closed")
	refused(t, ddp.Ready(0), ujoin.ErrState, "closed")
	refused(t, zero.Step(), ujoin.ErrState, "closed")
	refused(t, join.Start(), ujoin.ErrState, "closed")
	refused(t, join.Stop(), ujoin.ErrState, "closed")
	refused(t, state.SetNumber("a", 1), ujoin.ErrState, "closed")
	refused(t, store.Set(ctx, "a", nil), ujoin.ErrState, "closed")
	refused(t, g.Barrier(ctx), ujoin.ErrState, "closed")
	_, err = ujoin.NewDDP(g, params, nil)
	refused(t, err, ujoin.ErrState, "closed")
	join.Abort("")
	g.Abort("")
	store.Abort()
	if zero.Groups() != 0 || state.Len() != 0 || store.URL() != "" || zero.HyperNames() != nil {
		t.Fatal("a closed object answers")
	}
}

// One call at a time per object: the second is told so, and the first is not disturbed.
func TestTwoCallsAtOnceAreRefused(t *testing.T) {
	seen := make(chan struct{})
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		if g.Rank() == 1 {
			<-seen // so rank 0 is in its barrier until then
			return g.Barrier(ctx)
		}
		defer close(seen)
		inside := make(chan error, 1)
		go func() {
			err := g.Barrier(ctx)
			for errors.Is(err, ujoin.ErrState) { // refused itself, because of the call below
				err = g.Barrier(ctx)
			}
			inside <- err
		}()
		for ctx.Err() == nil {
			err := ujoin.Broadcast(ctx, g, []float32{}, 7) // wrong anyway
			if differs(err, ujoin.ErrState, "Broadcast: the group is in another call; one at a time") == nil {
				seen <- struct{}{}
				return <-inside
			}
		}
		return ctx.Err()
	})
}

func TestAnOlderLibraryIsRefused(t *testing.T) {
	ok(t, ujoin.CheckABIForTest(ujoin.ABIVersion+1))
	if err := ujoin.CheckABIForTest(ujoin.ABIVersion - 1); err == nil || !strings.Contains(err.Error(), "install a newer") {
		t.Fatal(err)
	}
}
