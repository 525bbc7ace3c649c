// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"reflect"
	"slices"
	"testing"

	"ujoin.dev/go"
)

func TestMoreRulesWithTheirHyperParameters(t *testing.T) {
	g := alone(t)
	type values = map[string]float64
	for _, c := range []struct {
		rule ujoin.Rule
		want values
	}{
		{ujoin.Adagrad{InitialAccumulatorValue: 2, LRDecay: 3}, values{"lr": 1e-2, "lr_decay": 3, "weight_decay": 0,
			"initial_accumulator_value": 2, "eps": 1e-10, "maximize": 0}},
		{ujoin.RMSprop{Centered: true, Momentum: 0.5}, values{"lr": 1e-2, "alpha": 0.99, "eps": 1e-8, "weight_decay": 0,
			"momentum": 0.5, "centered": 1, "maximize": 0}},
		{ujoin.Adadelta{Rho: 0.5}, values{"lr": 1, "rho": 0.5, "eps": 1e-6, "weight_decay": 0, "maximize": 0}},
		{ujoin.Adamax{Maximize: true}, values{"lr": 2e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 0,
			"maximize": 1}},
		{ujoin.NAdam{DecoupledWeightDecay: true}, values{"lr": 2e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8,
			"weight_decay": 0, "momentum_decay": 4e-3, "decoupled_weight_decay": 1, "maximize": 0}},
		{ujoin.RAdam{WeightDecay: 7}, values{"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-8, "weight_decay": 7,
			"decoupled_weight_decay": 0, "maximize": 0}},
		{ujoin.Rprop{StepMax: 3, EtaPlus: 1.5}, values{"lr": 1e-2, "etaminus": 0.5, "etaplus": 1.5, "step_min": 1e-6,
			"step_max": 3, "maximize": 0}},
		{ujoin.LAMB{}, values{"lr": 1e-3, "beta1": 0.9, "beta2": 0.999, "eps": 1e-6, "weight_decay": 0.01, "maximize": 0}},
		{ujoin.Lion{WeightDecay: ujoin.None, Beta2: 0.5}, values{"lr": 1e-4, "beta1": 0.9, "beta2": 0.5, "weight_decay": 0,
			"maximize": 0}},
	} {
		w := []float64{1}
		z, err := ujoin.NewZero(g, c.rule, []ujoin.Param{ujoin.NewParam("w", w, []float64{0.5})}, nil)
		ok(t, err)
		got := values{}
		for _, name := range z.HyperNames() {
			got[name], err = z.Hyper(0, name)
			ok(t, err)
		}
		if !reflect.DeepEqual(got, c.want) {
			t.Errorf("%+v: %v, want %v", c.rule, got, c.want)
		}
		before := w[0]
		if ok(t, z.Step()); w[0] == before {
			t.Errorf("%+v: does nothing", c.rule)
		}
	}
}

// heavyBall has a velocity that begins at `start`: v = 0.5 v + g, w = w - speed v.
func heavyBall(start float64, calls *[]ujoin.RuleArgs) ujoin.CustomRule {
	return ujoin.CustomRule{Name: "heavy ball", States: []string{"velocity"},
		Hyper: []ujoin.Hyper{{Name: "speed", Value: 1}, {Name: "drag", Value: 0.5}},
		Init: func(args ujoin.RuleArgs) error {
			_, _, states, err := ujoin.RuleArrays[float64](args)
			for i := range states[0] {
				states[0][i] = start
			}
			return err
		},
		Step: func(args ujoin.RuleArgs) error {
			*calls = append(*calls, args)
			w, grad, states, err := ujoin.RuleArrays[float64](args)
			for i, v := range states[0] {
				states[0][i] = args.Hyper[1]*v + grad[i]
				w[i] -= args.Hyper[0] * states[0][i]
			}
			return err
		}}
}

