// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"fmt"
	"runtime"
	"sync"
	"time"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// ZeroOptions of NewZero; the zero value of a field is its default.
type ZeroOptions struct {
	Hyper       map[string]float64 // by name, over what the rule's struct says
	IdleTimeout time.Duration      // without progress of the peers; default: none

	Seed               uint64 // of stochastic rounding; results do not depend on the number of ranks
	BalanceTrainable   bool   // frozen parameters do not count in the balance
	NoMasterCopy       bool   // 16-bit parameters are updated without a float32 copy of their values
	StochasticRounding bool   // of BFloat16 without a master copy: up or down at random, right on average

	Partition          Partition     // default PartitionParameters
	BucketView         bool          // parameters move into the library's memory, side by side: see ParamData
	ConsolidateTimeout time.Duration // of ConsolidateStateDict, without progress; default: the group's

	// DDP reduces the same gradients and makes the steps: each of its synchronised iterations ends with one in Finish, bucket
	// by bucket while later buckets are reduced, with the bits that Step would have. Step and ClipGradNorm are refused. The
	// DDP keeps the optimizer until one of them is closed; close it between iterations.
	DDP *DDP
}

// Zero is an optimizer whose state is sharded over the group.
type Zero struct {
	r     *ref
	pins  *zeroPins
	types []Param // of all parameters, without their memory
	hooks int     // `hooks` if the rule is the program's own
}

// zeroPins is the memory that an optimizer borrows. The library's notice frees it.
type zeroPins struct {
	mu       sync.Mutex
	params   runtime.Pinner
	grads    map[int]*runtime.Pinner // those that were set later
	released bool
}

func (p *zeroPins) add(params []Param) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.released {
		pinParams(&p.params, params)
	}
}

func (p *zeroPins) release() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.released = true
	p.params.Unpin()
	for _, pinner := range p.grads {
		pinner.Unpin()
	}
	p.grads = nil
}

// NewZero makes an optimizer whose state is sharded over the group. Parameters and gradients, of any floating-point type,
// stay pinned until some time after Close; state of 16-bit parameters is float32. Collective. ErrInvalid: no
// parameters, two with one name, an unknown hyper-parameter; ErrUnsupported: PartitionElements with a rule that needs whole
// parameters; ErrMismatch: ranks differ.
func NewZero(g *Group, rule Rule, params []Param, options *ZeroOptions) (*Zero, error) {
	return NewZeroContext(context.Background(), g, rule, params, options)
}

// NewZeroContext is NewZero with a context.
func NewZeroContext(ctx context.Context, g *Group, rule Rule, params []Param, options *ZeroOptions) (*Zero, error) {
	const op = "NewZero"
	o := ZeroOptions{}
	if options != nil {
		o = *options
	}
	if rule == nil {
		return nil, failed(StatusInvalid, op, "rule is nil")
	}
	optimizer, values := rule.rule()
	for name, value := range o.Hyper {
		values[name] = value
	}
	names, numbers, err := hypers(op, values)
	if err != nil {
		return nil, err
	}
	own, err := ownRuleOf(op, rule)
	if err != nil {
		return nil, err
	}
	a, err := arraysOf(op, params)
	if err != nil {
		return nil, err
	}
	var ddp uintptr
	if o.DDP != nil {
		if err := o.DDP.r.enter(op); err != nil {
			return nil, err
		}
		defer o.DDP.r.leave()
		ddp = o.DDP.r.pointer
	}
	c, err := g.r.begin(ctx, op, plain)
	if err != nil {
		return nil, err
	}
	defer g.r.leave()
	pins := &zeroPins{grads: map[int]*runtime.Pinner{}}
	pins.add(params)
	facts := []int64{millisOption(o.IdleTimeout), int64(o.Seed), flag(o.BalanceTrainable), flag(o.NoMasterCopy),
		flag(o.StochasticRounding), int64(o.Partition), millisOption(o.ConsolidateTimeout), flag(o.BucketView),
		flag(own.perTensor)}
	pointer := new(uintptr)
	f := cujoin.ZeroCreate(g.r.pointer, int(optimizer), int64(a.count), address(a.names), address(a.data), address(a.grad),
		address(a.facts), address(a.shapes), address(names), address(numbers), int64(len(values)),
		address(facts), ddp, own.name, address(own.states), int64(own.funcs.Counts[0]), address(own.hyperNames),
		address(own.hyperValues), int64(own.funcs.Counts[1]), int(flag(own.funcs.Init != nil)), own.handle(),
		cujoin.NewHandle(nil, pins.release), c.pointer(), unsafe.Pointer(pointer))
	if err := c.end(f); err != nil {
		return nil, err
	}
	z := &Zero{r: g.family.adopt(newRef("Zero", *pointer, cujoin.ZeroDestroy)), pins: pins, types: typesOf(params),
		hooks: own.how()}
	runtime.AddCleanup(z, (*ref).close, z.r)
	if o.DDP != nil {
		o.DDP.steps = z
		if own.how() == hooks {
			o.DDP.hooks = hooks
		}
	}
	return z, nil
}

