// SPDX-License-Identifier: Apache-2.0
#include "io/loop.hpp"
#include "base/error.hpp"
#include "os/thread.hpp"
#include <condition_variable>
#include <exception>

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
    } catch (...) {
        uv_close(reinterpret_cast<uv_handle_t *>(&wake_), nullptr);
        uv_run(&loop_, UV_RUN_DEFAULT);
        uv_loop_close(&loop_);
        throw;
    }
}

Loop::~Loop() {
    {
        std::scoped_lock lock(mutex_);
        ends_ = true;
        uv_async_send(&wake_);
    }
    thread_.join();
    uv_loop_close(&loop_);
}

void Loop::post(Task &task) noexcept {
    std::scoped_lock lock(mutex_);
    if (task.posted_) return;
    task.posted_ = true;
    task.next_ = nullptr;
    (first_ ? last_->next_ : first_) = &task;
    last_ = &task;
    uv_async_send(&wake_);
}

void Loop::call(const std::function<void()> &body) {
    struct Call {
        const std::function<void()> &body;
        std::mutex mutex{};
        std::condition_variable changed{};
        bool done = false;
        std::exception_ptr error{};
    } call{body};
    Task task([&call] { // one reference: it is kept without memory
        try {
            call.body();
        } catch (...) {
            call.error = std::current_exception();
        }
        std::scoped_lock lock(call.mutex);
        call.done = true;
        call.changed.notify_all(); // under the lock: once it is open `call` may be gone
    });
    post(task);
    std::unique_lock lock(call.mutex);
    call.changed.wait(lock, [&] { return call.done; });
    if (call.error) std::rethrow_exception(std::move(call.error));
}

void Loop::run_posted() {
    for (;;) {
        Task *task = nullptr;
        {
            std::scoped_lock lock(mutex_);
            task = first_;
            if (!task) {
                auto *wake = reinterpret_cast<uv_handle_t *>(&wake_);
                if (ends_ && !uv_is_closing(wake)) uv_close(wake, nullptr);
                return;
            }
            first_ = task->next_;
            task->posted_ = false;
        }
        task->fn_(); // which may end the task itself
    }
}

} // namespace ujoin::io
