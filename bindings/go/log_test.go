// SPDX-License-Identifier: Apache-2.0

package ujoin_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"ujoin.dev/go"
)

// handler counts records, and may do worse.
type handler struct {
	lowest slog.Level
	seen   atomic.Int64
	last   atomic.Value
	then   func()
}

func (h *handler) Enabled(_ context.Context, level slog.Level) bool { return level >= h.lowest }
func (h *handler) WithAttrs([]slog.Attr) slog.Handler               { return h }
func (h *handler) WithGroup(string) slog.Handler                    { return h }

func (h *handler) Handle(_ context.Context, record slog.Record) error {
	h.seen.Add(1)
	h.last.Store(record.Level.String() + " " + record.Message)
	if h.then != nil {
		h.then()
	}
	return nil
}

// skewed makes one warning on this goroutine's thread, in a call.
func skewed(t *testing.T) {
	t.Helper()
	ranks(t, 2, func(ctx context.Context, g *ujoin.Group) error {
		m, err := newModel(g, nil)
		if err != nil {
			return err
		}
		return ujoin.Join(ctx, m.joinables(), &ujoin.JoinOptions{SkewWarningRounds: 2}, func() error {
			for range 4 * g.Rank() {
				if err := m.round(1, 1); err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func TestLogLinesReachTheLogger(t *testing.T) {
	h := &handler{lowest: slog.LevelWarn}
	sink, err := ujoin.SetLogger(slog.New(h))
	ok(t, err)
	skewed(t)
	if text, _ := h.last.Load().(string); h.seen.Load() != 1 || !strings.HasPrefix(text, "WARN join: rank 0 ran out of inputs") {
		t.Fatalf("%d lines, the last %q", h.seen.Load(), text)
	}
	quiet := &handler{lowest: slog.LevelError}
	second, err := ujoin.SetLogger(slog.New(quiet)) // in its place
	ok(t, err)
	skewed(t)
	ok(t, sink.Close())
	if h.seen.Load() != 1 || quiet.seen.Load() != 0 {
		t.Fatalf("%d and %d lines", h.seen.Load(), quiet.seen.Load())
	}
	ok(t, second.Close())
	ok(t, second.Close())
	skewed(t)

	var buffer bytes.Buffer
	text, err := ujoin.SetLogger(slog.New(slog.NewTextHandler(&buffer, nil)))
	ok(t, err)
	skewed(t)
	ok(t, text.Close())
	if !strings.Contains(buffer.String(), "level=WARN") || !strings.Contains(buffer.String(), "library=ujoin") {
		t.Fatal(buffer.String())
	}
}

func TestAPanicInALogHandlerIsKept(t *testing.T) {
	h := &handler{then: func() { panic("full") }}
	sink, err := ujoin.SetLogger(slog.New(h))
	ok(t, err)
	skewed(t) // is not disturbed
	skewed(t)
	err = sink.Close()
	if p := (*ujoin.PanicError)(nil); !errors.As(err, &p) || p.Value != "full" || h.seen.Load() != 2 {
		t.Fatalf("%d lines, %v", h.seen.Load(), err)
	}
}

// A server warns of every client that talks nonsense, on the library's own thread; the collector runs meanwhile, and the
// handler's stack grows.
func TestLogLinesFromTheLibrarysThread(t *testing.T) {
	const clients = 200
	h := &handler{then: func() { deep(2000) }}
	sink, err := ujoin.SetLogger(slog.New(h))
	ok(t, err)
	server, err := ujoin.NewStore(within(t), "tcp://127.0.0.1:0", &ujoin.StoreOptions{Listen: true})
	ok(t, err)
	address := strings.TrimPrefix(server.URL(), "tcp://")
	var done sync.WaitGroup
	for range 4 {
		done.Add(1)
		go func() {
			defer done.Done()
			for range clients / 4 {
				if err := nonsense(address); err != nil {
					t.Error(err)
				}
				runtime.GC()
			}
		}()
	}
	for range 20 { // replaced while lines come
		another, err := ujoin.SetLogger(slog.New(h))
		ok(t, err)
		ok(t, sink.Close())
		sink = another
	}
	done.Wait()
	until(t, "a line for each client", func() bool { return h.seen.Load() >= clients })
	ok(t, server.Close())
	ok(t, sink.Close())
	if text, _ := h.last.Load().(string); h.seen.Load() != clients || !strings.Contains(text, "dropped a client") {
		t.Fatalf("%d lines, the last %q", h.seen.Load(), text)
	}
}

func nonsense(address string) error {
	connection, err := net.Dial("tcp", address)
	if err != nil {
		return err
	}
	defer func() { _ = connection.Close() }()
	if _, err := connection.Write(bytes.Repeat([]byte{0xff}, 64)); err != nil {
		return err
	}
	_, err = connection.Read(make([]byte, 1024)) // the server hangs up
	for err == nil {
		_, err = connection.Read(make([]byte, 1024))
	}
	return nil
}
