// SPDX-License-Identifier: Apache-2.0
#include "pctx/console_lines.hpp"
#include "os/process.hpp"
#include "pctx/result.hpp"
#include <algorithm>

namespace ujoin {

LineMerger::~LineMerger() {
    for (const LineMerger *&open : console_.open)
        if (open == this) open = nullptr;
}

std::string LineMerger::prefix() const {
    return timed_ ? substitute(prefix_, {{"time", clock_text(os::realtime_ns())}}) : prefix_;
}

/// Makes the console ready for this stream's bytes: ends lines of others, and begins its own with the prefix.
void LineMerger::begin(std::string &out, std::string &other) {
    const auto here = static_cast<size_t>(fd_);
    const size_t there = 3 - here;
    if (console_.same && console_.open[there]) {
        other += '\n';
        console_.open[there] = nullptr;
    }
    if (is_open() && (overwrites_ || returned_)) {
        out += '\r';
        out += prefix();
        shown_ = 0;
    }
    if (is_open()) return;
    if (console_.open[here]) out += '\n';
    out += prefix();
    console_.open[here] = this;
    shown_ = 0;
}

void LineMerger::emit(std::string_view bytes, bool ends, std::string &out, std::string &other) {
    const bool was_shown = shown_ > 0 && !is_open(); // another stream ended our line
    if (was_shown) shown_ = 0;
    if (was_shown && partial_.empty() && bytes.empty() && ends) return;     // nothing is left of it but its end
    if (partial_.empty() && bytes.empty()) overwrites_ = returned_ = false; // only its end is missing
    begin(out, other);
    out += partial_;
    out += bytes;
    shown_ += partial_.size() + bytes.size();
    overwrites_ = false;
    returned_ = out.back() == '\r';
    partial_.clear();
    if (!ends) return;
    out += '\n';
    shown_ = 0;
    returned_ = false;
    console_.open[static_cast<size_t>(fd_)] = nullptr;
}

void LineMerger::feed(std::string_view bytes, std::string &out, std::string &other) {
    while (!bytes.empty()) {
        const size_t length = std::min(bytes.find('\n'), bytes.size());
        const bool ends = length < bytes.size();
        const bool after_return = length > 0 && !partial_.empty() && partial_.back() == '\r';
        const size_t back = length > 1 ? bytes.rfind('\r', length - 2) : std::string_view::npos; // one at the end stays
        if (after_return || back != std::string_view::npos) {
            partial_.clear();
            overwrites_ = true;
        }
        if (back != std::string_view::npos) {
            bytes.remove_prefix(back + 1);
            continue;
        }
        const size_t before = partial_.size() + (is_open() ? shown_ : 0);
        const size_t room = max_line - std::min(before, max_line);
        if (length > room) {
            emit(bytes.substr(0, room), true, out, other);
            bytes.remove_prefix(room);
        } else if (ends) {
            emit(bytes.substr(0, length), true, out, other);
            bytes.remove_prefix(length + 1);
        } else {
            partial_ += bytes;
            return;
        }
    }
}

void LineMerger::show_partial(std::string &out, std::string &other) {
    if (!partial_.empty()) emit({}, false, out, other);
}

void LineMerger::finish(std::string &out, std::string &other) {
    if (!partial_.empty() || is_open()) emit({}, true, out, other);
}

} // namespace ujoin
