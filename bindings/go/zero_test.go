// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"testing"

	"ujoin.dev/go"
)

func TestRulesWithTheirHyperParameters(t *testing.T) {
	g := alone(t)
	for _, c := range []struct {
		rule ujoin.Rule
		want map[string]float64
	}{
		{ujoin.SGD{}, map[string]float64{"lr": 1e-3, "momentum": 0, "dampening": 0, "nesterov": 0, "weight_decay": 0,
			"maximize": 0}},
		{ujoin.SGD{LR: 2, Momentum: 0.9, Nesterov: true, Maximize: true, WeightDecay: 3},
			map[string]float64{"lr": 2, "momentum": 0.9, "dampening": 0, "nesterov": 1, "weight_decay": 3, "maximize": 1}},
		{ujoin.Adam{AMSGrad: true}, map[string]float64{"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8,
			"weight_decay": 0, "amsgrad": 1, "maximize": 0}},
		{ujoin.AdamW{LR: 3e-4, Beta1: 0.8, Beta2: 0.9, Eps: 1e-6}, map[string]float64{"lr": 3e-4, "beta1": 0.8, "beta2": 0.9,
			"eps": 1e-6, "weight_decay": 0.01, "amsgrad": 0, "maximize": 0}},
		{ujoin.AdamW{WeightDecay: ujoin.None, LR: ujoin.None}, map[string]float64{"lr": 0, "beta1": 0.9, "beta2": 0.999,
			"eps": 1e-8, "weight_decay": 0, "amsgrad": 0, "maximize": 0}},
	} {
		z, err := ujoin.NewZero(g, c.rule, []ujoin.Param{ujoin.NewParam("w", []float64{1}, []float64{1})}, nil)
		ok(t, err)
		got := map[string]float64{}
		for _, name := range z.HyperNames() {
			got[name], err = z.Hyper(0, name)
			ok(t, err)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.rule, got, c.want)
		}
	}
}

func TestParamGroupsHaveTheirOwnHyperParameters(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		a, b := []float64{0}, []float64{0}
		z, err := ujoin.NewZero(g, ujoin.SGD{LR: 5}, []ujoin.Param{ujoin.NewParam("a", a, []float64{1})},
			&ujoin.ZeroOptions{Hyper: map[string]float64{"lr": 1}, IdleTimeout: patience})
		if err != nil {
			return err
		}
		more := []ujoin.Param{ujoin.NewParam("b", b, []float64{1})}
		err = errors.Join(z.AddParamGroup(ctx, more, map[string]float64{"lr": 10}), z.Step())
		if err != nil || a[0] != -1 || b[0] != -10 || z.Groups() != 2 {
			return fmt.Errorf("%v %v %d groups: %w", a, b, z.Groups(), err)
		}
		err = errors.Join(z.SetHyper(1, "lr", 100), z.Step(), z.SetHyper(ujoin.AllGroups, "lr", 1000), z.Step())
		if err != nil || a[0] != -1002 || b[0] != -1110 {
			return fmt.Errorf("%v %v: %w", a, b, err)
		}
		err = z.AddParamGroup(ctx, []ujoin.Param{ujoin.NewParam("a", a, a)}, nil)
		_, err2 := z.Hyper(7, "lr")
		shards, err3 := z.Shards()
		if len(shards) != 2 || shards[1].Param != 1 || shards[1].Count != 1 || shards[1].Group != 1 ||
			shards[0].Rank == shards[1].Rank || shards[0].Offset != 0 {
			return fmt.Errorf("shards are %+v", shards)
		}
		return errors.Join(differs(err, ujoin.ErrInvalid, `"a"`), differs(err2, ujoin.ErrInvalid, "7"),
			differs(z.SetHyper(0, "speed", 1), ujoin.ErrInvalid, "known"), err3)
	})
}

func TestDifferentHyperParametersAreNoticed(t *testing.T) {
	for rank, err := range results(t, 2, func(_ context.Context, g *ujoin.Group) error {
		m, err := newModel(g, nil)
		if err == nil {
			err = m.zero.SetHyper(0, "lr", float64(g.Rank()))
		}
		if err != nil {
			return err
		}
		return m.zero.Step()
	}) {
		if problem := differs(err, ujoin.ErrMismatch, "rank"); problem != nil {
			t.Errorf("rank %d: %v", rank, problem)
		}
	}
}

