// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/deadline.hpp"

namespace ujoin::os {

/// How a blocking wait for a descriptor ended.
enum class Ready { yes, late, stopped };
/// Waits for `events` on `fd`, until the deadline or until `stop_fd` (-1: none) is readable; runs the interrupt check.
/// With fd -1 it waits for the other two alone.
Ready wait_ready(int fd, short events, const Deadline &deadline, int stop_fd = -1);

} // namespace ujoin::os
