// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"runtime"
	"sync/atomic"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// The kinds of collectives, as the wrapper numbers them.
const (
	allReduce = 1 + iota
	broadcast
	allGather
	reduceScatter
	barrier
)

// operation is a collective's arguments.
type operation struct {
	kind                 int
	send, recv           unsafe.Pointer
	sendCount, recvCount int
	dtype                DType
	argument             int // root or reduction
}

func reduction[T Element](kind int, send, recv []T, argument int) operation {
	return operation{kind, address(send), address(recv), len(send), len(recv), dtypeOf[T](), argument}
}

// run issues an operation and returns when it is done.
func run(ctx context.Context, g *Group, name string, o operation) error {
	c, err := g.r.begin(ctx, name, timed)
	if err != nil {
		return err
	}
	defer g.r.leave()
	f := cujoin.Collective(o.kind, g.r.pointer, o.send, int64(o.sendCount), o.recv, int64(o.recvCount), int(o.dtype),
		o.argument, opMillis(ctx, 0), 0, c.pointer(), nil)
	return c.end(f)
}

// AllReduce reduces over all ranks, in rank order, into recv on every rank; the bits are the same on all of them. send nil:
// in place. Sums of 16-bit types are accumulated in 32 bits; Avg divides by the contributors. Collective. ErrMismatch:
// ranks differ in operation, reduction, type or length.
func AllReduce[T Element](ctx context.Context, g *Group, send, recv []T, reduce Reduce) error {
	return run(ctx, g, "AllReduce", reduction(allReduce, send, recv, int(reduce)))
}

// Broadcast copies the root's buffer into every rank's. Collective.
func Broadcast[T Element](ctx context.Context, g *Group, buffer []T, root int) error {
	return run(ctx, g, "Broadcast", reduction(broadcast, nil, buffer, root))
}

// AllGather gathers send of every rank, in rank order, into recv (g.Size() times as long). send nil: in place, this rank's
// part lies in recv already. Collective.
func AllGather[T Element](ctx context.Context, g *Group, send, recv []T) error {
	return run(ctx, g, "AllGather", reduction(allGather, send, recv, 0))
}

// ReduceScatter reduces send (g.Size() times as long as recv) and leaves part r in recv of rank r. Collective.
func ReduceScatter[T Element](ctx context.Context, g *Group, send, recv []T, reduce Reduce) error {
	return run(ctx, g, "ReduceScatter", reduction(reduceScatter, send, recv, int(reduce)))
}

// AllReduceAsync is AllReduce that returns at once. Until Wait says that it is done, the memory belongs to the operation.
// The context's deadline becomes the operation's; its cancellation counts for the submission only: give Wait one.
func AllReduceAsync[T Element](ctx context.Context, g *Group, send, recv []T, reduce Reduce) (*Work[T], error) {
	return submit(ctx, g, "AllReduceAsync", reduction(allReduce, send, recv, int(reduce)), recv)
}

// BroadcastAsync is Broadcast that returns at once, as AllReduceAsync.
func BroadcastAsync[T Element](ctx context.Context, g *Group, buffer []T, root int) (*Work[T], error) {
	return submit(ctx, g, "BroadcastAsync", reduction(broadcast, nil, buffer, root), buffer)
}

// AllGatherAsync is AllGather that returns at once, as AllReduceAsync.
func AllGatherAsync[T Element](ctx context.Context, g *Group, send, recv []T) (*Work[T], error) {
	return submit(ctx, g, "AllGatherAsync", reduction(allGather, send, recv, 0), recv)
}

// ReduceScatterAsync is ReduceScatter that returns at once, as AllReduceAsync.
func ReduceScatterAsync[T Element](ctx context.Context, g *Group, send, recv []T, reduce Reduce) (*Work[T], error) {
	return submit(ctx, g, "ReduceScatterAsync", reduction(reduceScatter, send, recv, int(reduce)), recv)
}

// Work is an operation in flight. It ends also when nobody waits: its memory stays pinned until then, and
// Group.Shutdown reports operations that were dropped without Wait.
type Work[T any] struct {
	w      *work
	result []T
}

type work struct {
	r       *ref
	settled atomic.Bool   // somebody has seen its final status, or has closed it knowingly
	dropped *atomic.Int64 // of the group
}

