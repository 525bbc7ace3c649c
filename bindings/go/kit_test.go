// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"ujoin.dev/go"
)

// patience is how long anything that must happen may take on a busy machine.
const patience = 60 * time.Second

func within(t *testing.T) context.Context {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

var meetings atomic.Int64

// place is a rendezvous that no other test has.
func place(t *testing.T) string { return fmt.Sprintf("local://%s/%d", t.Name(), meetings.Add(1)) }

// member makes rank r of a group of goroutines.
func member(ctx context.Context, place string, rank, size int) (*ujoin.Group, error) {
	return ujoin.NewGroup(ctx, &ujoin.GroupOptions{Rendezvous: place, Backend: "local", Rank: rank, WorldSize: size})
}

// alone is a group of one.
func alone(t *testing.T) *ujoin.Group {
	t.Helper()
	g, err := ujoin.NewGroup(within(t), &ujoin.GroupOptions{Backend: "self", WorldSize: 1})
	ok(t, err)
	t.Cleanup(func() { ok(t, g.Close()) })
	return g
}

// ranks runs body on goroutines that form a group, and fails with the first error of each.
func ranks(t *testing.T, size int, body func(ctx context.Context, g *ujoin.Group) error) {
	t.Helper()
	for rank, err := range results(t, size, body) {
		if err != nil {
			t.Errorf("rank %d: %v", rank, err)
		}
	}
}

// results is what body returned on each rank.
func results(t *testing.T, size int, body func(ctx context.Context, g *ujoin.Group) error) []error {
	t.Helper()
	ctx, where, all := within(t), place(t), make([]error, size)
	var done sync.WaitGroup
	for rank := range size {
		done.Add(1)
		go func() {
			defer done.Done()
			g, err := member(ctx, where, rank, size)
			if err != nil {
				all[rank] = err
				return
			}
			defer func() { _ = g.Close() }()
			all[rank] = body(ctx, g)
		}()
	}
	done.Wait()
	return all
}

func ok(t *testing.T, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// refused checks an error's kind and that its text has a part.
func refused(t *testing.T, err, kind error, part string) {
	t.Helper()
	if problem := differs(err, kind, part); problem != nil {
		t.Fatal(problem)
	}
}

func differs(err, kind error, part string) error {
	if !errors.Is(err, kind) {
		return fmt.Errorf("got %w, want %w", err, kind)
	}
	if !strings.Contains(err.Error(), part) {
		return fmt.Errorf("%q is not in the text: %w", part, err)
	}
	return nil
}

// until polls for an event.
func until(t *testing.T, what string, happened func() bool) {
	t.Helper()
	for end := time.Now().Add(patience); !happened(); time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s did not happen", what)
		}
	}
}

// collected runs the collector until something that depends on it has happened.
func collected(t *testing.T, what string, happened func() bool) {
	t.Helper()
	until(t, what, func() bool {
		runtime.GC()
		return happened()
	})
}

func raised(run func()) (value any) {
	defer func() { value = recover() }()
	run()
	return nil
}

func near(a, b float64) bool { return math.Abs(a-b) <= 1e-6*math.Max(1, math.Abs(b)) }

func filled[T any](n int, value T) []T {
	s := make([]T, n)
	for i := range s {
		s[i] = value
	}
	return s
}