func TestARuleOfTheProgramsOwn(t *testing.T) {
	total := make([]int, 2)
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		a, b, calls := []float64{0, 0}, []float64{0}, []ujoin.RuleArgs{}
		params := []ujoin.Param{ujoin.NewParam("a", a, []float64{1, 2}, 2, 1), ujoin.NewParam("b", b, []float64{4})}
		z, err := ujoin.NewZero(g, heavyBall(8, &calls), params, &ujoin.ZeroOptions{Hyper: map[string]float64{"speed": 10}})
		if err != nil {
			return err
		}
		if err := errors.Join(z.Step(), z.SetHyper(0, "drag", 0), z.Step()); err != nil {
			return err
		}
		if !slices.Equal(a, []float64{-60, -80}) || b[0] != -120 { // -10 (4 + g) - 10 g
			return fmt.Errorf("%v %v", a, b)
		}
		total[g.Rank()] = len(calls) // each rank updates its own
		for i, call := range calls {
			if call.StepCount != int64(i+1) || call.Offset != 0 || call.Group != 0 || call.DType != ujoin.F64 ||
				(call.Param == 0) != (call.Name == "a" && call.Len == 2 && slices.Equal(call.Shape, []int{2, 1})) {
				return fmt.Errorf("%+v", call)
			}
		}
		if _, _, _, err := ujoin.RuleArrays[float32](calls[0]); !errors.Is(err, ujoin.ErrInvalid) {
			return fmt.Errorf("as float32: %w", err)
		}
		if err := z.ConsolidateStateDict(ctx, 0); err != nil || g.Rank() != 0 {
			return err
		}
		state, err := z.StateDict()
		if err != nil {
			return err
		}
		for item := range state.Items() {
			if item.Key == "velocity" && item.Param == "a" {
				v, err := ujoin.ItemData[float64](item)
				if err != nil || !slices.Equal(v, []float64{1, 2}) {
					return fmt.Errorf("%v %w", v, err)
				}
				return nil
			}
		}
		return errors.New("there is no velocity")
	})
	if !slices.Equal(total, []int{2, 2}) {
		t.Fatalf("%v updates", total)
	}
}

func TestARuleThatFailsSaysWhy(t *testing.T) {
	make := func(step func(ujoin.RuleArgs) error) *ujoin.Zero {
		z, err := ujoin.NewZero(alone(t), &ujoin.CustomRule{Name: "own", Step: step},
			[]ujoin.Param{ujoin.NewParam("w", []float32{1}, []float32{1})}, nil)
		ok(t, err)
		return z
	}
	z := make(func(ujoin.RuleArgs) error { return errEnough })
	err := z.Step()
	refused(t, err, errEnough, "own")
	refused(t, err, ujoin.ErrCallback, "enough of it")
	refused(t, z.Step(), ujoin.ErrState, "") // broken
	z = make(func(ujoin.RuleArgs) error { panic(errEnough) })
	if value := raised(func() { _ = z.Step() }); value != errEnough {
		t.Fatalf("raised %v", value)
	}
	_, err = ujoin.NewZero(alone(t), ujoin.CustomRule{Name: "own"}, nil, nil)
	refused(t, err, ujoin.ErrInvalid, "Step is nil")
}

// A rank that has joined updates its shard by the same rule.
func TestARuleRunsOnARankThatHasJoined(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		calls := []ujoin.RuleArgs{}
		a, b := []float64{0}, []float64{0}
		ga, gb := []float64{0}, []float64{0}
		params := []ujoin.Param{ujoin.NewParam("a", a, ga), ujoin.NewParam("b", b, gb)}
		ddp, err := ujoin.NewDDP(g, params, &ujoin.DDPOptions{Division: ujoin.ByActive})
		if err != nil {
			return err
		}
		z, err := ujoin.NewZero(g, heavyBall(0, &calls), params, nil)
		if err != nil {
			return err
		}
		err = ujoin.Join(ctx, []ujoin.Joinable{ddp, z}, nil, func() error {
			for range 1 + 2*g.Rank() {
				err := ddp.Iteration(1, func(ready func(int)) error {
					ga[0], gb[0] = 2, 4
					ready(0)
					ready(1)
					return nil
				})
				if err := errors.Join(err, z.Step()); err != nil {
					return err
				}
			}
			return nil
		})
		if err != nil || len(calls) != 3 || a[0] != -8.5 || b[0] != -17 { // 2 + 3 + 3.5
			return fmt.Errorf("%v %v, %d updates: %w", a, b, len(calls), err)
		}
		return nil
	})
}

