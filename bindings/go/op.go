// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"fmt"
	"runtime"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// Op is an operation for Submit, as SendOp and the like describe it.
type Op struct {
	kind                   OpKind
	reduce                 Reduce
	peer                   int // the root, or the other rank of a message
	dtype                  DType
	send, recv             unsafe.Pointer
	sendLength, recvLength int // -1: not given
	sendCounts, recvCounts []int
}

// newOp describes an operation on memory of which a side may not be given.
func newOp[T Element](kind OpKind, send, recv []T, hasSend, hasRecv bool) Op {
	o := Op{kind: kind, dtype: dtypeOf[T](), sendLength: -1, recvLength: -1}
	if hasSend {
		o.send, o.sendLength = address(send), len(send)
	}
	if hasRecv {
		o.recv, o.recvLength = address(recv), len(recv)
	}
	return o
}

func (o Op) with(peer int, reduce Reduce) Op {
	o.peer, o.reduce = peer, reduce
	return o
}

// AllReduceOp is AllReduce. Neighbours of one type and reduction in a list become a single operation.
func AllReduceOp[T Element](send, recv []T, reduce Reduce) Op {
	return newOp(OpAllReduce, send, recv, send != nil, true).with(0, reduce)
}

// ReduceOp is ReduceTo.
func ReduceOp[T Element](send, recv []T, root int, reduce Reduce) Op {
	return newOp(OpReduce, send, recv, send != nil, recv != nil || send == nil).with(root, reduce)
}

// BroadcastOp is Broadcast.
func BroadcastOp[T Element](buffer []T, root int) Op {
	return newOp(OpBroadcast, nil, buffer, false, true).with(root, 0)
}

// AllGatherOp is AllGather. Parts of unequal length: RecvCounts, the same on every rank.
func AllGatherOp[T Element](send, recv []T) Op {
	return newOp(OpAllGather, send, recv, send != nil, true)
}

// GatherOp is Gather. Parts of unequal length: RecvCounts at the root.
func GatherOp[T Element](send, recv []T, root int) Op {
	return newOp(OpGather, send, recv, send != nil || recv == nil, recv != nil).with(root, 0)
}

// ScatterOp is Scatter. Parts of unequal length: SendCounts at the root.
func ScatterOp[T Element](send, recv []T, root int) Op {
	return newOp(OpScatter, send, recv, send != nil, recv != nil || send == nil).with(root, 0)
}

// ReduceScatterOp is ReduceScatter. Parts of unequal length: RecvCounts, the same on every rank.
func ReduceScatterOp[T Element](send, recv []T, reduce Reduce) Op {
	return newOp(OpReduceScatter, send, recv, true, true).with(0, reduce)
}

// AllToAllOp is AllToAll. Parts of unequal length: SendCounts and RecvCounts.
func AllToAllOp[T Element](send, recv []T) Op {
	return newOp(OpAllToAll, send, recv, send != nil, true)
}

// SendOp is Send.
func SendOp[T Element](data []T, to int) Op { return newOp(OpSend, data, nil, true, false).with(to, 0) }

// RecvOp is Recv.
func RecvOp[T Element](data []T, from int) Op {
	return newOp(OpRecv, nil, data, false, true).with(from, 0)
}

// BarrierOp is Group.Barrier.
func BarrierOp() Op { return newOp[uint8](OpBarrier, nil, nil, false, false) }

// SendCounts is the operation with parts of unequal length in what it sends: elements for each rank, end to end.
func (o Op) SendCounts(counts ...int) Op {
	o.sendCounts = counts
	return o
}

// RecvCounts is the operation with parts of unequal length in what it receives, or of a ReduceScatterOp in what it sends.
func (o Op) RecvCounts(counts ...int) Op {
	o.recvCounts = counts
	return o
}

// Submit runs operations as one: they are complete together. Every rank gives the same ones in the same order; messages
// (SendOp, RecvOp) concern their two ranks only, and go before the others, all at once, so that none waits for another.
// Collective. ErrMismatch: ranks differ in kind, reduction, type, length or root; a part or a message has another length than
// its receiver expects, or its peer is in another operation.
func Submit(ctx context.Context, g *Group, ops ...Op) error { return runOps(ctx, g, "Submit", ops...) }

// SubmitAsync is Submit that returns at once, as AllReduceAsync. The result of the Work is the operations.
func SubmitAsync(ctx context.Context, g *Group, ops ...Op) (*Work[Op], error) {
	const op = "SubmitAsync"
	list, err := listOf(op, g, ops)
	if err != nil {
		return nil, err
	}
	return begun(ctx, g, op, list.pinner, ops, func(release uint64, c call, out unsafe.Pointer) *cujoin.Failure {
		return list.submit(ctx, g, release, c, out)
	})
}

