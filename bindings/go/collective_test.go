// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"slices"
	"syscall"
	"testing"
	"unsafe"

	"ujoin.dev/go"
)

// reduceAll checks the four collectives on one type: rank r of 3 brings r + 1.
func reduceAll[T ujoin.Element](t *testing.T, of func(int) T) {
	t.Helper()
	name := fmt.Sprintf("%T", of(0))
	ranks(t, 3, func(ctx context.Context, g *ujoin.Group) error {
		mine := of(g.Rank() + 1)
		recv := make([]T, 5)
		if err := ujoin.AllReduce(ctx, g, filled(5, mine), recv, ujoin.Sum); err != nil {
			return err
		}
		inPlace := filled(5, mine)
		if err := ujoin.AllReduce(ctx, g, nil, inPlace, ujoin.Max); err != nil {
			return err
		}
		part := make([]T, 2)
		send := slices.Concat(filled(2, of(1)), filled(2, of(2)), filled(2, mine))
		if err := ujoin.ReduceScatter(ctx, g, send, part, ujoin.Sum); err != nil {
			return err
		}
		gathered := make([]T, 3)
		if err := ujoin.AllGather(ctx, g, []T{mine}, gathered); err != nil {
			return err
		}
		from2 := filled(2, mine)
		if err := ujoin.Broadcast(ctx, g, from2, 2); err != nil {
			return err
		}
		wantPart := filled(2, of([]int{3, 6, 6}[g.Rank()]))
		if !slices.Equal(recv, filled(5, of(6))) || !slices.Equal(inPlace, filled(5, of(3))) ||
			!slices.Equal(part, wantPart) || !slices.Equal(gathered, []T{of(1), of(2), of(3)}) ||
			!slices.Equal(from2, filled(2, of(3))) {
			return fmt.Errorf("%s: %v %v %v %v %v", name, recv, inPlace, part, gathered, from2)
		}
		return nil
	})
}

func TestCollectivesOfEveryType(t *testing.T) {
	reduceAll(t, func(n int) float32 { return float32(n) })
	reduceAll(t, func(n int) float64 { return float64(n) })
	reduceAll(t, func(n int) int32 { return int32(n) })
	reduceAll(t, func(n int) int64 { return int64(n) })
	reduceAll(t, func(n int) uint8 { return uint8(n) })
	reduceAll(t, func(n int) ujoin.Float16 { return ujoin.ToFloat16(float32(n)) })
	reduceAll(t, func(n int) ujoin.BFloat16 { return ujoin.ToBFloat16(float32(n)) })
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		bytes := make([]uint8, 2)
		if err := ujoin.AllGather(ctx, g, []uint8{uint8(g.Rank() + 7)}, bytes); err != nil || !slices.Equal(bytes, []uint8{7, 8}) {
			return fmt.Errorf("%v %w", bytes, err)
		}
		in := []uint8{0, 0}
		in[g.Rank()] = uint8(g.Rank() + 1)
		if err := ujoin.AllGather(ctx, g, nil, in); err != nil || !slices.Equal(in, []uint8{1, 2}) {
			return fmt.Errorf("in place: %v %w", in, err)
		}
		half := []float32{float32(g.Rank())}
		if err := ujoin.AllReduce(ctx, g, nil, half, ujoin.Avg); err != nil || half[0] != 0.5 {
			return fmt.Errorf("avg: %v %w", half, err)
		}
		least := []int32{int32(5 - g.Rank())}
		if err := ujoin.AllReduce(ctx, g, nil, least, ujoin.Min); err != nil || least[0] != 4 {
			return fmt.Errorf("min: %v %w", least, err)
		}
		return ujoin.AllReduce(ctx, g, nil, []float32(nil), ujoin.Sum) // nothing is allowed
	})
}

