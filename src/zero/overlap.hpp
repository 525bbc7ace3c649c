// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/error.hpp"
#include "zero/layout.hpp"
#include <cstdint>
#include <deque>
#include <optional>

namespace ujoin {

/// What an optimizer keeps of a step that it makes within an iteration of a reducer.
struct Overlap {
    bool begun = false;
    std::deque<Share> shares; ///< by bucket; operations in flight refer to them
    std::optional<Error> failure;
    uint32_t digest = 0;
};

} // namespace ujoin
