// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <mutex>
#include <thread>
#include <utility>
#include <uv.h>

namespace ujoin::io {

/// One libuv loop on one thread of its own, which has every signal blocked. Handles are touched on that thread only: post
/// work to it. src/io is the only place that includes uv.h.
class Loop {
  public:
    /// Work that is known before it is wanted: to ask for it takes no memory.
    class Task {
      public:
        explicit Task(std::function<void()> fn) : fn_(std::move(fn)) {}
        Task(const Task &) = delete;
        Task &operator=(const Task &) = delete;

      private:
        friend class Loop;
        std::function<void()> fn_;
        Task *next_ = nullptr;
        bool posted_ = false;
    };

    explicit Loop(const char *thread_name);
    /// Ends the loop after the work that was posted; every handle must have been closed by then.
    ~Loop();
    Loop(const Loop &) = delete;
    Loop &operator=(const Loop &) = delete;

    uv_loop_t *uv() { return &loop_; }
    /// Runs `task` on the loop's thread, soon, in the order of posting; once, if it was posted and has not begun. It must not
    /// throw, and stays until it has run.
    void post(Task &task) noexcept;
    /// Runs `body` on the loop's thread and waits for it; what it throws is thrown here. Takes no memory. Not from that
    /// thread.
    void call(const std::function<void()> &body);

  private:
    void run_posted();

    uv_loop_t loop_{};
    uv_async_t wake_{};
    std::mutex mutex_;
    Task *first_ = nullptr; // what is posted, as a list
    Task *last_ = nullptr;
    bool ends_ = false;
    std::thread thread_;
};

} // namespace ujoin::io