func TestHalfPrecisionRoundsToEven(t *testing.T) {
	for _, c := range []struct {
		x    float32
		f16  ujoin.Float16
		bf16 ujoin.BFloat16
	}{
		{0, 0, 0}, {1, 0x3c00, 0x3f80}, {-2, 0xc000, 0xc000}, {65504, 0x7bff, 0x4780}, {65520, 0x7c00, 0x4780},
		{65519, 0x7bff, 0x4780}, {1 + 1.0/2048, 0x3c00, 0x3f80}, {1 + 3.0/2048, 0x3c02, 0x3f80},
		{1 + 1.0/256, 0x3c04, 0x3f80}, {1 + 3.0/256, 0x3c0c, 0x3f82}, {1.0 / (1 << 24), 1, 0x3380},
		{1.0 / (1 << 25), 0, 0x3300}, {3.0 / (1 << 25), 2, 0x33c0}, {float32(math.Inf(-1)), 0xfc00, 0xff80},
		{1.0 / (1 << 14), 0x0400, 0x3880}, {1023.75 / (1 << 24), 0x0400, 0x3880},
	} {
		if f, b := ujoin.ToFloat16(c.x), ujoin.ToBFloat16(c.x); f != c.f16 || b != c.bf16 {
			t.Errorf("%g: %#04x %#04x, want %#04x %#04x", c.x, f, b, c.f16, c.bf16)
		}
	}
	nan := float32(math.NaN())
	if x, y := ujoin.ToFloat16(nan).Float32(), ujoin.ToBFloat16(nan).Float32(); x == x || y == y {
		t.Errorf("NaN became %g and %g", x, y)
	}
	for bits := range 1 << 16 {
		h, b := ujoin.Float16(bits), ujoin.BFloat16(bits)
		if x := h.Float32(); x == x && ujoin.ToFloat16(x) != h {
			t.Fatalf("Float16 %#04x is %g and then %#04x", bits, x, ujoin.ToFloat16(x))
		}
		if x := b.Float32(); x == x && ujoin.ToBFloat16(x) != b {
			t.Fatalf("BFloat16 %#04x is %g and then %#04x", bits, x, ujoin.ToBFloat16(x))
		}
	}
}

// The only reference to the memory in flight is the Work's, while the collector runs and everything is overwritten.
func TestMemoryInFlightStaysUnderTheCollector(t *testing.T) {
	const n = 1 << 20
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		work, err := ujoin.AllReduceAsync(ctx, g, filled(n, float32(g.Rank()+1)), make([]float32, n), ujoin.Sum)
		if err != nil {
			return err
		}
		var rubbish [][]float32
		for i := range 100 {
			runtime.GC()
			rubbish = append(rubbish[i/50:], filled(1<<12, float32(-1)))
		}
		runtime.KeepAlive(rubbish)
		sum, err := work.Wait(ctx)
		if err != nil {
			return err
		}
		for i, x := range sum {
			if x != 3 {
				return fmt.Errorf("element %d is %g", i, x)
			}
		}
		return work.Close()
	})
}

// Nobody waits and nobody holds the work: it completes all the same, nothing is corrupted, and Shutdown tells.
func TestWorkDroppedWithoutWaitIsReported(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		recv := make([]float32, 1000)
		if err := drop(ctx, g, recv); err != nil {
			return err
		}
		for range 5 { // cleanups run in the background
			runtime.GC()
		}
		if err := g.Barrier(ctx); err != nil { // comes after the operation
			return err
		}
		if recv[0] != 3 || recv[999] != 3 {
			return fmt.Errorf("the result is %g, %g", recv[0], recv[999])
		}
		for ctx.Err() == nil {
			runtime.GC()
			if dropped := ujoin.DroppedForTest(g); dropped == 1 {
				break
			}
		}
		return differs(g.Shutdown(ctx), ujoin.ErrState, "1 operations in flight were dropped without Wait")
	})
}

func drop(ctx context.Context, g *ujoin.Group, recv []float32) error {
	_, err := ujoin.AllReduceAsync(ctx, g, filled(len(recv), float32(g.Rank()+1)), recv, ujoin.Sum)
	return err
}

