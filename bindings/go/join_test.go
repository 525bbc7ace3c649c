// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"testing"

	"ujoin.dev/go"
)

// model is one parameter of two elements under plain SGD with a learning rate of 1.
type model struct {
	w, grad []float64
	ddp     *ujoin.DDP
	zero    *ujoin.Zero
}

func newModel(g *ujoin.Group, options *ujoin.DDPOptions) (*model, error) {
	m := &model{w: []float64{float64(g.Rank()), 5}, grad: make([]float64, 2)}
	params := []ujoin.Param{ujoin.NewParam("w", m.w, m.grad)}
	var err1, err2 error
	m.ddp, err1 = ujoin.NewDDP(g, params, options)
	m.zero, err2 = ujoin.NewZero(g, ujoin.SGD{LR: 1}, params, nil)
	return m, errors.Join(err1, err2)
}

func (m *model) joinables() []ujoin.Joinable { return []ujoin.Joinable{m.ddp, m.zero} }

// round is one iteration with this gradient everywhere, and one step.
func (m *model) round(samples int, gradient float64) error {
	err := m.ddp.Iteration(samples, func(ready func(int)) error {
		m.grad[0], m.grad[1] = gradient, gradient
		ready(0)
		return nil
	})
	if err != nil {
		return err
	}
	return m.zero.Step()
}

