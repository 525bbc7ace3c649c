// SPDX-License-Identifier: Apache-2.0

// Command bench compares calls through the package with calls through cgo written by hand, round by round. It prints a line
// for each: name, the peer, nanoseconds of ours, of the peer (medians), or how often both allocate, and the unit.
package main

/*
#cgo pkg-config: ujoin
#include "peer.h"
#include <stdlib.h>
*/
import "C"

import (
	"context"
	"errors"
	"fmt"
	"log"
	"runtime"
	"runtime/cgo"
	"slices"
	"testing"
	"time"
	"unsafe"

	"ujoin.dev/go"
	"ujoin.dev/go/internal/cujoin"
)

const (
	rounds = 21
	count  = 16 // elements of a tensor
)

//export peerClosure
func peerClosure(handle C.uintptr_t) C.int32_t {
	if err := cgo.Handle(handle).Value().(func() error)(); err != nil {
		return C.UJOIN_E_CALLBACK
	}
	return C.UJOIN_OK
}

//export peerLine
func peerLine(handle C.uintptr_t, level C.int32_t, text *C.char) {
	cgo.Handle(handle).Value().(func(int32, string))(int32(level), C.GoString(text))
}

// bench is the objects of both sides: three parameters in a group of one.
type bench struct {
	group *ujoin.Group
	ddp   *ujoin.DDP
	zero  *ujoin.Zero
	work  *ujoin.Work[float32]

	cGroup *C.ujoin_group
	cDDP   *C.ujoin_ddp
	cZero  *C.ujoin_zero
	cWork  *C.ujoin_work
}

func check(err error) {
	if err != nil {
		log.Fatal("bench: ", err)
	}
}

func peerCheck(status C.ujoin_status) {
	if status < 0 {
		check(errors.New(C.GoString(C.ujoin_last_error())))
	}
}

func setUp() *bench {
	b := &bench{}
	var err error
	b.group, err = ujoin.NewGroup(context.Background(), &ujoin.GroupOptions{Backend: "self", WorldSize: 1})
	check(err)
	var params []ujoin.Param
	data, grad := (*[3]*C.float)(C.calloc(3, 8)), (*[3]*C.float)(C.calloc(3, 8))
	for i := range 3 {
		params = append(params, ujoin.NewParam(fmt.Sprint(i), make([]float32, count), make([]float32, count)))
		data[i], grad[i] = (*C.float)(C.calloc(count, 4)), (*C.float)(C.calloc(count, 4))
	}
	b.ddp, err = ujoin.NewDDP(b.group, params, nil)
	check(err)
	b.zero, err = ujoin.NewZero(b.group, ujoin.SGD{}, params, nil)
	check(err)
	b.work, err = ujoin.AllReduceAsync(context.Background(), b.group, nil, make([]float32, count), ujoin.Sum)
	check(err)
	_, err = b.work.Wait(context.Background())
	check(err)
	peerCheck(C.peer_create(&data[0], &grad[0], 3, count, &b.cGroup, &b.cDDP, &b.cZero))
	recv := C.ujoin_buffer{data: C.calloc(count, 4), count: count, dtype: C.UJOIN_F32}
	peerCheck(C.ujoin_all_reduce(b.cGroup, nil, &recv, C.UJOIN_SUM, nil, &b.cWork))
	peerCheck(C.ujoin_work_wait(b.cWork, -1))
	return b
}

// compare runs both in turn and prints the medians.
func compare(name string, calls int, ours, peer func(calls int) float64) {
	var mine, theirs []float64
	for range rounds {
		mine, theirs = append(mine, ours(calls)), append(theirs, peer(calls))
	}
	slices.Sort(mine)
	slices.Sort(theirs)
	fmt.Printf("%s\tcgo by hand\t%.1f\t%.1f\n", name, mine[rounds/2], theirs[rounds/2])
}

// allocations compares how often one call of each allocates.
func allocations(name string, ours, peer func()) {
	fmt.Printf("%s, allocations\tcgo by hand\t%.0f\t%.0f\ttimes\n", name,
		testing.AllocsPerRun(100, ours), testing.AllocsPerRun(100, peer))
}

// timed makes a measurement of something done once.
func timed(once func()) func(int) float64 {
	return func(calls int) float64 {
		begin := time.Now()
		for range calls {
			once()
		}
		return float64(time.Since(begin).Nanoseconds()) / float64(calls)
	}
}

// peerAllReduce is what a program writes that has no helper in C: structs that hold Go pointers, so they are pinned.
func (b *bench) peerAllReduce(slice []float32) {
	var pinner runtime.Pinner
	pinner.Pin(&slice[0])
	recv := C.ujoin_buffer{data: unsafe.Pointer(&slice[0]), count: C.size_t(len(slice)), dtype: C.UJOIN_F32}
	peerCheck(C.ujoin_all_reduce(b.cGroup, nil, &recv, C.UJOIN_SUM, nil, nil))
	pinner.Unpin()
}

func (b *bench) iteration() {
	check(b.ddp.Iteration(1, func(ready func(int)) error {
		for i := range 3 {
			ready(i)
		}
		return nil
	}))
}

func (b *bench) peerIteration() {
	peerCheck(C.ujoin_ddp_forward(b.cDDP, 1))
	for i := range 3 {
		peerCheck(C.ujoin_ddp_ready(b.cDDP, C.size_t(i)))
	}
	peerCheck(C.ujoin_ddp_finish(b.cDDP))
}

func main() {
	b := setUp()
	ctx := context.Background()
	compare("go no-op", 20_000, timed(func() { ujoin.LibraryABIVersion() }), timed(func() { C.ujoin_abi_version() }))
	compare("go no-op on a handle", 20_000, timed(func() { _, err := b.work.Test(); check(err) }),
		timed(func() { peerCheck(C.ujoin_work_test(b.cWork)) }))
	slices3 := [3][]float32{make([]float32, count), make([]float32, count), make([]float32, count)}
	step := func() {
		for _, slice := range slices3 {
			check(ujoin.AllReduce(ctx, b.group, nil, slice, ujoin.Sum))
		}
	}
	peerStep := func() {
		for _, slice := range slices3 {
			b.peerAllReduce(slice)
		}
	}
	compare("go step, 3 slices", 4_000, timed(step), timed(peerStep))
	allocations("go step, 3 slices", step, peerStep)
	compare("go ddp iteration, 3 gradients", 500, timed(b.iteration), timed(b.peerIteration))
	peerHandle := cgo.NewHandle(func() error { return nil })
	compare("go zero step with a closure", 4_000, timed(func() { check(b.zero.StepWith(ctx, func() error { return nil })) }),
		timed(func() { peerCheck(C.peer_step(b.cZero, C.uintptr_t(peerHandle))) }))
	ours := C.uintptr_t(cujoin.NewHandle(cujoin.LogFunc(func(int32, string) {}), nil))
	peer := C.uintptr_t(cgo.NewHandle(func(int32, string) {}))
	compare("go callback, library thread", 10_000,
		func(calls int) float64 { return float64(C.lines_from_a_thread(1, ours, C.int64_t(calls))) },
		func(calls int) float64 { return float64(C.lines_from_a_thread(0, peer, C.int64_t(calls))) })
}
