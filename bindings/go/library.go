// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"fmt"
	"log/slog"
	"strings"
	"sync"

	"ujoin.dev/go/internal/cujoin"
)

// A library older than the header that this package was made from lacks what the package calls.
func init() {
	if err := checkABI(cujoin.ABIVersion()); err != nil {
		panic(err)
	}
}

func checkABI(library int) error {
	if library < ABIVersion {
		return fmt.Errorf("ujoin: libujoin %s has ABI version %d, this program was built for %d: install a newer libujoin",
			Version(), library, ABIVersion)
	}
	return nil
}

// Version is the version of the library that runs, "0.1.0". VersionMajor and its like are those of the header.
func Version() string { return cujoin.Version() }

// LibraryABIVersion is the ABI version of the library that runs; the program does not start if it is below ABIVersion.
func LibraryABIVersion() int { return cujoin.ABIVersion() }

// Backend is a way to communicate, and whether this build and machine have it.
type Backend struct {
	Name      string
	Available bool
	About     string // why not, or the library found
}

// Backends tells what this build and this machine can do.
func Backends() []Backend {
	var backends []Backend
	for _, line := range strings.Split(strings.TrimSpace(cujoin.Backends()), "\n") {
		fields := append(strings.SplitN(line, "\t", 3), "", "")
		backends = append(backends, Backend{fields[0], fields[1] == "yes", fields[2]})
	}
	return backends
}

// SetInterruptCheck sets a function that ends blocking calls: they run it every 100 ms at most, on their goroutine, and an
// error of it becomes theirs (ErrCallback). nil removes it. For the whole process; it may not call this package. Contexts
// do not need it.
func SetInterruptCheck(check func() error) error {
	if check == nil {
		cujoin.EnableUserCheck(0)
		cujoin.UserCheck.Store(nil)
		return nil
	}
	cujoin.UserCheck.Store(&check)
	cujoin.EnableUserCheck(1)
	return errorOf(cujoin.InstallInterruptCheck(), nil)
}

// PanicError is a panic of a log handler, which had no call to be raised from.
type PanicError struct{ Value any }

func (p *PanicError) Error() string {
	return fmt.Sprintf("ujoin: the log handler panicked: %v", p.Value)
}

// LogSink is a logger that receives the library's lines.
type LogSink struct {
	mu       sync.Mutex
	panicked *PanicError
}

var (
	sinkMutex   sync.Mutex
	currentSink *LogSink
)

// SetLogger sends the library's log lines to a logger, in place of the one before, as far down as the logger's handler is
// enabled. Lines come from any thread, and several at once. The handler may not call this package; a panic in it is kept
// for Close. For the whole process. Without a logger nothing is written.
func SetLogger(logger *slog.Logger) (*LogSink, error) {
	sink := &LogSink{}
	lines := cujoin.LogFunc(func(level int32, text string) {
		defer sink.keepPanic()
		logger.LogAttrs(context.Background(), slogLevel(LogLevel(level)), text, slog.String("library", "ujoin"))
	})
	sinkMutex.Lock()
	defer sinkMutex.Unlock()
	if f := cujoin.SetLogSink(int(lowestLevel(logger)), cujoin.NewHandle(lines, nil)); f != nil {
		return nil, errorOf(f, nil)
	}
	currentSink = sink
	return sink, nil
}

// Close removes the logger, unless another has taken its place. When it returns the handler runs no more. It returns a
// *PanicError if the handler has panicked.
func (s *LogSink) Close() error {
	sinkMutex.Lock()
	defer sinkMutex.Unlock()
	if currentSink == s {
		currentSink = nil
		if f := cujoin.SetLogSink(0, 0); f != nil {
			return errorOf(f, nil)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.panicked != nil {
		return s.panicked
	}
	return nil
}

func (s *LogSink) keepPanic() {
	if value := recover(); value != nil {
		s.mu.Lock()
		defer s.mu.Unlock()
		if s.panicked == nil {
			s.panicked = &PanicError{value}
		}
	}
}

func slogLevel(level LogLevel) slog.Level {
	switch level {
	case LogError:
		return slog.LevelError
	case LogWarning:
		return slog.LevelWarn
	case LogInfo:
		return slog.LevelInfo
	}
	return slog.LevelDebug
}

func lowestLevel(logger *slog.Logger) LogLevel {
	for level := LogDebug; level > LogError; level-- {
		if logger.Enabled(context.Background(), slogLevel(level)) {
			return level
		}
	}
	return LogError
}
