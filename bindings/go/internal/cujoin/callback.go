// SPDX-License-Identifier: Apache-2.0

// Package cujoin is the raw wrapper of ujoin.h: what SWIG makes (ujoin.go, cujoin_wrap.c, from bindings/swig), and by
// hand the way of errors and callbacks between C and Go.
package cujoin

/*
#cgo pkg-config: ujoin
#cgo ujoin_static LDFLAGS: -Wl,--as-needed -l:libujoin.a -l:libstdc++.a -lm
#cgo ujoin_static pkg-config: libuv-static
#include "bridge.h"
#include <stdlib.h>
*/
import "C"

import (
	"fmt"
	"runtime/cgo"
	"sync/atomic"
	"unsafe"
)

// Failure is a call's status that is not OK, with what the library says about it.
type Failure struct {
	Status, Errno int32
	Ranks         []int32
	Text          string
}

var plain = [...]Failure{{}, {Status: C.UJOIN_PENDING}, {Status: C.UJOIN_JOINED}, {Status: C.UJOIN_SKIPPED},
	{Status: C.UJOIN_DONE}}

// TakeFailure turns what the C side has boxed into a Failure: nil for OK, a shared one for a status that is no error.
func TakeFailure(box uintptr) *Failure {
	if box == 0 {
		return nil
	}
	if box < uintptr(len(plain)) {
		return &plain[box]
	}
	f := *(**C.ujgo_failure)(unsafe.Pointer(&box)) // C memory, given as a number
	if f.is_static != 0 {
		return &Failure{Status: int32(f.status), Text: "no memory"}
	}
	defer C.free(unsafe.Pointer(f))
	failure := &Failure{Status: int32(f.status), Errno: int32(f.system_errno), Text: C.GoString(f.text)}
	if f.rank_count > 0 {
		failure.Ranks = append(failure.Ranks, unsafe.Slice((*int32)(unsafe.Pointer(f.ranks)), f.rank_count)...)
	}
	return failure
}

// Call is what a call into the library shares with those that act on it meanwhile: whoever sets Cancelled ends it within
// a tenth of a second, and callbacks leave here what the call has to return or raise. C reads the flag, nothing else.
type Call struct {
	Cancelled atomic.Int32 // first: C knows its place
	Err       error        // of the last callback that failed
	Panic     any          // the value of the first panic in a callback
}

// Pointer is what the wrapper's functions take; nil stays nil.
func (c *Call) Pointer() unsafe.Pointer { return unsafe.Pointer(c) }

// HookArgs is ujoin_hook_args.
type HookArgs struct {
	Round                 int64
	Active, Authoritative int32
	LastJoiner            bool
	Options               map[string]float64
}

// Bucket is ujoin_bucket. Data lies in C memory, good for the call.
type Bucket struct {
	Group           uintptr // borrowed, for the call
	Data            unsafe.Pointer
	Count           int
	DType           int32
	Params, Offsets []uint64 // C memory, good for the call
	Divisor         float64
	Iteration       int64
	Index, Source   int32
	Last, Shadow    bool
}

// RuleArgs is ujoin_rule_args. Data, Grad, State and Hyper lie in C memory, or in the program's own, good for the call.
type RuleArgs struct {
	Name          string
	Data, Grad    unsafe.Pointer
	State         []unsafe.Pointer
	Hyper         []float64
	Shape         []int64
	Count, Offset int
	Param, Group  int
	Step          int64
	DType         int32
}

// WorkerArgs is ujoin_worker_args, copied.
type WorkerArgs struct {
	Args       []string
	Input      []byte
	Rank, Size int32
}

// The types of what a handle given to the C side holds.
type (
	// HookFunc runs a main or a post hook.
	HookFunc func(post bool, args HookArgs) error
	// ClosureFunc computes gradients anew.
	ClosureFunc func() error
	// BucketFunc reduces a bucket or goes on with it, and gives up the handle of work in flight, 0 if there is none.
	BucketFunc func(then bool, bucket Bucket) (uintptr, error)
	// RuleFuncs updates a parameter, and fills its state before the first update.
	RuleFuncs struct {
		Step, Init func(args RuleArgs) error
		Counts     [2]int // of states and hyper-parameters
	}
	// OutputFunc receives a worker's output, which is good for the call.
	OutputFunc func(rank, stream int32, data []byte) error
	// WorkerFunc is a function worker; what it returns goes to the launcher.
	WorkerFunc func(args WorkerArgs) ([]byte, error)
	// LogFunc receives a log line.
	LogFunc func(level int32, text string)
)

