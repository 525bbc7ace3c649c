// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "base/json.hpp"
#include "os/fd.hpp"
#include "os/process.hpp"
#include "pctx/result.hpp"
#include <algorithm>
#include <csignal>
#include <cstring>
#include <ctime>
#include <deque>
#include <fcntl.h>
#include <string_view>
#include <sys/stat.h>

namespace ujoin {
namespace {

constexpr size_t tail_lines = 10;
constexpr off_t tail_bytes = 1 << 14;
constexpr size_t longest_line = 400;
constexpr size_t widest_rule = 60;
constexpr const char *nothing = "<N/A>";

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

std::string signal_text(int signal) {
    const std::string name = signal_name(signal);
    return name == nothing ? cat("signal ", signal) : name;
}

/// "2024-05-01_14:02:11", local time.
std::string iso_time(int64_t realtime_ns) {
    const time_t seconds = realtime_ns / 1'000'000'000;
    tm parts{};
    localtime_r(&seconds, &parts);
    char text[40];
    std::strftime(text, sizeof text, "%Y-%m-%d_%H:%M:%S", &parts);
    return text;
}

/// What there is to say when the worker itself has said nothing.
std::string default_message(const WorkerRecord &record) {
    switch (record.state) {
    case UJOIN_WORKER_SIGNALED:
        return cat("Signal ", record.exit.signal, " (", signal_name(record.exit.signal), ") received by PID ", record.pid,
                   record.exit.signal == SIGKILL && !record.stopped
                       ? ". If nobody sent it, the system was out of memory and its killer is the usual cause"
                       : "");
    case UJOIN_WORKER_NO_VALUE:
        return "no return value: the worker exited with 0 before its function had returned";
    case UJOIN_WORKER_UNKNOWN:
        return "the worker ended, but the launching process took its status elsewhere";
    case UJOIN_WORKER_UNKILLABLE:
        return "the worker is still there after SIGKILL, and was given up";
    default:
        return "To enable traceback see: pctx_record (C, C++), or torch.distributed.elastic's record in a PyTorch script";
    }
}

std::string stderr_tail(const JobPlan &plan, size_t index) {
    const std::string &log = plan.files.workers[index].streams[1].path;
    if (log.empty()) return {};
    const std::deque<std::string> lines = tail_of(end_of_file(log, tail_bytes));
    return lines.empty() ? std::string() : cat("last lines of ", log, ":\n", join_list(lines, "\n"));
}

/// The lines after the first are set in by two.
std::string set_in(const std::string &text) {
    std::string out;
    for (const char c : text) {
        out += static_cast<unsigned char>(c) < ' ' && c != '\n' && c != '\t' ? '?' : c;
        if (c == '\n') out += "  ";
    }
    return out;
}

/// "died of SIGSEGV, 94 s after start"
std::string how_it_ended(const WorkerRecord &record) {
    std::string text;
    if (record.state == UJOIN_WORKER_SIGNALED)
        text = cat("died of ", signal_text(record.exit.signal));
    else if (record.state == UJOIN_WORKER_EXITED)
        text = cat("exited with code ", record.exit.code);
    else if (record.state == UJOIN_WORKER_NO_VALUE)
        text = "exited without a return value";
    else if (record.state == UJOIN_WORKER_UNKILLABLE)
        return "still there after SIGKILL, given up";
    else
        text = "ended, status unknown";
    text += cat(", ", duration_text(record.end_ns - record.start_ns), " after start");
    if (record.later) return text + "; a later failure, while the launcher was ending the job";
    return record.stopped ? text + "; stopped by the launcher because of the first failure" : text;
}

std::string entry(const JobPlan &plan, const WorkerRecord &record, size_t index, size_t number, const Explanation &why) {
    std::string trace = why.traceback.empty() ? why.message : why.traceback;
    if (!why.traceback.empty() && why.traceback.find(why.message) == std::string::npos)
        trace = cat(why.message, "\n", why.traceback);
    while (!trace.empty() && trace.back() == '\n') trace.pop_back();
    return cat("[", number, "]:\n  time      : ", iso_time(why.failed_ns), "\n  host      : ", os::host_name(nothing),
               "\n  rank      : ", plan.rank_of(index), " (local_rank: ", index, ")\n  exitcode  : ", python_code(record),
               " (pid: ", record.pid, ")\n  end       : ", how_it_ended(record),
               why.doing.empty() ? "" : cat("\n  doing     : ", why.doing),
               "\n  error_file: ", why.error_path.empty() ? nothing : why.error_path.c_str(),
               "\n  traceback : ", set_in(trace.empty() ? nothing : trace), "\n");
}

size_t longest_line_of(const std::string &text) {
    size_t longest = 0;
    std::string_view rest = text;
    while (!rest.empty()) {
        const size_t end = std::min(rest.find('\n'), rest.size());
        longest = std::max(longest, end);
        rest.remove_prefix(std::min(end + 1, rest.size()));
    }
    return longest;
}

double seconds(int64_t ns) { return static_cast<double>(ns) / 1e9; }

const char *state_text(ujoin_worker_state state) {
    constexpr const char *names[] = {"?", "created", "running", "exited", "signaled", "unknown", "unkillable", "no value"};
    return state >= 1 && state <= UJOIN_WORKER_NO_VALUE ? names[state] : names[0];
}

} // namespace

std::string clock_text(int64_t realtime_ns) {
    const time_t whole = realtime_ns / 1'000'000'000;
    tm parts{};
    localtime_r(&whole, &parts);
    char text[40];
    const size_t length = std::strftime(text, sizeof text, "%H:%M:%S", &parts);
    std::snprintf(text + length, sizeof text - length, ".%03d", static_cast<int>(realtime_ns / 1'000'000 % 1000));
    return text;
}

bool ended_badly(const WorkerRecord &record) {
    switch (record.state) {
    case UJOIN_WORKER_CREATED:
    case UJOIN_WORKER_RUNNING:
        return false;
    case UJOIN_WORKER_EXITED:
        return record.exit.code != 0;
    default:
        return true;
    }
}

int32_t python_code(const WorkerRecord &record) {
    if (record.state == UJOIN_WORKER_SIGNALED) return -record.exit.signal;
    return record.state == UJOIN_WORKER_NO_VALUE ? 0 : record.exit.code;
}

Explanation explain(const JobPlan &plan, const WorkerRecord &record, size_t index, const Answer *answer) {
    Explanation why;
    if (!ended_badly(record)) return why;
    why.failed_ns = record.end_ns;
    const std::string &path = plan.files.workers[index].error_file;
    ErrorRecord error = read_error_file(path);
    if (error.present) why.error_path = path;
    if (!error.present && answer && answer->state() == AnswerState::failed)
        error = parse_error({static_cast<const char *>(answer->data()), answer->size()}, record.end_ns);
    if (error.present) {
        why.message = error.message;
        why.traceback = error.callstack;
        why.failed_ns = error.time_ns;
        why.monotonic_ns = error.monotonic_ns;
    }
    if (!error.present) why.message = default_message(record);
    if (!error.note.empty()) why.message += cat("\nThe error file ", path, " cannot be used: ", error.note);
    if (!error.present) why.traceback = stderr_tail(plan, index);
    return why;
}

std::string describe_end(const JobPlan &plan, const WorkerRecord &record, size_t index) {
    std::string text = cat("rank ", plan.rank_of(index), " (pid ", record.pid, ") ");
    switch (record.state) {
    case UJOIN_WORKER_EXITED:
        return cat(text, "exited with code ", record.exit.code);
    case UJOIN_WORKER_SIGNALED:
        return cat(text, "died of ", signal_text(record.exit.signal));
    case UJOIN_WORKER_NO_VALUE:
        return cat(text, "exited with code 0, but there is no return value of its function");
    case UJOIN_WORKER_UNKNOWN:
        return cat(text, "ended, but this process took its status elsewhere (it ignores SIGCHLD or waits for any child)");
    case UJOIN_WORKER_UNKILLABLE:
        return cat(text, "is still there after SIGKILL");
    default:
        return cat(text, "runs");
    }
}

std::string make_report(const JobPlan &plan, const std::vector<WorkerRecord> &records, size_t first,
                        const std::vector<Explanation> &whys) {
    const std::string title = cat(plan.job.name, " FAILED");
    std::string others;
    size_t number = 1;
    for (size_t i = 0; i < records.size(); i++)
        if (i != first && ended_badly(records[i])) others += entry(plan, records[i], i, number++, whys[i]);
    if (others.empty()) others = "  <NO_OTHER_FAILURES>\n";
    const std::string root = entry(plan, records[first], first, 0, whys[first]);
    const size_t width = std::min(widest_rule, std::max({title.size(), longest_line_of(others), longest_line_of(root)}));
    const std::string border(width, '=');
    const std::string rule(width, '-');
    std::string text = cat(border, "\n", title, "\n", rule, "\nFailures:\n", others, rule,
                           "\nRoot Cause (first observed failure):\n", root, border, "\n");
    if (!plan.files.directory.empty()) text += cat("Logs: ", plan.files.directory, "\n");
    return text;
}

std::string make_json_report(const JobPlan &plan, const std::vector<ujoin_worker_result> &results, int32_t first) {
    Json::List list;
    for (const ujoin_worker_result &r : results) {
        const char *held = r.containment == UJOIN_CONTAINMENT_CGROUP   ? "cgroup"
                           : r.containment == UJOIN_CONTAINMENT_WARDEN ? "warden"
                                                                       : "group";
        Json::Object one = {{"rank", plan.job.first_rank + r.rank},
                            {"local_rank", r.rank},
                            {"pid", r.pid},
                            {"state", state_text(r.state)},
                            {"exit_code", r.state == UJOIN_WORKER_EXITED ? Json(r.exit_code) : Json()},
                            {"signal", r.signal != 0 ? Json(signal_text(r.signal)) : Json()},
                            {"failed", r.failed != 0},
                            {"stopped", r.stopped != 0},
                            {"containment", held},
                            {"start", seconds(r.start_ns)},
                            {"end", r.end_ns != 0 ? Json(seconds(r.end_ns)) : Json()},
                            {"failed_at", r.failed_ns != 0 ? Json(seconds(r.failed_ns)) : Json()},
                            {"user_s", static_cast<double>(r.user_us) / 1e6},
                            {"system_s", static_cast<double>(r.system_us) / 1e6},
                            {"peak_bytes", r.peak_bytes},
                            {"stdout_bytes", r.stdout_bytes},
                            {"stderr_bytes", r.stderr_bytes},
                            {"dropped_lines", r.dropped_lines},
                            {"value_bytes", r.value_size},
                            {"message", r.message},
                            {"traceback", r.traceback},
                            {"stdout_path", r.stdout_path},
                            {"stderr_path", r.stderr_path},
                            {"error_path", r.error_path}};
        list.emplace_back(std::move(one));
    }
    Json::Object all = {{"name", plan.job.name},
                        {"run_id", plan.job.run_id},
                        {"attempt", plan.job.restart_count},
                        {"host", os::host_name(nothing)},
                        {"log_directory", plan.files.directory},
                        {"first_failure", first >= 0 ? Json(plan.job.first_rank + first) : Json()}};
    all["workers"] = std::move(list);
    return Json(std::move(all)).dump(Json::Broken::replaced);
}

} // namespace ujoin
