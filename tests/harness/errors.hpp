// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/error.hpp"
#include <functional>

namespace harness {

/// The error that `body` ends with; UJOIN_OK if it ends well.
inline ujoin::Error error_of(const std::function<void()> &body) {
    try {
        body();
    } catch (const ujoin::Error &error) {
        return error;
    }
    return {UJOIN_OK, "no error"};
}

} // namespace harness
