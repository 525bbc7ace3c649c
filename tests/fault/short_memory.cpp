// SPDX-License-Identifier: Apache-2.0
// Every form of operator new and delete: a sanitizer's own forms would not take back what these give. In a file of its own,
// because a compiler that sees malloc behind a new expression warns of the delete.
#include "fault/short_memory.hpp"
#include <algorithm>
#include <cstddef>
#include <cstdlib>
#include <new>

thread_local MemoryShortage t_shortage;
ShortageOfOthers g_shortage_of_others;
thread_local bool t_spared = false;

namespace {

bool runs_out() noexcept {
    MemoryShortage &own = t_shortage;
    if (own.left < 0 || own.left-- > 0) return false;
    own.came = true;
    own.left = own.only_once ? -1 : 0;
    return true;
}

bool runs_out_here() noexcept {
    ShortageOfOthers &all = g_shortage_of_others;
    int64_t left = all.left.load();
    if (t_spared) return false;
    while (left >= 0) {
        const int64_t next = left > 0 ? left - 1 : all.only_once.load() ? -1 : 0;
        if (!all.left.compare_exchange_weak(left, next)) continue;
        if (left > 0) return false;
        all.came = true;
        return true;
    }
    return false;
}

void *allocate(size_t bytes, size_t alignment) noexcept {
    if (runs_out() || runs_out_here()) return nullptr;
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
