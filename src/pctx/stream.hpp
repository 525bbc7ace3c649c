// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "io/watch.hpp"
#include "os/fd.hpp"
#include "pctx/console_lines.hpp"
#include "pctx/log_file.hpp"
#include "ujoin.h"
#include <atomic>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ujoin {

class OutputQueue;

namespace io {
class Console;
class Loop;
} // namespace io

/// Counters of a stream, read by other threads.
struct StreamCounters {
    std::atomic<uint64_t> bytes{0};
    std::atomic<int64_t> last_ns{0};  // CLOCK_REALTIME
    std::atomic<uint64_t> dropped{0}; // lines that the console went without
};

/// What all streams of a job share.
struct ConsoleLink {
    ConsoleLink(io::Loop &on, io::Console &to, int64_t partial_ms) : loop(on), console(to), partial_line_ms(partial_ms) {}

    io::Loop &loop;
    io::Console &console;
    ConsoleState state;
    int64_t partial_line_ms;
    ujoin_console_policy policy = UJOIN_CONSOLE_BLOCK;
    OutputQueue *output = nullptr;                                       // the program's callback
    LogFile filtered[2];                                                 // lines of stdout and stderr that pass a filter
    const std::vector<std::string> *filters = nullptr;                   // two lists
    std::function<std::function<void()>(std::function<void()>)> guarded; // takes what a loop's callback throws

    /// A line of the launcher's own, on stderr.
    void note(const std::string &text);
};

/// What one stream is.
struct StreamInfo {
    int32_t rank = 0; // the worker's index
    int fd = 1;       // 1 or 2
    bool console = false;
    std::string prefix;
};

/// Copies a worker's pipe to where its bytes go: the file, the console line by line, the filtered file, the callback. On the
/// loop's thread. While the console's queue or the callback's is full it reads nothing, so that the worker waits in its
/// write; or, by policy, the console goes without what comes meanwhile.
class TeeStream {
  public:
    TeeStream(ConsoleLink &link, os::Fd pipe, LogFile file, StreamInfo info, StreamCounters &counters,
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
    bool must_wait() const;
    bool may_skip() const;
    void take(std::string_view bytes);
    void to_file(std::string_view bytes);
    void to_lines(std::string_view bytes, bool last);
    void to_console(std::string_view bytes);
    bool skips(std::string_view &bytes);
    void end_skipping();
    void show(std::string out, std::string other);
    void partial_due();
    void end();

    ConsoleLink &link_;
    os::Fd pipe_;
    LogFile file_;
    StreamInfo info_;
    LineMerger lines_;
    LineSplitter whole_;
    StreamCounters &counters_;
    std::function<void()> ended_;
    std::unique_ptr<io::Watch> watch_;
    io::Timer partial_timer_;
    int64_t partial_since_ns_ = 0;
    bool partial_armed_ = false;
    bool paused_ = false;
    bool skipping_ = false;    // the console is behind: its lines are counted only
    bool inside_line_ = false; // the part that was skipped has no end yet
    int64_t skipped_ = 0;      // since the last note
};

} // namespace ujoin
