// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
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
	NoInitialBroadcast bool          // parameters are equal already: only verify names, shapes and types
	SourceRank         int           // whose parameters all start from
	FirstBucketBytes   int           // default 1 MiB
	BucketBytes        int           // default 25 MiB
	IdleTimeout        time.Duration // without progress of the peers; default: none
}

// DDP reduces gradients while they are computed.
type DDP struct {
	r     *ref
	wrong atomic.Pointer[error] // the first that went wrong in ready, in this iteration
	ready func(int)             // made once: an iteration allocates nothing
}

// NewDDP makes a reducer for these parameters: verifies count, names, shapes and types over the ranks, then copies the
// source rank's values to all. Parameters and gradients stay pinned until some time after Close. Collective. ErrMismatch on
// every rank: the first difference and the ranks; ErrInvalid: nothing to train, a parameter without gradient.
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
	facts := []int64{int64(o.Division), int64(o.GradientKind), flag(o.NoInitialBroadcast), int64(o.SourceRank),
		int64(o.FirstBucketBytes), int64(o.BucketBytes), millisOption(o.IdleTimeout)}
	pointer := new(uintptr)
	f := cujoin.DDPCreate(g.r.pointer, int64(arrays.count), address(arrays.names), address(arrays.data),
		address(arrays.grad), address(arrays.facts), address(arrays.shapes), address(facts),
		cujoin.NewHandle(nil, pinner.Unpin), c.pointer(), unsafe.Pointer(pointer))
	if err := c.end(f); err != nil {
		return nil, err
	}
	d := &DDP{r: g.family.adopt(newRef("DDP", *pointer, cujoin.DDPDestroy))}
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

// Forward begins an iteration on a batch of so many samples and notifies the join context. Iteration does it for you.
// Collective. ErrState: the last one is not finished; ErrExhausted: throw mode.
func (d *DDP) Forward(ctx context.Context, samples float64) error {
	const op = "DDP.Forward"
	c, err := d.r.begin(ctx, op, plain)
	if err != nil {
		return err
	}
	defer d.r.leave()
	return c.end(cujoin.DDPForward(d.r.pointer, samples, c.pointer()))
}

// Ready says that gradient i is complete; its bucket is reduced when it is full. From several goroutines at once.
func (d *DDP) Ready(i int) error {
	if err := d.r.share("DDP.Ready"); err != nil {
		return err
	}
	defer d.r.unshare()
	return endPlain(cujoin.DDPReady(d.r.pointer, int64(i)))
}

// Finish ends an iteration: waits for the reductions; gradients then hold the divided sum. Collective.
func (d *DDP) Finish(ctx context.Context) error {
	const op = "DDP.Finish"
	c, err := d.r.begin(ctx, op, plain)
	if err != nil {
		return err
	}
	defer d.r.leave()
	return c.end(cujoin.DDPFinish(d.r.pointer, c.pointer()))
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
}

// Report tells counts, divisor and times.
func (d *DDP) Report() (DDPReport, error) {
	const op = "DDP.Report"
	if err := d.r.enter(op); err != nil {
		return DDPReport{}, err
	}
	defer d.r.leave()
	n, x := new([5]int64), new([2]float64)
	if f := cujoin.DDPReport(d.r.pointer, unsafe.Pointer(n), unsafe.Pointer(x)); f != nil {
		return DDPReport{}, errorOf(f, nil)
	}
	return DDPReport{n[0], x[0], x[1], micros(n[1]), micros(n[2]), int(n[3]), n[4] != 0}, nil
}

// Close drops the reducer.
func (d *DDP) Close() error {
	d.r.close()
	return nil
}