func TestFrozenParametersAreLeftAlone(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		a, b := []float64{0}, []float64{0}
		params := []ujoin.Param{ujoin.NewParam("a", a, []float64{1}).Frozen(), ujoin.NewParam("b", b, []float64{1})}
		z, err := ujoin.NewZero(g, ujoin.SGD{LR: 1}, params, &ujoin.ZeroOptions{BalanceTrainable: true})
		if err != nil {
			return err
		}
		norm, _, err1 := z.ClipGradNorm(ctx, 100, 0)
		err = errors.Join(err1, z.Step(), z.SetFrozen(0, false), z.SetFrozen(1, true), z.Step(), z.Step())
		if err != nil || a[0] != -2 || b[0] != -1 || norm != 1 {
			return fmt.Errorf("%v %v, norm %g: %w", a, b, norm, err)
		}
		return errors.Join(differs(z.SetFrozen(2, true), ujoin.ErrInvalid, "2"))
	})
}

// Rank 0 owns the large one, whose 20 elements are frozen; what is trained is spread as if it were not there.
func TestTheBalanceOfTrainableParameters(t *testing.T) {
	for _, balance := range []bool{false, true} {
		ranks(t, 2, func(_ context.Context, g *ujoin.Group) error {
			of := func(name string, n int) ujoin.Param {
				return ujoin.NewParam(name, make([]float32, n), make([]float32, n))
			}
			z, err := ujoin.NewZero(g, ujoin.SGD{}, []ujoin.Param{of("large", 20).Frozen(), of("a", 5), of("b", 5)},
				&ujoin.ZeroOptions{BalanceTrainable: balance})
			if err != nil {
				return err
			}
			owner := map[int]int{}
			shards, err := z.Shards()
			for _, shard := range shards {
				owner[shard.Param] = shard.Rank
			}
			if err != nil || (owner[1] != owner[2]) != balance {
				return fmt.Errorf("balance %v: %v: %w", balance, owner, err)
			}
			return nil
		})
	}
}

func TestClippingToAGlobalNorm(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		a, b, ga, gb := []float64{0}, []float64{0}, []float64{3}, []float64{4}
		params := []ujoin.Param{ujoin.NewParam("a", a, ga), ujoin.NewParam("b", b, gb)}
		z, err := ujoin.NewZero(g, ujoin.SGD{LR: 1}, params, nil)
		if err != nil {
			return err
		}
		result, err := z.StepUsing(ctx, ujoin.StepOptions{MaxNorm: 1})
		if err != nil || !near(result.Norm, 5) || result.Skipped || !near(a[0], -0.6) || !near(b[0], -0.8) || ga[0] != 3 {
			return fmt.Errorf("%+v %v %v %v: %w", result, a, b, ga, err)
		}
		result, err = z.StepUsing(ctx, ujoin.StepOptions{MaxNorm: 8, NormType: math.Inf(1)})
		if err != nil || !near(result.Norm, 4) || !near(a[0], -3.6) {
			return fmt.Errorf("largest magnitude: %+v %v: %w", result, a, err)
		}
		norm, skipped, err := z.ClipGradNorm(ctx, 3.5, 1)
		if err != nil || skipped || !near(norm, 7) || !near(ga[0], 1.5) || !near(gb[0], 2) {
			return fmt.Errorf("norm %g, %v %v: %w", norm, ga, gb, err)
		}
		gb[0], a[0] = math.NaN(), 1
		_, skipped, err1 := z.ClipGradNorm(ctx, 1, 0)
		result, err2 := z.StepUsing(ctx, ujoin.StepOptions{SkipNonfinite: true})
		if err := errors.Join(err1, err2); err != nil || !skipped || !result.Skipped || a[0] != 1 || !near(ga[0], 1.5) {
			return fmt.Errorf("not finite: %v %+v %v %v: %w", skipped, result, a, ga, err)
		}
		_, _, err = z.ClipGradNorm(ctx, 1, -1)
		return differs(err, ujoin.ErrInvalid, "norm_type")
	})
}

