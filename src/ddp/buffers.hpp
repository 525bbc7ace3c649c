// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ddp/hook.hpp"
#include "ddp/round.hpp"
#include <vector>

namespace ujoin {

/// The average of each buffer over the ranks that have not joined.
void average_buffers(const Round &round, const std::vector<ujoin_buffer> &buffers, const Deadline &deadline);

/// Each buffer by the program's hook, to the end of what it puts in flight. An error of the hook aborts the group.
void run_buffer_hook(Round &round, const std::vector<ujoin_buffer> &buffers, BucketHook &hook);

} // namespace ujoin
