// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"ujoin.dev/go"
)

var errEnough = errors.New("enough of it")

// soon is a context with a deadline that is meant to pass.
func soon() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), 50*time.Millisecond)
}

// cancelled is a context that is cancelled when the call that it is given to has begun, as far as one can tell.
func cancelled() context.Context {
	ctx, cancel := context.WithCancelCause(context.Background())
	time.AfterFunc(30*time.Millisecond, func() { cancel(errEnough) })
	return ctx
}

func isCancelled(err error, kinds ...error) error {
	for _, kind := range append(kinds, context.Canceled, errEnough) {
		if !errors.Is(err, kind) {
			return fmt.Errorf("is not %v: %w", kind, err)
		}
	}
	return nil
}

func TestADeadlineIsTheOperationsAndNamesWhoIsMissing(t *testing.T) {
	left := make(chan struct{})
	ranks(t, 2, func(_ context.Context, g *ujoin.Group) error {
		if g.Rank() == 1 {
			<-left // never comes to the barrier
			return nil
		}
		defer close(left)
		ctx, cancel := soon()
		defer cancel()
		err := g.Barrier(ctx)
		if e := (*ujoin.Error)(nil); !errors.As(err, &e) || !slices.Equal(e.Ranks, []int{1}) {
			return fmt.Errorf("who is missing: %w", err)
		}
		return errors.Join(differs(err, ujoin.ErrTimeout, "rank 1"), differs(err, context.DeadlineExceeded, ""))
	})
}

func TestCancellingACollectiveAbortsItEverywhere(t *testing.T) {
	left := make(chan struct{})
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		if g.Rank() == 0 {
			defer close(left)
			if problem := isCancelled(g.Barrier(cancelled()), ujoin.ErrCallback); problem != nil {
				return problem
			}
			return differs(g.Barrier(ctx), ujoin.ErrCallback, "the group is broken")
		}
		<-left
		err := g.Barrier(ctx)
		for err == nil { // rank 0 had come to the first one
			err = g.Barrier(ctx)
		}
		return differs(err, ujoin.ErrAborted, "rank 0")
	})
}

func TestADoneContextBeginsNothing(t *testing.T) {
	ctx, cancel := context.WithCancelCause(context.Background())
	cancel(errEnough)
	g := alone(t)
	for name, err := range map[string]error{
		"barrier": g.Barrier(ctx),
		"forward": func() error { _, err := ujoin.NewDDPContext(ctx, g, nil, nil); return err }(),
		"group":   func() error { _, err := ujoin.NewGroup(ctx, nil); return err }(),
		"join":    (&ujoin.JoinContext{}).Run(ctx, nil),
	} {
		if problem := errors.Join(isCancelled(err), differs(err, ujoin.ErrPending, "not begun")); problem != nil {
			t.Errorf("%s: %v", name, problem)
		}
	}
	ok(t, g.Barrier(within(t)))
}

func TestAWaitThatRanOutLeavesTheWorkAlive(t *testing.T) {
	late := make(chan struct{})
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		if g.Rank() == 1 {
			<-late
		}
		work, err := ujoin.AllReduceAsync(ctx, g, nil, []float32{1}, ujoin.Sum)
		if err != nil {
			return err
		}
		if g.Rank() == 0 {
			defer func() { _ = work.Close() }()
			if done, err := work.Test(); done || err != nil {
				return fmt.Errorf("test: %v %w", done, err)
			}
			short, cancel := soon()
			defer cancel()
			_, err = work.Wait(short)
			if problem := errors.Join(differs(err, ujoin.ErrPending, ""), differs(err, context.DeadlineExceeded, "")); problem != nil {
				return problem
			}
			if errors.Is(err, ujoin.ErrTimeout) {
				return fmt.Errorf("the operation is not dead: %w", err)
			}
			_, err = work.Wait(cancelled())
			if problem := isCancelled(err, ujoin.ErrPending); problem != nil {
				return problem
			}
			close(late)
		}
		sum, err := work.Wait(ctx)
		if err != nil || sum[0] != 2 {
			return fmt.Errorf("%v %w", sum, err)
		}
		return nil
	})
}

