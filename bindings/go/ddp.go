// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"fmt"
	"runtime"
	"sync/atomic"
	"time"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// Shorter names for what a summed gradient is divided by.
const (
	ByInitial = DivisionInitial
	ByActive  = DivisionActive
	BySamples = DivisionSamples
)

// DDPOptions of NewDDP; the zero value of a field is its default.
type DDPOptions struct {
	Division           Division      // default ByInitial: the size of the group
	GradientKind       GradientKind  // for BySamples; default GradientMean
	FindUnused         bool          // parameters may get no gradient in an iteration: Finish takes them as unused
	StaticGraph        bool          // as FindUnused, but each rank uses the same ones in every iteration
	BucketView         bool          // the library has the gradients' memory: see Gradient
	Buffers            []Buffer      // synchronised, not trained; pinned as the parameters
	NoBufferBroadcast  bool          // buffers are each rank's own during training
	NoInitialBroadcast bool          // parameters and buffers are equal already: only verify names, shapes and types
	SourceRank         int           // whose parameters and buffers all start from
	FirstBucketBytes   int           // default 1 MiB, or BucketBytes where that is given and less
	BucketBytes        int           // default 25 MiB
	IdleTimeout        time.Duration // without progress of the peers; default: none
	GradientSync       GradientSync  // GradientSyncToOwner: Zero.Step of the optimizer made with it sums the gradients

	// A parameter is not read any more once its gradient is ready: an optimizer that was made with this reducer
	// (ZeroOptions.DDP) then updates it, on every rank, while later gradients are still computed.
	ParamsReleasedOnReady bool
}

// DDP reduces gradients while they are computed.
type DDP struct {
	r     *ref
	wrong atomic.Pointer[error] // the first that went wrong in ready, in this iteration
	ready func(int)             // made once: an iteration allocates nothing
	types []Param               // of all parameters
	hooks int                   // `hooks` once the program's functions may run in its calls
	steps *Zero                 // the optimizer that it steps; kept, so that it is not collected
}

// NewDDP makes a reducer for these parameters: verifies count, names, shapes and types over the ranks, then copies the
// source rank's values to all. Parameters, gradients and buffers stay pinned until some time after Close. Collective.
// ErrMismatch on every rank: the first difference and the ranks; ErrInvalid: nothing to train, a parameter without gradient.
func NewDDP(g *Group, params []Param, options *DDPOptions) (*DDP, error) {
	return NewDDPContext(context.Background(), g, params, options)
}

// NewDDPContext is NewDDP with a context.
func NewDDPContext(ctx context.Context, g *Group, params []Param, options *DDPOptions) (*DDP, error) {
	const op = "NewDDP"
	o := DDPOptions{}
	if options != nil {
		o = *options
	}
	arrays, err := arraysOf(op, params)
	if err != nil {
		return nil, err
	}
	c, err := g.r.begin(ctx, op, plain)
	if err != nil {
		return nil, err
	}
	defer g.r.leave()
	pinner := new(runtime.Pinner)
	pinParams(pinner, params)
	for _, buffer := range o.Buffers {
		pin(pinner, buffer.data)
	}
	bufferData, bufferFacts := bufferArrays(o.Buffers)
	facts := []int64{int64(o.Division), int64(o.GradientKind), flag(o.NoInitialBroadcast), int64(o.SourceRank),
		int64(o.FirstBucketBytes), int64(o.BucketBytes), millisOption(o.IdleTimeout), flag(o.FindUnused), flag(o.StaticGraph),
		flag(o.BucketView), flag(o.NoBufferBroadcast), int64(o.GradientSync),
		flag(o.ParamsReleasedOnReady)}
	pointer := new(uintptr)
	f := cujoin.DDPCreate(g.r.pointer, int64(arrays.count), address(arrays.names), address(arrays.data),
		address(arrays.grad), address(arrays.facts), address(arrays.shapes), int64(len(o.Buffers)),
		address(bufferData), address(bufferFacts), address(facts), cujoin.NewHandle(nil, pinner.Unpin), c.pointer(),
		unsafe.Pointer(pointer))
	if err := c.end(f); err != nil {
		return nil, err
	}
	d := &DDP{r: g.family.adopt(newRef("DDP", *pointer, cujoin.DDPDestroy)), types: typesOf(params)}
	d.ready = d.noteReady
	runtime.AddCleanup(d, (*ref).close, d.r)
	return d, nil
}

func (d *DDP) joinable() (*ref, func(uintptr) uintptr) { return d.r, cujoin.DDPJoinable }

// Iteration runs backward in one iteration on a batch of so many samples (0 is allowed: with BySamples its gradients are
// not even read). backward calls ready(i) when gradient i is complete, in any order, also from several goroutines;
// afterwards gradients hold the divided sum on every rank. If backward fails the iteration stays open, and the DDP cannot
// begin another: in a join context the error ends all. Collective.
func (d *DDP) Iteration(samples int, backward func(ready func(i int)) error) error {
	return d.IterationContext(context.Background(), samples, backward)
}

// IterationContext is Iteration with a context.
func (d *DDP) IterationContext(ctx context.Context, samples int, backward func(ready func(i int)) error) error {
	if err := d.Forward(ctx, float64(samples)); err != nil {
		return err
	}
	d.wrong.Store(nil)
	if err := backward(d.ready); err != nil {
		return err
	}
	if wrong := d.wrong.Load(); wrong != nil {
		return *wrong
	}
	return d.Finish(ctx)
}

func (d *DDP) noteReady(i int) {
	if err := d.Ready(i); err != nil {
		d.noteWrong(err)
	}
}

func (d *DDP) noteWrong(err error) { d.wrong.CompareAndSwap(nil, &err) }