// Rank r of 3 has 1 + 2 r rounds of r + 1 samples, whose gradients are r + 1: the result is that of one process.
func TestUnevenInputsGiveTheNumbersOfOneProcess(t *testing.T) {
	ranks(t, 3, func(ctx context.Context, g *ujoin.Group) error {
		m, err := newModel(g, &ujoin.DDPOptions{Division: ujoin.BySamples})
		if err != nil {
			return err
		}
		join, err := ujoin.NewJoin(m.joinables(), nil)
		if err != nil {
			return err
		}
		err = join.Run(ctx, func() error {
			for range 1 + 2*g.Rank() {
				if err := m.round(g.Rank()+1, float64(g.Rank()+1)); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		want := 0.0 // rank 0's value
		for round := range 5 {
			sum, samples := 0.0, 0.0
			for rank := range 3 {
				if n := float64(rank + 1); round < 1+2*rank {
					sum, samples = sum+n*n, samples+n
				}
			}
			want -= sum / samples
		}
		if !near(m.w[0], want) || !near(m.w[1], want+5) {
			return fmt.Errorf("w is %v, not %g", m.w, want)
		}
		return reportsOf(m, join, g)
	})
}

func reportsOf(m *model, join *ujoin.JoinContext, g *ujoin.Group) error {
	report, err1 := join.Report()
	rounds, err2 := join.Rounds()
	reduced, err3 := m.ddp.Report()
	if err := errors.Join(err1, err2, err3); err != nil {
		return err
	}
	own := int64(1 + 2*g.Rank())
	if report.Rounds != own || report.ShadowRounds != 5-own || report.ShadowUses != 2*(5-own) || report.Joined != 3 ||
		report.LastJoiner != (g.Rank() == 2) || report.AuthoritativeRank != 2 || report.Stopped {
		return fmt.Errorf("join: %+v", report)
	}
	if !slices.Equal(rounds, []int64{1, 3, 5}) {
		return fmt.Errorf("rounds: %v", rounds)
	}
	if reduced.Samples != 3 || reduced.Divisor != 3 || reduced.Buckets != 1 || !reduced.JoinedUneven {
		return fmt.Errorf("ddp: %+v", reduced)
	}
	return nil
}

// metric is a joinable of the program's own: a sum over all ranks in each round.
type metric struct {
	g          *ujoin.Group
	main, post int
	told       []ujoin.HookArgs
	joinable   *ujoin.CustomJoinable
	joined     bool
}

func (m *metric) MainHook(args ujoin.HookArgs) error {
	m.main++
	m.told = append(m.told, args)
	var err error
	if _, m.joined, err = m.joinable.NotifyActive(context.Background()); err != nil {
		return err
	}
	return ujoin.AllReduce(context.Background(), m.g, nil, []float64{100}, ujoin.Sum) // a shadow contributes nothing
}

func (m *metric) PostHook(args ujoin.HookArgs) error {
	m.post++
	m.told = append(m.told, args)
	return nil
}

func TestAJoinableOfTheProgramsOwn(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		m := &metric{g: g}
		var err error
		m.joinable, err = ujoin.NewJoinable(g, m, &ujoin.JoinableOptions{Name: "metric", Options: []string{"depth"}})
		if err != nil {
			return err
		}
		defer func() { _ = m.joinable.Close() }()
		_, err = ujoin.NewJoin([]ujoin.Joinable{m.joinable}, &ujoin.JoinOptions{HookOptions: map[string]float64{"width": 1}})
		if problem := differs(err, ujoin.ErrInvalid, "depth"); problem != nil {
			return problem
		}
		options := &ujoin.JoinOptions{HookOptions: map[string]float64{"depth": 7}}
		err = ujoin.Join(ctx, []ujoin.Joinable{m.joinable}, options, func() error {
			for round := range 1 + 2*g.Rank() {
				active, joined, err := m.joinable.NotifyActive(ctx)
				sum := []float64{1}
				if err = errors.Join(err, ujoin.AllReduce(ctx, g, nil, sum, ujoin.Sum)); err != nil {
					return err
				}
				want := 2
				if round > 0 {
					want = 1
				}
				if active != want || joined || sum[0] != float64(want) {
					return fmt.Errorf("round %d: %d active, joined %v, sum %g", round, active, joined, sum[0])
				}
			}
			return nil
		})
		if err != nil {
			return err
		}
		if m.post != 1 || m.main != 2*(1-g.Rank()) || m.joined != (g.Rank() == 0) {
			return fmt.Errorf("hooks ran %d and %d times, joined %v", m.main, m.post, m.joined)
		}
		last := m.told[len(m.told)-1]
		if last.AuthoritativeRank != 1 || last.LastJoiner != (g.Rank() == 1) || last.Active != 0 || last.Options["depth"] != 7 {
			return fmt.Errorf("post hook: %+v", last)
		}
		if g.Rank() == 0 && (m.told[0].AuthoritativeRank != -1 || m.told[0].Active != 1 || m.told[1].Round != 2) {
			return fmt.Errorf("main hooks: %+v", m.told)
		}
		joined, err := m.joinable.Notify(ctx) // no armed context
		if joined {
			err = errors.Join(err, errors.New("joined without a context"))
		}
		return err
	})
}

// withHook lets rank 0 shadow rank 1, in a hook that does something.
func withHook(t *testing.T, hook func(ujoin.HookArgs) error, finish func(rank int, j *ujoin.JoinContext) error) {
	t.Helper()
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		joinable, err := ujoin.NewJoinable(g, ujoin.HookFuncs{Main: hook}, nil)
		if err != nil {
			return err
		}
		defer func() { _ = joinable.Close() }()
		join, err := ujoin.NewJoin([]ujoin.Joinable{joinable}, nil)
		if err != nil {
			return err
		}
		defer func() { _ = join.Close() }()
		if err := join.Start(); err != nil {
			return err
		}
		for range g.Rank() {
			if _, err := joinable.Notify(ctx); err != nil {
				return err
			}
		}
		return finish(g.Rank(), join)
	})
}

func TestAHooksErrorEndsAllRanksAndIsWrapped(t *testing.T) {
	withHook(t, func(ujoin.HookArgs) error { return fmt.Errorf("the metric: %w", errEnough) },
		func(rank int, j *ujoin.JoinContext) error {
			err := j.Finish(context.Background())
			if rank == 0 {
				return errors.Join(differs(err, ujoin.ErrCallback, "the metric: enough of it"), differs(err, errEnough, "hook"))
			}
			return errors.Join(differs(err, ujoin.ErrAborted, "the metric: enough of it"), differs(err, ujoin.ErrAborted, "rank 0"))
		})
}

func TestAHooksPanicIsRaisedByFinishAndPeersAreTold(t *testing.T) {
	withHook(t, func(ujoin.HookArgs) error { panic(errEnough) }, func(rank int, j *ujoin.JoinContext) error {
		var err error
		value := raised(func() { err = j.Finish(context.Background()) })
		if rank == 0 && value != errEnough {
			return fmt.Errorf("raised %v, returned %w", value, err)
		}
		if rank == 1 {
			return differs(err, ujoin.ErrAborted, "panic: enough of it")
		}
		return nil
	})
}

