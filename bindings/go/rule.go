// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"fmt"
	"math"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// None is the number 0 in the fields of rules, where a field that is left out has the rule's default.
const None = math.SmallestNonzeroFloat64

// Rule is an update rule with its hyper-parameters: one of the structs below. All but LAMB work element by element; LAMB's
// trust ratio is that of a whole parameter, which one rank owns.
type Rule interface {
	rule() (Optimizer, map[string]float64)
}

// SGD is stochastic gradient descent. Defaults: LR 1e-3, all else 0.
type SGD struct {
	LR, Momentum, Dampening, WeightDecay float64
	Nesterov, Maximize                   bool
}

// Adam defaults: LR 1e-3, Beta1 0.9, Beta2 0.999, Eps 1e-8, WeightDecay 0.
type Adam struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	AMSGrad, Maximize                  bool
}

// AdamW is Adam with decoupled weight decay. Defaults as Adam, but WeightDecay 0.01.
type AdamW struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	AMSGrad, Maximize                  bool
}

// Adagrad defaults: LR 1e-2, Eps 1e-10, all else 0.
type Adagrad struct {
	LR, LRDecay, WeightDecay, InitialAccumulatorValue, Eps float64
	Maximize                                               bool
}

// RMSprop defaults: LR 1e-2, Alpha 0.99, Eps 1e-8, all else 0.
type RMSprop struct {
	LR, Alpha, Eps, WeightDecay, Momentum float64
	Centered, Maximize                    bool
}

// Adadelta defaults: LR 1, Rho 0.9, Eps 1e-6, WeightDecay 0.
type Adadelta struct {
	LR, Rho, Eps, WeightDecay float64
	Maximize                  bool
}

// Adamax defaults: LR 2e-3, Beta1 0.9, Beta2 0.999, Eps 1e-8, WeightDecay 0.
type Adamax struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	Maximize                           bool
}

// NAdam defaults: LR 2e-3, Beta1 0.9, Beta2 0.999, Eps 1e-8, WeightDecay 0, MomentumDecay 4e-3.
type NAdam struct {
	LR, Beta1, Beta2, Eps, WeightDecay, MomentumDecay float64
	DecoupledWeightDecay, Maximize                    bool
}

// RAdam defaults: LR 1e-3, Beta1 0.9, Beta2 0.999, Eps 1e-8, WeightDecay 0.
type RAdam struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	DecoupledWeightDecay, Maximize     bool
}

// Rprop defaults: LR 1e-2, EtaMinus 0.5, EtaPlus 1.2, StepMin 1e-6, StepMax 50.
type Rprop struct {
	LR, EtaMinus, EtaPlus, StepMin, StepMax float64
	Maximize                                bool
}

// LAMB defaults: LR 1e-3, Beta1 0.9, Beta2 0.999, Eps 1e-6, WeightDecay 0.01.
type LAMB struct {
	LR, Beta1, Beta2, Eps, WeightDecay float64
	Maximize                           bool
}

// Lion defaults: LR 1e-4, Beta1 0.9, Beta2 0.99, WeightDecay 0.
type Lion struct {
	LR, Beta1, Beta2, WeightDecay float64
	Maximize                      bool
}

func (o SGD) rule() (Optimizer, map[string]float64) {
	return OptimizerSGD, setHypers(map[string]float64{"lr": o.LR, "momentum": o.Momentum, "dampening": o.Dampening,
		"weight_decay": o.WeightDecay, "nesterov": number(o.Nesterov), "maximize": number(o.Maximize)})
}

func (o Adam) rule() (Optimizer, map[string]float64) {
	return OptimizerAdam, setHypers(map[string]float64{"lr": o.LR, "beta1": o.Beta1, "beta2": o.Beta2, "eps": o.Eps,
		"weight_decay": o.WeightDecay, "amsgrad": number(o.AMSGrad), "maximize": number(o.Maximize)})
}

func (o AdamW) rule() (Optimizer, map[string]float64) {
	_, values := Adam(o).rule()
	return OptimizerAdamW, values
}