// Forward begins an iteration on a batch of so many samples: notifies the join context and copies the buffers of the lowest
// rank that has not joined to all. Without sync it only counts. Runs buffer hooks. Iteration does it for you.
// Collective. ErrState: the last one is not finished; ErrExhausted: throw mode.
func (d *DDP) Forward(ctx context.Context, samples float64) error {
	const op = "DDP.Forward"
	c, err := d.begin(ctx, op)
	if err != nil {
		return err
	}
	defer d.r.leave()
	return c.end(cujoin.DDPForward(d.r.pointer, samples, c.pointer()))
}

// begin prepares a call that may run the program's hooks, if there are any.
func (d *DDP) begin(ctx context.Context, op string) (call, error) {
	if err := d.r.enter(op); err != nil {
		return call{}, err
	}
	c, err := begin(ctx, op, d.hooks) // read by whoever is alone on the handle
	if err != nil {
		d.r.leave()
	}
	return c, err
}

// Ready says that gradient i is complete; its bucket is reduced when it is full. From several goroutines at once. Runs comm
// hooks, one at a time. With ParamsReleasedOnReady it makes the updates that are due, for which it waits for the other ranks;
// an error in one ends the iteration. Without effect for an ignored parameter.
func (d *DDP) Ready(i int) error {
	if err := d.r.share("DDP.Ready"); err != nil {
		return err
	}
	defer d.r.unshare()
	if d.hooks == plain {
		return endPlain(cujoin.DDPReady(d.r.pointer, int64(i), nil))
	}
	c := call{shared: new(cujoin.Call)}
	return c.end(cujoin.DDPReady(d.r.pointer, int64(i), c.pointer()))
}

// Finish ends an iteration: waits for the reductions; gradients then hold the divided sum. With FindUnused or StaticGraph a
// gradient that no rank used since the last synchronised iteration is left alone, one that others used counts as zeros
// here. Without sync nothing is reduced. Runs comm and buffer hooks. Collective.
func (d *DDP) Finish(ctx context.Context) error {
	const op = "DDP.Finish"
	c, err := d.begin(ctx, op)
	if err != nil {
		return err
	}
	defer d.r.leave()
	return c.end(cujoin.DDPFinish(d.r.pointer, c.pointer()))
}

// SetSync false: the next iterations accumulate, without reduction and without notice to the join context; true: they
// synchronise again. The same on every rank; not within an iteration. What was accumulated when a join context ends is not
// reduced.
func (d *DDP) SetSync(enabled bool) error {
	if err := d.r.enter("DDP.SetSync"); err != nil {
		return err
	}
	defer d.r.leave()
	return endPlain(cujoin.DDPSetSync(d.r.pointer, int(flag(enabled))))
}

// Gradient is where gradient i of a DDP lies: with BucketView in the library's memory (zeros at the start, or what the
// parameter's own gradient held), which is there only as long as the DDP is not closed and not collected; else the
// program's own. nil: the parameter is ignored. ErrInvalid: no such parameter, or of another type.
func Gradient[T Float](d *DDP, i int) ([]T, error) {
	const op = "Gradient"
	if err := d.r.share(op); err != nil {
		return nil, err
	}
	defer d.r.unshare()
	if i < 0 || i >= len(d.types) {
		return nil, failed(StatusInvalid, op, fmt.Sprintf("index is %d, there are %d parameters", i, len(d.types)))
	}
	pointer := new(unsafe.Pointer)
	cujoin.DDPGradient(d.r.pointer, int64(i), unsafe.Pointer(pointer))
	if *pointer == nil {
		return nil, nil
	}
	grad, fits := slice[T](*pointer, d.types[i].count, d.types[i].dtype)
	if !fits {
		return nil, failed(StatusInvalid, op, fmt.Sprintf("parameter %d is of type %d, not %T", i, d.types[i].dtype, *new(T)))
	}
	return grad, nil
}

// Used is how many ranks used each parameter in the last synchronised iteration (with StaticGraph in the first one); joined
// ranks do not count. Without FindUnused and StaticGraph all that are not ignored count as used.
func (d *DDP) Used() ([]int, error) {
	if err := d.r.enter("DDP.Used"); err != nil {
		return nil, err
	}
	defer d.r.leave()
	raw := make([]int32, len(d.types))
	cujoin.DDPUsed(d.r.pointer, address(raw), int64(len(raw)))
	return ints(raw), nil
}

// DDPReport is what a reducer did.
type DDPReport struct {
	Iterations   int64         // synchronised ones
	Divisor      float64       // of the last one; 0: no rank had a sample, gradients were left alone
	Samples      float64       // of all ranks in the last one
	ReduceTime   time.Duration // of reductions, all iterations
	ExposedTime  time.Duration // of that, waiting in Finish: the rest was hidden
	Buckets      int
	JoinedUneven bool // has been in a join context with uneven inputs
	Rebuilt      bool // buckets follow the order in which gradients became ready
}

// Report tells counts, divisor and times.
func (d *DDP) Report() (DDPReport, error) {
	const op = "DDP.Report"
	if err := d.r.enter(op); err != nil {
		return DDPReport{}, err
	}
	defer d.r.leave()
	n, x := new([6]int64), new([2]float64)
	if f := cujoin.DDPReport(d.r.pointer, unsafe.Pointer(n), unsafe.Pointer(x)); f != nil {
		return DDPReport{}, errorOf(f, nil)
	}
	return DDPReport{n[0], x[0], x[1], micros(n[1]), micros(n[2]), int(n[3]), n[4] != 0, n[5] != 0}, nil
}

// Close drops the reducer.
func (d *DDP) Close() error {
	d.r.close()
	return nil
}
