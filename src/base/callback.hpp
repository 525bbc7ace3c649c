// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/error.hpp"
#include "ujoin.h"
#include <cxxabi.h>
#include <exception>
#include <string>

namespace ujoin {

/// "std::runtime_error: text" of the exception in flight; `what` may be null.
std::string exception_text(const char *what);
/// Makes the exception in flight this thread's last error.
ujoin_status record_exception(const char *what) noexcept;

/// Runs a function of the program. What it throws becomes UJOIN_E_CALLBACK, with its text as the last error's: no exception
/// of the program's passes through the library.
template <class Call> ujoin_status call_program(Call &&call) {
    last_error().text.clear();
    try {
        return call();
    } catch (const abi::__forced_unwind &) { // the thread is cancelled: not ours to stop
        throw;
    } catch (const std::exception &error) {
        return record_exception(error.what());
    } catch (...) {
        return record_exception(nullptr);
    }
}

/// Runs the notice that user data are not needed any more. Nobody is there who could be told of what it throws.
void end_user_data(ujoin_destroy_fn destroy, void *user_data) noexcept;

} // namespace ujoin