func TestGradientsComeAndGo(t *testing.T) {
	w, grad := []float32{0, 0}, []float32{1, 1}
	z, err := ujoin.NewZero(alone(t), ujoin.SGD{LR: 1}, []ujoin.Param{ujoin.NewParam("w", w, nil, 2)}, nil)
	ok(t, err)
	step := func(want float32) {
		t.Helper()
		ok(t, z.Step())
		if w[0] != want || w[1] != want {
			t.Fatalf("w is %v, not %g", w, want)
		}
	}
	step(0) // no gradient
	ok(t, ujoin.SetGradient(z, 0, grad))
	step(-1)
	ok(t, ujoin.SetGradient(z, 0, []float32{10, 10})) // nobody but the optimizer holds it
	runtime.GC()
	step(-11)
	ok(t, z.ClearGradients())
	step(-11)
	ok(t, ujoin.SetGradient[float32](z, 0, nil))
	step(-11)
	refused(t, ujoin.SetGradient(z, 0, grad[:1]), ujoin.ErrInvalid, "has 2 elements")
	refused(t, ujoin.SetGradient(z, 0, []float64{1, 2}), ujoin.ErrInvalid, "of type 2")
	refused(t, ujoin.SetGradient(z, 1, grad), ujoin.ErrInvalid, "index is 1")
	refused(t, ujoin.SetGradient(z, -1, grad), ujoin.ErrInvalid, "index")
	step(-11)
}

func TestAClosureRunsBeforeTheUpdate(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		m, err := newModel(g, nil)
		if err != nil {
			return err
		}
		var inside error
		err = m.zero.StepWith(ctx, func() error {
			inside = m.zero.SetHyper(0, "lr", 1) // the same object
			runtime.GC()
			m.grad[1] = float64(deep(10000)%2 + 3)
			return nil
		})
		if err != nil || m.w[1] != 5-m.grad[1] {
			return fmt.Errorf("%v: %w", m.w, err)
		}
		if problem := differs(inside, ujoin.ErrState, "one at a time"); problem != nil {
			return problem
		}
		return m.zero.StepWith(ctx, nil)
	})
	m, err := newModel(alone(t), nil)
	ok(t, err)
	err = m.zero.StepWith(within(t), func() error { return errEnough })
	refused(t, err, errEnough, "enough of it")
	refused(t, err, ujoin.ErrCallback, "closure")
	m, err = newModel(alone(t), nil)
	ok(t, err)
	if value := raised(func() { _ = m.zero.StepWith(within(t), func() error { panic(errEnough) }) }); value != errEnough {
		t.Fatalf("raised %v", value)
	}
}

func TestStateDictGoesToAnotherOptimizer(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		build := func() ([]float32, []float32, *ujoin.Zero, error) {
			w, grad := []float32{1, 2, 3, 4}, []float32{1, -1, 2, -2}
			z, err := ujoin.NewZero(g, ujoin.AdamW{LR: 0.1}, []ujoin.Param{ujoin.NewParam("w", w, grad, 2, 2)}, nil)
			return w, grad, z, err
		}
		w, _, z, err := build()
		if err != nil {
			return err
		}
		_, err = z.StateDict()
		if problem := differs(err, ujoin.ErrState, ""); problem != nil {
			return problem
		}
		if err := errors.Join(z.Step(), z.Step()); err != nil {
			return err
		}
		var state *ujoin.State
		for to := range 2 {
			if err := z.ConsolidateStateDict(ctx, to); err != nil {
				return err
			}
			if to == g.Rank() {
				if state, err = z.StateDict(); err != nil {
					return err
				}
			}
		}
		defer func() { _ = state.Close() }()
		if err := checkAdamState(state); err != nil {
			return err
		}
		w2, _, z2, err := build()
		if err != nil {
			return err
		}
		copy(w2, w)
		if err := errors.Join(z2.LoadStateDict(ctx, state), z.Step(), z2.Step()); err != nil || !slices.Equal(w, w2) {
			return fmt.Errorf("%v and %v: %w", w, w2, err)
		}
		other, err := ujoin.NewState()
		if err != nil {
			return err
		}
		stranger := ujoin.TensorOf([]float32{1})
		stranger.Owner, stranger.Param, stranger.Key = ujoin.ItemOfParam, "nobody", "exp_avg"
		if err := other.Set(stranger); err != nil {
			return err
		}
		return differs(z2.LoadStateDict(ctx, other), ujoin.ErrMismatch, "nobody")
	})
}

