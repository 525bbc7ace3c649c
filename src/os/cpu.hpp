// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ujoin::os {

/// Processors that this process may use: its affinity mask, and the cgroup's quota rounded up. At least 1.
int processor_count();

} // namespace ujoin::os
