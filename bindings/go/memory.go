// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"context"
	"fmt"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// Memory is memory that the ranks of a host share: zeros, reserved when it is made, and gone with its ranks. It is not
// collected: Close it when no slice of it is in use any more.
type Memory struct {
	r     *ref
	bytes int
}

// MemoryOptions of NewMemory.
type MemoryOptions struct {
	OnePerHost bool // one copy for all ranks of a host instead of one each; the same on every rank, as is the size then
}

// NewMemory makes memory of so many bytes. An optimizer whose parameters and gradients all lie in such memory, on every rank,
// needs no copies for fused steps (GradientSyncToOwner). Collective.
func NewMemory(g *Group, bytes int, options *MemoryOptions) (*Memory, error) {
	return NewMemoryContext(context.Background(), g, bytes, options)
}

// NewMemoryContext is NewMemory with a context.
func NewMemoryContext(ctx context.Context, g *Group, bytes int, options *MemoryOptions) (*Memory, error) {
	o := MemoryOptions{}
	if options != nil {
		o = *options
	}
	c, err := g.r.begin(ctx, "NewMemory", plain)
	if err != nil {
		return nil, err
	}
	defer g.r.leave()
	pointer := new(uintptr)
	f := cujoin.MemoryCreate(g.r.pointer, int64(max(bytes, 0)), int(flag(o.OnePerHost)), c.pointer(), unsafe.Pointer(pointer))
	if err := c.end(f); err != nil {
		return nil, err
	}
	return &Memory{r: newRef("Memory", *pointer, cujoin.MemoryDestroy), bytes: bytes}, nil
}

// Size is what it was made with.
func (m *Memory) Size() int {
	if m.r.enter("Memory.Size") != nil {
		return 0
	}
	defer m.r.leave()
	return int(cujoin.MemorySize(m.r.pointer))
}

// Close drops the memory. What uses it in the library keeps it.
func (m *Memory) Close() error {
	m.r.close()
	return nil
}

// InMemory is count elements of a memory, from byte offset on, which must be a multiple of their size. The slice is there
// until the memory is closed.
func InMemory[T Element](m *Memory, offset, count int) ([]T, error) {
	const op = "InMemory"
	if err := m.r.enter(op); err != nil {
		return nil, err
	}
	defer m.r.leave()
	size := int(unsafe.Sizeof(*new(T)))
	if offset < 0 || count < 0 || offset%size != 0 || offset > m.bytes || count > (m.bytes-offset)/size {
		return nil, failed(StatusInvalid, op, fmt.Sprintf("%d elements of %d bytes at %d do not lie in %d bytes", count, size, offset,
			m.bytes))
	}
	pointer := new(unsafe.Pointer)
	cujoin.MemoryData(m.r.pointer, unsafe.Pointer(pointer))
	return unsafe.Slice((*T)(unsafe.Add(*pointer, offset)), count), nil
}