func checkAdamState(state *ujoin.State) error {
	found := 0
	for item := range state.Items() {
		switch {
		case item.Owner == ujoin.ItemOfParam && item.Key == "exp_avg":
			data, err := ujoin.ItemData[float32](item)
			// (0.1 g) 0.9 + 0.1 g
			if err != nil || item.Param != "w" || !slices.Equal(item.Shape, []int{2, 2}) || !near(float64(data[0]), 0.19) {
				return fmt.Errorf("%+v %v %w", item, data, err)
			}
			if _, err := ujoin.ItemData[int64](item); !errors.Is(err, ujoin.ErrInvalid) {
				return fmt.Errorf("as int64: %w", err)
			}
			found++
		case item.Owner == ujoin.ItemOfParam && item.Key == "step" && item.Kind == ujoin.ItemNumber && item.Number == 2:
			found++
		case item.Owner == ujoin.ItemOfGroup && item.Key == "lr" && item.Number == 0.1 && item.Group == 0:
			found++
		}
	}
	if found != 3 {
		return fmt.Errorf("found %d of 3 items among %d", found, state.Len())
	}
	return nil
}

func TestSaveAndLoad(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "checkpoint")
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		m, err := newModel(g, nil)
		if err != nil {
			return err
		}
		extra, err := ujoin.NewState()
		if err != nil {
			return err
		}
		err = errors.Join(extra.SetNumber("round", float64(17+g.Rank())), extra.SetText("name", "größer"),
			extra.SetBytes("random", []byte{0, 1, byte(g.Rank())}), m.round(1, 1))
		if err != nil {
			return err
		}
		both := ujoin.SaveState | ujoin.SaveParameters
		saved := slices.Clone(m.w)
		if err := m.zero.Save(ctx, path, &ujoin.SaveOptions{Parts: both, Extra: extra, NoSync: true}); err != nil {
			return err
		}
		if err := m.round(1, 1); err != nil || slices.Equal(m.w, saved) {
			return fmt.Errorf("%v %w", m.w, err)
		}
		own, err := m.zero.Load(ctx, path, &ujoin.SaveOptions{Parts: both})
		if err != nil || !slices.Equal(m.w, saved) || own.Len() != 3 {
			return fmt.Errorf("%v, not %v: %w", m.w, saved, err)
		}
		round, err1 := own.Find("round")
		name, err2 := own.Find("name")
		random, err3 := own.Find("random")
		if round.Number != float64(17+g.Rank()) || name.Text != "größer" || !slices.Equal(random.Bytes, []byte{0, 1, byte(g.Rank())}) {
			return fmt.Errorf("%+v %+v %+v", round, name, random)
		}
		_, err = m.zero.Load(ctx, filepath.Join(dir, "none"), nil)
		if problem := differs(err, ujoin.ErrSystem, "none"); problem != nil {
			return problem
		}
		return errors.Join(err1, err2, err3, m.zero.Save(ctx, filepath.Join(dir, "model.safetensors"),
			&ujoin.SaveOptions{Parts: ujoin.SaveParameters}))
	})
	if facts, err := os.Stat(filepath.Join(dir, "model.safetensors")); err != nil || facts.Size() < 16 {
		t.Fatalf("%v %v", facts, err)
	}
}

func TestStateItemsOfEveryKind(t *testing.T) {
	state, err := ujoin.NewState()
	ok(t, err)
	ok(t, state.SetNumber("n", 1.5))
	ok(t, state.SetNumber("n", 2.5)) // replaces
	ok(t, state.SetText("empty", ""))
	ok(t, state.SetBytes("nothing", nil))
	add(t, state, "f16", ujoin.TensorOf([]ujoin.Float16{ujoin.ToFloat16(1), ujoin.ToFloat16(-2)}))
	add(t, state, "bf16", ujoin.TensorOf([]ujoin.BFloat16{ujoin.ToBFloat16(3)}, 1, 1))
	add(t, state, "i64", ujoin.TensorOf([]int64{1 << 40, -1, 0, 7}, 2, 2))
	if state.Len() != 6 {
		t.Fatalf("%d items", state.Len())
	}
	i64, err := state.Find("i64")
	ok(t, err)
	data, err := ujoin.ItemData[int64](i64)
	ok(t, err)
	if !slices.Equal(data, []int64{1 << 40, -1, 0, 7}) || !slices.Equal(i64.Shape, []int{2, 2}) || i64.DType != ujoin.I64 {
		t.Fatalf("%+v %v", i64, data)
	}
	f16, err := state.Find("f16")
	ok(t, err)
	if half, err := ujoin.ItemData[ujoin.Float16](f16); err != nil || half[1].Float32() != -2 {
		t.Fatalf("%v %v", half, err)
	}
	if n, err := state.Find("n"); err != nil || n.Number != 2.5 || n.Owner != ujoin.ItemOfProgram {
		t.Fatalf("%+v %v", n, err)
	}
	first, err := state.At(0)
	if err != nil || first.Key != "bf16" {
		t.Fatalf("%+v %v", first, err)
	}
	_, err = state.At(6)
	refused(t, err, ujoin.ErrInvalid, "6")
	_, err = state.Find("x")
	refused(t, err, ujoin.ErrInvalid, "x")
	refused(t, state.Set(ujoin.Item{Key: "k", Kind: ujoin.ItemTensor, DType: ujoin.F64, Shape: []int{3}, Bytes: make([]byte, 8)}),
		ujoin.ErrInvalid, "")
	refused(t, state.Set(ujoin.Item{Key: "k", Kind: 9}), ujoin.ErrInvalid, "kind")
	for item := range state.Items() {
		if item.Key != first.Key {
			t.Fatalf("began with %s", item.Key)
		}
		break
	}
}

