// SPDX-License-Identifier: Apache-2.0
// Every form of operator new and delete: a sanitizer's own forms would not take back what these give. In a file of its own,
// because a compiler that sees malloc behind a new expression warns of the delete.
#include "fault/short_memory.hpp"
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

thread_local MemoryShortage t_shortage;

namespace {

void *allocate(size_t bytes, size_t alignment) noexcept {
    MemoryShortage &shortage = t_shortage;
    if (shortage.left >= 0 && shortage.left-- == 0) {
        shortage.came = true;
        shortage.left = shortage.only_once ? -1 : 0;
        return nullptr;
    }
    void *memory = nullptr;
    return ::posix_memalign(&memory, std::max(alignment, sizeof(void *)), bytes) == 0 ? memory : nullptr;
}

void *allocate_or_throw(size_t bytes, size_t alignment) {
    void *memory = allocate(bytes, alignment);
    if (memory == nullptr) throw std::bad_alloc();
    return memory;
}

constexpr size_t usual = alignof(std::max_align_t);
using Aligned = std::align_val_t;
using NoThrow = std::nothrow_t;

} // namespace

void *operator new(size_t bytes) { return allocate_or_throw(bytes, usual); }
void *operator new[](size_t bytes) { return allocate_or_throw(bytes, usual); }
void *operator new(size_t bytes, Aligned alignment) { return allocate_or_throw(bytes, static_cast<size_t>(alignment)); }
void *operator new[](size_t bytes, Aligned alignment) { return allocate_or_throw(bytes, static_cast<size_t>(alignment)); }
void *operator new(size_t bytes, const NoThrow &) noexcept { return allocate(bytes, usual); }
void *operator new[](size_t bytes, const NoThrow &) noexcept { return allocate(bytes, usual); }
void *operator new(size_t bytes, Aligned alignment, const NoThrow &) noexcept {
    return allocate(bytes, static_cast<size_t>(alignment));
}
void *operator new[](size_t bytes, Aligned alignment, const NoThrow &) noexcept {
    return allocate(bytes, static_cast<size_t>(alignment));
}
void operator delete(void *memory) noexcept { std::free(memory); }
void operator delete[](void *memory) noexcept { std::free(memory); }
void operator delete(void *memory, size_t) noexcept { std::free(memory); }
void operator delete[](void *memory, size_t) noexcept { std::free(memory); }
void operator delete(void *memory, Aligned) noexcept { std::free(memory); }
void operator delete[](void *memory, Aligned) noexcept { std::free(memory); }
void operator delete(void *memory, size_t, Aligned) noexcept { std::free(memory); }
void operator delete[](void *memory, size_t, Aligned) noexcept { std::free(memory); }
void operator delete(void *memory, const NoThrow &) noexcept { std::free(memory); }
void operator delete[](void *memory, const NoThrow &) noexcept { std::free(memory); }
void operator delete(void *memory, Aligned, const NoThrow &) noexcept { std::free(memory); }
void operator delete[](void *memory, Aligned, const NoThrow &) noexcept { std::free(memory); }
