// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"context"
	"errors"
	"fmt"
	"runtime"
	"slices"
	"sync"
	"testing"

	"ujoin.dev/go"
)

// network is two parameters of float32 with a reducer; iterate sets gradients to rank + 1 times the element's place from 1.
type network struct {
	g          *ujoin.Group
	a, b       []float32
	gradA      []float32
	gradB      []float32
	ddp        *ujoin.DDP
	unreadied  int // the parameter that gets no gradient; -1: none
	readyOrder []int
}

func newNet(g *ujoin.Group, options *ujoin.DDPOptions) (*network, error) {
	n := &network{g: g, a: make([]float32, 4), b: make([]float32, 2), gradA: make([]float32, 4), gradB: make([]float32, 2),
		unreadied: -1, readyOrder: []int{0, 1}}
	var err error
	params := []ujoin.Param{ujoin.NewParam("a", n.a, n.gradA, 2, 2), ujoin.NewParam("b", n.b, n.gradB)}
	n.ddp, err = ujoin.NewDDP(g, params, options)
	return n, err
}

func (n *network) iterate() error {
	return n.ddp.Iteration(1, func(ready func(int)) error {
		for _, grad := range [][]float32{n.gradA, n.gradB} {
			for i := range grad {
				grad[i] = float32((n.g.Rank() + 1) * (i + 1))
			}
		}
		for _, i := range n.readyOrder {
			if i != n.unreadied {
				ready(i)
			}
		}
		return nil
	})
}

// holds checks both gradients against a factor of the element's place from 1.
func (n *network) holds(factor float32) error {
	for _, grad := range [][]float32{n.gradA, n.gradB} {
		for i, x := range grad {
			if !near(float64(x), float64(factor)*float64(i+1)) {
				return fmt.Errorf("gradients are %v %v, not %g times 1, 2, ...", n.gradA, n.gradB, factor)
			}
		}
	}
	return nil
}

func TestHooksThatTheLibraryHas(t *testing.T) {
	for _, hook := range []ujoin.CommHook{{}, {Kind: ujoin.CommHookAllReduce}, {Kind: ujoin.CommHookF16},
		{Kind: ujoin.CommHookBF16}, {Kind: ujoin.CommHookLowRank, StartIteration: -1, Rank: 2}} {
		ranks(t, 2, func(_ context.Context, g *ujoin.Group) error {
			n, err := newNet(g, nil)
			if err != nil {
				return err
			}
			if err := errors.Join(n.ddp.SetCommHook(hook), n.iterate()); err != nil {
				return fmt.Errorf("%+v: %w", hook, err)
			}
			if hook.Kind != ujoin.CommHookLowRank {
				return errors.Join(n.holds(1.5), differs(n.ddp.SetCommHook(hook), ujoin.ErrState, ""))
			}
			for i, x := range n.gradA { // two factors hold a matrix of two rows, but for rounding
				if d := x - 1.5*float32(i+1); d > 1e-3 || d < -1e-3 {
					return fmt.Errorf("low rank: %v", n.gradA)
				}
			}
			return nil
		})
	}
}

// f16 is what goes over the wire: 2049 is none.
func TestAHookThatRounds(t *testing.T) {
	grad := []float32{2049}
	ddp, err := ujoin.NewDDP(alone(t), []ujoin.Param{ujoin.NewParam("w", []float32{1}, grad)}, nil)
	ok(t, err)
	ok(t, ddp.SetCommHook(ujoin.CommHook{Kind: ujoin.CommHookF16}))
	ok(t, ddp.Iteration(1, func(ready func(int)) error { ready(0); return nil }))
	if grad[0] != 2048 {
		t.Fatalf("%v", grad)
	}
}

// seen is what a hook of the program's own was told.
type seen struct {
	mu      sync.Mutex
	buckets []ujoin.Bucket
	then    int
}

// sumThenDivide reduces in flight, and divides when that is complete.
func (s *seen) hook() ujoin.CommHook {
	return ujoin.CommHook{
		Start: func(b *ujoin.Bucket) (ujoin.InFlight, error) {
			s.mu.Lock()
			s.buckets = append(s.buckets, *b)
			s.mu.Unlock()
			data, err := ujoin.BucketData[float32](b)
			if err != nil {
				return nil, err
			}
			return ujoin.AllReduceAsync(context.Background(), b.Group, nil, data, ujoin.Sum)
		},
		Then: func(b *ujoin.Bucket) (ujoin.InFlight, error) {
			s.then++
			data, err := ujoin.BucketData[float32](b)
			for i := range data {
				data[i] /= 10 * float32(b.Divisor)
			}
			return nil, err
		},
	}
}