func TestALossScaleThatAdapts(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		w, grad := []float64{0}, []float64{0}
		z, err := ujoin.NewZero(g, ujoin.SGD{LR: 1}, []ujoin.Param{ujoin.NewParam("w", w, grad)}, nil)
		if err != nil {
			return err
		}
		s, err := ujoin.NewScaler(&ujoin.ScalerState{Scale: 8, Growth: 4, Backoff: 0.25, Interval: 2})
		if err != nil {
			return err
		}
		for i, loss := range []float64{1, 1, math.Inf(1)} {
			grad[0] = loss * s.Scale()
			result, err := z.StepUsing(ctx, ujoin.StepOptions{Scaler: s})
			if err != nil || result.Skipped != (i == 2) || s.Scale() != []float64{8, 32, 8}[i] {
				return fmt.Errorf("step %d: %+v, scale %g: %w", i, result, s.Scale(), err)
			}
		}
		state, err := s.State()
		if err != nil || w[0] != -2 || state != (ujoin.ScalerState{Scale: 8, Growth: 4, Backoff: 0.25, Interval: 2, Skipped: 1}) {
			return fmt.Errorf("%v %+v: %w", w, state, err)
		}
		copied, err := ujoin.NewScaler(&state)
		if err != nil || copied.Scale() != 8 {
			return fmt.Errorf("copy: %w", err)
		}
		_, err1 := copied.State()
		err2 := copied.Close()
		_, err3 := z.StepUsing(ctx, ujoin.StepOptions{Scaler: copied})
		if copied.Scale() != 0 {
			return errors.New("a closed scaler has a scale")
		}
		return errors.Join(err1, err2, differs(err3, ujoin.ErrState, "closed"))
	})
	s, err := ujoin.NewScaler(nil)
	ok(t, err)
	if s.Scale() != 65536 {
		t.Fatalf("default %g", s.Scale())
	}
	_, err = ujoin.NewScaler(&ujoin.ScalerState{Growth: 0.5})
	refused(t, err, ujoin.ErrInvalid, "growth")
}

func TestSchedules(t *testing.T) {
	cosine := ujoin.Schedule{Kind: ujoin.ScheduleCosine, Base: 2, Minimum: 1, WarmupSteps: 4, TotalSteps: 12}
	linear := cosine
	linear.Kind = ujoin.ScheduleLinear
	stairs := ujoin.Schedule{Kind: ujoin.ScheduleStep, Base: 8, Gamma: 0.5, Every: 3, Minimum: 3}
	for _, c := range []struct {
		schedule ujoin.Schedule
		step     int64
		want     float64
	}{
		{ujoin.Schedule{Base: 3}, 1000, 3}, {cosine, 0, 0.5}, {cosine, 3, 2}, {cosine, 8, 1.5}, {cosine, 50, 1},
		{linear, 6, 1.75}, {stairs, 2, 8}, {stairs, 3, 4}, {stairs, 6, 3},
	} {
		if got, err := c.schedule.At(c.step); err != nil || !near(got, c.want) {
			t.Errorf("%+v at %d: %g, not %g: %v", c.schedule, c.step, got, c.want, err)
		}
	}
	_, err := ujoin.Schedule{Kind: 77}.At(0)
	refused(t, err, ujoin.ErrInvalid, "kind")
	_, err = ujoin.Schedule{}.At(-1)
	refused(t, err, ujoin.ErrInvalid, "step")
}

