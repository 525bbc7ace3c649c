// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"testing"
	"time"

	"ujoin.dev/go"
)

// same reports which of the pairs (got, want) differ.
func same[T comparable](what string, got, want []T) error {
	if !slices.Equal(got, want) {
		return fmt.Errorf("%s: %v, want %v", what, got, want)
	}
	return nil
}

// letter is what rank a has for rank b: as many elements as both together, which tell where they come from.
func letter(a, b int) []int32 { return filled(a+b, int32(100*a+b)) }

// of is the letters of ranks 0 to n-1, end to end, and their lengths.
func of(n int, one func(k int) []int32) (all []int32, lengths []int) {
	for k := range n {
		all, lengths = append(all, one(k)...), append(lengths, len(one(k)))
	}
	return all, lengths
}

func TestRootedCollectives(t *testing.T) {
	ranks(t, 3, func(ctx context.Context, g *ujoin.Group) error {
		r := g.Rank()
		for root := range g.Size() {
			inPlace, into := []float32{float32(r + 1), 1}, []int64{-1}
			var all []int32
			var send []uint8
			want := []float32{float32(r + 1), 1}
			product := int64(-1)
			if r == root {
				want, product = []float32{6, 3}, 6
				all, send = make([]int32, 6), []uint8{0, 1, 2, 3, 4, 5}
			}
			own := filled(3, int32(-1))
			own[r] = int32(r)
			var mine []int32
			if r != root {
				mine = []int32{int32(r)}
			}
			part := make([]uint8, 2)
			err := errors.Join(ujoin.ReduceTo(ctx, g, nil, inPlace, root, ujoin.Sum),
				ujoin.ReduceTo(ctx, g, []int64{int64(r + 1)}, into, root, ujoin.Prod),
				ujoin.Gather(ctx, g, []int32{int32(r), 7}, all, root),
				ujoin.Gather(ctx, g, mine, own, root),
				ujoin.Scatter(ctx, g, send, part, root))
			if err != nil {
				return err
			}
			if r == root {
				err = errors.Join(same("gathered", all, []int32{0, 7, 1, 7, 2, 7}), same("in place", own, []int32{0, 1, 2}))
			}
			err = errors.Join(err, same("reduced", inPlace, want), same("product", into, []int64{product}),
				same("scattered", part, []uint8{uint8(2 * r), uint8(2*r + 1)}))
			stays := part
			if r == root {
				stays = nil // its own part stays in send
			}
			if err := errors.Join(err, ujoin.Scatter(ctx, g, send, stays, root)); err != nil {
				return err
			}
		}
		return g.Shutdown(ctx)
	})
}

func TestAllToAll(t *testing.T) {
	ranks(t, 3, func(ctx context.Context, g *ujoin.Group) error {
		r, n := g.Rank(), g.Size()
		data := []float64{float64(10 * r), float64(10*r + 1), float64(10*r + 2)}
		came, back := make([]float64, n), slices.Clone(data)
		err := errors.Join(ujoin.AllToAll(ctx, g, data, came), ujoin.AllToAll(ctx, g, nil, back))
		want := []float64{float64(r), float64(10 + r), float64(20 + r)}
		return errors.Join(err, same("came", came, want), same("in place", back, want))
	})
}