// Owned is a value for callbacks with what runs when the library will never use it again.
type Owned struct {
	Value    any
	Released func()
}

// NewHandle makes a handle of an Owned; the library's notice deletes it.
func NewHandle(value any, released func()) uint64 {
	return uint64(cgo.NewHandle(&Owned{value, released}))
}

// UserCheck is the program's own interrupt check; nil: none.
var UserCheck atomic.Pointer[func() error]

// StatusOf says which status an error stands for when a callback returns it; set by the package above.
var StatusOf = func(error) int32 { return C.UJOIN_E_CALLBACK }

// guarded runs a callback: an error or a panic becomes a status with its text, and is kept for the call that ran it.
// Nothing unwinds through C.
func guarded(pointer unsafe.Pointer, run func() error) (status C.int32_t) {
	call := (*Call)(pointer)
	defer func() {
		if value := recover(); value != nil {
			if call != nil && call.Panic == nil {
				call.Panic = value
			}
			status = setError(C.UJOIN_E_CALLBACK, fmt.Sprintf("panic: %v", value))
		}
	}()
	err := run()
	if err == nil {
		return C.UJOIN_OK
	}
	if call != nil {
		call.Err = err
	}
	return setError(StatusOf(err), err.Error())
}

func setError(status int32, text string) C.int32_t {
	c := C.CString(text)
	defer C.free(unsafe.Pointer(c))
	return C.ujoin_set_last_error(C.ujoin_status(status), c)
}

func owned(user C.uintptr_t) *Owned { return cgo.Handle(user).Value().(*Owned) }

//export ujoinGoHook
func ujoinGoHook(user C.uintptr_t, post C.int32_t, args unsafe.Pointer, call unsafe.Pointer) C.int32_t {
	return guarded(call, func() error {
		a := (*C.ujoin_hook_args)(args)
		given := HookArgs{Round: int64(a.round), Active: int32(a.active), Authoritative: int32(a.authoritative_rank),
			LastJoiner: a.is_last_joiner != 0, Options: map[string]float64{}}
		for _, option := range unsafe.Slice(a.options, a.option_count) {
			given.Options[C.GoString(option.name)] = float64(option.value)
		}
		return owned(user).Value.(HookFunc)(post != 0, given)
	})
}

//export ujoinGoClosure
func ujoinGoClosure(user C.uintptr_t, call unsafe.Pointer) C.int32_t {
	return guarded(call, func() error { return owned(user).Value.(ClosureFunc)() })
}

//export ujoinGoBucket
func ujoinGoBucket(user C.uintptr_t, then C.int32_t, bucket, out, call unsafe.Pointer) C.int32_t {
	return guarded(call, func() error {
		b := (*C.ujoin_bucket)(bucket)
		given := Bucket{Group: uintptr(unsafe.Pointer(b.group)), Data: b.buffer.data, Count: int(b.buffer.count),
			DType: int32(b.buffer.dtype), Divisor: float64(b.divisor), Iteration: int64(b.iteration), Index: int32(b.index),
			Source: int32(b.source_rank), Last: b.is_last != 0, Shadow: b.is_shadow != 0}
		if b.params != nil {
			given.Params = unsafe.Slice((*uint64)(unsafe.Pointer(b.params)), b.param_count)
			given.Offsets = unsafe.Slice((*uint64)(unsafe.Pointer(b.offsets)), b.param_count)
		}
		work, err := owned(user).Value.(BucketFunc)(then != 0, given)
		if err == nil && work != 0 {
			*(*uintptr)(out) = work
		}
		return err
	})
}

