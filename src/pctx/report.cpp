// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "os/fd.hpp"
#include "pctx/result.hpp"
#include <csignal>
#include <cstring>
#include <ctime>
#include <deque>
#include <fcntl.h>
#include <nlohmann/json.hpp>
#include <string_view>
#include <sys/stat.h>

namespace ujoin {
namespace {

constexpr size_t tail_lines = 10;
constexpr off_t tail_bytes = 1 << 14;
constexpr off_t error_file_bytes = 1 << 20;
constexpr size_t longest_line = 400;

std::string signal_text(int signal) {
    const char *name = sigabbrev_np(signal);
    return name ? cat("SIG", name) : cat("signal ", signal);
}

/// "14:02:11.532", local time.
std::string clock_text(int64_t realtime_ns) {
    const time_t seconds = realtime_ns / 1'000'000'000;
    tm parts{};
    localtime_r(&seconds, &parts);
    char text[40];
    const size_t length = std::strftime(text, sizeof text, "%H:%M:%S", &parts);
    std::snprintf(text + length, sizeof text - length, ".%03d", static_cast<int>(realtime_ns / 1'000'000 % 1000));
    return text;
}

/// "93 s", "0.21 s"
std::string duration_text(int64_t ns) {
    char text[40];
    const double seconds = static_cast<double>(ns) / 1e9;
    std::snprintf(text, sizeof text, seconds < 10 ? "%.2f s" : "%.0f s", seconds);
    return text;
}

std::string printable(std::string_view line) {
    std::string out;
    for (const char c : line.substr(0, longest_line)) out += static_cast<unsigned char>(c) < ' ' && c != '\t' ? '?' : c;
    if (line.size() > longest_line) out += "...";
    return out;
}

/// The last `limit` bytes of a regular file; "" if there is none.
std::string end_of_file(const std::string &path, off_t limit) {
    const os::Fd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info {};
    if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode)) return {};
    const off_t from = info.st_size > limit ? info.st_size - limit : 0;
    std::string text(static_cast<size_t>(info.st_size - from), '\0');
    const ssize_t got = pread(file.get(), text.data(), text.size(), from);
    text.resize(got > 0 ? static_cast<size_t>(got) : 0);
    return text;
}

/// The last lines of a text, without empty ones at its end, each made printable.
std::deque<std::string> tail_of(std::string text) {
    std::deque<std::string> lines;
    while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.pop_back();
    std::string_view rest = text;
    while (!rest.empty()) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        lines.push_back(printable(rest.substr(0, end)));
        if (lines.size() > tail_lines) lines.pop_front();
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return lines;
}

/// What the worker itself wrote into its error file: {"message": text} or {"message": {"message": text, ...}}. Anything else
/// counts as no file.
std::string own_message(const std::string &path) {
    if (path.empty()) return {};
    const auto file = nlohmann::json::parse(end_of_file(path, error_file_bytes), nullptr, false);
    if (!file.is_object() || !file.contains("message")) return {};
    const auto &message = file["message"];
    if (message.is_string()) return message.get<std::string>();
    if (!message.is_object() || !message.contains("message") || !message["message"].is_string()) return {};
    return message["message"].get<std::string>();
}

std::string indented(const std::string &title, const std::deque<std::string> &lines) {
    if (lines.empty()) return {};
    std::string text = cat("  ", title, ":\n");
    for (const std::string &line : lines) text += cat("    ", line, "\n");
    return text;
}

/// "Rank 3 was", "Ranks 0, 1, 3 were"
std::string ranks_text(const std::vector<int32_t> &ranks) {
    return cat(ranks.size() == 1 ? "Rank " : "Ranks ", join_list(ranks), ranks.size() == 1 ? " was" : " were");
}

std::string end_time(const WorkerRecord &record) {
    return cat(" at ", clock_text(record.end_ns), ", ", duration_text(record.end_ns - record.start_ns), " after start");
}

} // namespace

std::string describe_end(const JobPlan &plan, const WorkerRecord &record, size_t index) {
    std::string text = cat("rank ", plan.rank_of(index), " (pid ", record.pid, ") ");
    switch (record.state) {
    case UJOIN_WORKER_EXITED:
        return cat(text, "exited with code ", record.exit.code);
    case UJOIN_WORKER_SIGNALED:
        return cat(text, "died of ", signal_text(record.exit.signal));
    case UJOIN_WORKER_UNKNOWN:
        return cat(text, "ended, but this process took its status elsewhere (it ignores SIGCHLD or waits for any child)");
    case UJOIN_WORKER_UNKILLABLE:
        return cat(text, "is still there after SIGKILL");
    default:
        return cat(text, "runs");
    }
}

std::string make_report(const JobPlan &plan, const std::vector<WorkerRecord> &records, size_t first) {
    std::string text = cat(plan.job.name, " FAILED\nRoot cause: ", describe_end(plan, records[first], first),
                           end_time(records[first]), "\n");
    const WorkerStdio &stdio = plan.files.workers[first];
    text += indented("message", tail_of(own_message(stdio.error_file)));
    if (const std::string &log = stdio.streams[1].path; !log.empty())
        text += indented("last lines of " + log, tail_of(end_of_file(log, tail_bytes)));
    std::vector<int32_t> stopped;
    std::vector<int32_t> stuck;
    for (size_t i = 0; i < records.size(); i++) {
        if (records[i].failed && i != first)
            text += cat("Also failed: ", describe_end(plan, records[i], i), end_time(records[i]), "\n");
        if (records[i].state == UJOIN_WORKER_UNKILLABLE) {
            stuck.push_back(plan.rank_of(i));
        } else if (records[i].stopped) {
            stopped.push_back(plan.rank_of(i));
        }
    }
    if (!stuck.empty()) text += cat(ranks_text(stuck), " still there after SIGKILL and given up.\n");
    if (!stopped.empty()) text += cat(ranks_text(stopped), " stopped because of it.");
    if (!plan.files.directory.empty()) text += cat(stopped.empty() ? "" : " ", "Logs: ", plan.files.directory);
    while (!text.empty() && text.back() == '\n') text.pop_back();
    return text + "\n";
}

} // namespace ujoin
