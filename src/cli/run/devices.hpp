// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace ujoin_run {

/// The accelerators that workers may use, by the names that CUDA_VISIBLE_DEVICES takes. The variable itself where it is set;
/// else those that the system shows (/dev/nvidia<n>; in tests UJOIN_DEV_DIR instead of /dev).
std::vector<std::string> visible_devices();
inline int32_t accelerators() { return static_cast<int32_t>(visible_devices().size()); }

} // namespace ujoin_run