func TestACommHookOfTheProgramsOwn(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		n, err := newNet(g, nil)
		if err != nil {
			return err
		}
		s := &seen{}
		if err := n.ddp.SetCommHook(s.hook()); err != nil {
			return err
		}
		err = ujoin.Join(ctx, []ujoin.Joinable{n.ddp}, nil, func() error {
			for round := range 1 + g.Rank() {
				if err := n.iterate(); err != nil {
					return err
				}
				want := []float32{0.15, 0.1}[round] // alone, rank 1 has 2 / 2
				if err := n.holds(want); err != nil {
					return fmt.Errorf("round %d: %w", round, err)
				}
			}
			return nil
		})
		if err != nil || len(s.buckets) != 2 || s.then != 2 {
			return fmt.Errorf("%d buckets, %d times then: %w", len(s.buckets), s.then, err)
		}
		for i, b := range s.buckets {
			if !slices.Equal(slices.Sorted(slices.Values(b.Params)), []int{0, 1}) || len(b.Offsets) != 2 || b.Offsets[0] != 0 ||
				b.Len != 6 || b.DType != ujoin.F32 || b.Divisor != 2 || b.Iteration != int64(i) || b.Index != 0 || !b.Last ||
				b.Shadow != (i == 1 && g.Rank() == 0) || b.SourceRank != i {
				return fmt.Errorf("%+v", b)
			}
		}
		if _, err := ujoin.BucketData[float64](&s.buckets[0]); !errors.Is(err, ujoin.ErrInvalid) {
			return fmt.Errorf("as float64: %w", err)
		}
		return differs(s.buckets[0].Group.Barrier(ctx), ujoin.ErrState, "closed")
	})
}

func TestAHookThatFailsAbortsTheGroup(t *testing.T) {
	for rank, err := range results(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		n, err := newNet(g, nil)
		if err != nil {
			return err
		}
		err = n.ddp.SetCommHook(ujoin.CommHook{Start: func(b *ujoin.Bucket) (ujoin.InFlight, error) {
			if b.Group.Rank() == 1 {
				return nil, errEnough
			}
			return nil, b.Group.Barrier(ctx)
		}})
		return errors.Join(err, n.iterate())
	}) {
		problem := differs(err, []error{ujoin.ErrAborted, errEnough}[rank], "enough of it")
		if problem != nil {
			t.Errorf("rank %d: %v", rank, problem)
		}
	}
	n, err := newNet(alone(t), nil)
	ok(t, err)
	ok(t, n.ddp.SetCommHook(ujoin.CommHook{Start: func(*ujoin.Bucket) (ujoin.InFlight, error) { panic(errEnough) }}))
	if value := raised(func() { _ = n.iterate() }); value != errEnough {
		t.Fatalf("raised %v", value)
	}
	n, err = newNet(alone(t), nil)
	ok(t, err)
	then := func(*ujoin.Bucket) (ujoin.InFlight, error) { return nil, nil }
	refused(t, n.ddp.SetCommHook(ujoin.CommHook{Then: then}), ujoin.ErrInvalid, "Start")
	refused(t, n.ddp.SetCommHook(ujoin.CommHook{Kind: 99}), ujoin.ErrInvalid, "kind")
}

func TestBuffersFollowTheLowestRank(t *testing.T) {
	for _, own := range []bool{false, true} {
		ranks(t, 2, func(_ context.Context, g *ujoin.Group) error {
			mean, count := []float64{float64(g.Rank()), 5}, []int64{int64(10 + g.Rank())}
			n, err := newNet(g, &ujoin.DDPOptions{Buffers: []ujoin.Buffer{ujoin.NewBuffer(mean), ujoin.NewBuffer(count)},
				SourceRank: 1, NoBufferBroadcast: own})
			if err != nil {
				return err
			}
			if mean[0] != 1 || count[0] != 11 { // of the source
				return fmt.Errorf("at the start %v %v", mean, count)
			}
			mean[1] = float64(20 + g.Rank())
			if err := n.iterate(); err != nil {
				return err
			}
			if want := float64(20 + g.Rank()); own && mean[1] != want || !own && mean[1] != 20 {
				return fmt.Errorf("own %v: %v", own, mean)
			}
			return nil
		})
	}
}