func submit[T Element](ctx context.Context, g *Group, name string, o operation, result []T) (*Work[T], error) {
	pinner := new(runtime.Pinner)
	pin(pinner, o.send)
	pin(pinner, o.recv)
	return begun(ctx, g, name, pinner, result, func(release uint64, c call, out unsafe.Pointer) *cujoin.Failure {
		return cujoin.Collective(o.kind, g.r.pointer, o.send, int64(o.sendCount), o.recv, int64(o.recvCount), int(o.dtype),
			o.argument, opMillis(ctx, 0), release, c.pointer(), out)
	})
}

// begun makes the Work of a call that puts something in flight; the memory is unpinned by the library's notice.
func begun[T any](ctx context.Context, g *Group, name string, pinner *runtime.Pinner, result []T,
	start func(release uint64, c call, out unsafe.Pointer) *cujoin.Failure) (*Work[T], error) {
	c, err := g.r.begin(ctx, name, timed)
	if err != nil {
		pinner.Unpin()
		return nil, err
	}
	defer g.r.leave()
	pointer := new(uintptr)
	f := start(cujoin.NewHandle(nil, pinner.Unpin), c, unsafe.Pointer(pointer))
	if err := c.end(f); err != nil {
		return nil, err // the notice has run, the memory is free
	}
	w := &Work[T]{&work{r: newRef("work", *pointer, cujoin.WorkDestroy), dropped: g.dropped}, result}
	runtime.AddCleanup(w, (*work).forgotten, w.w)
	return w, nil
}

func (w *work) forgotten() {
	if !w.settled.Load() {
		w.dropped.Add(1)
	}
	w.r.close()
}

// Wait waits for the operation and returns its result, the memory that was given for it. ErrPending: not before the
// context's end, the operation goes on. Otherwise its final outcome, the same for every later call.
func (w *Work[T]) Wait(ctx context.Context) ([]T, error) {
	const op = "Work.Wait"
	c, err := w.w.r.begin(ctx, op, timed)
	if err != nil {
		return nil, err
	}
	defer w.w.r.leave()
	f := cujoin.WorkWait(w.w.r.pointer, waitMillis(ctx), c.pointer())
	if err := c.waited(f); err != nil {
		if f.Status < 0 && Status(f.Status) != StatusCallback {
			w.w.settled.Store(true)
		}
		return nil, err
	}
	w.w.settled.Store(true)
	return w.result, nil
}

// Test tells whether the operation has ended, and how. It never waits.
func (w *Work[T]) Test() (done bool, err error) {
	if err := w.w.r.share("Work.Test"); err != nil {
		return false, err
	}
	defer w.w.r.unshare()
	f := cujoin.WorkTest(w.w.r.pointer)
	if f != nil && Status(f.Status) == StatusPending {
		return false, nil
	}
	w.w.settled.Store(true)
	return true, errorOf(f, nil)
}

// Contributors is the ranks that contributed to a completed operation, ascending: all, unless joined ranks shadowed it. nil
// while it is in flight, and if it failed.
func (w *Work[T]) Contributors() []int {
	if w.w.r.share("Work.Contributors") != nil {
		return nil
	}
	defer w.w.r.unshare()
	raw := make([]int32, cujoin.WorkContributors(w.w.r.pointer, nil, 0))
	cujoin.WorkContributors(w.w.r.pointer, address(raw), int64(len(raw)))
	return ints(raw)
}

// handOver gives the handle up to the library; 0 of nil.
func (w *Work[T]) handOver() (uintptr, error) {
	if w == nil {
		return 0, nil
	}
	if err := w.w.r.enter("Work"); err != nil {
		return 0, err
	}
	w.w.settled.Store(true)
	w.w.r.destroy = func(uintptr) {} // no longer ours
	w.w.r.close()
	w.w.r.leave()
	return w.w.r.pointer, nil
}

// Abort gives the operation up; it ends with ErrAborted on every rank, and its group is broken.
func (w *Work[T]) Abort() {
	if w.w.r.share("Work.Abort") == nil {
		w.w.settled.Store(true)
		cujoin.WorkAbort(w.w.r.pointer)
		w.w.r.unshare()
	}
}

// Close drops the work without waiting. The operation goes on, and its memory is in use until it ends.
func (w *Work[T]) Close() error {
	w.w.settled.Store(true)
	w.w.r.close()
	return nil
}
