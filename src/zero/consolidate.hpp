// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "zero/state.hpp"
#include <memory>

namespace ujoin {

class Zero;

/// Every rank sends its state to rank `to`, once and in chunks. Gives the list there and null elsewhere. The time is for all
/// that comes before the first chunk, then for each chunk.
std::unique_ptr<State> consolidate_state(Zero &zero, int32_t to, int64_t timeout_ms);

} // namespace ujoin