func deep(n int) int {
	var room [128]int
	room[n%128] = n
	if n > 0 {
		room[0] += deep(n - 1)
	}
	return room[0] + room[n%128]
}

// The goroutine's stack is moved while a C function that it called is on the way.
func TestAHookMayGrowItsStack(t *testing.T) {
	want := deep(20000)
	withHook(t, func(ujoin.HookArgs) error {
		if got := deep(20000); got != want {
			return fmt.Errorf("%d, not %d", got, want)
		}
		runtime.GC()
		return nil
	}, func(_ int, j *ujoin.JoinContext) error {
		local := [3]int{1, 2, 3} // on the stack that moves
		if err := j.Finish(context.Background()); err != nil {
			return err
		}
		if local != [3]int{1, 2, 3} {
			return fmt.Errorf("the stack is %v", local)
		}
		return nil
	})
}

func TestTheBodysErrorAndPanicAbortTheContext(t *testing.T) {
	for rank, err := range results(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		m, err := newModel(g, nil)
		if err != nil {
			return err
		}
		return ujoin.Join(ctx, m.joinables(), nil, func() error {
			if g.Rank() == 1 {
				return errEnough
			}
			return nil
		})
	}) {
		if rank == 1 && err != errEnough {
			t.Errorf("rank 1: %v", err)
		}
		if problem := differs(err, ujoin.ErrAborted, "enough of it"); rank == 0 && problem != nil {
			t.Errorf("rank 0: %v", problem)
		}
	}
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		m, err := newModel(g, nil)
		if err != nil {
			return err
		}
		value := raised(func() {
			err = ujoin.Join(ctx, m.joinables(), nil, func() error {
				if g.Rank() == 1 {
					panic("oh")
				}
				return nil
			})
		})
		if g.Rank() == 1 && value != "oh" {
			return fmt.Errorf("raised %v", value)
		}
		if g.Rank() == 0 {
			return differs(err, ujoin.ErrAborted, "panicked")
		}
		return nil
	})
}

func TestThrowModeEndsAllAtTheSameUseAndLeavesTheGroupWhole(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		m, err := newModel(g, nil)
		if err != nil {
			return err
		}
		rounds := 0
		err = ujoin.Join(ctx, m.joinables(), &ujoin.JoinOptions{ThrowOnExhausted: true}, func() error {
			for range 2 + 3*g.Rank() {
				if err := m.round(1, 1); err != nil {
					return err
				}
				rounds++
			}
			return nil
		})
		if problem := differs(err, ujoin.ErrExhausted, "rank 0"); problem != nil {
			return problem
		}
		if e := (*ujoin.Error)(nil); !errors.As(err, &e) || !slices.Equal(e.Ranks, []int{0}) || rounds != 2 {
			return fmt.Errorf("after %d rounds: ranks of %w", rounds, err)
		}
		return g.Barrier(ctx)
	})
}

func TestAnAgreedStopEndsAllAfterTheSameRound(t *testing.T) {
	rounds := make([]int, 2)
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		m, err := newModel(g, nil)
		if err != nil {
			return err
		}
		join, err := ujoin.NewJoin(m.joinables(), nil)
		if err != nil {
			return err
		}
		defer func() { _ = join.Close() }()
		err = join.Run(ctx, func() error {
			for stopped := false; !stopped; rounds[g.Rank()]++ {
				if g.Rank() == 1 && rounds[1] == 3 {
					if err := join.Stop(); err != nil {
						return err
					}
				}
				err := m.round(1, 1)
				if err != nil {
					return err
				}
				if stopped, err = join.Stopped(ctx); err != nil {
					return err
				}
			}
			return nil
		})
		report, err2 := join.Report()
		if !report.Stopped {
			return fmt.Errorf("%+v %w", report, errors.Join(err, err2))
		}
		return errors.Join(err, err2)
	})
	if rounds[0] != rounds[1] || rounds[0] < 4 {
		t.Fatalf("the ranks ran %v rounds", rounds)
	}
}