func TestAsyncCollectives(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		r := float64(g.Rank())
		reduce, err1 := ujoin.AllReduceAsync(ctx, g, nil, []float64{r + 1}, ujoin.Sum)
		copied, err2 := ujoin.BroadcastAsync(ctx, g, []int64{int64(r) + 5}, 1)
		gather, err3 := ujoin.AllGatherAsync(ctx, g, []uint8{uint8(r)}, make([]uint8, 2))
		scatter, err4 := ujoin.ReduceScatterAsync(ctx, g, []float64{1, 10}, make([]float64, 1), ujoin.Sum)
		if err := errors.Join(err1, err2, err3, err4); err != nil {
			return err
		}
		d, err := scatter.Wait(ctx) // the last one: work completes in the order of submission
		if err != nil || d[0] != []float64{2, 20}[g.Rank()] {
			return fmt.Errorf("%v %w", d, err)
		}
		for _, test := range []func() (bool, error){reduce.Test, copied.Test, gather.Test, scatter.Test} {
			if done, err := test(); !done || err != nil {
				return fmt.Errorf("test: %v %w", done, err)
			}
		}
		a, err1 := reduce.Wait(ctx)
		b, err2 := copied.Wait(ctx)
		c, err3 := gather.Wait(ctx)
		if a[0] != 3 || b[0] != 6 || !slices.Equal(c, []uint8{0, 1}) {
			return fmt.Errorf("%v %v %v", a, b, c)
		}
		return errors.Join(err1, err2, err3, reduce.Close(), copied.Close(), gather.Close(), scatter.Close(), g.Shutdown(ctx))
	})
}

func TestAbortedWorkBreaksTheGroupOnEveryRank(t *testing.T) {
	aborted := make(chan struct{})
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		if g.Rank() == 1 {
			<-aborted
			err := ujoin.AllReduce(ctx, g, nil, []float32{1}, ujoin.Sum)
			for err == nil { // what rank 0 had brought may still count
				err = ujoin.AllReduce(ctx, g, nil, []float32{1}, ujoin.Sum)
			}
			return differs(err, ujoin.ErrAborted, "rank 0")
		}
		defer close(aborted)
		work, err := ujoin.AllReduceAsync(ctx, g, nil, []float32{1}, ujoin.Sum)
		if err != nil {
			return err
		}
		work.Abort()
		_, err = work.Wait(ctx)
		return errors.Join(differs(err, ujoin.ErrAborted, ""), differs(g.Barrier(ctx), ujoin.ErrAborted, ""))
	})
}

func TestPeersThatDifferOrLeave(t *testing.T) {
	for rank, err := range results(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		return ujoin.AllReduce(ctx, g, nil, make([]float32, 3+g.Rank()), ujoin.Sum)
	}) {
		if problem := differs(err, ujoin.ErrMismatch, "rank"); problem != nil {
			t.Errorf("rank %d: %v", rank, problem)
		}
	}
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		if g.Rank() == 1 {
			return g.Close()
		}
		err := g.Barrier(ctx)
		if e := (*ujoin.Error)(nil); !errors.As(err, &e) || !slices.Equal(e.Ranks, []int{1}) {
			return fmt.Errorf("ranks of %w", err)
		}
		return differs(err, ujoin.ErrPeerLost, "rank 1")
	})
}