func (o Adagrad) rule() (Optimizer, map[string]float64) {
	return OptimizerAdagrad, setHypers(map[string]float64{"lr": o.LR, "lr_decay": o.LRDecay, "weight_decay": o.WeightDecay,
		"initial_accumulator_value": o.InitialAccumulatorValue, "eps": o.Eps, "maximize": number(o.Maximize)})
}

func (o RMSprop) rule() (Optimizer, map[string]float64) {
	return OptimizerRmsprop, setHypers(map[string]float64{"lr": o.LR, "alpha": o.Alpha, "eps": o.Eps,
		"weight_decay": o.WeightDecay, "momentum": o.Momentum, "centered": number(o.Centered),
		"maximize": number(o.Maximize)})
}

func (o Adadelta) rule() (Optimizer, map[string]float64) {
	return OptimizerAdadelta, setHypers(map[string]float64{"lr": o.LR, "rho": o.Rho, "eps": o.Eps,
		"weight_decay": o.WeightDecay, "maximize": number(o.Maximize)})
}

func (o Adamax) rule() (Optimizer, map[string]float64) {
	return OptimizerAdamax, setHypers(map[string]float64{"lr": o.LR, "beta1": o.Beta1, "beta2": o.Beta2, "eps": o.Eps,
		"weight_decay": o.WeightDecay, "maximize": number(o.Maximize)})
}

func (o NAdam) rule() (Optimizer, map[string]float64) {
	return OptimizerNadam, setHypers(map[string]float64{"lr": o.LR, "beta1": o.Beta1, "beta2": o.Beta2, "eps": o.Eps,
		"weight_decay": o.WeightDecay, "momentum_decay": o.MomentumDecay,
		"decoupled_weight_decay": number(o.DecoupledWeightDecay), "maximize": number(o.Maximize)})
}

func (o RAdam) rule() (Optimizer, map[string]float64) {
	return OptimizerRadam, setHypers(map[string]float64{"lr": o.LR, "beta1": o.Beta1, "beta2": o.Beta2, "eps": o.Eps,
		"weight_decay": o.WeightDecay, "decoupled_weight_decay": number(o.DecoupledWeightDecay),
		"maximize": number(o.Maximize)})
}

func (o Rprop) rule() (Optimizer, map[string]float64) {
	return OptimizerRprop, setHypers(map[string]float64{"lr": o.LR, "etaminus": o.EtaMinus, "etaplus": o.EtaPlus,
		"step_min": o.StepMin, "step_max": o.StepMax, "maximize": number(o.Maximize)})
}

func (o LAMB) rule() (Optimizer, map[string]float64) {
	return OptimizerLamb, setHypers(map[string]float64{"lr": o.LR, "beta1": o.Beta1, "beta2": o.Beta2, "eps": o.Eps,
		"weight_decay": o.WeightDecay, "maximize": number(o.Maximize)})
}

func (o Lion) rule() (Optimizer, map[string]float64) {
	return OptimizerLion, setHypers(map[string]float64{"lr": o.LR, "beta1": o.Beta1, "beta2": o.Beta2,
		"weight_decay": o.WeightDecay, "maximize": number(o.Maximize)})
}

func number(on bool) float64 { return float64(flag(on)) }

// setHypers leaves out what was not set.
func setHypers(values map[string]float64) map[string]float64 {
	for name, value := range values {
		switch value {
		case 0:
			delete(values, name)
		case None:
			values[name] = 0
		}
	}
	return values
}

// ------------------------------------------------------------------------------------------------------ the program's own

// Hyper is a hyper-parameter with its default.
type Hyper struct {
	Name  string
	Value float64
}

// CustomRule is an optimizer of the program's own. Its functions run on the goroutine in Zero.Step, or in
// JoinContext.Finish for a rank that has joined, one parameter after the other, and only for what this rank owns.
type CustomRule struct {
	Name   string                    // goes into saved state
	Step   func(args RuleArgs) error // one update of data and state
	Init   func(args RuleArgs) error // before a parameter's first update: fills its state; nil: zeros
	States []string                  // names, as in saved state: "exp_avg", ...; at most 8
	Hyper  []Hyper                   // names and defaults; ZeroOptions.Hyper sets others

	PerTensor bool // needs whole parameters (a norm, a shape): refused with PartitionElements
}

