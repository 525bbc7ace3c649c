// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "io/watch.hpp"
#include "os/fd.hpp"
#include "pctx/console_lines.hpp"
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>

namespace ujoin {

namespace io {
class Console;
class Loop;
} // namespace io

/// Counters of a stream, read by other threads.
struct StreamCounters {
    std::atomic<uint64_t> bytes{0};
    std::atomic<int64_t> last_ns{0}; // CLOCK_REALTIME
};

/// What all streams of a job share.
struct ConsoleLink {
    io::Loop &loop;
    io::Console &console;
    ConsoleState state;
    int64_t partial_line_ms;
};

/// Copies a worker's pipe to its file and, line by line, to the console. On the loop's thread. While the console's queue is
/// full it reads nothing, so that the worker waits in its write.
class TeeStream {
  public:
    TeeStream(ConsoleLink &link, os::Fd pipe, os::Fd file, int fd, std::string prefix, StreamCounters &counters,
              std::function<void()> ended);

    bool open() const { return static_cast<bool>(pipe_); }
    /// The console has room again.
    void resume();
    /// Takes what is in the pipe now, and ends the stream, whoever still holds its other end.
    void cut();

  private:
    enum class Got { data, nothing, end };
    void ready();
    Got read_some();
    void take(std::string_view bytes);
    void show(std::string out, std::string other);
    void partial_due();
    void end();

    ConsoleLink &link_;
    os::Fd pipe_;
    os::Fd file_;
    LineMerger lines_;
    StreamCounters &counters_;
    std::function<void()> ended_;
    std::unique_ptr<io::Watch> watch_;
    io::Timer partial_timer_;
    int64_t partial_since_ns_ = 0;
    bool partial_armed_ = false;
    bool paused_ = false;
};

} // namespace ujoin
