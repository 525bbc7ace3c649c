// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/error.hpp"
#include <new>

namespace ujoin::api {

/// Runs the body of an exported function: nothing is thrown across the ABI. `where` is the function's name, which begins
/// the text of an error. The body returns void (UJOIN_OK) or a status that is not an error.
template <class Body> ujoin_status guard(const char *where, Body &&body) noexcept {
    try {
        if constexpr (std::is_void_v<decltype(body())>) {
            body();
            return UJOIN_OK;
        } else {
            return body();
        }
    } catch (Error &error) {
        try {
            error.in(where);
        } catch (...) { // the text without its place must do
        }
        return record(error);
    } catch (const std::bad_alloc &) {
        return record(UJOIN_E_NO_MEMORY, where, "out of memory");
    } catch (const std::exception &error) {
        return record(UJOIN_E_INTERNAL, where, error.what());
    } catch (...) {
        return record(UJOIN_E_INTERNAL, where, "an exception that is no std::exception");
    }
}

/// For getters that return a value: on an error the text is set and `otherwise` returned.
template <class Value, class Body> Value guard_value(const char *where, Value otherwise, Body &&body) noexcept {
    Value value = otherwise;
    const ujoin_status status = guard(where, [&] { value = body(); });
    return status < 0 ? otherwise : value;
}

} // namespace ujoin::api
