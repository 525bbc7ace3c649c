// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <functional>

namespace ujoin::io {

class Loop;

/// Calls back on the loop's thread while a descriptor (pipe, socket, pidfd) is readable or its other end is gone. Makes
/// the descriptor's description non-blocking. Made, used and destroyed on that thread; before the descriptor is closed.
class Watch {
  public:
    Watch(Loop &loop, int fd, std::function<void()> ready);
    ~Watch();
    Watch(const Watch &) = delete;
    Watch &operator=(const Watch &) = delete;

    void pause();
    void resume();

  private:
    struct Handle;
    Handle *handle_;
};

/// Calls back once, on the loop's thread, no earlier than asked for. Made, used and destroyed on that thread.
class Timer {
  public:
    explicit Timer(Loop &loop);
    ~Timer();
    Timer(const Timer &) = delete;
    Timer &operator=(const Timer &) = delete;

    /// Replaces what was set before. Negative: never.
    void start(int64_t ms, std::function<void()> due);
    void stop();

  private:
    struct Handle;
    Handle *handle_;
};

} // namespace ujoin::io
