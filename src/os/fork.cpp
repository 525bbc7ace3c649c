// SPDX-License-Identifier: Apache-2.0
#include "os/fork.hpp"
#include <atomic>
#include <new>
#include <sys/mman.h>
#include <unistd.h>

namespace ujoin::os {
namespace {

std::atomic<uint64_t> *map_page() {
    void *page = mmap(nullptr, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (page == MAP_FAILED) return nullptr;
    madvise(page, 4096, MADV_WIPEONFORK);
    return new (page) std::atomic<uint64_t>(0);
}

std::atomic<uint64_t> g_next{1};

} // namespace

uint64_t fork_generation() {
    static std::atomic<uint64_t> *page = map_page();
    if (!page) return static_cast<uint64_t>(getpid()); // no page: the pid is second best
    uint64_t value = page->load(std::memory_order_acquire);
    if (value != 0) return value;
    // First call in this process. g_next was inherited, so the new number is larger than the parent's.
    const uint64_t fresh = g_next.fetch_add(1) + 1;
    return page->compare_exchange_strong(value, fresh) ? fresh : value;
}

} // namespace ujoin::os
