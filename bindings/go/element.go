// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"fmt"
	"math"
	"runtime"
	"strconv"
	"unsafe"
)

// Float16 is an IEEE 754 half-precision number, as its bits.
type Float16 uint16

// BFloat16 is the upper half of a float32, as its bits.
type BFloat16 uint16

// Float is what parameters and gradients are made of.
type Float interface {
	float32 | float64 | Float16 | BFloat16
}

// Element is what buffers hold.
type Element interface {
	Float | int32 | int64 | uint8
}

func dtypeOf[T Element]() DType {
	switch any(*new(T)).(type) {
	case float32:
		return F32
	case float64:
		return F64
	case Float16:
		return F16
	case BFloat16:
		return BF16
	case int32:
		return I32
	case int64:
		return I64
	}
	return U8
}

// ToBFloat16 rounds to the nearest, ties to even.
func ToBFloat16(x float32) BFloat16 {
	bits := math.Float32bits(x)
	if x != x {
		return BFloat16(bits>>16 | 0x40) // a quiet NaN stays one
	}
	return BFloat16((bits + 0x7fff + bits>>16&1) >> 16)
}

// Float32 is the number, exactly.
func (b BFloat16) Float32() float32 { return math.Float32frombits(uint32(b) << 16) }

// ToFloat16 rounds to the nearest, ties to even; too large a number becomes infinite.
func ToFloat16(x float32) Float16 {
	bits := math.Float32bits(x)
	sign := Float16(bits >> 16 & 0x8000)
	magnitude := bits & 0x7fffffff
	switch {
	case magnitude > 0x7f800000:
		return sign | 0x7e00
	case magnitude >= 0x477ff000: // from here on the nearest is 65536, which is infinite
		return sign | 0x7c00
	case magnitude < 0x38800000: // below 2^-14: a multiple of 2^-24
		return sign | Float16(math.RoundToEven(float64(math.Float32frombits(magnitude))*(1<<24)))
	}
	return sign | Float16((magnitude-0x38000000+0xfff+magnitude>>13&1)>>13)
}

// Float32 is the number, exactly.
func (h Float16) Float32() float32 {
	exponent, fraction := uint32(h)>>10&0x1f, uint32(h)&0x3ff
	var magnitude float32
	switch exponent {
	case 0:
		magnitude = float32(fraction) / (1 << 24)
	case 31:
		magnitude = math.Float32frombits(0x7f800000 | fraction<<13)
	default:
		magnitude = math.Float32frombits((exponent+112)<<23 | fraction<<13)
	}
	return math.Float32frombits(math.Float32bits(magnitude) | uint32(h)>>15<<31)
}

// ------------------------------------------------------------------------------------------------------------ parameters

// Param is a parameter and its gradient, where they lie.
type Param struct {
	name       string
	data, grad unsafe.Pointer
	count      int
	dtype      DType
	gradType   DType
	flags      ParamFlag
	shape      []int
}

// NewParam describes a parameter: a unique name ("" = its index), its values and its gradient of the same length (nil: none
// yet), row by row, and its shape (none: one dimension). It panics if data and grad differ in length.
func NewParam[T Float](name string, data, grad []T, shape ...int) Param {
	return NewMixedParam(name, data, grad, shape...)
}

// NewMixedParam is NewParam with a gradient of another type, for a Zero: a DDP wants one type for both.
func NewMixedParam[T, G Float](name string, data []T, grad []G, shape ...int) Param {
	if grad != nil && len(grad) != len(data) {
		panic(fmt.Sprintf("ujoin: NewParam: parameter %s has %d elements, its gradient %d", strconv.Quote(name), len(data),
			len(grad)))
	}
	return Param{name, address(data), address(grad), len(data), dtypeOf[T](), dtypeOf[G](), 0, append([]int(nil), shape...)}
}

// Frozen is the parameter, for a Zero not to train for now: see Zero.SetFrozen.
func (p Param) Frozen() Param {
	p.flags |= ParamFrozen
	return p
}

// Ignored is the parameter, for a DDP to leave alone: it is neither verified nor broadcast nor reduced.
func (p Param) Ignored() Param {
	p.flags |= ParamIgnored
	return p
}

// Name as given to NewParam.
func (p Param) Name() string { return p.name }

// Len is the number of elements.
func (p Param) Len() int { return p.count }

// DType is the type of the values.
func (p Param) DType() DType { return p.dtype }

// paramArrays is parameters as the wrapper takes them. The memory they point to must be pinned.
type paramArrays struct {
	count      int
	names      []byte
	data, grad []unsafe.Pointer
	facts      []int64 // count, type, gradient's type, flags and number of dimensions of each
	shapes     []int64
}

func arraysOf(op string, params []Param) (paramArrays, error) {
	n := len(params)
	a := paramArrays{count: n, data: make([]unsafe.Pointer, n+1), grad: make([]unsafe.Pointer, n+1)} // never empty
	names := make([]string, n)
	for i, p := range params {
		names[i], a.data[i], a.grad[i] = p.name, p.data, p.grad
		a.facts = append(a.facts, int64(p.count), int64(p.dtype), int64(p.gradType), int64(p.flags), int64(len(p.shape)))
		for _, extent := range p.shape {
			a.shapes = append(a.shapes, int64(extent))
		}
	}
	a.names = block(names)
	a.facts, a.shapes = append(a.facts, 0), append(a.shapes, 0)
	return a, checkText(op, names...)
}

func pinParams(pinner *runtime.Pinner, params []Param) {
	for _, p := range params {
		pin(pinner, p.data)
		pin(pinner, p.grad)
	}
}

// ---------------------------------------------------------------------------------------------------------------- buffers

// Buffer is memory that a DDP keeps equal on all ranks without training it, such as running statistics.
type Buffer struct {
	data  unsafe.Pointer
	count int
	dtype DType
}

// NewBuffer describes a buffer of any type, where it lies.
func NewBuffer[T Element](data []T) Buffer { return Buffer{address(data), len(data), dtypeOf[T]()} }

// bufferArrays is buffers as the wrapper takes them: pointers, then count and type of each. The memory must be pinned.
func bufferArrays(buffers []Buffer) (data []unsafe.Pointer, facts []int64) {
	for _, b := range buffers {
		data, facts = append(data, b.data), append(facts, int64(b.count), int64(b.dtype))
	}
	return append(data, nil), append(facts, 0) // never empty
}

// slice is memory as elements of a type; nil: it holds others.
func slice[T Element](data unsafe.Pointer, count int, dtype DType) ([]T, bool) {
	if dtype != dtypeOf[T]() {
		return nil, false
	}
	return unsafe.Slice((*T)(data), count), true
}
