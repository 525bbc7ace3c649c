// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <new>
#include <vector>

namespace ujoin {

/// Memory that begins with a cache line.
template <class T> struct LineAllocator {
    using value_type = T;
    static constexpr std::align_val_t alignment{64};

    LineAllocator() = default;
    template <class Other> LineAllocator(const LineAllocator<Other> & /*other*/) {} // NOLINT(google-explicit-constructor)

    T *allocate(size_t count) { return static_cast<T *>(::operator new(count * sizeof(T), alignment)); }
    void deallocate(T *memory, size_t /*count*/) { ::operator delete(memory, alignment); }
    bool operator==(const LineAllocator & /*other*/) const { return true; }
};

using AlignedBytes = std::vector<std::byte, LineAllocator<std::byte>>;

} // namespace ujoin