func TestHooksOfBuffers(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		for _, when := range []ujoin.BufferTime{0, ujoin.BufferAfterForward, ujoin.BufferBeforeForward} {
			for _, custom := range []bool{false, true} {
				mean := []float32{0}
				n, err := newNet(g, &ujoin.DDPOptions{Buffers: []ujoin.Buffer{ujoin.NewBuffer(mean)}})
				if err != nil {
					return err
				}
				hook, want := ujoin.CommHook{Kind: ujoin.CommHookAllReduce}, float32(3.5)
				if custom {
					want = 4
					hook = ujoin.CommHook{Start: func(b *ujoin.Bucket) (ujoin.InFlight, error) {
						data, err := ujoin.BucketData[float32](b)
						if err != nil || b.Params != nil || b.Len != 1 {
							return nil, fmt.Errorf("%+v %w", b, err)
						}
						return ujoin.AllReduceAsync(ctx, b.Group, nil, data, ujoin.Max)
					}}
				}
				mean[0] = float32(3 + g.Rank())
				err = errors.Join(n.ddp.SetBufferHook(when, hook), n.ddp.Forward(ctx, 1))
				before := mean[0]
				if err := errors.Join(err, n.ddp.Ready(0), n.ddp.Ready(1), n.ddp.Finish(ctx)); err != nil || mean[0] != want {
					return fmt.Errorf("%v %v: %v: %w", when, custom, mean, err)
				}
				if g.Rank() == 0 && (before == want) != (when == ujoin.BufferBeforeForward) {
					return fmt.Errorf("%v: after forward it is %g", when, before)
				}
			}
		}
		return nil
	})
}

func TestParametersThatAreNotUsed(t *testing.T) {
	ranks(t, 2, func(_ context.Context, g *ujoin.Group) error {
		n, err := newNet(g, &ujoin.DDPOptions{FindUnused: true})
		if err != nil {
			return err
		}
		if g.Rank() == 0 {
			n.unreadied = 1
		}
		err = n.iterate()
		used, err2 := n.ddp.Used()
		if err := errors.Join(err, err2); err != nil || !slices.Equal(used, []int{2, 1}) || n.gradB[1] != 2 || n.gradA[1] != 3 {
			return fmt.Errorf("%v %v, used by %v: %w", n.gradA, n.gradB, used, err) // b is 0 on rank 0, 4 on rank 1
		}
		n.unreadied = 1
		if err := n.iterate(); err != nil || n.gradB[1] != float32(2*(g.Rank()+1)) {
			return fmt.Errorf("nobody used b: %v: %w", n.gradB, err)
		}
		report, err := n.ddp.Report()
		if err != nil || report.Rebuilt {
			return fmt.Errorf("%+v: %w", report, err)
		}
		return nil
	})
}

func TestAStaticGraph(t *testing.T) {
	ranks(t, 2, func(_ context.Context, g *ujoin.Group) error {
		n, err := newNet(g, &ujoin.DDPOptions{StaticGraph: true})
		if err != nil {
			return err
		}
		n.unreadied = 0
		if err := errors.Join(n.iterate(), n.iterate()); err != nil {
			return err
		}
		used, err := n.ddp.Used()
		if err != nil || !slices.Equal(used, []int{0, 2}) {
			return fmt.Errorf("used by %v: %w", used, err)
		}
		n.unreadied = -1
		return differs(n.iterate(), ujoin.ErrState, `"a"`)
	})
}

func TestBucketsFollowTheOrderOfGradients(t *testing.T) {
	ranks(t, 2, func(_ context.Context, g *ujoin.Group) error {
		n, err := newNet(g, &ujoin.DDPOptions{FirstBucketBytes: 8, BucketBytes: 8})
		if err != nil {
			return err
		}
		for want := range 2 {
			err := n.iterate()
			report, err2 := n.ddp.Report()
			if err := errors.Join(err, err2, n.holds(1.5)); err != nil || report.Buckets != 2 || report.Rebuilt != (want == 1) {
				return fmt.Errorf("%+v: %w", report, err)
			}
		}
		return nil
	})
}

