// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"fmt"
	"runtime"
	"sort"
	"time"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// Joinable takes part in a join context: a *DDP, a *Zero, or one of the program's own (NewJoinable).
type Joinable interface {
	// joinable is the handle to hold, and how to get the library's joinable from it.
	joinable() (*ref, func(uintptr) uintptr)
}

// HookArgs is what a join hook is told.
type HookArgs struct {
	Round             int64              // rounds of the context so far, from 0
	Active            int                // ranks that have not joined; 0 in post hooks
	LastJoiner        bool               // post hook: this rank ran no shadow
	AuthoritativeRank int                // post hook: the largest last joiner, the same on every rank; -1 in main hooks
	Options           map[string]float64 // as given to the context
}

// JoinHook is the hooks of a joinable. They may issue collectives on its group and call its Notify (which then says that
// this rank has joined). An error or a panic ends JoinContext.Finish on all ranks.
type JoinHook interface {
	// MainHook does the collectives of one use, in their order, for a rank that has no more inputs.
	MainHook(HookArgs) error
	// PostHook runs once per rank, after all have joined.
	PostHook(HookArgs) error
}

// HookFuncs makes a JoinHook of functions; nil does nothing.
type HookFuncs struct {
	Main, Post func(HookArgs) error
}

// MainHook runs Main.
func (h HookFuncs) MainHook(args HookArgs) error { return runHook(h.Main, args) }

// PostHook runs Post.
func (h HookFuncs) PostHook(args HookArgs) error { return runHook(h.Post, args) }

func runHook(hook func(HookArgs) error, args HookArgs) error {
	if hook == nil {
		return nil
	}
	return hook(args)
}

// JoinableOptions of NewJoinable.
type JoinableOptions struct {
	Name    string   // for texts; default "joinable"
	Options []string // names of the context's options that the hooks know
}

// CustomJoinable is a joinable of the program's own.
type CustomJoinable struct{ r *ref }

// NewJoinable makes a joinable: something with collectives in each round, which a joined rank must shadow. It calls Notify
// before its collectives. The hooks live until the joinable is closed and no context has it.
func NewJoinable(g *Group, hook JoinHook, options *JoinableOptions) (*CustomJoinable, error) {
	const op = "NewJoinable"
	o := JoinableOptions{}
	if options != nil {
		o = *options
	}
	if err := checkText(op, append([]string{o.Name}, o.Options...)...); err != nil {
		return nil, err
	}
	if hook == nil {
		return nil, failed(StatusInvalid, op, "hook is nil")
	}
	if err := g.r.share(op); err != nil {
		return nil, err
	}
	defer g.r.unshare()
	names, pointer := block(o.Options), new(uintptr)
	handle := cujoin.NewHandle(cujoin.HookFunc(func(post bool, a cujoin.HookArgs) error {
		args := HookArgs{a.Round, int(a.Active), a.LastJoiner, int(a.Authoritative), a.Options}
		if post {
			return hook.PostHook(args)
		}
		return hook.MainHook(args)
	}), nil)
	f := cujoin.JoinableCreate(g.r.pointer, o.Name, address(names), int64(len(o.Options)), handle, unsafe.Pointer(pointer))
	if f != nil {
		return nil, errorOf(f, nil)
	}
	j := &CustomJoinable{g.family.adopt(newRef("joinable", *pointer, cujoin.JoinableDestroy))}
	runtime.AddCleanup(j, (*ref).close, j.r)
	return j, nil
}

func (j *CustomJoinable) joinable() (*ref, func(uintptr) uintptr) {
	return j.r, func(pointer uintptr) uintptr { return pointer }
}

// Notify says that this joinable begins one use (one set of its collectives). It returns at once but in throw mode, where
// it may be ErrExhausted. joined: called from a hook on a rank that has joined. Collective. Without an armed context it
// does nothing.
func (j *CustomJoinable) Notify(ctx context.Context) (joined bool, err error) {
	joined, err = j.notify(ctx, nil)
	return joined, err
}

// NotifyActive is Notify that waits until every rank has begun this round or joined, and tells how many began.
func (j *CustomJoinable) NotifyActive(ctx context.Context) (active int, joined bool, err error) {
	out := new(int32)
	joined, err = j.notify(ctx, out)
	return int(*out), joined, err
}

func (j *CustomJoinable) notify(ctx context.Context, active *int32) (bool, error) {
	const op = "CustomJoinable.Notify"
	c, err := j.r.begin(ctx, op, plain)
	if err != nil {
		return false, err
	}
	defer j.r.leave()
	f := cujoin.JoinableNotify(j.r.pointer, unsafe.Pointer(active), c.pointer())
	return f != nil && Status(f.Status) == StatusJoined, c.end(f)
}

