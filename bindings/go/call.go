// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"runtime"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// ref is one handle of the library: it is destroyed once, by whoever uses it last after it was closed. Destroying never
// blocks, so a cleanup may do it.
type ref struct {
	state   atomic.Int64 // closedBit, busyBit, and the number of calls that may run beside others
	pointer uintptr
	destroy func(uintptr)
	kind    string
	family  *family // nil: on its own
}

// family is the handles made from a group, which end with it: one that lives on would keep the group alive, and its peers
// waiting.
type family struct {
	mu      sync.Mutex
	members map[*ref]struct{} // nil: the group is closed
}

// adopt makes a handle a member, until it is destroyed.
func (f *family) adopt(r *ref) *ref {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.members == nil { // closed while it was made
		r.close()
		return r
	}
	f.members[r] = struct{}{}
	r.family = f
	return r
}

func (f *family) close() {
	f.mu.Lock()
	members := f.members
	f.members = nil
	f.mu.Unlock()
	for r := range members {
		r.close()
	}
}

const (
	busyBit   = 1 << 61
	closedBit = 1 << 62
)

func newRef(kind string, pointer uintptr, destroy func(uintptr)) *ref {
	return &ref{pointer: pointer, destroy: destroy, kind: kind}
}

// enter begins a call that must be alone on its handle.
func (r *ref) enter(op string) error { return r.take(op, busyBit) }

// share begins a call that the header allows beside any other.
func (r *ref) share(op string) error { return r.take(op, 1) }

func (r *ref) take(op string, what int64) error {
	for {
		state := r.state.Load()
		if state&closedBit != 0 {
			return failed(StatusState, op, "the "+r.kind+" is closed")
		}
		if what == busyBit && state&busyBit != 0 {
			return failed(StatusState, op, "the "+r.kind+" is in another call; one at a time")
		}
		if r.state.CompareAndSwap(state, state+what) {
			return nil
		}
	}
}

func (r *ref) leave()   { r.drop(busyBit) }
func (r *ref) unshare() { r.drop(1) }

func (r *ref) drop(what int64) {
	if r.state.Add(-what) == closedBit {
		r.end()
	}
}

// close drops the handle, now or at the end of the last call that uses it.
func (r *ref) close() {
	if r.state.Or(closedBit) == 0 {
		r.end()
	}
}

func (r *ref) end() {
	r.destroy(r.pointer)
	if r.family != nil {
		r.family.mu.Lock()
		defer r.family.mu.Unlock()
		delete(r.family.members, r)
	}
}

func (r *ref) closed() bool { return r.state.Load()&closedBit != 0 }

// call is one call into the library that may wait or run callbacks. The zero value: nothing can end it or be left in it.
type call struct {
	shared *cujoin.Call
	ctx    context.Context
	stop   func() bool
}

// What begin has to expect: the library has a deadline of its own (timed), callbacks may run (hooks).
const (
	plain = 0
	timed = 1
	hooks = 2
)

var checkInstalled sync.Once

// begin prepares a call. With `timed` the context's deadline is left to the library, whose text says who is missing.
func begin(ctx context.Context, op string, how int) (call, error) {
	if ctx == nil {
		ctx = context.Background()
	}
	if ctx.Done() == nil {
		if how&hooks == 0 && cujoin.UserCheck.Load() == nil {
			return call{}, nil
		}
		return call{shared: new(cujoin.Call), ctx: ctx}, nil
	}
	if ctx.Err() != nil {
		return call{}, &Error{Status: StatusPending, Text: "ujoin: " + op + ": not begun", cause: contextError(ctx)}
	}
	checkInstalled.Do(func() { cujoin.InstallInterruptCheck() })
	c := call{shared: new(cujoin.Call), ctx: ctx}
	flag := &c.shared.Cancelled
	c.stop = context.AfterFunc(ctx, func() {
		if how&timed == 0 || ctx.Err() != context.DeadlineExceeded {
			flag.Store(1)
		}
	})
	return c, nil
}

// begin prepares a call that is alone on its handle; r.leave ends it.
func (r *ref) begin(ctx context.Context, op string, how int) (call, error) {
	if err := r.enter(op); err != nil {
		return call{}, err
	}
	c, err := begin(ctx, op, how)
	if err != nil {
		r.leave()
	}
	return c, err
}

