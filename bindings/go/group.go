// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync/atomic"
	"time"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// Group is a set of ranks that communicate.
type Group struct {
	r       *ref
	rank    int
	size    int
	family  *family       // what was made from it
	dropped *atomic.Int64 // operations in flight whose Work was dropped without Wait
}

// GroupOptions of NewGroup; the zero value of a field is its default.
type GroupOptions struct {
	Rendezvous        string        // "env://" (default), "tcp://host:port", "file:///path", "local://name" (goroutines)
	Backend           string        // "auto" (default), "self" (one rank), "local" (goroutines), "shm" (one host)
	Name              string        // tells apart several groups of one rendezvous
	Store             *Store        // instead of a rendezvous: meet here; the group keeps it alive
	Rank              int           // counts only if WorldSize is set; else from the environment
	WorldSize         int           //
	Timeout           time.Duration // deadline of a collective; default: variable UJOIN_TIMEOUT_MS, else 10 minutes
	RendezvousTimeout time.Duration // default 5 minutes; the context's deadline if that is nearer
	ShadowCollectives bool          // a joined rank shadows the program's own collectives: see JoinContext.Start
	Threads           int           // that compute a step of an optimizer; default: variable UJOIN_THREADS, else processors per rank
}

// NewGroup makes a group: ranks meet, agree on a backend, attach. options nil: by the environment, as ujoin-run sets it.
// Collective. ErrTimeout: the text names the ranks that came; ErrMismatch: ranks differ in size, backend or options;
// ErrUnsupported: who could not use the backend, and why.
func NewGroup(ctx context.Context, options *GroupOptions) (*Group, error) {
	return meet(ctx, "NewGroup", options, func(o GroupOptions, store uintptr, limit int64, c call, out unsafe.Pointer) *cujoin.Failure {
		return cujoin.GroupCreate(o.Rendezvous, o.Backend, o.Name, store, o.Rank, o.WorldSize, millisOption(o.Timeout), limit,
			int(flag(o.ShadowCollectives)), o.Threads, c.pointer(), out)
	})
}

// Split makes a group of the ranks that give the same color, in the order of their keys, and of their ranks where keys are
// equal. A negative color: no group for this rank, and nil. Of the options (nil: as NewGroup's defaults) Rendezvous, Store,
// Rank and WorldSize must be absent; Backend "auto" is the group's own. The new group does not depend on this one: it has its
// own operations, may be used from another goroutine, fails alone, and is closed by itself. Collective.
func (g *Group) Split(ctx context.Context, color, key int, options *GroupOptions) (*Group, error) {
	const op = "Group.Split"
	if err := checkInt32(op, color, key); err != nil {
		return nil, err
	}
	if err := g.r.enter(op); err != nil {
		return nil, err
	}
	defer g.r.leave()
	return meet(ctx, op, options, func(o GroupOptions, store uintptr, limit int64, c call, out unsafe.Pointer) *cujoin.Failure {
		return cujoin.GroupSplit(g.r.pointer, color, key, o.Rendezvous, o.Backend, o.Name, store, o.Rank, o.WorldSize,
			millisOption(o.Timeout), limit, int(flag(o.ShadowCollectives)), o.Threads, c.pointer(), out)
	})
}

// meet makes a group by a call of the wrapper, which gets the store's handle and the limit of the meeting; nil if it gave none.
func meet(ctx context.Context, op string, options *GroupOptions,
	create func(o GroupOptions, store uintptr, limit int64, c call, out unsafe.Pointer) *cujoin.Failure) (*Group, error) {
	o := GroupOptions{}
	if options != nil {
		o = *options
	}
	if err := checkText(op, o.Rendezvous, o.Backend, o.Name); err != nil {
		return nil, err
	}
	var store uintptr
	if o.Store != nil {
		if err := o.Store.r.share(op); err != nil {
			return nil, err
		}
		defer o.Store.r.unshare()
		store = o.Store.r.pointer
	}
	c, err := begin(ctx, op, timed)
	if err != nil {
		return nil, err
	}
	pointer := new(uintptr)
	err = c.end(create(o, store, opMillis(ctx, o.RendezvousTimeout), c, unsafe.Pointer(pointer)))
	if err != nil || *pointer == 0 {
		return nil, err
	}
	g := &Group{r: newRef("group", *pointer, cujoin.GroupDestroy), dropped: new(atomic.Int64),
		family: &family{members: map[*ref]struct{}{}}}
	g.rank, g.size = cujoin.GroupRank(*pointer), cujoin.GroupSize(*pointer)
	runtime.AddCleanup(g, (*ref).close, g.r)
	return g, nil
}