func add(t *testing.T, state *ujoin.State, key string, item ujoin.Item) {
	t.Helper()
	item.Key = key
	ok(t, state.Set(item))
}

// A group ends with what was made from it: nothing keeps it alive for its peers.
func TestClosingAGroupTellsPeersAtOnce(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		m, err := newModel(g, nil)
		if err != nil {
			return err
		}
		if g.Rank() == 0 {
			err = g.Close()
			return errors.Join(err, differs(m.zero.Step(), ujoin.ErrState, "the Zero is closed"))
		}
		return differs(m.zero.StepContext(ctx), ujoin.ErrPeerLost, "rank 0")
	})
}

// What nobody holds is destroyed, its memory unpinned and its hooks forgotten; nothing is destroyed twice.
func TestTheCollectorClosesWhatIsForgotten(t *testing.T) {
	g := alone(t)
	freed := make(chan string, 3)
	func() {
		w, grad := make([]float32, 1000), make([]float32, 1000)
		runtime.AddCleanup(&w[0], func(string) { freed <- "parameters" }, "")
		runtime.AddCleanup(&grad[0], func(string) { freed <- "gradients" }, "")
		params := []ujoin.Param{ujoin.NewParam("w", w, grad)}
		ddp, err := ujoin.NewDDP(g, params, nil)
		ok(t, err)
		zero, err := ujoin.NewZero(g, ujoin.SGD{}, params, nil)
		ok(t, err)
		kept := &struct{ big [64]byte }{}
		runtime.AddCleanup(kept, func(string) { freed <- "hook" }, "")
		own, err := ujoin.NewJoinable(g, ujoin.HookFuncs{Main: func(ujoin.HookArgs) error { kept.big[0] = 1; return nil }}, nil)
		ok(t, err)
		_, err = ujoin.NewJoin([]ujoin.Joinable{ddp, zero, own}, nil)
		ok(t, err)
	}()
	collected(t, "the end of parameters, gradients and hook", func() bool { return len(freed) == 3 })
}

func TestThePartitionByElementsGivesTheSameBits(t *testing.T) {
	dir := t.TempDir()
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		train := func(partition ujoin.Partition) (*ujoin.Zero, []float32, error) {
			w, grad := make([]float32, 1000), make([]float32, 1000)
			z, err := ujoin.NewZero(g, ujoin.Adam{LR: 0.1}, []ujoin.Param{ujoin.NewParam("w", w, grad)},
				&ujoin.ZeroOptions{Partition: partition, IdleTimeout: patience})
			for step := 0; err == nil && step < 3; step++ {
				for i := range grad {
					grad[i] = float32(i%7) - float32(step)
				}
				_, err = z.StepUsing(ctx, ujoin.StepOptions{MaxNorm: 1})
			}
			return z, w, err
		}
		whole, want, err := train(ujoin.PartitionParameters)
		parts, got, err2 := train(ujoin.PartitionElements)
		if err = errors.Join(err, err2); err != nil || !slices.Equal(got, want) {
			return fmt.Errorf("other values than with whole parameters: %w", err)
		}
		shards, err := parts.Shards()
		if len(shards) != 2 || shards[0].Count != 496 || shards[1].Offset != 496 || shards[1].Rank != 1 {
			return fmt.Errorf("shards are %+v: %w", shards, err)
		}
		path := filepath.Join(dir, "elements")
		if err = errors.Join(err, parts.Save(ctx, path, nil)); err == nil {
			_, err = whole.Load(ctx, path, nil)
		}
		for _, rule := range []ujoin.Rule{ujoin.LAMB{}, ujoin.CustomRule{Name: "own", PerTensor: true,
			Step: func(ujoin.RuleArgs) error { return nil }}} {
			_, refused := ujoin.NewZero(g, rule, []ujoin.Param{ujoin.NewParam("w", []float32{1}, []float32{1})},
				&ujoin.ZeroOptions{Partition: ujoin.PartitionElements})
			err = errors.Join(err, differs(refused, ujoin.ErrUnsupported, "needs whole parameters"))
		}
		return err
	})
}

