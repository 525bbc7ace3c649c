// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"runtime"
	"time"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// Store is keys and values that the ranks share.
type Store struct{ r *ref }

// StoreOptions of NewStore; the zero value of a field is its default.
type StoreOptions struct {
	Secret  string        // tcp: shared secret; default: the variable UJOIN_SECRET, or none
	Timeout time.Duration // to reach the server or the file; default 5 minutes; the context's deadline if that is nearer
	Listen  bool          // tcp: be the server (port 0 in the address = any free port)
}

// NewStore opens a store: "memory://name" (this process: equal names share it), "file:///path", "tcp://host:port" (one
// process opens it with Listen). ErrTimeout: nobody answered; ErrSystem: the address or the file cannot be had.
func NewStore(ctx context.Context, url string, options *StoreOptions) (*Store, error) {
	const op = "NewStore"
	o := StoreOptions{}
	if options != nil {
		o = *options
	}
	if err := checkText(op, url, o.Secret); err != nil {
		return nil, err
	}
	c, err := begin(ctx, op, timed)
	if err != nil {
		return nil, err
	}
	pointer := new(uintptr)
	f := cujoin.StoreCreate(url, o.Secret, opMillis(ctx, o.Timeout), int(flag(o.Listen)), c.pointer(), unsafe.Pointer(pointer))
	if err := c.end(f); err != nil {
		return nil, err
	}
	return storeOf(*pointer), nil
}

func storeOf(pointer uintptr) *Store {
	s := &Store{newRef("store", pointer, cujoin.StoreDestroy)}
	runtime.AddCleanup(s, (*ref).close, s.r)
	return s
}

// Prefix is a view of the store in which every key carries a prefix. It keeps the store alive.
func (s *Store) Prefix(prefix string) (*Store, error) {
	const op = "Store.Prefix"
	if err := checkText(op, prefix); err != nil {
		return nil, err
	}
	if err := s.r.share(op); err != nil {
		return nil, err
	}
	defer s.r.unshare()
	pointer := new(uintptr)
	if f := cujoin.StorePrefix(s.r.pointer, prefix, unsafe.Pointer(pointer)); f != nil {
		return nil, errorOf(f, nil)
	}
	return storeOf(*pointer), nil
}

// URL is the address by which other processes reach the store, with the real port; "" for memory, and when closed.
func (s *Store) URL() string {
	if s.r.share("Store.URL") != nil {
		return ""
	}
	defer s.r.unshare()
	return cujoin.StoreURL(s.r.pointer)
}

// keyed runs a call about a key.
func (s *Store) keyed(ctx context.Context, op, key string, how int, run func(c call) *cujoin.Failure) error {
	if err := checkText(op, key); err != nil {
		return err
	}
	c, err := s.r.begin(ctx, op, how)
	if err != nil {
		return err
	}
	defer s.r.leave()
	f := run(c)
	if how == timed {
		return c.waited(f)
	}
	return c.end(f)
}

// Set sets a key, also over an old value. Values have at most 16 MiB, keys at most 1 KiB.
func (s *Store) Set(ctx context.Context, key string, value []byte) error {
	return s.keyed(ctx, "Store.Set", key, plain, func(c call) *cujoin.Failure {
		return cujoin.StoreSet(s.r.pointer, key, address(value), int64(len(value)), c.pointer())
	})
}

// Get waits until a key exists and returns its value. ErrPending: it is not there yet.
func (s *Store) Get(ctx context.Context, key string) ([]byte, error) {
	value := make([]byte, 4096)
	size := new(uint64)
	err := s.keyed(ctx, "Store.Get", key, timed, func(c call) *cujoin.Failure {
		for {
			f := cujoin.StoreGet(s.r.pointer, key, waitMillis(ctx), address(value), int64(len(value)), unsafe.Pointer(size),
				c.pointer())
			if *size <= uint64(len(value)) {
				return f
			}
			value, *size = make([]byte, *size), 0 // it was longer: once more
		}
	})
	if err != nil {
		return nil, err
	}
	return value[:*size:*size], nil
}

// Add adds to a counter (absent = 0) and returns its new value; atomic over all clients. 0 reads it. ErrMismatch: the key
// holds something else.
func (s *Store) Add(ctx context.Context, key string, amount int64) (int64, error) {
	value := new(int64)
	err := s.keyed(ctx, "Store.Add", key, plain, func(c call) *cujoin.Failure {
		return cujoin.StoreAdd(s.r.pointer, key, amount, unsafe.Pointer(value), c.pointer())
	})
	return *value, err
}

// Wait waits until all keys exist. ErrPending: not all are there; the text lists the missing ones.
func (s *Store) Wait(ctx context.Context, keys ...string) error {
	if err := checkText("Store.Wait", keys...); err != nil {
		return err
	}
	texts := block(keys)
	return s.keyed(ctx, "Store.Wait", "", timed, func(c call) *cujoin.Failure {
		return cujoin.StoreWait(s.r.pointer, address(texts), int64(len(keys)), waitMillis(ctx), c.pointer())
	})
}

// Abort ends every wait on this store with ErrAborted, now and later. Other clients are not concerned.
func (s *Store) Abort() {
	if s.r.share("Store.Abort") == nil {
		cujoin.StoreAbort(s.r.pointer)
		s.r.unshare()
	}
}

// Close drops the store. A server goes on until the last group or prefix made from it is gone.
func (s *Store) Close() error {
	s.r.close()
	return nil
}
