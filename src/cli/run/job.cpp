// SPDX-License-Identifier: Apache-2.0
#include "run/job.hpp"
#include <algorithm>
#include <arpa/inet.h>
#include <cerrno>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <netinet/in.h>
#include <sys/random.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ujoin_run {
namespace {

/// Options and variables were the user's: whatever the library does not like is a usage error.
void need(ujoin_status status) {
    if (status < 0) throw Exit(exit_usage, ujoin_last_error());
}

bool ends_with(const std::string &text, const std::string &end) {
    return text.size() >= end.size() && text.compare(text.size() - end.size(), end.size(), end) == 0;
}

std::string random_id() {
    unsigned char bytes[8] = {};
    if (getrandom(bytes, sizeof bytes, 0) != static_cast<ssize_t>(sizeof bytes))
        throw Exit(exit_usage, "cannot get random bytes");
    std::string id;
    for (const unsigned char byte : bytes) {
        char digits[3];
        std::snprintf(digits, sizeof digits, "%02x", byte);
        id += digits;
    }
    return id;
}

int free_port() {
    const int fd = socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t size = sizeof address;
    const bool found = fd >= 0 && bind(fd, reinterpret_cast<const sockaddr *>(&address), size) == 0 &&
                       getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size) == 0;
    if (fd >= 0) close(fd);
    if (!found) throw Exit(exit_usage, "cannot find a free port");
    return ntohs(address.sin_port);
}

/// What is executed: the program, or Python with it.
struct Command {
    std::string program;
    std::vector<std::string> args;
};

Command command(const Options &options) {
    Command result;
    const bool script = !options.no_python && !options.module && ends_with(options.program, ".py");
    if (!script && !options.module) {
        result.program = options.program;
    } else {
        if (script && access(options.program.c_str(), R_OK) != 0) { // better than one message of Python's per worker
            const int error = errno;
            throw Exit(error == ENOENT || error == ENOTDIR ? exit_not_found : exit_cannot_run,
                       "cannot read \"" + options.program + "\": " + std::strerror(error)); // NOLINT(concurrency-mt-unsafe)
        }
        const char *python = std::getenv("PYTHON_EXEC");
        result.program = python && *python ? python : "python3";
        result.args = {"-u"};
        if (options.module) result.args.emplace_back("-m");
        result.args.push_back(options.program);
    }
    result.args.insert(result.args.end(), options.args.begin(), options.args.end());
    return result;
}

/// What workers are called: the role, or the program without its directory and ".py".
std::string worker_name(const Options &options) {
    if (!options.role.empty()) return options.role;
    std::string name = options.program.substr(options.program.rfind('/') + 1);
    if (ends_with(name, ".py") && name.size() > 3) name.resize(name.size() - 3);
    return name.empty() ? "worker" : name;
}

void set(ujoin_pctx *job, int32_t rank, const char *name, const std::string &value) {
    need(pctx_set_env(job, rank, name, value.c_str()));
}

void set_unless_there(ujoin_pctx *job, const char *name, const char *value) {
    if (!std::getenv(name)) set(job, -1, name, value);
}