//export ujoinGoRule
func ujoinGoRule(user C.uintptr_t, init C.int32_t, args, call unsafe.Pointer) C.int32_t {
	return guarded(call, func() error {
		a, rule := (*C.ujoin_rule_args)(args), owned(user).Value.(RuleFuncs)
		given := RuleArgs{Name: C.GoString(a.name), Data: a.data, Grad: unsafe.Pointer(a.grad), Count: int(a.count),
			Offset: int(a.offset), Param: int(a.param), Group: int(a.group), Step: int64(a.step), DType: int32(a.dtype)}
		given.State = unsafe.Slice((*unsafe.Pointer)(unsafe.Pointer(a.state)), rule.Counts[0])
		given.Hyper = unsafe.Slice((*float64)(unsafe.Pointer(a.hyper)), rule.Counts[1])
		given.Shape = unsafe.Slice((*int64)(unsafe.Pointer(a.shape)), a.ndim)
		if init != 0 {
			return rule.Init(given)
		}
		return rule.Step(given)
	})
}

//export ujoinGoOutput
func ujoinGoOutput(user C.uintptr_t, rank, stream C.int32_t, data *C.char, size C.size_t, call unsafe.Pointer) C.int32_t {
	return guarded(call, func() error {
		return owned(user).Value.(OutputFunc)(int32(rank), int32(stream), unsafe.Slice((*byte)(unsafe.Pointer(data)), size))
	})
}

//export ujoinGoWorker
func ujoinGoWorker(user C.uintptr_t, args unsafe.Pointer) C.int32_t {
	return guarded(nil, func() error {
		a := (*C.ujoin_worker_args)(args)
		given := WorkerArgs{Rank: int32(a.rank), Size: int32(a.nprocs)}
		for _, arg := range unsafe.Slice(a.args, a.arg_count) {
			given.Args = append(given.Args, C.GoString(arg))
		}
		given.Input = append(given.Input, unsafe.Slice((*byte)(a.input), a.input_size)...)
		value, err := owned(user).Value.(WorkerFunc)(given)
		if err != nil || value == nil {
			return err
		}
		return returned(value)
	})
}

// returned gives a function worker's value to the library; its failure is one of the function.
func returned(value []byte) error {
	if f := PctxReturn(unsafe.Pointer(unsafe.SliceData(value)), int64(len(value))); f != nil {
		return fmt.Errorf("%s", f.Text)
	}
	return nil
}

//export ujoinGoInterrupt
func ujoinGoInterrupt(call unsafe.Pointer) C.int32_t {
	check := UserCheck.Load()
	if check == nil {
		return C.UJOIN_OK
	}
	return guarded(call, *check)
}

//export ujoinGoRelease
func ujoinGoRelease(user C.uintptr_t) {
	o := owned(user)
	cgo.Handle(user).Delete()
	if o.Released != nil {
		o.Released()
	}
}

//export ujoinGoLog
func ujoinGoLog(user C.uintptr_t, level C.int32_t, text *C.char) {
	owned(user).Value.(LogFunc)(int32(level), C.GoString(text))
}

// Item is ujoin_item, copied.
type Item struct {
	Param, Key         string
	Kind, Owner, DType int32
	Group              int32
	Shape              []int64
	Number             float64
	Data               []byte
}

// StateItemOf copies an item: the one with this key if byKey, else the one at index.
func StateItemOf(state uintptr, index int64, key string, byKey bool) (Item, *Failure) {
	var item C.ujoin_item
	by := 0
	if byKey {
		by = 1
	}
	if failure := StateItem(state, index, key, by, unsafe.Pointer(&item)); failure != nil {
		return Item{}, failure
	}
	result := Item{Param: C.GoString(item.param), Key: C.GoString(item.key), Kind: int32(item.kind),
		Owner: int32(item.owner), DType: int32(item.dtype), Group: int32(item.group), Number: float64(item.number)}
	if item.data != nil {
		result.Data = append(result.Data, unsafe.Slice((*byte)(item.data), item.bytes)...)
	}
	if item.shape != nil {
		result.Shape = append(result.Shape, unsafe.Slice((*int64)(unsafe.Pointer(item.shape)), item.ndim)...)
	}
	return result, nil
}

// WorkerResult is ujoin_worker_result, copied.
type WorkerResult struct {
	State, Rank, PID, ExitCode, Signal  int32
	Failed, Stopped                     bool
	Containment                         int32
	StartNs, EndNs, FailedNs            int64
	LastOutputNs, UserUs, SystemUs      int64
	PeakBytes, StdoutBytes, StderrBytes uint64
	DroppedLines                        uint64
	Value                               []byte // nil: nothing was returned
	Message, Traceback                  string
	StdoutPath, StderrPath, ErrorPath   string
}

