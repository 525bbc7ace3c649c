// SPDX-License-Identifier: Apache-2.0
#include "os/fork.hpp"
#include <array>
#include <atomic>
#include <fcntl.h>
#include <mutex>
#include <new>
#include <pthread.h>
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

/// Descriptors + 1 that children have no use for; 0 = a free place.
std::array<std::atomic<int>, 4096> g_not_for_children{};

/// In a child, between fork and its first line: async-signal-safe calls alone.
void empty_in_child() {
    int nothing = -1;
    for (const std::atomic<int> &kept : g_not_for_children) {
        const int fd = kept.load(std::memory_order_acquire) - 1;
        if (fd < 0) continue;
        if (nothing < 0) nothing = open("/dev/null", O_RDWR | O_CLOEXEC);
        if (nothing < 0) return;
        dup3(nothing, fd, O_CLOEXEC);
    }
    if (nothing >= 0) close(nothing);
}

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

NotForChildren::NotForChildren(int fd) {
    static std::once_flag once;
    std::call_once(once, [] { pthread_atfork(nullptr, nullptr, empty_in_child); });
    for (size_t i = 0; i < g_not_for_children.size(); i++) {
        int empty = 0;
        if (!g_not_for_children[i].compare_exchange_strong(empty, fd + 1)) continue;
        place_ = static_cast<int>(i);
        return;
    }
}

NotForChildren::~NotForChildren() {
    if (place_ >= 0) g_not_for_children[static_cast<size_t>(place_)].store(0, std::memory_order_release);
}

} // namespace ujoin::os