func (c call) pointer() unsafe.Pointer {
	if c.shared == nil {
		return nil
	}
	return c.shared.Pointer()
}

// end makes the call's error, and raises a panic of a callback that it ran.
func (c call) end(f *cujoin.Failure) error {
	if c.shared == nil {
		return endPlain(f)
	}
	if c.stop != nil {
		c.stop()
	}
	if c.shared.Panic != nil {
		panic(c.shared.Panic)
	}
	if f == nil {
		return nil
	}
	switch status := Status(f.Status); {
	case status == StatusPending:
		return errorOf(f, pendingCause(c.ctx))
	case status > 0:
		return nil
	case c.shared.Cancelled.Load() != 0:
		return errorOf(f, contextError(c.ctx))
	}
	return errorOf(f, c.shared.Err)
}

func endPlain(f *cujoin.Failure) error {
	if f == nil || (f.Status > 0 && Status(f.Status) != StatusPending) {
		return nil
	}
	if Status(f.Status) == StatusPending {
		return errorOf(f, context.DeadlineExceeded)
	}
	return errorOf(f, nil)
}

// pendingCause: the library's clock may be a little ahead of the context's.
func pendingCause(ctx context.Context) error {
	if ctx != nil && ctx.Err() != nil {
		return contextError(ctx)
	}
	return context.DeadlineExceeded
}

// waited turns a wait that its context ended into what it is: the wait ran out, the object lives on.
func (c call) waited(f *cujoin.Failure) error {
	if f != nil && Status(f.Status) == StatusCallback && c.shared != nil && c.shared.Cancelled.Load() != 0 {
		f = &cujoin.Failure{Status: int32(StatusPending), Text: f.Text}
	}
	return c.end(f)
}

// ------------------------------------------------------------------------------------------------------------------ time

// Durations in options, beside 0, which is the default.
const (
	NoLimit time.Duration = -1 // without end
	AtOnce  time.Duration = -2 // no time at all
)

func ceilMillis(d time.Duration) int64 { return int64((d + time.Millisecond - 1) / time.Millisecond) }

// millisOption is a duration as an option, of which 0 means the library's default.
func millisOption(d time.Duration) int64 {
	if d == AtOnce {
		return int64(Now)
	}
	if d < 0 {
		return int64(Never)
	}
	return ceilMillis(d)
}

// waitMillis is a context's deadline as a parameter: negative = for ever.
func waitMillis(ctx context.Context) int64 {
	if ctx == nil {
		return -1
	}
	deadline, ok := ctx.Deadline()
	if !ok {
		return -1
	}
	return max(0, ceilMillis(time.Until(deadline)))
}

// opMillis is a context's deadline as an option, of which 0 means the default; the shorter one if there is another limit.
func opMillis(ctx context.Context, limit time.Duration) int64 {
	until, given := waitMillis(ctx), millisOption(limit)
	if until < 0 {
		return given
	}
	if given > 0 {
		until = min(until, given)
	}
	if until == 0 {
		return int64(Now)
	}
	return until
}

// ---------------------------------------------------------------------------------------------------------------- memory

// pin holds Go memory in its place. Memory of others (mmap, C) stays where it is anyway, and Pin refuses it.
func pin(pinner *runtime.Pinner, pointer unsafe.Pointer) {
	if pointer == nil {
		return
	}
	defer func() { _ = recover() }() // "argument is not a Go pointer", the only one
	pinner.Pin(pointer)
}

// block is texts as the wrapper takes them: one after the other, each with a NUL.
func block(texts []string) []byte {
	var bytes []byte
	for _, text := range texts {
		bytes = append(append(bytes, text...), 0)
	}
	return append(bytes, 0) // never empty
}

// address of a slice's memory; nil of nil.
func address[T any](slice []T) unsafe.Pointer { return unsafe.Pointer(unsafe.SliceData(slice)) }

func ints[T int32 | int64 | uint64](raw []T) []int {
	var list []int
	for _, n := range raw {
		list = append(list, int(n))
	}
	return list
}

func flag(on bool) int64 {
	if on {
		return 1
	}
	return 0
}
