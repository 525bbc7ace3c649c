// SPDX-License-Identifier: Apache-2.0
// Memory that runs out when a test says so: this program's operator new is replaced (short_memory.cpp).
#pragma once
#include <atomic>
#include <cstdint>

/// For the allocations of one thread.
struct MemoryShortage {
    int64_t left = -1;      ///< allocations until it comes; below 0: it does not
    bool only_once = false; ///< else every allocation from then on fails
    bool came = false;
};
extern thread_local MemoryShortage t_shortage;

/// The same for the allocations of all threads but those that are spared, the library's own above all.
struct ShortageOfOthers {
    std::atomic<int64_t> left{-1};
    std::atomic<bool> only_once{false};
    std::atomic<bool> came{false};
};
extern ShortageOfOthers g_shortage_of_others;
extern thread_local bool t_spared;