func typesOf(params []Param) []Param {
	types := make([]Param, len(params))
	for i, p := range params {
		types[i] = Param{name: p.name, count: p.count, dtype: p.dtype, gradType: p.gradType}
	}
	return types
}

func (z *Zero) joinable() (*ref, func(uintptr) uintptr) { return z.r, cujoin.ZeroJoinable }

// alone runs a call that must be alone on the optimizer.
func (z *Zero) alone(op string, run func() *cujoin.Failure) error {
	if err := z.r.enter(op); err != nil {
		return err
	}
	defer z.r.leave()
	return endPlain(run())
}

// waiting runs a call that may wait.
func (z *Zero) waiting(ctx context.Context, op string, how int, run func(c call) *cujoin.Failure) error {
	c, err := z.r.begin(ctx, op, how)
	if err != nil {
		return err
	}
	defer z.r.leave()
	return c.end(run(c))
}

// Step updates the parameters: each rank its shard, then all get the new values. Parameters that are frozen or without
// gradient are skipped. Collective. ErrMismatch: ranks differ in hyper-parameters; ErrCallback: the program's rule failed. A
// joined rank adapts the scaler that it gave to its last step. After a failure in the middle, step and save refuse
// (ErrState) until parameters and state are loaded anew.
func (z *Zero) Step() error { return z.StepContext(context.Background()) }

// StepContext is Step with a context.
func (z *Zero) StepContext(ctx context.Context) error {
	const op = "Zero.Step"
	c, err := z.r.begin(ctx, op, z.hooks)
	if err != nil {
		return err
	}
	defer z.r.leave()
	return c.end(cujoin.ZeroStep(z.r.pointer, 0, 0, nil, 0, nil, c.pointer()))
}

// StepWith runs a closure that computes gradients anew, then steps. It keeps its loss itself. The closure may not call
// this Zero.
func (z *Zero) StepWith(ctx context.Context, closure func() error) error {
	if closure == nil {
		return z.StepContext(ctx)
	}
	_, err := z.StepUsing(ctx, StepOptions{Closure: closure})
	return err
}

// StepOptions of StepUsing; the zero value of a field is its default. All but the closure are the same on every rank.
type StepOptions struct {
	Closure       func() error // computes gradients anew, before the update; may not call this Zero
	Scaler        *Scaler      // gradients carry its scale: they are divided by it and checked, and it is adapted
	MaxNorm       float64      // gradients are clipped to this global norm as they are used; 0 = they are not
	NormType      float64      // p of the norm, above 0; default 2; math.Inf(1) = the largest magnitude
	SkipNonfinite bool         // gradients are checked; with Scaler or MaxNorm they always are
}

// StepResult is what a step with options tells.
type StepResult struct {
	Norm    float64 // with MaxNorm: the global norm as it was
	Skipped bool    // a gradient was not finite: nothing was changed, on every rank (a scaler was lowered)
}

// StepUsing is Step with options. Only the owner's gradients are read, and none is written. Collective.
func (z *Zero) StepUsing(ctx context.Context, options StepOptions) (StepResult, error) {
	const op = "Zero.StepUsing"
	o := cujoin.StepOptions{MaxNorm: options.MaxNorm, NormType: options.NormType, SkipNonfinite: options.SkipNonfinite}
	if options.Scaler != nil {
		if err := options.Scaler.r.enter(op); err != nil {
			return StepResult{}, err
		}
		defer options.Scaler.r.leave()
		o.Scaler = options.Scaler.r.pointer
	}
	result := StepResult{}
	err := z.waiting(ctx, op, hooks, func(c call) (f *cujoin.Failure) {
		result.Norm, f = cujoin.StepWith(z.r.pointer, options.Closure, o, c.shared)
		result.Skipped = wasSkipped(f)
		return f
	})
	if err != nil {
		return StepResult{}, err
	}
	return result, nil
}