void set_environment(const Options &options, ujoin_pctx *job, const std::string &run_id) {
    const std::string workers = std::to_string(options.workers);
    set(job, -1, "WORLD_SIZE", workers);
    set(job, -1, "LOCAL_WORLD_SIZE", workers);
    set(job, -1, "ROLE_WORLD_SIZE", workers);
    set(job, -1, "ROLE_NAME", options.role.empty() ? "default" : options.role);
    set(job, -1, "GROUP_RANK", "0");
    set(job, -1, "GROUP_WORLD_SIZE", "1");
    set(job, -1, "MASTER_ADDR", options.standalone ? "127.0.0.1" : options.master_addr);
    set(job, -1, "MASTER_PORT",
        std::to_string(options.standalone || options.master_port == 0 ? free_port() : options.master_port));
    set(job, -1, "TORCHELASTIC_RESTART_COUNT", "0");
    set(job, -1, "TORCHELASTIC_MAX_RESTARTS", "0");
    set(job, -1, "TORCHELASTIC_RUN_ID", run_id);
    set(job, -1, "TORCHELASTIC_USE_AGENT_STORE", "False");
    set_unless_there(job, "TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    set_unless_there(job, "NCCL_ASYNC_ERROR_HANDLING", "1");
    if (options.workers > 1) set_unless_there(job, "OMP_NUM_THREADS", "1");
    for (int32_t rank = 0; rank < options.workers; rank++)
        for (const auto *name : {"RANK", "LOCAL_RANK", "ROLE_RANK"}) set(job, rank, name, std::to_string(rank));
}

void set_streams(const Options &options, ujoin_pctx *job) {
    const auto count = static_cast<size_t>(options.workers);
    std::vector<ujoin_std> redirects(count);
    std::vector<ujoin_std> tee(count);
    if (pctx_parse_std(options.redirects.c_str(), redirects.data(), count) < 0)
        throw Exit(exit_usage, std::string("--redirects: ") + ujoin_last_error());
    if (pctx_parse_std(options.tee.c_str(), tee.data(), count) < 0)
        throw Exit(exit_usage, std::string("--tee: ") + ujoin_last_error());
    for (int32_t rank = 0; rank < options.workers; rank++) {
        ujoin_worker worker{};
        worker.size = sizeof worker;
        worker.redirects = redirects[static_cast<size_t>(rank)] | UJOIN_STD_SET;
        worker.tee = tee[static_cast<size_t>(rank)] | UJOIN_STD_SET;
        need(pctx_set_worker(job, rank, &worker));
    }
}

/// Where the files are, if the library chose the place.
void say_where(const Options &options, ujoin_pctx *job) {
    for (int32_t rank = 0; options.log_dir.empty() && rank < options.workers; rank++) {
        ujoin_worker_result result{};
        result.size = sizeof result;
        if (pctx_get_result(job, rank, &result) < 0) return;
        const std::string path = *result.stdout_path ? result.stdout_path : result.stderr_path;
        if (path.empty()) continue;
        const std::string directory = path.substr(0, path.rfind('/'));
        std::fprintf(stderr, "ujoin-run: log files are in %s\n", directory.substr(0, directory.rfind('/')).c_str());
        return;
    }
}

int64_t grace_ms(const Options &options) { return std::llround(options.grace * 1000); }

/// The file that would be executed, "" if there is none.
std::string find_program(const std::string &program) {
    if (program.find('/') != std::string::npos) return access(program.c_str(), F_OK) == 0 ? program : "";
    const char *path = std::getenv("PATH");
    const std::string list = path ? path : "";
    for (size_t begin = 0; begin <= list.size();) {
        const size_t end = std::min(list.find(':', begin), list.size());
        const std::string file = end == begin ? program : list.substr(begin, end - begin) + "/" + program;
        if (access(file.c_str(), F_OK) == 0) return file;
        begin = end + 1;
    }
    return "";
}

/// Shells tell apart what is not there and what cannot be executed; the rest (a log directory, a full process table) is 2.
int start_failed(const std::string &program) {
    const int32_t error = ujoin_last_errno();
    std::fprintf(stderr, "ujoin-run: %s\n", ujoin_last_error());
    const std::string file = find_program(program);
    if (file.empty()) return exit_not_found;
    struct stat info {};
    const bool executable = stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(file.c_str(), X_OK) == 0;
    return !executable || error == ENOEXEC || error == ENOENT || error == ELIBBAD ? exit_cannot_run : exit_usage;
}

/// The report, and a last line that says it all: a job's log is often read from its end.
int report_failure(ujoin_pctx *job) {
    std::fputs(pctx_report(job), stderr);
    const int32_t rank = pctx_first_failure(job);
    ujoin_worker_result result{};
    result.size = sizeof result;
    if (rank < 0 || pctx_get_result(job, rank, &result) < 0) {
        std::fprintf(stderr, "ujoin-run: %s\n", ujoin_last_error());
        return exit_usage;
    }
    if (result.state == UJOIN_WORKER_SIGNALED) {
        const char *name = sigabbrev_np(result.signal);
        std::fprintf(stderr, "ujoin-run: rank %d died of %s%s, exit status %d\n", rank, name ? "SIG" : "signal ",
                     name ? name : std::to_string(result.signal).c_str(), exit_signal_base + result.signal);
        return exit_signal_base + result.signal;
    }
    const int code = result.state == UJOIN_WORKER_EXITED && result.exit_code > 0 ? result.exit_code : 1;
    std::fprintf(stderr, "ujoin-run: rank %d failed, exit status %d\n", rank, code);
    return code;
}

} // namespace

Job make_job(const Options &options) {
    const Command what = command(options);
    std::vector<const char *> args;
    for (const std::string &arg : what.args) args.push_back(arg.c_str());
    const std::string run_id = options.run_id.empty() || options.standalone ? random_id() : options.run_id;
    const std::string name = worker_name(options);
    ujoin_pctx_spec spec{};
    spec.size = sizeof spec;
    spec.name = name.c_str();
    spec.program = what.program.c_str();
    spec.args = args.data();
    spec.arg_count = args.size();
    spec.log_dir = options.log_dir.empty() ? nullptr : options.log_dir.c_str();
    spec.run_id = run_id.c_str();
    const char *prefix = std::getenv("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE");
    spec.prefix = prefix && *prefix ? prefix : nullptr;
    spec.grace_ms = grace_ms(options) == 0 ? int64_t{UJOIN_NOW} : grace_ms(options);
    spec.nprocs = options.workers;
    spec.containment = UJOIN_CONTAINMENT_WARDEN;
    ujoin_pctx *job = nullptr;
    need(pctx_create(&spec, &job));
    Job owned(job);
    set_environment(options, job, run_id);
    set_streams(options, job);
    return owned;
}

int run_job(const Options &options, ujoin_pctx *job, SignalForwarder &signals) {
    if (pctx_start(job) < 0) return start_failed(command(options).program);
    say_where(options, job);
    signals.follow(job, grace_ms(options));
    const ujoin_status status = pctx_wait(job, -1);
    const std::string error = status < 0 ? ujoin_last_error() : "";
    signals.stop();
    if (status != UJOIN_OK && status != UJOIN_E_CHILD_FAILED) pctx_close(job, SIGKILL, 0); // aborted: see them out
    if (const int signal = signals.ended_by()) {
        const char *name = sigabbrev_np(signal);
        std::fprintf(stderr, "ujoin-run: ended by SIG%s\n", name ? name : "?");
        return exit_signal_base + signal;
    }
    if (status == UJOIN_OK) return 0;
    if (status == UJOIN_E_CHILD_FAILED) return report_failure(job);
    std::fprintf(stderr, "ujoin-run: %s\n", error.c_str());
    return exit_usage;
}

} // namespace ujoin_run