// Numbers that lie in a struct with Go pointers, on the stack, or in memory that is not Go's.
func TestMemoryOfEveryKind(t *testing.T) {
	type layer struct {
		next   *layer
		name   string
		values [4]float32
	}
	mapped, err := syscall.Mmap(-1, 0, 4096, syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	ok(t, err)
	defer func() { ok(t, syscall.Munmap(mapped)) }()
	outside := unsafe.Slice((*float32)(unsafe.Pointer(&mapped[0])), 4)
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		l := &layer{next: &layer{}, name: "embedding", values: [4]float32{1, 2, 3, 4}}
		if err := ujoin.AllReduce(ctx, g, nil, l.values[:], ujoin.Sum); err != nil || l.values[3] != 8 {
			return fmt.Errorf("%v %w", l.values, err)
		}
		work, err := ujoin.AllReduceAsync(ctx, g, nil, l.values[:], ujoin.Sum)
		if err != nil {
			return err
		}
		l = nil
		runtime.GC()
		if sum, err := work.Wait(ctx); err != nil || sum[0] != 4 {
			return fmt.Errorf("%v %w", sum, err)
		}
		if g.Rank() == 0 {
			copy(outside, []float32{5, 6, 7, 8})
		}
		target := outside
		if g.Rank() == 1 {
			target = make([]float32, 4)
		}
		copied, err := ujoin.BroadcastAsync(ctx, g, target, 0)
		if err != nil {
			return err
		}
		if got, err := copied.Wait(ctx); err != nil || got[3] != 8 {
			return fmt.Errorf("%v %w", got, err)
		}
		return nil
	})
}

func TestSynchronousCollectivesAllocateNothing(t *testing.T) {
	g := alone(t)
	ctx, send, recv := context.Background(), make([]float32, 16), make([]float32, 16)
	allocations := testing.AllocsPerRun(200, func() {
		if ujoin.AllReduce(ctx, g, send, recv, ujoin.Sum) != nil || g.Barrier(ctx) != nil {
			panic("failed")
		}
	})
	if allocations != 0 {
		t.Fatalf("%g allocations a call", allocations)
	}
}

func TestGroupInfo(t *testing.T) {
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		info, err := g.Info()
		if err != nil || info.Backend != "local" || info.Rank != g.Rank() || info.WorldSize != 2 || g.Size() != 2 ||
			info.LocalRank != g.Rank() || info.LocalSize != 2 || info.Threads < 1 {
			return fmt.Errorf("%+v %w", info, err)
		}
		return g.Shutdown(ctx)
	})
}

// allocatesNothing checks that a call leaves the collector nothing to do.
func allocatesNothing(t *testing.T, what string, call func() error) {
	t.Helper()
	ok(t, call()) // the first one may
	allocations := testing.AllocsPerRun(100, func() {
		if err := call(); err != nil {
			t.Error(err)
		}
	})
	if allocations != 0 {
		t.Errorf("%s allocates %v times", what, allocations)
	}
}

func TestAStepAllocatesNothing(t *testing.T) {
	g, ctx := alone(t), context.Background()
	slices3 := [3][]float32{filled[float32](16, 1), filled[float32](16, 2), filled[float32](16, 3)}
	allocatesNothing(t, "AllReduce of 3 slices", func() error {
		for _, slice := range slices3 {
			if err := ujoin.AllReduce(ctx, g, nil, slice, ujoin.Sum); err != nil {
				return err
			}
		}
		return nil
	})
	var params []ujoin.Param
	for i, slice := range slices3 {
		params = append(params, ujoin.NewParam(fmt.Sprint(i), slice, filled[float32](16, 1)))
	}
	ddp, err := ujoin.NewDDP(g, params, nil)
	ok(t, err)
	zero, err := ujoin.NewZero(g, ujoin.SGD{}, params, nil)
	ok(t, err)
	backward := func(ready func(int)) error {
		for i := range params {
			ready(i)
		}
		return nil
	}
	allocatesNothing(t, "DDP.Iteration", func() error { return ddp.Iteration(1, backward) })
	allocatesNothing(t, "Zero.Step", zero.Step)
}

func TestGroupThreads(t *testing.T) {
	g, err := ujoin.NewGroup(t.Context(), &ujoin.GroupOptions{Backend: "self", WorldSize: 1, Threads: 3})
	if err != nil {
		t.Fatal(err)
	}
	defer g.Close()
	if info, err := g.Info(); err != nil || info.Threads != 3 {
		t.Errorf("%+v %v", info, err)
	}
	_, err = ujoin.NewGroup(t.Context(), &ujoin.GroupOptions{Backend: "self", WorldSize: 1, Threads: -1})
	if !errors.Is(err, ujoin.ErrInvalid) {
		t.Errorf("%v", err)
	}
}