func wasSkipped(f *cujoin.Failure) bool { return f != nil && Status(f.Status) == StatusSkipped }

// ClipGradNorm scales all gradients so that their global norm is at most maxNorm, and tells the norm before. normType as in
// StepOptions (0 = 2). The norm counts each parameter once, at its owner; frozen ones do not count. skipped: a gradient is
// not finite; nothing was changed, on every rank. Not for use in an armed join context: there, give MaxNorm to StepUsing.
// Collective.
func (z *Zero) ClipGradNorm(ctx context.Context, maxNorm, normType float64) (norm float64, skipped bool, err error) {
	out := new(float64)
	err = z.waiting(ctx, "Zero.ClipGradNorm", plain, func(c call) *cujoin.Failure {
		f := cujoin.ZeroClipGradNorm(z.r.pointer, maxNorm, normType, unsafe.Pointer(out), c.pointer())
		skipped = wasSkipped(f)
		return f
	})
	return *out, skipped, err
}

// SetFrozen freezes parameter i or trains it again, from the next step on; its state is kept. The same on every rank: the
// step compares.
func (z *Zero) SetFrozen(i int, frozen bool) error {
	return z.alone("Zero.SetFrozen", func() *cujoin.Failure {
		return cujoin.ZeroSetFrozen(z.r.pointer, int64(i), int(flag(frozen)))
	})
}

// ZeroMemory is the bytes that this rank holds for an optimizer.
type ZeroMemory struct {
	Parameters uint64 // the program's
	Gradients  uint64 // the program's, of parameters that have one
	State      uint64 // of this rank's shard, master copies included, as it is now
	Buffers    uint64 // what a step needs beside that, and the memory of BucketView
	FullState  uint64 // state of all parameters with every step made: what an unsharded optimizer holds
}

// Memory tells what this rank holds.
func (z *Zero) Memory() (ZeroMemory, error) {
	n := new([5]uint64)
	err := z.alone("Zero.Memory", func() *cujoin.Failure { return cujoin.ZeroMemory(z.r.pointer, unsafe.Pointer(n)) })
	return ZeroMemory{n[0], n[1], n[2], n[3], n[4]}, err
}

// AddParamGroup adds parameters with hyper-parameters of their own (absent = as given to NewZero). Indices go on from the
// last. Collective.
func (z *Zero) AddParamGroup(ctx context.Context, params []Param, hyper map[string]float64) error {
	const op = "Zero.AddParamGroup"
	names, numbers, err := hypers(op, hyper)
	if err != nil {
		return err
	}
	a, err := arraysOf(op, params)
	if err != nil {
		return err
	}
	return z.waiting(ctx, op, plain, func(c call) *cujoin.Failure {
		z.pins.add(params)
		f := cujoin.ZeroAddParamGroup(z.r.pointer, int64(a.count), address(a.names), address(a.data), address(a.grad),
			address(a.facts), address(a.shapes), address(names), address(numbers), int64(len(hyper)), c.pointer())
		if f == nil {
			z.types = append(z.types, typesOf(params)...)
		}
		return f
	})
}

// Groups is the number of param groups; 0 when closed.
func (z *Zero) Groups() int {
	n := 0
	_ = z.alone("Zero.Groups", func() *cujoin.Failure {
		n = int(cujoin.ZeroGroupCount(z.r.pointer))
		return nil
	})
	return n
}

// HyperNames is the hyper-parameters that the rule knows.
func (z *Zero) HyperNames() []string {
	var names []string
	_ = z.alone("Zero.HyperNames", func() *cujoin.Failure {
		for name := cujoin.ZeroHyperName(z.r.pointer, 0); name != ""; {
			names = append(names, name)
			name = cujoin.ZeroHyperName(z.r.pointer, int64(len(names)))
		}
		return nil
	})
	return names
}

