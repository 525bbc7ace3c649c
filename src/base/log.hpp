// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/text.hpp"
#include "ujoin.h"
#include <new>

namespace ujoin {

/// Gives one line to the program's sink, if there is one; never throws.
void log_line(ujoin_log_level level, const std::string &text) noexcept;
template <class... Parts> void log_parts(ujoin_log_level level, const Parts &...parts) noexcept {
    try {
        log_line(level, cat(parts...));
    } catch (const std::bad_alloc &) { // a log line is never worth a failure
    }
}
template <class... Parts> void log_warning(const Parts &...parts) noexcept { log_parts(UJOIN_LOG_WARNING, parts...); }
template <class... Parts> void log_debug(const Parts &...parts) noexcept { log_parts(UJOIN_LOG_DEBUG, parts...); }

/// Replaces the sink. Waits until the old one no longer runs on another thread, then calls its destroy.
void set_log_sink(ujoin_log_level level, ujoin_log_fn fn, void *user_data, ujoin_destroy_fn destroy);

} // namespace ujoin