func TestPartsOfUnequalLength(t *testing.T) {
	ranks(t, 3, func(ctx context.Context, g *ujoin.Group) error {
		r, n := g.Rank(), g.Size()
		all, lengths := of(n, func(k int) []int32 { return letter(k, 1) })
		gathered, atRoot, part, sums := make([]int32, len(all)), make([]int32, len(all)), make([]int32, r+1), make([]int32, r+1)
		sent, counts := of(n, func(k int) []int32 { return letter(r, k) })
		want, _ := of(n, func(k int) []int32 { return letter(k, r) })
		came := make([]int32, len(want))
		gather, scatter := ujoin.GatherOp(letter(r, 1), atRoot, 2), ujoin.ScatterOp(all, part, 1)
		if r == 2 {
			gather = gather.RecvCounts(lengths...)
		}
		if r == 1 {
			scatter = scatter.SendCounts(lengths...)
		}
		err := ujoin.Submit(ctx, g, ujoin.AllGatherOp(letter(r, 1), gathered).RecvCounts(lengths...), gather, scatter,
			ujoin.ReduceScatterOp(all, sums, ujoin.Sum).RecvCounts(lengths...),
			ujoin.AllToAllOp(sent, came).SendCounts(counts...).RecvCounts(counts...))
		if r != 2 {
			all = nil
		} else {
			err = errors.Join(err, same("at the root", atRoot, all))
		}
		return errors.Join(err, same("gathered", gathered[:1], []int32{1}), same("part", part, letter(r, 1)),
			same("sums", sums, filled(r+1, int32(n*(100*r+1)))), same("came", came, want))
	})
}

func TestMessages(t *testing.T) {
	ranks(t, 3, func(ctx context.Context, g *ujoin.Group) error {
		r, n := g.Rank(), g.Size()
		next, previous := (r+1)%n, (r+n-1)%n
		big, small := make([]float32, 50_000), []uint8{99}
		err := ujoin.Submit(ctx, g, ujoin.SendOp(filled(50_000, float32(r)), next), ujoin.SendOp([]uint8{uint8(r)}, next),
			ujoin.RecvOp(big, previous), ujoin.RecvOp(small, previous))
		err = errors.Join(err, same("big", big, filled(50_000, float32(previous))), same("small", small, []uint8{uint8(previous)}))
		if err != nil {
			return err
		}
		got := []ujoin.Float16{0, 0}
		switch r {
		case 0:
			return ujoin.Send(ctx, g, []ujoin.Float16{ujoin.ToFloat16(1.5), ujoin.ToFloat16(-2)}, 2)
		case 2:
			err = ujoin.Recv(ctx, g, got, 0)
			return errors.Join(err, same("halves", got, []ujoin.Float16{ujoin.ToFloat16(1.5), ujoin.ToFloat16(-2)}))
		}
		return nil
	})
}

// The only references to the memory in flight are the operations', while the collector runs and everything is overwritten.
func TestListsInFlightStayUnderTheCollector(t *testing.T) {
	const n = 1 << 18
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		r, peer := g.Rank(), 1-g.Rank()
		received, sums := make([]float32, n), filled(3, int64(r+1))
		work, err := ujoin.SubmitAsync(ctx, g, ujoin.SendOp(filled(n, float32(r)), peer), ujoin.RecvOp(received, peer),
			ujoin.AllReduceOp(nil, sums, ujoin.Sum), ujoin.AllReduceOp(filled(n, int64(1)), make([]int64, n), ujoin.Sum),
			ujoin.BroadcastOp(filled(n, uint8(r)), 1), ujoin.BarrierOp())
		if err != nil {
			return err
		}
		var rubbish [][]float32
		for i := range 50 {
			runtime.GC()
			rubbish = append(rubbish[i/25:], filled(1<<12, float32(-1)))
		}
		runtime.KeepAlive(rubbish)
		ops, err := work.Wait(ctx)
		if err != nil || len(ops) != 6 {
			return fmt.Errorf("%d operations %w", len(ops), err)
		}
		if done, err := work.Test(); !done || err != nil {
			return fmt.Errorf("test: %v %w", done, err)
		}
		return errors.Join(same("received", received, filled(n, float32(peer))), same("sums", sums, []int64{3, 3, 3}),
			work.Close(), g.Shutdown(ctx))
	})
}