// AllGroups is the param group that stands for all of them, in SetHyper.
const AllGroups = -1

// SetHyper changes a hyper-parameter of a param group, or of AllGroups, from the next step on. The same on every rank: the
// step compares. ErrInvalid lists the known names.
func (z *Zero) SetHyper(group int, name string, value float64) error {
	const op = "Zero.SetHyper"
	if err := checkText(op, name); err != nil {
		return err
	}
	return z.alone(op, func() *cujoin.Failure { return cujoin.ZeroSetHyper(z.r.pointer, group, name, value) })
}

// Hyper reads a hyper-parameter of a param group.
func (z *Zero) Hyper(group int, name string) (float64, error) {
	const op = "Zero.Hyper"
	if err := checkText(op, name); err != nil {
		return 0, err
	}
	value := new(float64)
	err := z.alone(op, func() *cujoin.Failure {
		return cujoin.ZeroGetHyper(z.r.pointer, group, name, unsafe.Pointer(value))
	})
	return *value, err
}

// ParamData is where parameter i lies: with BucketView in the library's memory while it is trained, which is there only as
// long as the Zero is not closed and not collected, and in the program's while it is frozen; else always in the program's.
// ErrInvalid: no such parameter, or of another type.
func ParamData[T Float](z *Zero, i int) ([]T, error) {
	const op = "ParamData"
	if err := z.r.enter(op); err != nil {
		return nil, err
	}
	defer z.r.leave()
	if i < 0 || i >= len(z.types) {
		return nil, failed(StatusInvalid, op, fmt.Sprintf("index is %d, there are %d parameters", i, len(z.types)))
	}
	pointer := new(unsafe.Pointer)
	cujoin.ZeroParamData(z.r.pointer, int64(i), unsafe.Pointer(pointer))
	if *pointer == nil {
		return nil, nil
	}
	data, fits := slice[T](*pointer, z.types[i].count, z.types[i].dtype)
	if !fits {
		return nil, failed(StatusInvalid, op, fmt.Sprintf("parameter %d is of type %d, not %T", i, z.types[i].dtype, *new(T)))
	}
	return data, nil
}

// SetGradient says where the gradient of parameter i lies from now on, until the next SetGradient or the end; nil: it has
// none, and the parameter is skipped.
func SetGradient[T Float](z *Zero, i int, grad []T) error {
	const op = "SetGradient"
	pinner := new(runtime.Pinner)
	err := z.alone(op, func() *cujoin.Failure {
		if i >= 0 && i < len(z.types) && grad != nil {
			if p := z.types[i]; p.gradType != dtypeOf[T]() || p.count != len(grad) {
				return &cujoin.Failure{Status: int32(StatusInvalid), Text: fmt.Sprintf(
					"ujoin: SetGradient: parameter %d has %d elements, with a gradient of type %d; this one has %d of type %d",
					i, p.count, p.gradType, len(grad), dtypeOf[T]())}
			}
		}
		pin(pinner, address(grad))
		return cujoin.ZeroSetGradient(z.r.pointer, int64(i), address(grad))
	})
	if err != nil {
		pinner.Unpin()
		return err
	}
	z.pins.replace(i, pinner)
	return nil
}

func (p *zeroPins) replace(i int, pinner *runtime.Pinner) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.released {
		pinner.Unpin()
		return
	}
	if old := p.grads[i]; old != nil {
		old.Unpin()
	}
	p.grads[i] = pinner
}

// ClearGradients sets the gradients of all parameters to zero, not only those of the shard.
func (z *Zero) ClearGradients() error {
	return z.alone("Zero.ClearGradients", func() *cujoin.Failure { return cujoin.ZeroClearGradients(z.r.pointer) })
}

// ConsolidateStateDict brings all state together on rank `to`, where StateDict then gives it until the next step or load.
// The others send their shards, once, and need no memory for it. Collective. ErrTimeout names those that did not come.
func (z *Zero) ConsolidateStateDict(ctx context.Context, to int) error {
	return z.waiting(ctx, "Zero.ConsolidateStateDict", plain, func(c call) *cujoin.Failure {
		return cujoin.ZeroConsolidate(z.r.pointer, to, c.pointer())
	})
}