// 1 + 1/512 is not a bfloat16: without a master copy, rounding to the nearest loses each step.
func TestSixteenBitParameters(t *testing.T) {
	const steps = 64
	run := func(o ujoin.ZeroOptions) (float32, ujoin.ZeroMemory) {
		w := []ujoin.BFloat16{ujoin.ToBFloat16(1)}
		z, err := ujoin.NewZero(alone(t), ujoin.SGD{LR: 1.0 / 512}, []ujoin.Param{ujoin.NewMixedParam("w", w, []float32{-1})}, &o)
		ok(t, err)
		for range steps {
			ok(t, z.Step())
		}
		refused(t, ujoin.SetGradient(z, 0, w), ujoin.ErrInvalid, "gradient")
		ok(t, ujoin.SetGradient(z, 0, []float32{0}))
		memory, err := z.Memory()
		ok(t, err)
		return w[0].Float32(), memory
	}
	w, memory := run(ujoin.ZeroOptions{})
	if w != 1.125 || memory.Parameters != 2 || memory.Gradients != 4 || memory.State < 4 || memory.FullState < memory.State {
		t.Errorf("with a master copy: %g, %+v", w, memory)
	}
	nearest, without := run(ujoin.ZeroOptions{NoMasterCopy: true})
	if nearest != 1 || without.State+4 != memory.State {
		t.Errorf("without: %g, %+v", nearest, without)
	}
	random, _ := run(ujoin.ZeroOptions{NoMasterCopy: true, StochasticRounding: true, Seed: 5})
	again, _ := run(ujoin.ZeroOptions{NoMasterCopy: true, StochasticRounding: true, Seed: 5})
	if random <= 1.03 || random >= 1.25 || again != random {
		t.Errorf("at random: %g, then %g", random, again)
	}
	results := map[float32]bool{}
	for seed := range uint64(8) {
		other, _ := run(ujoin.ZeroOptions{NoMasterCopy: true, StochasticRounding: true, Seed: 100 + seed})
		results[other] = true
	}
	if len(results) < 2 {
		t.Error("the seed does not matter")
	}
}

func TestTwoRanksSaveAndThreeLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "saved")
	build := func(g *ujoin.Group) ([]float64, *ujoin.Zero, error) {
		w := []float64{1, 2}
		z, err := ujoin.NewZero(g, ujoin.SGD{LR: 1, Momentum: 0.5}, []ujoin.Param{ujoin.NewParam("w", w, []float64{1, 1})}, nil)
		return w, z, err
	}
	options := &ujoin.SaveOptions{Parts: ujoin.SaveState | ujoin.SaveParameters, NoSync: true}
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		_, z, err := build(g)
		if err != nil {
			return err
		}
		own, err := ujoin.NewState()
		if err != nil {
			return err
		}
		o := *options
		o.Extra = own
		return errors.Join(z.Step(), own.SetNumber("rank", float64(g.Rank())), z.Save(ctx, path, &o))
	})
	ranks(t, 3, func(ctx context.Context, g *ujoin.Group) error {
		w, z, err := build(g)
		if err != nil {
			return err
		}
		own, err := z.Load(ctx, path, options)
		if err != nil {
			return err
		}
		rank, err := own.Find("rank")
		err = errors.Join(err, z.Step())
		if err != nil || rank.Number != float64(g.Rank()%2) || !slices.Equal(w, []float64{-1.5, -0.5}) { // momentum went on
			return fmt.Errorf("%v, items of rank %g: %w", w, rank.Number, err)
		}
		return nil
	})
}
