// SPDX-License-Identifier: Apache-2.0
#include "pctx/console_lines.hpp"
#include <algorithm>

namespace ujoin {

LineMerger::~LineMerger() {
    for (const LineMerger *&open : console_.open)
        if (open == this) open = nullptr;
}

/// Makes the console ready for this stream's bytes: ends lines of others, and begins its own with the prefix.
void LineMerger::begin(std::string &out, std::string &other) {
    const auto here = static_cast<size_t>(fd_);
    const size_t there = 3 - here;
    if (console_.same && console_.open[there]) {
        other += '\n';
        console_.open[there] = nullptr;
    }
    if (is_open()) return;
    if (console_.open[here]) out += '\n';
    out += prefix_;
    console_.open[here] = this;
    shown_ = 0;
}

void LineMerger::emit(std::string_view bytes, bool ends, std::string &out, std::string &other) {
    const bool was_shown = shown_ > 0 && !is_open(); // another stream ended our line
    if (was_shown) shown_ = 0;
    if (was_shown && partial_.empty() && bytes.empty() && ends) return; // nothing is left of it but its end
    begin(out, other);
    out += partial_;
    out += bytes;
    shown_ += partial_.size() + bytes.size();
    partial_.clear();
    if (!ends) return;
    out += '\n';
    shown_ = 0;
    console_.open[static_cast<size_t>(fd_)] = nullptr;
}

void LineMerger::feed(std::string_view bytes, std::string &out, std::string &other) {
    while (!bytes.empty()) {
        const size_t length = std::min(bytes.find('\n'), bytes.size());
        const bool ends = length < bytes.size();
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