func TestMakingAGroupCanBeGivenUp(t *testing.T) {
	ctx, cancel := soon()
	defer cancel()
	_, err := member(ctx, place(t), 1, 3)
	refused(t, err, ujoin.ErrTimeout, "ranks 0, 2 did not come")
	refused(t, err, context.DeadlineExceeded, "")
	_, err = member(cancelled(), place(t), 0, 2)
	ok(t, isCancelled(err, ujoin.ErrCallback))
	_, err = ujoin.NewGroup(within(t), &ujoin.GroupOptions{Rendezvous: place(t), Backend: "local", WorldSize: 2,
		RendezvousTimeout: 30 * time.Millisecond})
	refused(t, err, ujoin.ErrTimeout, "")
}

func TestShutdownWaitsForAllAndCanBeRepeated(t *testing.T) {
	late := make(chan struct{})
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		if g.Rank() == 1 {
			<-late
			return g.Shutdown(ctx)
		}
		short, cancel := soon()
		defer cancel()
		err := g.Shutdown(short)
		close(late)
		if problem := errors.Join(differs(err, ujoin.ErrPending, ""), differs(err, context.DeadlineExceeded, "")); problem != nil {
			return problem
		}
		if err := g.Shutdown(ctx); err != nil {
			return err
		}
		return differs(g.Barrier(ctx), ujoin.ErrState, "")
	})
}

func TestACancelledJoinEndsOnAllRanks(t *testing.T) {
	for rank, err := range results(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		w, grad := []float32{1}, []float32{1}
		ddp, err := ujoin.NewDDP(g, []ujoin.Param{ujoin.NewParam("w", w, grad)}, nil)
		if err != nil {
			return err
		}
		if g.Rank() == 0 {
			ctx = cancelled()
		}
		return ujoin.Join(ctx, []ujoin.Joinable{ddp}, nil, func() error {
			for {
				if err := ddp.Iteration(1, func(ready func(int)) error { ready(0); return nil }); err != nil {
					return err
				}
			}
		})
	}) {
		problem := differs(err, ujoin.ErrAborted, "enough of it")
		if rank == 0 {
			problem = errors.Join(problem, isCancelled(err))
		}
		if problem != nil {
			t.Errorf("rank %d: %v", rank, problem)
		}
	}
}

func TestACallThatWaitsInTheReducerCanBeCancelled(t *testing.T) {
	left := make(chan struct{})
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		w, grad := []float32{1}, []float32{1}
		params := []ujoin.Param{ujoin.NewParam("w", w, grad)}
		ddp, err := ujoin.NewDDPContext(ctx, g, params, nil)
		if err != nil {
			return err
		}
		zero, err := ujoin.NewZeroContext(ctx, g, ujoin.SGD{}, params, nil)
		if err != nil {
			return err
		}
		if g.Rank() == 1 {
			<-left
			for err == nil { // what rank 0 had brought before it gave up may still count
				err = ddp.IterationContext(ctx, 1, func(ready func(int)) error { ready(0); return nil })
			}
			return differs(err, ujoin.ErrAborted, "rank 0")
		}
		defer close(left)
		err = ddp.IterationContext(cancelled(), 1, func(ready func(int)) error { ready(0); return nil })
		if problem := isCancelled(err); problem != nil {
			return problem
		}
		return differs(zero.StepContext(ctx), ujoin.ErrAborted, "the group is broken")
	})
}

func TestTheInterruptCheckEndsCallsAndItsPanicIsRaised(t *testing.T) {
	t.Cleanup(func() { ok(t, ujoin.SetInterruptCheck(nil)) })
	ok(t, ujoin.SetInterruptCheck(func() error { return errEnough }))
	_, err := member(context.Background(), place(t), 0, 2)
	refused(t, err, errEnough, "enough of it")
	refused(t, err, ujoin.ErrCallback, "")
	ok(t, ujoin.SetInterruptCheck(func() error { panic("no more") }))
	where := place(t)
	if value := raised(func() { _, _ = member(context.Background(), where, 0, 2) }); value != "no more" {
		t.Fatalf("raised %v", value)
	}
	ok(t, ujoin.SetInterruptCheck(nil))
	ok(t, alone(t).Barrier(within(t)))
}