// StateDict is the consolidated state, which stays as it is: tensors by parameter and state name, step counts and
// hyper-parameters as numbers. ErrState: nothing was consolidated to this rank, or a step, a load or a new param group has
// come after it.
func (z *Zero) StateDict() (*State, error) {
	pointer := new(uintptr)
	err := z.alone("Zero.StateDict", func() *cujoin.Failure {
		return cujoin.ZeroStateDict(z.r.pointer, unsafe.Pointer(pointer))
	})
	if err != nil {
		return nil, err
	}
	return stateOf(*pointer), nil
}

// LoadStateDict takes state and hyper-parameters from a list: each rank keeps its shard, by parameter name, whatever the
// number of ranks that saved it. Collective.
// ErrMismatch: a name, shape, type or rule does not fit; nothing was changed.
func (z *Zero) LoadStateDict(ctx context.Context, state *State) error {
	const op = "Zero.LoadStateDict"
	if err := state.r.enter(op); err != nil {
		return err
	}
	defer state.r.leave()
	return z.waiting(ctx, op, plain, func(c call) *cujoin.Failure {
		return cujoin.ZeroLoadStateDict(z.r.pointer, state.r.pointer, c.pointer())
	})
}

// SaveOptions of Save and Load; the zero value of a field is its default.
type SaveOptions struct {
	Parts  SavePart // SaveState (default), SaveParameters, or both by |
	Extra  *State   // Save: this rank's own texts, numbers and bytes (step, position in the data, ...)
	NoSync bool     // Save: do not wait for the disk (a crash of the machine may lose it)
}

// Save saves for any number of ranks: until the index is renamed, after every file is on the disk, what was there
// before stays whole. Collective. ErrSystem on every rank: the text names rank, file and reason.
func (z *Zero) Save(ctx context.Context, path string, options *SaveOptions) error {
	const op = "Zero.Save"
	o := SaveOptions{}
	if options != nil {
		o = *options
	}
	if err := checkText(op, path); err != nil {
		return err
	}
	var extra uintptr
	if o.Extra != nil {
		if err := o.Extra.r.enter(op); err != nil {
			return err
		}
		defer o.Extra.r.leave()
		extra = o.Extra.r.pointer
	}
	return z.waiting(ctx, op, plain, func(c call) *cujoin.Failure {
		return cujoin.ZeroSave(z.r.pointer, path, extra, int(o.Parts), int(flag(o.NoSync)), c.pointer())
	})
}

// Load loads what Save wrote, by any number of ranks; it mends a broken Zero if state and parameters are loaded. It returns
// the own items of the rank of this number, or of rank 0 if so many did not save. Collective. ErrMismatch: what is wrong
// with which file; nothing was changed.
func (z *Zero) Load(ctx context.Context, path string, options *SaveOptions) (*State, error) {
	const op = "Zero.Load"
	o := SaveOptions{}
	if options != nil {
		o = *options
	}
	if err := checkText(op, path); err != nil {
		return nil, err
	}
	pointer := new(uintptr)
	err := z.waiting(ctx, op, plain, func(c call) *cujoin.Failure {
		return cujoin.ZeroLoad(z.r.pointer, path, int(o.Parts), c.pointer(), unsafe.Pointer(pointer))
	})
	if err != nil {
		return nil, err
	}
	return stateOf(*pointer), nil
}

// Shard is a piece of the partition: which part of which parameter belongs to which rank.
type Shard struct {
	Param         int // index
	Offset, Count int // elements
	Rank          int // the owner
	Group         int // param group
}

// Shards is the partition, over all ranks.
func (z *Zero) Shards() ([]Shard, error) {
	var shards []Shard
	err := z.alone("Zero.Shards", func() *cujoin.Failure {
		n := new([5]int64)
		for i := int64(0); i < cujoin.ZeroShardCount(z.r.pointer); i++ {
			if f := cujoin.ZeroShard(z.r.pointer, i, unsafe.Pointer(n)); f != nil {
				return f
			}
			shards = append(shards, Shard{int(n[0]), int(n[1]), int(n[2]), int(n[3]), int(n[4])})
		}
		return nil
	})
	return shards, err
}

// Close drops the optimizer.
func (z *Zero) Close() error {
	z.r.close()
	return nil
}