func TestParametersMoveIntoTheLibrarysMemory(t *testing.T) {
	g := alone(t)
	a, b := []float64{1, 2, 3}, []float64{4}
	z, err := ujoin.NewZero(g, ujoin.SGD{LR: 0.5}, []ujoin.Param{ujoin.NewParam("a", a, []float64{1, 1, 1}),
		ujoin.NewParam("b", b, []float64{1})}, &ujoin.ZeroOptions{BucketView: true})
	ok(t, err)
	dataA, err := ujoin.ParamData[float64](z, 0)
	ok(t, err)
	dataB, err := ujoin.ParamData[float64](z, 1)
	ok(t, err)
	if &dataA[0] == &a[0] || !slices.Equal(dataA, a) {
		t.Errorf("a lies at its old place or is %v", dataA)
	}
	ok(t, z.Step())
	if dataB[0] != 3.5 || b[0] != 4 {
		t.Errorf("b is %v there and %v here", dataB, b)
	}
	ok(t, z.SetFrozen(1, true))
	dataB, err = ujoin.ParamData[float64](z, 1)
	ok(t, err)
	if &dataB[0] != &b[0] || b[0] != 3.5 {
		t.Errorf("b is frozen, but lies elsewhere or is %v", b)
	}
	_, err = ujoin.ParamData[float32](z, 0)
	_, err2 := ujoin.ParamData[float64](z, 2)
	ok(t, errors.Join(differs(err, ujoin.ErrInvalid, "type"), differs(err2, ujoin.ErrInvalid, "there are 2"), z.Close()))
}

func TestConsolidatedStateIsGivenUntilTheNextStep(t *testing.T) {
	z, err := ujoin.NewZero(alone(t), ujoin.SGD{}, []ujoin.Param{ujoin.NewParam("w", []float64{1}, []float64{1})},
		&ujoin.ZeroOptions{ConsolidateTimeout: patience})
	ok(t, err)
	ok(t, errors.Join(z.Step(), z.ConsolidateStateDict(context.Background(), 0)))
	_, err = z.StateDict()
	ok(t, err)
	ok(t, z.Step())
	_, err = z.StateDict()
	ok(t, differs(err, ujoin.ErrState, "outdated"))
}

func TestAReducerMakesTheSteps(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		train := func(overlap bool, rule ujoin.Rule) ([]float64, error) {
			w, grad := []float64{1, 2, 3}, make([]float64, 3)
			params := []ujoin.Param{ujoin.NewParam("w", w, grad)}
			d, err := ujoin.NewDDP(g, params, nil)
			if err != nil {
				return nil, err
			}
			options := ujoin.ZeroOptions{}
			if overlap {
				options.DDP = d
			}
			z, err := ujoin.NewZero(g, rule, params, &options)
			if err != nil {
				return nil, err
			}
			for step := range 3 {
				err = d.IterationContext(ctx, 1, func(ready func(int)) error {
					for i := range grad {
						grad[i] = w[i] + float64(i*step+g.Rank())
					}
					ready(0)
					return nil
				})
				if err == nil && !overlap {
					err = z.Step()
				}
				if err != nil {
					return nil, err
				}
			}
			if overlap {
				err = differs(z.Step(), ujoin.ErrState, "options.ddp")
			}
			return w, errors.Join(err, z.Close(), d.Close())
		}
		descend := ujoin.CustomRule{Name: "descent", Step: func(args ujoin.RuleArgs) error {
			data, grad, _, err := ujoin.RuleArrays[float64](args)
			for i := range data {
				data[i] -= 0.1 * grad[i]
			}
			return err
		}}
		for _, rule := range []ujoin.Rule{ujoin.AdamW{}, descend} {
			apart, err := train(false, rule)
			overlapped, err2 := train(true, rule)
			if err := errors.Join(err, err2); err != nil {
				return err
			}
			if !slices.Equal(apart, overlapped) || apart[0] == 1 {
				return fmt.Errorf("apart %v, overlapped %v", apart, overlapped)
			}
		}
		return nil
	})
}