func TestDisabledAndStrict(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		m, err := newModel(g, nil)
		if err != nil {
			return err
		}
		if err := ujoin.Join(ctx, m.joinables(), &ujoin.JoinOptions{Disabled: true}, func() error { return m.round(1, 1) }); err != nil {
			return err
		}
		return ujoin.Join(ctx, m.joinables(), &ujoin.JoinOptions{Strict: true, IdleTimeout: patience}, func() error {
			for range 1 + g.Rank() {
				if err := m.round(1, 1); err != nil {
					return err
				}
			}
			return nil
		})
	})
	ranks(t, 1, func(ctx context.Context, g *ujoin.Group) error {
		m, err := newModel(g, nil)
		if err != nil {
			return err
		}
		join, err := ujoin.NewJoin(m.joinables(), nil)
		if err != nil {
			return err
		}
		if err := differs(join.Finish(ctx), ujoin.ErrState, "not started"); err != nil {
			return err
		}
		join.Abort("nothing is armed")
		return errors.Join(join.Start(), join.Finish(ctx), join.Close())
	})
}

func TestAnIterationThatGoesWrong(t *testing.T) {
	ranks(t, 1, func(ctx context.Context, g *ujoin.Group) error {
		w, grad := []float32{1}, []float32{1}
		ddp, err := ujoin.NewDDP(g, []ujoin.Param{ujoin.NewParam("w", w, grad)}, nil)
		if err != nil {
			return err
		}
		twice := ddp.Iteration(1, func(ready func(int)) error { ready(0); ready(0); ready(9); return nil })
		if problem := differs(twice, ujoin.ErrState, "ujoin_ddp_ready"); problem != nil {
			return problem
		}
		if err := ddp.Finish(ctx); err != nil {
			return err
		}
		if err := ddp.Iteration(1, func(func(int)) error { return errEnough }); err != errEnough {
			return fmt.Errorf("body: %w", err)
		}
		if problem := differs(ddp.Forward(ctx, 1), ujoin.ErrState, "w"); problem != nil {
			return problem
		}
		if problem := differs(ddp.Finish(ctx), ujoin.ErrState, "w"); problem != nil {
			return problem
		}
		return errors.Join(ddp.Ready(0), ddp.Finish(ctx))
	})
}

func TestReadyFromSeveralGoroutines(t *testing.T) {
	ranks(t, 2, func(_ context.Context, g *ujoin.Group) error {
		var params []ujoin.Param
		grads := make([][]float32, 32)
		for i := range grads {
			grads[i] = make([]float32, 100)
			params = append(params, ujoin.NewParam(fmt.Sprint(i), make([]float32, 100), grads[i], 10, 10))
		}
		ddp, err := ujoin.NewDDP(g, params, &ujoin.DDPOptions{BucketBytes: 1600, FirstBucketBytes: 800, Division: ujoin.ByActive,
			GradientKind: ujoin.GradientMean, NoInitialBroadcast: true, SourceRank: 1, IdleTimeout: patience})
		if err != nil {
			return err
		}
		defer func() { _ = ddp.Close() }()
		for range 50 {
			err := ddp.Iteration(1, func(ready func(int)) error {
				done := make(chan struct{})
				for part := range 4 {
					go func() {
						for i := part; i < len(grads); i += 4 {
							copy(grads[i], filled(100, float32(i*(1+2*g.Rank()))))
							ready(i)
						}
						done <- struct{}{}
					}()
				}
				for range 4 {
					<-done
				}
				return nil
			})
			if err != nil {
				return err
			}
			for i, grad := range grads {
				if grad[0] != float32(2*i) || grad[99] != float32(2*i) {
					return fmt.Errorf("gradient %d is %g", i, grad[0])
				}
			}
		}
		report, err := ddp.Report()
		if report.Iterations != 50 || report.Buckets < 8 {
			return fmt.Errorf("%+v", report)
		}
		return err
	})
}

func TestAnIterationAllocatesNothing(t *testing.T) {
	m, err := newModel(alone(t), nil)
	ok(t, err)
	backward := func(ready func(int)) error { ready(0); return nil }
	allocations := testing.AllocsPerRun(200, func() {
		if m.ddp.Iteration(1, backward) != nil || m.zero.Step() != nil {
			panic("failed")
		}
	})
	if allocations != 0 {
		t.Fatalf("%g allocations an iteration", allocations)
	}
}
