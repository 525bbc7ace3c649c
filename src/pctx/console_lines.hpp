// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <algorithm>
#include <array>
#include <cstddef>
#include <string>
#include <string_view>

namespace ujoin {

class LineMerger;

/// Which stream has an unfinished line on each console descriptor. All on one thread.
struct ConsoleState {
    std::array<const LineMerger *, 3> open{}; // by descriptor
    bool same = false;                        // 1 and 2 are one terminal or file
};

/// Turns the bytes of one stream into whole console lines, each with one prefix. An unfinished line is kept until its end,
/// or shown by show_partial(); it goes on without a second prefix unless another stream has written meanwhile. A line
/// longer than `max_line` comes in parts of that length, each a line with its prefix. What a carriage return overwrites
/// within a line (progress) is left out, or overwritten on the console too; other bytes are passed as they are.
class LineMerger {
  public:
    static constexpr size_t max_line = 1 << 16; // 64 KiB

    /// ${time} in `prefix` is replaced line by line.
    LineMerger(ConsoleState &console, int fd, std::string prefix)
        : console_(console), fd_(fd), prefix_(std::move(prefix)), timed_(prefix_.find("${time}") != std::string::npos) {}
    ~LineMerger();
    LineMerger(const LineMerger &) = delete;
    LineMerger &operator=(const LineMerger &) = delete;

    /// Appends what the console is to show now to `out`, for descriptor fd(). `other`: for the other descriptor, before it.
    void feed(std::string_view bytes, std::string &out, std::string &other);
    void show_partial(std::string &out, std::string &other);
    /// The stream has ended: its last line gets an end.
    void finish(std::string &out, std::string &other);
    bool has_partial() const { return !partial_.empty(); }
    int fd() const { return fd_; }
    /// A part of its line is on the console.
    bool is_open() const { return console_.open[static_cast<size_t>(fd_)] == this; }
    /// What is not shown yet never will be.
    void drop_partial() { partial_.clear(); }
    /// As it is now.
    std::string prefix() const;

  private:
    void begin(std::string &out, std::string &other);
    void emit(std::string_view bytes, bool ends, std::string &out, std::string &other);

    ConsoleState &console_;
    int fd_;
    std::string prefix_;
    bool timed_;
    std::string partial_;     // not shown yet
    size_t shown_ = 0;        // of the line that is_open()
    bool overwrites_ = false; // partial_ comes after a carriage return
    bool returned_ = false;   // what is shown ends with one
};

/// Cuts a stream into lines with their ends, or parts of LineMerger::max_line.
class LineSplitter {
  public:
    template <class Take> void feed(std::string_view bytes, Take &&take) {
        while (!bytes.empty()) {
            const size_t end = bytes.find('\n');
            const size_t room = LineMerger::max_line - rest_.size();
            const size_t length = std::min(end == std::string_view::npos ? bytes.size() : end + 1, room);
            rest_ += bytes.substr(0, length);
            bytes.remove_prefix(length);
            if (rest_.back() == '\n' || rest_.size() == LineMerger::max_line) finish(take);
        }
    }
    template <class Take> void finish(Take &&take) {
        if (!rest_.empty()) take(rest_);
        rest_.clear();
    }

  private:
    std::string rest_;
};

} // namespace ujoin