// checkInt32: what the library takes in 32 bits must not become another number on the way.
func checkInt32(op string, numbers ...int) error {
	for _, n := range numbers {
		if n < math.MinInt32 || n > math.MaxInt32 {
			return failed(StatusInvalid, op, fmt.Sprintf("%d does not fit into 32 bits", n))
		}
	}
	return nil
}

// Rank is this process's rank, 0 to Size - 1.
func (g *Group) Rank() int { return g.rank }

// Size is the number of ranks.
func (g *Group) Size() int { return g.size }

// GroupInfo is what the ranks agreed on.
type GroupInfo struct {
	Backend   string // what "auto" chose
	Rank      int
	WorldSize int
	LocalRank int // among the ranks of this host
	LocalSize int
	Progress  bool // work advances by itself; false: only inside calls (fewer processors than ranks)
	Threads   int  // that compute in this rank
}

// Info tells what was agreed.
func (g *Group) Info() (GroupInfo, error) {
	const op = "Group.Info"
	if err := g.r.share(op); err != nil {
		return GroupInfo{}, err
	}
	defer g.r.unshare()
	facts := new([6]int64)
	if f := cujoin.GroupInfo(g.r.pointer, unsafe.Pointer(facts)); f != nil {
		return GroupInfo{}, errorOf(f, nil)
	}
	return GroupInfo{cujoin.GroupBackend(g.r.pointer), int(facts[0]), int(facts[1]), int(facts[2]), int(facts[3]),
		facts[4] != 0, int(facts[5])}, nil
}

// Barrier returns when every rank has come here. Collective. Past the deadline ErrTimeout, with the missing ranks.
func (g *Group) Barrier(ctx context.Context) error {
	return run(ctx, g, "Group.Barrier", operation{kind: barrier})
}

// Shutdown waits until all operations of this rank are complete and every rank has come here, then ends the group:
// later operations are ErrState. Collective. ErrPending: not before the context's end; call again, or Close. It is also
// where one learns of work that was dropped without Wait (ErrState; the group is ended all the same).
func (g *Group) Shutdown(ctx context.Context) error {
	const op = "Group.Shutdown"
	c, err := g.r.begin(ctx, op, timed)
	if err != nil {
		return err
	}
	defer g.r.leave()
	if err := c.waited(cujoin.GroupClose(g.r.pointer, waitMillis(ctx), c.pointer())); err != nil {
		return err
	}
	if n := g.dropped.Load(); n > 0 {
		return failed(StatusState, op, fmt.Sprintf("%d operations in flight were dropped without Wait", n))
	}
	return nil
}

// Abort gives up: everything on this group ends with ErrAborted on every rank, within a second; the reason becomes part of
// their texts. The group is broken from then on.
func (g *Group) Abort(reason string) {
	if g.r.share("Group.Abort") == nil {
		cujoin.GroupAbort(g.r.pointer, withoutNUL(reason))
		g.r.unshare()
	}
}

// Close drops the group with the joinables, reducers, optimizers and join contexts made from it, and waits for nobody.
// Without Shutdown it says goodbye: a peer's later operation is ErrPeerLost, and an armed join context is aborted.
func (g *Group) Close() error {
	g.family.close()
	g.r.close()
	return nil
}

func withoutNUL(text string) string { return strings.ReplaceAll(text, "\x00", "\\0") }
