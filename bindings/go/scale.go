// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"runtime"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// Schedule is the course of a hyper-parameter over the steps, for Zero.SetHyper.
type Schedule struct {
	Kind        ScheduleKind // default: constant
	Base        float64      // the value after warm-up
	Minimum     float64
	Gamma       float64 // step; default 0.1
	WarmupSteps int64   // step i < WarmupSteps: Base (i + 1) / WarmupSteps
	TotalSteps  int64   // cosine, linear: warm-up included
	Every       int64   // step: counted from the end of warm-up
}

// At is the value at a step, from 0. ErrInvalid names the field that makes no sense.
func (s Schedule) At(step int64) (float64, error) {
	numbers, value := []float64{s.Base, s.Minimum, s.Gamma}, new(float64)
	facts := []int64{int64(s.Kind), s.WarmupSteps, s.TotalSteps, s.Every}
	f := cujoin.ScheduleAt(address(numbers), address(facts), step, unsafe.Pointer(value))
	return *value, errorOf(f, nil)
}

// ScalerState is the state of a loss scale: to make one, to read and to save it. The zero value of a field is its default.
type ScalerState struct {
	Scale     float64 // default 65,536
	Growth    float64 // factor after Interval good steps in a row, above 1; default 2
	Backoff   float64 // factor after a skipped step, below 1; default 0.5
	Interval  int64   // default 2,000
	GoodSteps int64   // since the last change
	Skipped   int64   // steps, in all
}

// Scaler is a dynamic loss scale for one optimizer, the same on every rank.
type Scaler struct{ r *ref }

// NewScaler makes a loss scale; nil: with defaults. Multiply the loss by Scale, and give the scaler to Zero.StepUsing.
func NewScaler(state *ScalerState) (*Scaler, error) {
	s := ScalerState{}
	if state != nil {
		s = *state
	}
	numbers, facts := []float64{s.Scale, s.Growth, s.Backoff}, []int64{s.Interval, s.GoodSteps, s.Skipped}
	pointer := new(uintptr)
	if f := cujoin.ScalerCreate(address(numbers), address(facts), unsafe.Pointer(pointer)); f != nil {
		return nil, errorOf(f, nil)
	}
	scaler := &Scaler{newRef("scaler", *pointer, cujoin.ScalerDestroy)}
	runtime.AddCleanup(scaler, (*ref).close, scaler.r)
	return scaler, nil
}

// Scale is the scale of the next loss, the same on every rank after each step; 0 when closed.
func (s *Scaler) Scale() float64 {
	if s.r.enter("Scaler.Scale") != nil {
		return 0
	}
	defer s.r.leave()
	return cujoin.ScalerScale(s.r.pointer)
}

// State is the present state, to be saved; NewScaler takes it back.
func (s *Scaler) State() (ScalerState, error) {
	if err := s.r.enter("Scaler.State"); err != nil {
		return ScalerState{}, err
	}
	defer s.r.leave()
	x, n := new([3]float64), new([3]int64)
	f := cujoin.ScalerGet(s.r.pointer, unsafe.Pointer(x), unsafe.Pointer(n))
	return ScalerState{x[0], x[1], x[2], n[0], n[1], n[2]}, errorOf(f, nil)
}

// Close drops the scaler. Steps that use it keep it alive.
func (s *Scaler) Close() error {
	s.r.close()
	return nil
}
