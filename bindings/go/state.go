// SPDX-License-Identifier: Apache-2.0

package ujoin

import (
	"fmt"
	"iter"
	"runtime"
	"unsafe"

	"ujoin.dev/go/internal/cujoin"
)

// State is a typed list of saved items, each with a key that is unique within its owner.
type State struct{ r *ref }

// Item is one item. Which of its values counts says Kind.
type Item struct {
	Owner  ItemOwner // whose it is; 0: the program's own
	Param  string    // the parameter that owns it
	Group  int       // the param group of the parameter or hyper-parameter
	Key    string    // "exp_avg", "step", "lr", or the program's own name
	Kind   ItemKind
	Number float64
	Text   string
	Bytes  []byte // ItemBytes; of a tensor its elements, row by row (TensorOf, ItemData)
	DType  DType  // tensor
	Shape  []int  // tensor
}

// NewState makes an empty list: for the program's own items of Zero.Save, or to bring another library's state into a Zero.
func NewState() (*State, error) {
	pointer := new(uintptr)
	if f := cujoin.StateCreate(unsafe.Pointer(pointer)); f != nil {
		return nil, errorOf(f, nil)
	}
	return stateOf(*pointer), nil
}

func stateOf(pointer uintptr) *State {
	s := &State{newRef("state", pointer, cujoin.StateDestroy)}
	runtime.AddCleanup(s, (*ref).close, s.r)
	return s
}

// Set adds an item, or replaces the one with the same key. It is copied.
func (s *State) Set(item Item) error {
	const op = "State.Set"
	if err := checkText(op, item.Param, item.Key, item.Text); err != nil {
		return err
	}
	if err := s.r.enter(op); err != nil {
		return err
	}
	defer s.r.leave()
	data := item.Bytes
	if item.Kind == ItemText {
		data = []byte(item.Text)
	}
	shape := make([]int64, 0, len(item.Shape)+1) // never nil: a tensor may have no dimension
	for _, extent := range item.Shape {
		shape = append(shape, int64(extent))
	}
	facts := []int64{int64(item.Kind), int64(item.Owner), int64(item.Group), int64(item.DType), int64(len(item.Shape)),
		int64(len(data))}
	return errorOf(cujoin.StateSet(s.r.pointer, item.Param, item.Key, address(facts), address(shape), address(data),
		item.Number), nil)
}

// SetNumber sets a number of the program's own.
func (s *State) SetNumber(key string, number float64) error {
	return s.Set(Item{Key: key, Kind: ItemNumber, Number: number})
}

// SetText sets a text of the program's own.
func (s *State) SetText(key, text string) error {
	return s.Set(Item{Key: key, Kind: ItemText, Text: text})
}

// SetBytes sets bytes of the program's own.
func (s *State) SetBytes(key string, bytes []byte) error {
	return s.Set(Item{Key: key, Kind: ItemBytes, Bytes: bytes})
}

// TensorOf makes a tensor item of a slice, row by row; no shape: one dimension. Owner and key are yours to add.
func TensorOf[T Element](data []T, shape ...int) Item {
	if len(shape) == 0 {
		shape = []int{len(data)}
	}
	bytes := append([]byte(nil), bytesOf(data)...)
	return Item{Kind: ItemTensor, DType: dtypeOf[T](), Shape: append([]int(nil), shape...), Bytes: bytes}
}

// ItemData is a tensor's elements, copied. ErrInvalid: it is no tensor of this type.
func ItemData[T Element](item Item) ([]T, error) {
	var one T
	if item.Kind != ItemTensor || item.DType != dtypeOf[T]() {
		return nil, failed(StatusInvalid, "ItemData", fmt.Sprintf("item %q is of kind %d and type %d, not a tensor of %T",
			item.Key, item.Kind, item.DType, one))
	}
	data := make([]T, len(item.Bytes)/int(unsafe.Sizeof(one)))
	copy(bytesOf(data), item.Bytes)
	return data, nil
}

// bytesOf is the memory of a slice of numbers.
func bytesOf[T Element](data []T) []byte {
	return unsafe.Slice((*byte)(address(data)), len(data)*int(unsafe.Sizeof(*new(T))))
}

// Len is the number of items; 0 when closed.
func (s *State) Len() int {
	if s.r.enter("State.Len") != nil {
		return 0
	}
	defer s.r.leave()
	return int(cujoin.StateCount(s.r.pointer))
}

// At is item i, in order of owner, group, parameter and key.
func (s *State) At(i int) (Item, error) { return s.item("State.At", i, "", false) }

// Find is the program's own item with this key. ErrInvalid: there is none.
func (s *State) Find(key string) (Item, error) {
	if err := checkText("State.Find", key); err != nil {
		return Item{}, err
	}
	return s.item("State.Find", 0, key, true)
}

// Items goes through all items, until one cannot be had.
func (s *State) Items() iter.Seq[Item] {
	return func(yield func(Item) bool) {
		for i := range s.Len() {
			if item, err := s.At(i); err != nil || !yield(item) {
				return
			}
		}
	}
}

func (s *State) item(op string, index int, key string, byKey bool) (Item, error) {
	if err := s.r.enter(op); err != nil {
		return Item{}, err
	}
	defer s.r.leave()
	raw, f := cujoin.StateItemOf(s.r.pointer, int64(index), key, byKey)
	if f != nil {
		return Item{}, errorOf(f, nil)
	}
	item := Item{Owner: ItemOwner(raw.Owner), Param: raw.Param, Group: int(raw.Group), Key: raw.Key, Kind: ItemKind(raw.Kind),
		Number: raw.Number, DType: DType(raw.DType)}
	for _, extent := range raw.Shape {
		item.Shape = append(item.Shape, int(extent))
	}
	if item.Kind == ItemText {
		item.Text = string(raw.Data)
	} else {
		item.Bytes = raw.Data
	}
	return item, nil
}

// Close drops the list.
func (s *State) Close() error {
	s.r.close()
	return nil
}
