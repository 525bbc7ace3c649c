// SPDX-License-Identifier: Apache-2.0
#include "io/watch.hpp"
#include "base/error.hpp"
#include "io/loop.hpp"
#include <memory>
#include <utility>

namespace ujoin::io {

// The handles outlive their owners until libuv has let them go.
struct Watch::Handle {
    uv_poll_t poll{};
    std::function<void()> ready;
};
struct Timer::Handle {
    uv_timer_t timer{};
    std::function<void()> due;
};

namespace {

template <class Handle, class Member> void release(Handle *handle, Member *member) {
    member->data = handle;
    uv_close(reinterpret_cast<uv_handle_t *>(member),
             [](uv_handle_t *closed) { delete static_cast<Handle *>(closed->data); });
}

} // namespace

Watch::Watch(Loop &loop, int fd, std::function<void()> ready) {
    auto handle = std::make_unique<Handle>();
    handle->ready = std::move(ready);
    if (const int code = uv_poll_init(loop.uv(), &handle->poll, fd); code != 0)
        fail_errno(-code, "cannot watch a descriptor");
    handle->poll.data = handle.get();
    handle_ = handle.release();
    resume();
}

Watch::~Watch() {
    uv_poll_stop(&handle_->poll);
    release(handle_, &handle_->poll);
}

void Watch::pause() { uv_poll_stop(&handle_->poll); }

void Watch::resume() {
    uv_poll_start(&handle_->poll, UV_READABLE, [](uv_poll_t *poll, int, int) {
        static_cast<Handle *>(poll->data)->ready(); // it may destroy its watch: the handle stays until libuv lets it go
    });
}

Timer::Timer(Loop &loop) : handle_(new Handle) {
    uv_timer_init(loop.uv(), &handle_->timer);
    handle_->timer.data = handle_;
}

Timer::~Timer() {
    uv_timer_stop(&handle_->timer);
    release(handle_, &handle_->timer);
}

void Timer::start(int64_t ms, std::function<void()> due) {
    if (ms < 0) return stop();
    handle_->due = std::move(due);
    uv_update_time(handle_->timer.loop);
    const auto after = static_cast<uint64_t>(ms) + (ms > 0 ? 1 : 0); // libuv cuts "now" to whole milliseconds
    uv_timer_start(
        &handle_->timer,
        [](uv_timer_t *timer) {
            const auto now = std::move(static_cast<Handle *>(timer->data)->due); // it may set the timer anew
            now();
        },
        after, 0);
}

void Timer::stop() { uv_timer_stop(&handle_->timer); }

} // namespace ujoin::io
