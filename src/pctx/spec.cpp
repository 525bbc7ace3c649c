// SPDX-License-Identifier: Apache-2.0
#include "pctx/spec.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "pctx/limits.hpp"
#include <algorithm>
#include <cstring>

namespace ujoin {
namespace {

constexpr int32_t most_workers = 100'000;

std::vector<std::string> copy_args(const char *const *args, size_t count, const char *what) {
    std::vector<std::string> copy;
    if (!args && count > 0) fail_invalid(what, "s is NULL, but ", what, "_count is ", count);
    for (size_t i = 0; i < count; i++) {
        if (!args[i]) fail_invalid(what, "s[", i, "] is NULL");
        copy.emplace_back(args[i]);
    }
    return copy;
}

ujoin_std check_std(ujoin_std value, ujoin_std allowed, const char *name) {
    if (value < 0 || (value & ~allowed) != 0)
        fail_invalid(name, " is ", value, "; expected UJOIN_STD_NONE, _OUT, _ERR or _ALL",
                     allowed & UJOIN_STD_SET ? ", with UJOIN_STD_SET or without" : "");
    return value;
}

/// A run's name is one directory under the log directory.
std::string check_run_id(const char *given) {
    const std::string id = given;
    if (id.empty()) fail_invalid("spec.run_id is empty; leave it NULL for a random one");
    if (id.find('/') != std::string::npos || id == "." || id == ".." || id == "latest" || id.size() > 200)
        fail_invalid("spec.run_id is \"", id, "\"; expected the name of a directory, at most 200 bytes and not \"latest\"");
    return id;
}

bool check_flag(int32_t value, const char *name) {
    if (value != 0 && value != 1) fail_invalid(name, " is ", value, "; expected 0 or 1");
    return value != 0;
}

int32_t check_choice(int32_t value, int32_t fallback, int32_t last, const char *name) {
    if (value < 0 || value > last) fail_invalid(name, " is ", value, "; expected 1 to ", last, ", or 0 for ", fallback);
    return value == 0 ? fallback : value;
}

std::vector<std::string> check_filters(const char *const *filters, size_t count, const char *what) {
    std::vector<std::string> copy = copy_args(filters, count, what);
    for (const std::string &filter : copy)
        if (filter.empty()) fail_invalid(what, "s has an empty text, which would pass every line");
    return copy;
}

void read_output(const ujoin_pctx_spec &given, JobSpec &job) {
    if (!given.console_ranks && given.console_rank_count > 0)
        fail_invalid("spec.console_ranks is NULL, but spec.console_rank_count is ", given.console_rank_count);
    if (given.console_ranks) job.console_ranks.emplace(given.console_ranks, given.console_ranks + given.console_rank_count);
    for (const int32_t rank : job.console_ranks.value_or(std::vector<int32_t>()))
        if (rank < 0) fail_invalid("spec.console_ranks has ", rank, "; expected 0 or more");
    job.filters[0] = check_filters(given.stdout_filters, given.stdout_filter_count, "spec.stdout_filter");
    job.filters[1] = check_filters(given.stderr_filters, given.stderr_filter_count, "spec.stderr_filter");
    if (given.rotate_bytes != 0 && given.rotate_bytes < 4096)
        fail_invalid("spec.rotate_bytes is ", given.rotate_bytes, "; expected 4,096 or more, or 0 for never");
    job.rotate_bytes = given.rotate_bytes;
    if (given.rotate_keep > 1000) fail_invalid("spec.rotate_keep is ", given.rotate_keep, "; expected at most 1,000");
    job.rotate_keep = given.rotate_keep == 0 ? 1 : std::max(given.rotate_keep, 0);
    job.console = check_choice(given.console, UJOIN_CONSOLE_BLOCK, UJOIN_CONSOLE_SPILL, "spec.console");
    job.no_colour = check_flag(given.no_colour, "spec.no_colour");
    job.status_line = check_flag(given.status_line, "spec.status_line");
}

std::optional<std::string> check_program(const char *program, const char *what) {
    if (!program) return std::nullopt;
    if (!*program) fail_invalid(what, " is empty");
    return std::string(program);
}

constexpr size_t most_fds = 64; // by one message to the warden

/// Numbers alone: whether they are open is seen when the job starts.
std::vector<ujoin_worker_fd> check_fds(const ujoin_worker_fd *fds, size_t count) {
    if (!fds && count > 0) fail_invalid("worker.fds is NULL, but worker.fd_count is ", count);
    if (!fds) return {};
    if (count > most_fds) fail_invalid("worker.fd_count is ", count, "; at most ", most_fds);
    std::vector<ujoin_worker_fd> list(fds, fds + count);
    for (size_t i = 0; i < count; i++) {
        ujoin_worker_fd &fd = list[i];
        if (fd.from < 0) fail_invalid("worker.fds[", i, "].from is ", fd.from, "; expected an open descriptor");
        if (fd.to < -1) fail_invalid("worker.fds[", i, "].to is ", fd.to, "; expected 3 or more, or -1 for the same");
        if (fd.to == -1) fd.to = fd.from;
        if (fd.to < 3)
            fail_invalid("worker.fds[", i, "] would be descriptor ", fd.to,
                         " of the worker, one of its standard streams; expected 3 or more");
        for (size_t j = 0; j < i; j++)
            if (list[j].to == fd.to)
                fail_invalid("worker.fds[", j, "] and worker.fds[", i, "] would both be descriptor ", fd.to,
                             " of the worker");
    }
    return list;
}

} // namespace

JobSpec read_job(const ujoin_pctx_spec &given, std::shared_ptr<OutputCallback> output) {
    JobSpec job;
    job.output = std::move(output);
    if (given.nprocs < 1 || given.nprocs > most_workers)
        fail_invalid("spec.nprocs is ", given.nprocs, "; expected 1 to ", most_workers);
    job.name = given.name && *given.name ? given.name : "worker";
    job.program = check_program(given.program, "spec.program").value_or("");
    job.function = check_program(given.function, "spec.function").value_or("");
    if (given.program && given.function) fail_invalid("spec has a program and a function; expected one of them");
    job.args = copy_args(given.args, given.arg_count, "spec.arg");
    if (given.log_dir) {
        if (!*given.log_dir)
            fail_invalid("spec.log_dir is empty; NULL means a fresh temporary one, \"/dev/null\" no files");
        job.log_dir = given.log_dir;
    }
    job.run_id = given.run_id ? check_run_id(given.run_id) : random_hex(6);
    job.prefix = given.prefix ? given.prefix : "[${role_name}${rank}]: ";
    job.grace_ms = duration_option(given.grace_ms, 30'000, "spec.grace_ms");
    job.drain_ms = duration_option(given.drain_ms, 1'000, "spec.drain_ms");
    job.partial_line_ms = duration_option(given.partial_line_ms, 200, "spec.partial_line_ms");
    job.nprocs = given.nprocs;
    if (given.first_rank < 0) fail_invalid("spec.first_rank is ", given.first_rank, "; expected 0 or more");
    job.first_rank = given.first_rank;
    if (given.restart_count < 0) fail_invalid("spec.restart_count is ", given.restart_count, "; expected 0 or more");
    job.restart_count = given.restart_count;
    job.redirects = check_std(given.redirects, UJOIN_STD_ALL, "spec.redirects");
    job.tee = check_std(given.tee, UJOIN_STD_ALL, "spec.tee");
    if (given.containment < 0 || given.containment > UJOIN_CONTAINMENT_BEST)
        fail_invalid("spec.containment is ", given.containment,
                     "; expected UJOIN_CONTAINMENT_GROUP, _WARDEN, _CGROUP or _BEST");
    if (given.containment != 0) job.containment = given.containment;
    job.start_method = check_choice(given.start_method, UJOIN_START_SPAWN, UJOIN_START_FORKSERVER, "spec.start_method");
    job.binding = check_choice(given.binding, UJOIN_BINDING_NONE, UJOIN_BINDING_LIST, "spec.binding");
    job.no_error_file = check_flag(given.no_error_file, "spec.no_error_file");
    read_output(given, job);
    job.same_session = check_flag(given.same_session, "spec.same_session");
    if (job.same_session && job.nprocs != 1)
        fail_invalid("spec.same_session is for one worker, but spec.nprocs is ", job.nprocs);
    return job;
}

void apply_worker(const ujoin_worker &given, WorkerSpec &spec) {
    const std::optional<std::string> program = check_program(given.program, "worker.program");
    std::vector<std::string> args = copy_args(given.args, given.arg_count, "worker.arg");
    const ujoin_std redirects = check_std(given.redirects, UJOIN_STD_ALL | UJOIN_STD_SET, "worker.redirects");
    const ujoin_std tee = check_std(given.tee, UJOIN_STD_ALL | UJOIN_STD_SET, "worker.tee");
    if (given.directory && !*given.directory) fail_invalid("worker.directory is empty; NULL means this process's own");
    const ujoin_stdin from = check_choice(given.stdin_from, 0, UJOIN_STDIN_FILE, "worker.stdin_from");
    if (from == UJOIN_STDIN_BYTES && !given.stdin_data && given.stdin_size > 0)
        fail_invalid("worker.stdin_data is NULL, but worker.stdin_size is ", given.stdin_size);
    if (from == UJOIN_STDIN_FILE && (!given.stdin_path || !*given.stdin_path))
        fail_invalid("worker.stdin_from is UJOIN_STDIN_FILE, but worker.stdin_path is ",
                     given.stdin_path ? "empty" : "NULL");
    if (!given.cpus && given.cpu_count > 0) fail_invalid("worker.cpus is NULL, but worker.cpu_count is ", given.cpu_count);
    if (check_flag(given.umask_set, "worker.umask_set") && (given.umask < 0 || given.umask > 0777))
        fail_invalid("worker.umask is ", given.umask, "; expected 0 to 0777");
    std::vector<os::SpawnLimit> limits = read_limits(given.limits, given.limit_count);
    std::vector<ujoin_worker_fd> fds = check_fds(given.fds, given.fd_count);
    if (program) spec.program = program;
    if (given.args) spec.args = std::move(args);
    if (given.directory) spec.directory = given.directory;
    if (redirects != 0) spec.redirects = redirects & UJOIN_STD_ALL;
    if (tee != 0) spec.tee = tee & UJOIN_STD_ALL;
    if (given.input) spec.input.assign(static_cast<const char *>(given.input), given.input_size);
    if (from != 0) spec.stdin_from = from;
    if (from == UJOIN_STDIN_BYTES) spec.stdin_bytes.assign(static_cast<const char *>(given.stdin_data), given.stdin_size);
    if (from == UJOIN_STDIN_FILE) spec.stdin_path = given.stdin_path;
    if (given.cpus) spec.cpus.assign(given.cpus, given.cpus + given.cpu_count);
    if (given.limits) spec.limits = std::move(limits);
    if (given.fds) spec.fds = std::move(fds);
    if (given.umask_set) spec.umask = given.umask;
}

std::vector<ujoin_std> parse_std(const std::string &text, size_t nprocs) {
    size_t at = 0;
    const auto refuse = [&](const char *expected) {
        fail_invalid("text is \"", text, "\": expected ", expected, " at character ", at + 1);
    };
    const auto value = [&]() -> ujoin_std {
        if (at >= text.size() || text[at] < '0' || text[at] > '3') refuse("0, 1, 2 or 3");
        return text[at++] - '0';
    };
    if (text.size() == 1) return std::vector<ujoin_std>(nprocs, value());
    std::vector<ujoin_std> values(nprocs, UJOIN_STD_NONE);
    for (;;) {
        const size_t begin = at;
        size_t rank = 0;
        while (at < text.size() && text[at] >= '0' && text[at] <= '9' && at - begin < 9)
            rank = rank * 10 + static_cast<size_t>(text[at++] - '0');
        if (at == begin) refuse("a rank");
        if (at >= text.size() || text[at] != ':') refuse("\":\"");
        at++;
        const ujoin_std std_value = value();
        if (rank < nprocs) values[rank] = std_value;
        if (at == text.size()) return values;
        if (text[at] != ',') refuse("\",\" or the end");
        at++;
    }
}

std::string substitute(const std::string &text, const std::vector<std::pair<const char *, std::string>> &values) {
    std::string out;
    for (size_t at = 0; at < text.size();) {
        bool replaced = false;
        if (text.compare(at, 2, "${") == 0) {
            for (const auto &[name, value] : values) {
                const size_t length = std::strlen(name);
                if (text.compare(at + 2, length, name) != 0 || text.compare(at + 2 + length, 1, "}") != 0) continue;
                out += value;
                at += length + 3;
                replaced = true;
                break;
            }
        }
        if (!replaced) out += text[at++];
    }
    return out;
}

std::vector<std::string> make_environment(const std::vector<std::string> &base, const std::vector<EnvChange> &changes,
                                          int32_t rank) {
    std::vector<std::string> environment = base;
    for (const EnvChange &change : changes) {
        if (change.rank != -1 && change.rank != rank) continue;
        const std::string start = change.name + "=";
        const auto named = [&](const std::string &entry) { return entry.compare(0, start.size(), start) == 0; };
        environment.erase(std::remove_if(environment.begin(), environment.end(), named), environment.end());
        if (change.value) environment.push_back(start + *change.value);
    }
    return environment;
}

std::optional<std::string> find_variable(const std::vector<std::string> &environment, const std::string &name) {
    const std::string start = name + "=";
    for (const std::string &entry : environment)
        if (entry.compare(0, start.size(), start) == 0) return entry.substr(start.size());
    return std::nullopt;
}

} // namespace ujoin
