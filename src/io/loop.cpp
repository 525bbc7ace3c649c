// SPDX-License-Identifier: Apache-2.0
#include "io/loop.hpp"
#include "base/error.hpp"
#include "os/thread.hpp"
#include <future>

namespace ujoin::io {

Loop::Loop(const char *thread_name) {
    if (const int code = uv_loop_init(&loop_); code != 0)
        fail(UJOIN_E_SYSTEM, "cannot make an event loop: ", uv_strerror(code));
    if (const int code =
            uv_async_init(&loop_, &wake_, [](uv_async_t *async) { static_cast<Loop *>(async->data)->run_posted(); });
        code != 0) {
        uv_loop_close(&loop_);
        fail(UJOIN_E_SYSTEM, "cannot make an event loop: ", uv_strerror(code));
    }
    wake_.data = this;
    try {
        thread_ = os::start_thread(thread_name, [this] { uv_run(&loop_, UV_RUN_DEFAULT); });
    } catch (const Error &) {
        uv_close(reinterpret_cast<uv_handle_t *>(&wake_), nullptr);
        uv_run(&loop_, UV_RUN_DEFAULT);
        uv_loop_close(&loop_);
        throw;
    }
}

Loop::~Loop() {
    post([this] { uv_close(reinterpret_cast<uv_handle_t *>(&wake_), nullptr); });
    thread_.join();
    uv_loop_close(&loop_);
}

void Loop::post(std::function<void()> task) {
    std::scoped_lock lock(mutex_);
    posted_.push_back(std::move(task));
    uv_async_send(&wake_); // under the lock: the task may be the one that closes wake_
}

void Loop::call(const std::function<void()> &task) {
    std::promise<void> done;
    post([&] {
        try {
            task();
            done.set_value();
        } catch (...) {
            done.set_exception(std::current_exception());
        }
    });
    done.get_future().get();
}

void Loop::run_posted() {
    std::vector<std::function<void()>> tasks;
    {
        std::scoped_lock lock(mutex_);
        tasks.swap(posted_);
    }
    for (const auto &task : tasks) task();
}

} // namespace ujoin::io