func TestSplit(t *testing.T) {
	ranks(t, 4, func(ctx context.Context, g *ujoin.Group) error {
		r, color := g.Rank(), g.Rank()/2
		if r == 3 {
			color = -1
		}
		part, err := g.Split(ctx, color, -r, nil)
		if err != nil || (part == nil) != (r == 3) {
			return fmt.Errorf("part %v %w", part, err)
		}
		if part != nil {
			place := []int{part.Rank(), part.Size()}
			sum := []int32{int32(r)}
			err := errors.Join(same("place", place, [][]int{{1, 2}, {0, 2}, {0, 1}}[r]), // the higher rank has the lower key
				ujoin.AllReduce(ctx, part, nil, sum, ujoin.Sum), same("sum", sum, []int32{[]int32{1, 1, 2}[r]}))
			if err != nil {
				return err
			}
			part.Abort("on its own")
			defer part.Close()
		}
		return errors.Join(g.Barrier(ctx), g.Shutdown(ctx))
	})
	g, ctx := alone(t), within(t)
	part, err := g.Split(ctx, 7, 0, &ujoin.GroupOptions{Backend: "shm", Timeout: patience})
	ok(t, err)
	info, err := part.Info()
	ok(t, err)
	if info.Backend != "shm" {
		t.Errorf("backend %s", info.Backend)
	}
	_, err = part.Split(ctx, 0, 0, &ujoin.GroupOptions{WorldSize: 1})
	refused(t, err, ujoin.ErrInvalid, "follow from the group")
	_, err = part.Split(ctx, math.MaxInt32+1, 0, nil)
	refused(t, err, ujoin.ErrInvalid, "does not fit into 32 bits")
	ok(t, part.Shutdown(ctx))
	_, err = part.Split(ctx, 0, 0, nil)
	refused(t, err, ujoin.ErrState, "closed")
	ok(t, part.Close())
}

func TestWrongOperations(t *testing.T) {
	g, ctx, one := alone(t), within(t), []float32{1}
	for part, op := range map[string]ujoin.Op{
		"operation 0 has 2 counts; expected 1, one for each rank": ujoin.GatherOp(one, one, 0).RecvCounts(1, 0),
		"operation 0 has a count of -1":                           ujoin.AllToAllOp(one, one).SendCounts(-1),
		"ops[0].recv_counts[0] is 2, more than recv.count, 1":     ujoin.AllGatherOp(one, one).RecvCounts(2),
		"ops[0].peer is 4; expected 0 to 0":                       ujoin.SendOp(one, 4),
		"each send needs its recv":                                ujoin.RecvOp(one, 0),
		"does not fit into 32 bits":                               ujoin.RecvOp(one, math.MaxInt32+1),
		"ops[0].send.count is 2; expected 1":                      ujoin.AllReduceOp([]float32{1, 2}, one, ujoin.Sum),
		"expected a value of ujoin_op_kind_value":                 {},
	} {
		err := ujoin.Submit(ctx, g, op)
		if e := differs(err, ujoin.ErrInvalid, ""); e != nil {
			t.Error(e)
		}
		_, err = ujoin.SubmitAsync(ctx, g, op)
		if e := differs(err, ujoin.ErrInvalid, part); e != nil {
			t.Error(e)
		}
	}
	refused(t, ujoin.Submit(ctx, g), ujoin.ErrInvalid, "no operations are given")
	for rank, err := range results(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		if g.Rank() == 0 {
			return ujoin.Send(ctx, g, make([]float32, 3), 1)
		}
		return ujoin.Recv(ctx, g, make([]float64, 3), 0)
	}) {
		if problem := differs(err, ujoin.ErrMismatch, "f64"); problem != nil {
			t.Errorf("rank %d: %v", rank, problem)
		}
	}
}

// A message that nobody receives ends with its context.
func TestMessagesThatAreGivenUp(t *testing.T) {
	for want, end := range map[error]func(context.Context) (context.Context, context.CancelFunc){
		context.DeadlineExceeded: func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, 50*time.Millisecond)
		},
		context.Canceled: func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			time.AfterFunc(20*time.Millisecond, cancel)
			return ctx, cancel
		},
	} {
		gone := make(chan struct{})
		ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
			if g.Rank() == 1 {
				<-gone
				return nil
			}
			defer close(gone)
			ending, cancel := end(ctx)
			defer cancel()
			return differs(ujoin.Send(ending, g, []int32{1}, 1), want, "")
		})
	}
}