// Close drops the joinable. A context keeps its joinables alive.
func (j *CustomJoinable) Close() error {
	j.r.close()
	return nil
}

// ---------------------------------------------------------------------------------------------------------------- context

// JoinOptions of Join and NewJoin; the zero value of a field is its default.
type JoinOptions struct {
	IdleTimeout       time.Duration      // without progress of any rank; default: none
	SkewWarningRounds int64              // a joined rank warns once; default 1,000; negative = never
	HookOptions       map[string]float64 // for all hooks; a name that no joinable knows is ErrInvalid
	Disabled          bool               // start, notify and finish do nothing (inputs are known to be even)
	ThrowOnExhausted  bool               // no shadows: when one rank has no more inputs, all get ErrExhausted
	Strict            bool               // once per use of the first joinable every hook in list order, as PyTorch does
}

// JoinContext is training on uneven inputs: a rank that has no more works for the others until all are done.
type JoinContext struct {
	r    *ref
	size int
}

// Join makes a context over the joinables, runs body once in it (JoinContext.Run), and closes it.
func Join(ctx context.Context, joinables []Joinable, options *JoinOptions, body func() error) error {
	j, err := NewJoin(joinables, options)
	if err != nil {
		return err
	}
	defer func() { _ = j.Close() }()
	return j.Run(ctx, body)
}

// NewJoin makes a context over joinables of one group, in the order in which their hooks run. Arms nothing.
func NewJoin(joinables []Joinable, options *JoinOptions) (*JoinContext, error) {
	const op = "NewJoin"
	o := JoinOptions{}
	if options != nil {
		o = *options
	}
	pointers := make([]uintptr, len(joinables)+1)
	var kin *family
	for i, joinable := range joinables {
		if joinable == nil {
			return nil, failed(StatusInvalid, op, fmt.Sprintf("joinables[%d] is nil", i))
		}
		r, of := joinable.joinable()
		if err := r.share(op); err != nil {
			return nil, err
		}
		defer r.unshare()
		pointers[i], kin = of(r.pointer), r.family
	}
	names, values, err := hypers(op, o.HookOptions)
	if err != nil {
		return nil, err
	}
	flags := []int64{flag(o.Disabled), flag(o.ThrowOnExhausted), flag(o.Strict)}
	pointer := new(uintptr)
	f := cujoin.CtxCreate(address(pointers), int64(len(joinables)), millisOption(o.IdleTimeout), o.SkewWarningRounds,
		address(names), address(values), int64(len(o.HookOptions)), address(flags), unsafe.Pointer(pointer))
	if f != nil {
		return nil, errorOf(f, nil)
	}
	r := kin.adopt(newRef("join context", *pointer, cujoin.CtxDestroy))
	j := &JoinContext{r, int(cujoin.CtxRounds(*pointer, nil, 0))}
	runtime.AddCleanup(j, (*ref).close, j.r)
	return j, nil
}

// hypers is names and numbers as the wrapper takes them, in the order of the names.
func hypers(op string, values map[string]float64) ([]byte, []float64, error) {
	names := make([]string, 0, len(values))
	for name := range values {
		names = append(names, name)
	}
	sort.Strings(names)
	numbers := make([]float64, 0, len(values)+1)
	for _, name := range names {
		numbers = append(numbers, values[name])
	}
	return block(names), append(numbers, 0), checkText(op, names...)
}

// Run runs body between Start and Finish. If body fails or panics, or ctx ends, the context is aborted: every rank gets
// ErrAborted, and the group is broken. ErrExhausted: throw mode, inputs were uneven; the group stays whole. Collective.
func (j *JoinContext) Run(ctx context.Context, body func() error) error {
	if ctx == nil {
		ctx = context.Background()
	}
	if err := ctx.Err(); err != nil {
		return &Error{Status: StatusPending, Text: "ujoin: JoinContext.Run: not begun", cause: contextError(ctx)}
	}
	if err := j.Start(); err != nil {
		return err
	}
	stop := context.AfterFunc(ctx, func() { j.Abort(contextError(ctx).Error()) })
	returned := false
	defer func() {
		stop()
		if !returned {
			j.Abort("the body of the join context panicked")
		}
	}()
	err := body()
	returned = true
	if err != nil {
		j.Abort(err.Error())
		return withContext(ctx, err)
	}
	return withContext(ctx, j.Finish(ctx))
}

