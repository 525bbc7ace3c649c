// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "zero/state.hpp"
#include <memory>

namespace ujoin {

class Zero;

/// Sends every rank's state to rank `to`, piece by piece. Gives the list there and null elsewhere.
std::unique_ptr<State> consolidate_state(Zero &zero, int32_t to);

} // namespace ujoin
