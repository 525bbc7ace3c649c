// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"fmt"
	"sync/atomic"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// InFlight is work that a hook hands over: a *Work of any type.
type InFlight interface {
	handOver() (uintptr, error)
}

// BucketFunc is a part of a hook: collectives on the bucket's group, the same ones on every rank, shadows included. Work in
// flight that it returns is the library's from then on; nil: none. An error or a panic aborts the group.
type BucketFunc func(b *Bucket) (InFlight, error)

// CommHook is how buckets, or buffers, are reduced; the zero value of a field is its default.
type CommHook struct {
	Kind           CommHookKind // default: custom if Start is given, else all-reduce
	Start          BucketFunc   // custom: reduces now, or returns work in flight
	Then           BucketFunc   // custom: when that work is complete; may return more, and is called again; nil: nothing
	StartIteration int64        // low rank: plain all-reduce before this one; default 1,000; negative = from the first on
	Rank           int          // low rank: of the factors; default 1
}

// Bucket is a bucket of gradients as a comm hook sees it, or a buffer as a buffer hook does, good for the call: BucketData
// has its elements, this rank's undivided gradients, end to end, where the hook leaves the result.
type Bucket struct {
	Group      *Group  // borrowed: closed when the call returns
	Params     []int   // indices of the parameters in it; nil for a buffer
	Offsets    []int   // where each begins, in elements
	Divisor    float64 // of the sum over the ranks: size, active ranks or samples; dividing is the hook's
	Iteration  int64   // synchronised ones before it, those that this rank shadowed too
	Index      int     // of the bucket in the order of launch, or of the buffer
	Last       bool    // the last bucket or buffer of its iteration
	Shadow     bool    // this rank has joined: the contribution is zero
	SourceRank int     // the lowest rank that has not joined: the buffers' source where there is no hook
	Len        int     // elements
	DType      DType
	data       unsafe.Pointer
}

// BucketData is the elements of a bucket, in the library's memory: not for use after the hook, but by the work that it
// returns. ErrInvalid: they are of another type.
func BucketData[T Element](b *Bucket) ([]T, error) {
	data, fits := slice[T](b.data, b.Len, b.DType)
	if !fits {
		return nil, failed(StatusInvalid, "BucketData", fmt.Sprintf("the bucket is of type %d, not %T", b.DType, *new(T)))
	}
	return data, nil
}

// SetCommHook chooses how buckets are reduced; once, before the first iteration (else ErrState), the same on every rank.
// Its functions run on the goroutines in Ready, Finish and, as shadows, JoinContext.Finish: Start in the order of the
// buckets, then Then bucket by bucket. With BySamples and means a bucket holds this rank's share, n g / sum(n), and its
// divisor is 1 (0: no rank has a sample).
func (d *DDP) SetCommHook(hook CommHook) error {
	return d.setHook("DDP.SetCommHook", hook, func(user uint64) *cujoin.Failure {
		return cujoin.DDPSetCommHook(d.r.pointer, int(hook.Kind), user, int(flag(hook.Then != nil)), hook.StartIteration,
			hook.Rank)
	})
}

// SetBufferHook replaces the broadcast of buffers: called for each buffer in each synchronised iteration; work that it
// returns is complete when that call returns. Kinds: all-reduce (the average), custom. Shadowed by joined ranks. Once,
// before the first iteration.
func (d *DDP) SetBufferHook(time BufferTime, hook CommHook) error {
	return d.setHook("DDP.SetBufferHook", hook, func(user uint64) *cujoin.Failure {
		return cujoin.DDPSetBufferHook(d.r.pointer, int(time), int(hook.Kind), user, int(flag(hook.Then != nil)),
			hook.StartIteration, hook.Rank)
	})
}

func (d *DDP) setHook(op string, hook CommHook, set func(user uint64) *cujoin.Failure) error {
	if err := d.r.enter(op); err != nil {
		return err
	}
	defer d.r.leave()
	if hook.Start == nil {
		if hook.Then != nil {
			return failed(StatusInvalid, op, "Then is given without Start")
		}
		return endPlain(set(0))
	}
	d.hooks = hooks
	return endPlain(set(cujoin.NewHandle(cujoin.BucketFunc(func(then bool, raw cujoin.Bucket) (uintptr, error) {
		b := bucketOf(raw)
		defer func() { _ = b.Group.Close() }()
		run := hook.Start
		if then {
			run = hook.Then
		}
		work, err := run(b)
		if err != nil || work == nil {
			return 0, err
		}
		return work.handOver()
	}), nil)))
}

func bucketOf(raw cujoin.Bucket) *Bucket {
	g := &Group{r: newRef("bucket's group", raw.Group, func(uintptr) {}), rank: cujoin.GroupRank(raw.Group),
		size: cujoin.GroupSize(raw.Group), family: &family{members: map[*ref]struct{}{}}, dropped: new(atomic.Int64)}
	return &Bucket{Group: g, Params: ints(raw.Params), Offsets: ints(raw.Offsets), Divisor: raw.Divisor,
		Iteration: raw.Iteration, Index: int(raw.Index), Last: raw.Last, Shadow: raw.Shadow, SourceRank: int(raw.Source),
		Len: raw.Count, DType: DType(raw.DType), data: raw.Data}
}
