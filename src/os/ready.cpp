// SPDX-License-Identifier: Apache-2.0
#include "os/ready.hpp"
#include "os/interrupt.hpp"
#include <cerrno>
#include <poll.h>

namespace ujoin::os {

Ready wait_ready(int fd, short events, const Deadline &deadline, int stop_fd) {
    constexpr int slice_ms = static_cast<int>(slice_ns / 1'000'000);
    for (;;) {
        pollfd fds[2] = {{fd, events, 0}, {stop_fd, POLLIN, 0}};
        const int n = poll(fds, 2, deadline.left_ms(slice_ms)); // poll() ignores negative descriptors
        if (n < 0 && errno != EINTR) fail_errno(errno, "cannot wait for a descriptor");
        if (n > 0 && fds[1].revents != 0) return Ready::stopped;
        if (n > 0 && fds[0].revents != 0) return Ready::yes;
        if (deadline.passed()) return Ready::late;
        check_interrupt();
    }
}

} // namespace ujoin::os