// ReduceTo reduces over all ranks, in rank order, into the root's recv; on the other ranks recv is not written, and may be nil.
// send nil: in place, what a rank brings lies in recv. Collective.
func ReduceTo[T Element](ctx context.Context, g *Group, send, recv []T, root int, reduce Reduce) error {
	return runOps(ctx, g, "ReduceTo", ReduceOp(send, recv, root, reduce))
}

// Gather gathers send of every rank, in rank order, into the root's recv (g.Size() times as long); on the other ranks recv is
// not looked at. send nil: at the root, its part lies in recv already. Collective.
func Gather[T Element](ctx context.Context, g *Group, send, recv []T, root int) error {
	return runOps(ctx, g, "Gather", GatherOp(send, recv, root))
}

// Scatter copies part r of the root's send (g.Size() times as long as recv) into recv of rank r; on the other ranks send is not
// looked at. recv nil: at the root, its own part stays where it is. Collective.
func Scatter[T Element](ctx context.Context, g *Group, send, recv []T, root int) error {
	return runOps(ctx, g, "Scatter", ScatterOp(send, recv, root))
}

// AllToAll copies part r of send to rank r, and what rank r has for this one into part r of recv. send nil: in place.
// Collective.
func AllToAll[T Element](ctx context.Context, g *Group, send, recv []T) error {
	return runOps(ctx, g, "AllToAll", AllToAllOp(send, recv))
}

// Send sends to a rank, which calls Recv, and returns when that has received it: two ranks that send to each other do so by one
// Submit, or in flight.
func Send[T Element](ctx context.Context, g *Group, data []T, to int) error {
	return runOps(ctx, g, "Send", SendOp(data, to))
}

// Recv receives what a rank sends: as many elements, of the same type, in the order of its sends to this rank.
func Recv[T Element](ctx context.Context, g *Group, data []T, from int) error {
	return runOps(ctx, g, "Recv", RecvOp(data, from))
}

func runOps(ctx context.Context, g *Group, name string, ops ...Op) error {
	list, err := listOf(name, g, ops)
	if err != nil {
		return err
	}
	defer list.pinner.Unpin()
	c, err := g.r.begin(ctx, name, timed)
	if err != nil {
		return err
	}
	defer g.r.leave()
	return c.end(list.submit(ctx, g, 0, c, nil))
}

// opList is operations as the wrapper takes them: see ops_of in bindings/swig/go.i. The memory is pinned.
type opList struct {
	length int
	data   []unsafe.Pointer
	facts  []int64
	counts []uint64
	pinner *runtime.Pinner
}

func listOf(name string, g *Group, ops []Op) (opList, error) {
	l := opList{length: len(ops), pinner: new(runtime.Pinner)}
	for i, o := range ops {
		if err := o.check(name, fmt.Sprintf("operation %d", i), g.size); err != nil {
			return opList{}, err
		}
		l.data = append(l.data, o.send, o.recv)
		l.facts = append(l.facts, int64(o.kind), int64(o.reduce), int64(o.peer), int64(o.dtype), int64(o.sendLength),
			int64(o.recvLength), int64(len(o.sendCounts)), int64(len(o.recvCounts)))
		for _, n := range o.sendCounts {
			l.counts = append(l.counts, uint64(n))
		}
		for _, n := range o.recvCounts {
			l.counts = append(l.counts, uint64(n))
		}
	}
	for _, pointer := range l.data {
		pin(l.pinner, pointer)
	}
	l.data, l.facts, l.counts = append(l.data, nil), append(l.facts, 0), append(l.counts, 0) // never empty
	return l, nil
}

// check: the library reads a count for each rank.
func (o Op) check(name, which string, size int) error {
	for _, counts := range [][]int{o.sendCounts, o.recvCounts} {
		if counts != nil && len(counts) != size {
			return failed(StatusInvalid, name, fmt.Sprintf("%s has %d counts; expected %d, one for each rank", which, len(counts), size))
		}
		for _, n := range counts {
			if n < 0 {
				return failed(StatusInvalid, name, fmt.Sprintf("%s has a count of %d", which, n))
			}
		}
	}
	return checkInt32(name, o.peer)
}

func (l opList) submit(ctx context.Context, g *Group, release uint64, c call, out unsafe.Pointer) *cujoin.Failure {
	return cujoin.Submit(g.r.pointer, int64(l.length), address(l.data), address(l.facts), address(l.counts), opMillis(ctx, 0),
		release, c.pointer(), out)
}
