// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"
#include "base/callback.hpp"
#include <mutex>
#include <shared_mutex>

namespace ujoin {
namespace {

struct Sink {
    ujoin_log_level level = 0;
    ujoin_log_fn fn = nullptr;
    void *user_data = nullptr;
    ujoin_destroy_fn destroy = nullptr;
};

std::shared_mutex g_mutex;
Sink g_sink;
thread_local bool t_in_sink = false; // a sink that removes itself must not wait for itself

} // namespace

void log_line(ujoin_log_level level, const std::string &text) noexcept {
    if (t_in_sink) return;
    try {
        std::shared_lock lock(g_mutex);
        if (!g_sink.fn || level > g_sink.level) return;
        t_in_sink = true;
        g_sink.fn(g_sink.user_data, level, text.c_str());
    } catch (...) { // a log line is never worth a failure
    }
    t_in_sink = false;
}

void set_log_sink(ujoin_log_level level, ujoin_log_fn fn, void *user_data, ujoin_destroy_fn destroy) {
    Sink old;
    {
        std::unique_lock lock(g_mutex, std::defer_lock);
        if (!t_in_sink) lock.lock();
        old = g_sink;
        g_sink = Sink{level ? level : UJOIN_LOG_WARNING, fn, user_data, destroy};
    }
    end_user_data(old.destroy, old.user_data);
}

} // namespace ujoin
