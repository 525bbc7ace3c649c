// SPDX-License-Identifier: Apache-2.0
#include "os/event_count.hpp"
#include <climits>
#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

namespace ujoin::os {

// Not the _PRIVATE forms: the words lie in memory that several processes share.
void futex_wake_all(std::atomic<uint32_t> &word) {
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAKE, INT_MAX, nullptr, nullptr, 0);
}

void futex_sleep(std::atomic<uint32_t> &word, uint32_t value, int64_t ns) {
    timespec t{};
    t.tv_sec = static_cast<time_t>(ns / 1'000'000'000);
    t.tv_nsec = static_cast<long>(ns % 1'000'000'000);
    syscall(SYS_futex, reinterpret_cast<uint32_t *>(&word), FUTEX_WAIT, value, &t, nullptr, 0);
}

} // namespace ujoin::os