func TestAnIgnoredParameterIsItsRanksOwn(t *testing.T) {
	ranks(t, 2, func(_ context.Context, g *ujoin.Group) error {
		own, grad := []float32{float32(g.Rank())}, []float32{float32(g.Rank())}
		w := []float32{float32(g.Rank())}
		params := []ujoin.Param{ujoin.NewParam("own", own, grad).Ignored(), ujoin.NewParam("w", w, []float32{1})}
		ddp, err := ujoin.NewDDP(g, params, nil)
		if err != nil {
			return err
		}
		err = ddp.Iteration(1, func(ready func(int)) error { ready(0); ready(1); return nil })
		gradient, err2 := ujoin.Gradient[float32](ddp, 0)
		if err := errors.Join(err, err2); err != nil || own[0] != float32(g.Rank()) || grad[0] != own[0] || w[0] != 0 ||
			gradient != nil {
			return fmt.Errorf("%v %v %v %v: %w", own, grad, w, gradient, err)
		}
		return nil
	})
}

func TestGradientsInTheLibrarysMemory(t *testing.T) {
	ranks(t, 2, func(_ context.Context, g *ujoin.Group) error {
		w, kept := []float64{0, 0}, []float64{7}
		params := []ujoin.Param{ujoin.NewParam[float64]("w", w, nil), ujoin.NewParam("v", []float64{0}, kept)}
		ddp, err := ujoin.NewDDP(g, params, &ujoin.DDPOptions{BucketView: true})
		if err != nil {
			return err
		}
		grad, err1 := ujoin.Gradient[float64](ddp, 0)
		other, err2 := ujoin.Gradient[float64](ddp, 1)
		if err := errors.Join(err1, err2); err != nil || !slices.Equal(grad, []float64{0, 0}) || other[0] != 7 ||
			&other[0] == &kept[0] {
			return fmt.Errorf("%v %v: %w", grad, other, err)
		}
		zero, err := ujoin.NewZero(g, ujoin.SGD{LR: 1}, []ujoin.Param{ujoin.NewParam("w", w, grad)}, nil)
		if err != nil {
			return err
		}
		err = ddp.Iteration(1, func(ready func(int)) error {
			grad[0], grad[1] = float64(g.Rank()), 4
			ready(0)
			ready(1)
			return nil
		})
		if err := errors.Join(err, zero.Step()); err != nil || !slices.Equal(w, []float64{-0.5, -4}) {
			return fmt.Errorf("%v: %w", w, err)
		}
		_, err1 = ujoin.Gradient[float32](ddp, 0)
		_, err2 = ujoin.Gradient[float64](ddp, 2)
		err = errors.Join(zero.Close(), ddp.Close())
		_, err3 := ujoin.Gradient[float64](ddp, 0)
		return errors.Join(err, differs(err1, ujoin.ErrInvalid, "float32"), differs(err2, ujoin.ErrInvalid, "index is 2"),
			differs(err3, ujoin.ErrState, "closed"))
	})
}

func TestAccumulationBeforeOneReduction(t *testing.T) {
	ranks(t, 2, func(_ context.Context, g *ujoin.Group) error {
		grad := []float64{0}
		options := &ujoin.DDPOptions{Division: ujoin.BySamples, GradientKind: ujoin.GradientSum}
		ddp, err := ujoin.NewDDP(g, []ujoin.Param{ujoin.NewParam("w", []float64{0}, grad)}, options)
		if err != nil {
			return err
		}
		add := func(ready func(int)) error {
			grad[0] += float64(g.Rank() + 1)
			ready(0)
			return nil
		}
		err = errors.Join(ddp.SetSync(false), ddp.Iteration(2, add), ddp.Iteration(2, add))
		if err != nil || grad[0] != float64(2*(g.Rank()+1)) {
			return fmt.Errorf("without sync %v: %w", grad, err)
		}
		err = errors.Join(ddp.SetSync(true), ddp.Iteration(2, add))
		report, err2 := ddp.Report()
		if err := errors.Join(err, err2); err != nil || grad[0] != 0.75 || report.Samples != 12 || report.Iterations != 1 {
			return fmt.Errorf("%v, %+v: %w", grad, report, err) // (3 + 6) / 12
		}
		return nil
	})
}

