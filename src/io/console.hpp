// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <functional>
#include <memory>
#include <string>

namespace ujoin::io {

/// Writes to this process's standard streams on a thread of its own, by plain blocking writes: those descriptors belong to
/// the host, so they are never made non-blocking nor given to libuv. The queue is bounded by who pushes.
class Console {
  public:
    /// `eased` is called on the writer's thread when a queue that was full has room again, and when it has become empty
    /// after idle() said no.
    explicit Console(std::function<void()> eased);
    /// Waits for what is queued, except while the console does not take it: then the rest is dropped.
    ~Console();
    Console(const Console &) = delete;
    Console &operator=(const Console &) = delete;

    /// Queues bytes for descriptor 1 or 2. False: the queue is full now; push no more until `eased`.
    bool push(int fd, std::string bytes);
    bool full() const;
    /// Everything was written.
    bool idle();
    /// A last line on the terminal of descriptor 2, drawn anew whenever lines have been written, only where a line begins;
    /// "" takes it away.
    void set_status(std::string text);

  private:
    struct State; // shared with the thread, which may be stuck in a write for ever
    static bool put(State &state, int fd, const std::string &bytes);
    static void draw(State &state, const std::string &text);
    static void run(const std::shared_ptr<State> &state);
    std::shared_ptr<State> state_;
};

} // namespace ujoin::io
