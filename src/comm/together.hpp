// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/group.hpp"
#include <exception>
#include <new>
#include <optional>

namespace ujoin {

/// Runs this rank's own part of a collective call, then agrees: if it failed on any rank, every rank throws, and none is
/// left waiting for one that has gone home.
template <class Body> void together(Group &group, Body &&body, const Deadline &deadline = Deadline::never()) {
    std::optional<Error> error;
    try {
        body();
    } catch (const Error &caught) {
        error = caught;
    } catch (const std::bad_alloc &) {
        error = Error(UJOIN_E_NO_MEMORY, "out of memory");
    } catch (const std::exception &caught) {
        error = Error(UJOIN_E_INTERNAL, caught.what());
    }
    group.agree(error, deadline);
}

} // namespace ujoin
