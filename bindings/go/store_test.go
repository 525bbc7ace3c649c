// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"testing"

	"ujoin.dev/go"
)

func TestStoresOfEveryKind(t *testing.T) {
	server, err := ujoin.NewStore(within(t), "tcp://127.0.0.1:0", &ujoin.StoreOptions{Listen: true, Secret: "s"})
	ok(t, err)
	defer func() { ok(t, server.Close()) }()
	for url, options := range map[string]*ujoin.StoreOptions{
		"memory://" + t.Name(): nil, "file://" + filepath.Join(t.TempDir(), "store"): nil,
		server.URL(): {Secret: "s", Timeout: patience},
	} {
		ctx := within(t)
		a, err := ujoin.NewStore(ctx, url, options)
		ok(t, err)
		b, err := ujoin.NewStore(ctx, url, options)
		ok(t, err)
		useStore(t, ctx, a, b)
		ok(t, a.Close())
		ok(t, b.Close())
	}
	_, err = ujoin.NewStore(within(t), server.URL(), &ujoin.StoreOptions{Secret: "wrong"})
	if err == nil {
		t.Fatal("a wrong secret was accepted")
	}
}

func TestTheSecretOfTheEnvironment(t *testing.T) {
	server, err := ujoin.NewStore(within(t), "tcp://127.0.0.1:0", &ujoin.StoreOptions{Listen: true, Secret: "s"})
	ok(t, err)
	defer func() { ok(t, server.Close()) }()
	t.Setenv("UJOIN_SECRET", "s")
	client, err := ujoin.NewStore(within(t), server.URL(), nil)
	ok(t, err)
	ok(t, client.Set(within(t), "k", []byte("v")))
	ok(t, client.Close())
	if _, err := ujoin.NewStore(within(t), server.URL(), &ujoin.StoreOptions{Secret: "another"}); err == nil {
		t.Fatal("the variable's secret was used instead of the given one")
	}
}

func useStore(t *testing.T, ctx context.Context, a, b *ujoin.Store) {
	t.Helper()
	ok(t, a.Set(ctx, "k", []byte("v")))
	ok(t, a.Set(ctx, "nothing", nil))
	long := filled(100_000, byte(7))
	ok(t, a.Set(ctx, "long", long))
	for key, want := range map[string][]byte{"k": []byte("v"), "nothing": {}, "long": long} {
		got, err := b.Get(ctx, key)
		ok(t, err)
		if !slices.Equal(got, want) {
			t.Fatalf("%s: %d bytes", key, len(got))
		}
	}
	for i := range 3 {
		if n, err := b.Add(ctx, "n", 2); err != nil || n != int64(2*i+2) {
			t.Fatalf("%d %v", n, err)
		}
	}
	_, err := a.Add(ctx, "k", 1)
	refused(t, err, ujoin.ErrMismatch, "k")
	ok(t, b.Wait(ctx, "k", "n"))
	short, cancel := soon()
	defer cancel()
	err = b.Wait(short, "k", "missing")
	refused(t, err, ujoin.ErrPending, "missing")
	refused(t, err, context.DeadlineExceeded, "")
	prefixed, err := a.Prefix("p/")
	ok(t, err)
	ok(t, prefixed.Set(ctx, "k", []byte("other")))
	ok(t, prefixed.Close())
	if got, err := b.Get(ctx, "p/k"); err != nil || string(got) != "other" {
		t.Fatalf("%s %v", got, err)
	}
}

func TestAWaitForAKey(t *testing.T) {
	ctx := within(t)
	store, err := ujoin.NewStore(ctx, "memory://"+t.Name(), nil)
	ok(t, err)
	short, cancel := soon()
	defer cancel()
	_, err = store.Get(short, "k")
	refused(t, err, ujoin.ErrPending, `"k"`)
	refused(t, err, context.DeadlineExceeded, "")
	_, err = store.Get(cancelled(), "k")
	ok(t, isCancelled(err, ujoin.ErrPending))
	other, err := ujoin.NewStore(ctx, "memory://"+t.Name(), nil)
	ok(t, err)
	got := make(chan error, 1)
	go func() {
		value, err := store.Get(ctx, "k")
		if string(value) != "v" {
			err = fmt.Errorf("%s %w", value, err)
		}
		got <- err
	}()
	ok(t, other.Set(ctx, "k", []byte("v")))
	ok(t, <-got)
	go func() { _, err := store.Get(ctx, "never"); got <- err }()
	store.Abort()
	refused(t, <-got, ujoin.ErrAborted, "")
	ok(t, other.Set(ctx, "k", nil))
}

func TestAGroupMeetsAtAStore(t *testing.T) {
	server, err := ujoin.NewStore(within(t), "memory://"+t.Name(), nil)
	ok(t, err)
	all := make(chan error, 2)
	for rank := range 2 {
		go func() {
			all <- func() error {
				store, err := server.Prefix("group/")
				if err != nil {
					return err
				}
				g, err := ujoin.NewGroup(within(t), &ujoin.GroupOptions{Store: store, Rank: rank, WorldSize: 2,
					Timeout: patience, Name: "here"})
				if err != nil {
					return err
				}
				return errors.Join(store.Close(), g.Barrier(within(t)), g.Shutdown(within(t)), g.Close())
			}()
		}()
	}
	ok(t, errors.Join(<-all, <-all))
}