// Rank 0 has joined when rank 1 gathers and sums for the second time.
func TestAJoinedRankShadowsTheProgramsCollectives(t *testing.T) {
	ctx, where, all := within(t), place(t), make([]error, 2)
	var done sync.WaitGroup
	for rank := range 2 {
		done.Add(1)
		go func() {
			defer done.Done()
			all[rank] = shadowed(ctx, where, rank)
		}()
	}
	done.Wait()
	for rank, err := range all {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

func shadowed(ctx context.Context, where string, rank int) error {
	g, err := ujoin.NewGroup(ctx, &ujoin.GroupOptions{Rendezvous: where, Backend: "local", Rank: rank, WorldSize: 2,
		ShadowCollectives: true})
	if err != nil {
		return err
	}
	defer func() { _ = g.Close() }()
	n, err := newNet(g, nil)
	if err != nil {
		return err
	}
	return ujoin.Join(ctx, []ujoin.Joinable{n.ddp}, nil, func() error {
		for round := range 1 + rank {
			if err := n.iterate(); err != nil {
				return err
			}
			work, err := ujoin.AllReduceAsync(ctx, g, nil, []float64{float64(rank + 1)}, ujoin.Sum)
			if err != nil {
				return err
			}
			sum, err := work.Wait(ctx)
			parts := []int32{-1, -1}
			err = errors.Join(err, ujoin.AllGather(ctx, g, []int32{int32(rank)}, parts))
			who := work.Contributors()
			switch {
			case err != nil:
				return err
			case round == 0 && (sum[0] != 3 || !slices.Equal(parts, []int32{0, 1}) || !slices.Equal(who, []int{0, 1})),
				round == 1 && (sum[0] != 2 || !slices.Equal(parts, []int32{-1, 1}) || !slices.Equal(who, []int{1})):
				return fmt.Errorf("round %d: %v of ranks %v, %v", round, sum, who, parts)
			}
		}
		return nil
	})
}

// What hooks, rules and output functions refer to is let go when the library says so, also after a failure.
func TestCallbacksAreForgottenWithTheirObjects(t *testing.T) {
	freed, g := make(chan string, 8), alone(t)
	kept := func(name string) *[64]byte {
		object := new([64]byte)
		runtime.AddCleanup(object, func(name string) { freed <- name }, name)
		return object
	}
	func() {
		n, err := newNet(g, nil)
		ok(t, err)
		reduce, late, buffer := kept("reduce"), kept("late"), kept("buffer")
		ok(t, n.ddp.SetCommHook(ujoin.CommHook{Start: func(b *ujoin.Bucket) (ujoin.InFlight, error) {
			reduce[0]++
			mine := make([]float64, 1000) // pinned until the library is done with it
			runtime.AddCleanup(&mine[0], func(name string) { freed <- name }, "work")
			return ujoin.AllReduceAsync(context.Background(), b.Group, nil, mine, ujoin.Sum)
		}}))
		refused(t, n.ddp.SetCommHook(ujoin.CommHook{Start: func(*ujoin.Bucket) (ujoin.InFlight, error) {
			late[0]++
			return nil, nil
		}}), ujoin.ErrState, "")
		ok(t, n.ddp.SetBufferHook(0, ujoin.CommHook{Start: func(*ujoin.Bucket) (ujoin.InFlight, error) {
			buffer[0]++
			return nil, nil
		}}))
		ok(t, n.iterate())
		for name, hyper := range map[string]map[string]float64{"rule": nil, "failed rule": {"unknown": 1}} {
			object := kept(name)
			z, err := ujoin.NewZero(g, ujoin.CustomRule{Name: name, Step: func(ujoin.RuleArgs) error { object[0]++; return nil }},
				[]ujoin.Param{ujoin.NewParam("w", n.a, n.gradA)}, &ujoin.ZeroOptions{Hyper: hyper})
			if (err == nil) != (hyper == nil) {
				t.Error(err)
			}
			if err == nil {
				ok(t, z.Step())
			}
		}
		for _, workers := range []int{1, 0} {
			object := kept("output")
			_, err := ujoin.NewProcesses(ujoin.Spec{Program: "true", Workers: workers,
				Output: func(int, ujoin.Std, []byte) error { object[0]++; return nil }})
			if (err == nil) != (workers == 1) {
				t.Error(err)
			}
		}
	}()
	collected(t, "the end of all eight", func() bool { return len(freed) == 8 })
}
