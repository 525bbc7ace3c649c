// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"errors"
	"strings"
	"syscall"

	"ujoin.dev/go/internal/cujoin"
)

// Error is a failed call.
type Error struct {
	Status Status        // what the caller can do about it
	Errno  syscall.Errno // the system's reason, 0 if it was not the system
	Ranks  []int         // those the error is about: missing, late, lost, aborted or exhausted
	Text   string        // what happened, with rank, operation and cause
	cause  error         // of Go's side: a context's end, a callback's error
}

// Error returns the text, with the cause from Go's side if it is not part of it.
func (e *Error) Error() string {
	if e.cause == nil || strings.Contains(e.Text, e.cause.Error()) {
		return e.Text
	}
	return e.Text + ": " + e.cause.Error()
}

// Unwrap gives errors.Is and errors.As the end of the context or the callback's error, and the errno.
func (e *Error) Unwrap() []error {
	var causes []error
	if e.cause != nil {
		causes = append(causes, e.cause)
	}
	if e.Errno != 0 {
		causes = append(causes, e.Errno)
	}
	return causes
}

// Is compares with the Err values below. A timeout, and a wait that ran out, are context.DeadlineExceeded too.
func (e *Error) Is(target error) bool {
	if sentinel, ok := target.(*statusError); ok {
		return sentinel.status == e.Status
	}
	return target == context.DeadlineExceeded && e.Status == StatusTimeout
}

type statusError struct{ status Status }

func (s *statusError) Error() string { return "ujoin: " + s.status.String() }

// For errors.Is: one for each status that is not OK.
var (
	ErrPending     error = &statusError{StatusPending}     // this wait ran out; the object lives on
	ErrInvalid     error = &statusError{StatusInvalid}     // an argument is wrong
	ErrState       error = &statusError{StatusState}       // not now: wrong order, closed, broken, or used twice at once
	ErrUnsupported error = &statusError{StatusUnsupported} // not in this build or on this machine
	ErrNoMemory    error = &statusError{StatusNoMemory}    // nothing was changed
	ErrTimeout     error = &statusError{StatusTimeout}     // the operation's deadline passed; it is dead
	ErrAborted     error = &statusError{StatusAborted}     // this rank or a peer gave up
	ErrPeerLost    error = &statusError{StatusPeerLost}    // a rank died or left
	ErrMismatch    error = &statusError{StatusMismatch}    // ranks called different things
	ErrExhausted   error = &statusError{StatusExhausted}   // throw mode: a rank has no more inputs
	ErrSystem      error = &statusError{StatusSystem}      // the system refused
	ErrBackend     error = &statusError{StatusBackend}     // a library under a backend failed
	ErrCallback    error = &statusError{StatusCallback}    // a callback failed, or the context ended the call
	ErrChildFailed error = &statusError{StatusChildFailed} // a worker failed
	ErrInternal    error = &statusError{StatusInternal}    // a defect of the library
)

// String is the status's name in C, "UJOIN_E_TIMEOUT".
func (s Status) String() string { return cujoin.StatusName(int(s)) }

func init() { cujoin.StatusOf = statusOf }

// statusOf says what an error that a callback returns means to the library.
func statusOf(err error) int32 {
	if e := (*Error)(nil); errors.As(err, &e) && e.Status < 0 {
		return int32(e.Status)
	}
	return int32(StatusCallback)
}

// errorOf makes the Go error of a failure; nil of nil.
func errorOf(f *cujoin.Failure, cause error) error {
	if f == nil {
		return nil
	}
	e := &Error{Status: Status(f.Status), Errno: syscall.Errno(f.Errno), Text: f.Text, cause: cause}
	for _, rank := range f.Ranks {
		e.Ranks = append(e.Ranks, int(rank))
	}
	if e.Text == "" {
		e.Text = "ujoin: " + e.Status.String()
	}
	return e
}

func failed(status Status, op, text string) error {
	return &Error{Status: status, Text: "ujoin: " + op + ": " + text}
}

// checkText refuses what C would cut short.
func checkText(op string, texts ...string) error {
	for _, text := range texts {
		if strings.IndexByte(text, 0) >= 0 {
			return failed(StatusInvalid, op, "a NUL character in "+strings.ReplaceAll(text, "\x00", "\\0"))
		}
	}
	return nil
}

// withContext adds the context's end to an error that it caused.
func withContext(ctx context.Context, err error) error {
	e := (*Error)(nil)
	if ctx.Err() == nil || !errors.As(err, &e) || errors.Is(err, ctx.Err()) {
		return err
	}
	return &Error{Status: e.Status, Errno: e.Errno, Ranks: e.Ranks, Text: err.Error(), cause: contextError(ctx)}
}

// contextError is the context's error, with the reason given to WithCancelCause if there is one.
func contextError(ctx context.Context) error {
	err, cause := ctx.Err(), context.Cause(ctx)
	if cause == nil || cause == err {
		return err
	}
	return errors.Join(err, cause)
}
