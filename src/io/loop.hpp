// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <mutex>
#include <thread>
#include <uv.h>
#include <vector>

namespace ujoin::io {

/// One libuv loop on one thread of its own, which has every signal blocked. Handles are touched on that thread only: post
/// work to it. src/io is the only place that includes uv.h.
class Loop {
  public:
    explicit Loop(const char *thread_name);
    /// Ends the loop after the work that was posted; every handle must have been closed by then.
    ~Loop();
    Loop(const Loop &) = delete;
    Loop &operator=(const Loop &) = delete;

    uv_loop_t *uv() { return &loop_; }
    /// Runs `task` on the loop's thread, soon, in the order of posting.
    void post(std::function<void()> task);
    /// Runs `task` on the loop's thread and waits for it. Not from that thread.
    void call(const std::function<void()> &task);

  private:
    void run_posted();

    uv_loop_t loop_{};
    uv_async_t wake_{};
    std::mutex mutex_;
    std::vector<std::function<void()>> posted_;
    std::thread thread_;
};

} // namespace ujoin::io