// PctxResultOf copies what is known of a worker.
func PctxResultOf(pctx uintptr, rank int) (WorkerResult, *Failure) {
	var r C.ujoin_worker_result
	if failure := PctxResult(pctx, rank, unsafe.Pointer(&r)); failure != nil {
		return WorkerResult{}, failure
	}
	var value []byte
	if r.value != nil {
		value = append([]byte{}, unsafe.Slice((*byte)(r.value), r.value_size)...)
	}
	return WorkerResult{State: int32(r.state), Rank: int32(r.rank), PID: int32(r.pid), ExitCode: int32(r.exit_code),
		Signal: int32(r.signal), Failed: r.failed != 0, Stopped: r.stopped != 0, Containment: int32(r.containment),
		StartNs: int64(r.start_ns), EndNs: int64(r.end_ns), FailedNs: int64(r.failed_ns), LastOutputNs: int64(r.last_output_ns),
		UserUs: int64(r.user_us), SystemUs: int64(r.system_us), PeakBytes: uint64(r.peak_bytes),
		StdoutBytes: uint64(r.stdout_bytes), StderrBytes: uint64(r.stderr_bytes),
		DroppedLines: uint64(r.dropped_lines), Value: value, Message: C.GoString(r.message),
		Traceback: C.GoString(r.traceback), StdoutPath: C.GoString(r.stdout_path), StderrPath: C.GoString(r.stderr_path),
		ErrorPath: C.GoString(r.error_path)}, nil
}

// WorkerHealth is ujoin_worker_health, copied.
type WorkerHealth struct {
	State, Rank, PID                       int32
	GroupPID, GroupRank, GroupSize, Groups int32
	InOperation, InContext, Joined, Broken bool
	Sequence, Round, SinceNs, LastOutputNs int64
	Missing                                []int32
	Operation, WaitingFor, Group, Text     string
}

// PctxHealthOf copies what a worker does. Its texts live until the next call for that rank: one call at a time.
func PctxHealthOf(pctx uintptr, rank int) (WorkerHealth, *Failure) {
	var h C.ujoin_worker_health
	if failure := PctxHealth(pctx, rank, unsafe.Pointer(&h)); failure != nil {
		return WorkerHealth{}, failure
	}
	missing := append([]int32(nil), unsafe.Slice((*int32)(h.missing), int(h.missing_count))...) // nil where none is
	return WorkerHealth{State: int32(h.state), Rank: int32(h.rank), PID: int32(h.pid), GroupPID: int32(h.group_pid),
		GroupRank: int32(h.group_rank), GroupSize: int32(h.group_size), Groups: int32(h.groups),
		InOperation: h.in_operation != 0, InContext: h.in_context != 0, Joined: h.joined != 0, Broken: h.broken != 0,
		Sequence: int64(h.sequence), Round: int64(h.round), SinceNs: int64(h.since_ns), LastOutputNs: int64(h.last_output_ns),
		Missing: missing, Operation: C.GoString(h.operation), WaitingFor: C.GoString(h.waiting_for),
		Group: C.GoString(h.group), Text: C.GoString(h.text)}, nil
}

// StepOptions is what ZeroStep takes beside the closure.
type StepOptions struct {
	Scaler            uintptr
	MaxNorm, NormType float64
	SkipNonfinite     bool
}

// StepWith is zero_step with options, of which the closure (nil: none) runs inside of it. norm counts with MaxNorm.
func StepWith(zero uintptr, closure func() error, o StepOptions, call *Call) (norm float64, failure *Failure) {
	user, skip := uint64(0), 0
	if closure != nil {
		handle := cgo.NewHandle(&Owned{Value: ClosureFunc(closure)})
		defer handle.Delete()
		user = uint64(handle)
	}
	if o.SkipNonfinite {
		skip = 1
	}
	numbers, out := &[2]float64{o.MaxNorm, o.NormType}, new(float64)
	failure = ZeroStep(zero, user, o.Scaler, unsafe.Pointer(numbers), skip, unsafe.Pointer(out), call.Pointer())
	return *out, failure
}

// Record is pctx_record of a function.
func Record(run func() error, call *Call) *Failure {
	handle := cgo.NewHandle(&Owned{Value: ClosureFunc(run)})
	defer handle.Delete()
	return PctxRecord(uint64(handle), call.Pointer())
}
