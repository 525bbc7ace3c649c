// SPDX-License-Identifier: Apache-2.0
// Memory that runs out when a test says so: this program's operator new is replaced (short_memory.cpp).
#pragma once
#include <cstdint>

/// For the allocations of one thread.
struct MemoryShortage {
    int64_t left = -1;      ///< allocations until it comes; below 0: it does not
    bool only_once = false; ///< else every allocation from then on fails
    bool came = false;
};
extern thread_local MemoryShortage t_shortage;