// Start begins a pass over the inputs and arms the joinables until Finish or Abort. One armed context per group.
// Collective; does not wait for the others.
//
// On a group with ShadowCollectives a joined rank also takes part in what the program itself calls there between Start and
// Finish, and no hook does: it adds nothing to an AllReduce or ReduceScatter, and its part of an AllGather is left as it
// was (Work.Contributors has the ranks whose parts are there). A Broadcast whose root has joined is ErrState on every rank.
// All others issue these calls in the same order among the uses. Without ShadowCollectives such a call is ErrMismatch on
// every rank once one has joined.
func (j *JoinContext) Start() error {
	const op = "JoinContext.Start"
	if err := j.r.enter(op); err != nil {
		return err
	}
	defer j.r.leave()
	return errorOf(cujoin.CtxStart(j.r.pointer), nil)
}

// Finish: this rank has no more inputs. Works for the others, one main hook per use of theirs, until all have joined; then
// runs the post hooks and disarms. The context can be started again. Collective. ErrMismatch: contexts of different
// joinables or options, a joinable that was used too often or too rarely (named, with rank and round), loop and hooks that
// differ in their collectives.
func (j *JoinContext) Finish(ctx context.Context) error {
	const op = "JoinContext.Finish"
	c, err := j.r.begin(ctx, op, hooks)
	if err != nil {
		return err
	}
	defer j.r.leave()
	return c.end(cujoin.CtxFinish(j.r.pointer, c.pointer()))
}

// Stop asks all ranks to leave after the same round. Any rank, any number of times; before Start it counts for that pass.
func (j *JoinContext) Stop() error {
	if err := j.r.share("JoinContext.Stop"); err != nil {
		return err
	}
	defer j.r.unshare()
	return errorOf(cujoin.CtxStop(j.r.pointer), nil)
}

// Stopped is true, on every rank alike, when the round that has just ended was the last one by an agreed stop. Ask between
// rounds; if it is true leave the loop. Waits only where a rank is 16 uses behind this one.
func (j *JoinContext) Stopped(ctx context.Context) (bool, error) {
	const op = "JoinContext.Stopped"
	c, err := j.r.begin(ctx, op, plain)
	if err != nil {
		return false, err
	}
	defer j.r.leave()
	f := cujoin.CtxStopped(j.r.pointer, c.pointer())
	if f != nil && Status(f.Status) == StatusPending {
		f = nil
		return false, c.end(f)
	}
	return f == nil, c.end(f)
}

// Abort: the loop failed. Disarms, and every peer gets ErrAborted with the reason. Breaks the group. Nothing if the context
// is not armed.
func (j *JoinContext) Abort(reason string) {
	if j.r.share("JoinContext.Abort") == nil {
		cujoin.CtxAbort(j.r.pointer, withoutNUL(reason))
		j.r.unshare()
	}
}

// JoinReport is what happened in a context since its last start.
type JoinReport struct {
	Rounds            int64         // of this rank's own
	ShadowRounds      int64         // that it worked for others
	ShadowUses        int64         // main hooks run
	ShadowTime        time.Duration // in them
	WaitTime          time.Duration // waiting for others' progress
	LastJoiner        bool
	AuthoritativeRank int  // -1 before Finish
	Joined            int  // ranks that have joined by now
	Stopped           bool // an agreed stop ended it
}

// Report tells rounds, shadows and times since the last start.
func (j *JoinContext) Report() (JoinReport, error) {
	const op = "JoinContext.Report"
	if err := j.r.enter(op); err != nil {
		return JoinReport{}, err
	}
	defer j.r.leave()
	n := new([9]int64)
	if f := cujoin.CtxReport(j.r.pointer, unsafe.Pointer(n)); f != nil {
		return JoinReport{}, errorOf(f, nil)
	}
	return JoinReport{n[0], n[1], n[2], micros(n[3]), micros(n[4]), n[5] != 0, int(n[6]), int(n[7]), n[8] != 0}, nil
}

func micros(n int64) time.Duration { return time.Duration(n) * time.Microsecond }

// Rounds is the rounds that each rank ran before it joined, by rank (-1: not joined yet).
func (j *JoinContext) Rounds() ([]int64, error) {
	const op = "JoinContext.Rounds"
	if err := j.r.enter(op); err != nil {
		return nil, err
	}
	defer j.r.leave()
	rounds := make([]int64, j.size)
	cujoin.CtxRounds(j.r.pointer, address(rounds), int64(len(rounds)))
	return rounds, nil
}

// Close drops the context; an armed one is aborted first.
func (j *JoinContext) Close() error {
	j.r.close()
	return nil
}