// RuleArgs is what a rule updates: a parameter, or a piece of one, that this rank owns. Good for the call; RuleArrays has
// the numbers.
type RuleArgs struct {
	Name      string    // of the parameter
	Hyper     []float64 // of its param group, in the order of CustomRule.Hyper
	Shape     []int     // of the whole parameter
	Len       int       // elements of the piece
	Offset    int       // where the piece begins in the parameter
	Param     int       // index of the parameter
	Group     int       // param group
	StepCount int64     // which update of this parameter it is, from 1
	DType     DType     // F32 or F64; for 16-bit parameters F32: the master copy, or a copy that is rounded afterwards
	raw       cujoin.RuleArgs
}

// RuleArrays is the memory of a rule's call: values to be updated in place, the reduced gradient (only to be read), and one
// array for each state. ErrInvalid: they are of another type.
func RuleArrays[T float32 | float64](args RuleArgs) (data, grad []T, states [][]T, err error) {
	data, fits := slice[T](args.raw.Data, args.Len, args.DType)
	if !fits {
		return nil, nil, nil, failed(StatusInvalid, "RuleArrays", fmt.Sprintf("parameter %q is of type %d, not %T", args.Name,
			args.DType, *new(T)))
	}
	grad, _ = slice[T](args.raw.Grad, args.Len, args.DType)
	for _, pointer := range args.raw.State {
		states = append(states, unsafe.Slice((*T)(pointer), args.Len))
	}
	return data, grad, states, nil
}

func (r CustomRule) rule() (Optimizer, map[string]float64) {
	return OptimizerCustom, map[string]float64{}
}

// ownRule is a CustomRule as the wrapper takes it; the zero value is none.
type ownRule struct {
	given       bool
	name        string
	states      []byte
	hyperNames  []byte
	hyperValues []float64
	funcs       cujoin.RuleFuncs
	perTensor   bool
}

func ownRuleOf(op string, rule Rule) (ownRule, error) {
	r, custom := rule.(CustomRule)
	if pointer, is := rule.(*CustomRule); is && pointer != nil {
		r, custom = *pointer, true
	}
	if !custom {
		return ownRule{}, nil
	}
	if r.Step == nil {
		return ownRule{}, failed(StatusInvalid, op, "the rule's Step is nil")
	}
	own := ownRule{given: true, name: r.Name, states: block(r.States), hyperValues: []float64{}, perTensor: r.PerTensor}
	names := []string{}
	for _, hyper := range r.Hyper {
		names, own.hyperValues = append(names, hyper.Name), append(own.hyperValues, hyper.Value)
	}
	own.hyperNames = block(names)
	own.funcs = cujoin.RuleFuncs{Step: withRuleArgs(r.Step), Counts: [2]int{len(r.States), len(r.Hyper)}}
	if r.Init != nil {
		own.funcs.Init = withRuleArgs(r.Init)
	}
	return own, checkText(op, append(append([]string{r.Name}, r.States...), names...)...)
}

func withRuleArgs(run func(RuleArgs) error) func(cujoin.RuleArgs) error {
	return func(raw cujoin.RuleArgs) error {
		return run(RuleArgs{Name: raw.Name, Hyper: raw.Hyper, Shape: ints(raw.Shape), Len: raw.Count, Offset: raw.Offset,
			Param: raw.Param, Group: raw.Group, StepCount: raw.Step, DType: DType(raw.DType), raw: raw})
	}
}

// handle for the C side, which owns it; 0: none.
func (own ownRule) handle() uint64 {
	if !own.given {
		return 0
	}
	return cujoin.NewHandle(own.funcs, nil)
}

func (own ownRule) how() int {
	if own.given {
		return hooks
	}
	return plain
}
