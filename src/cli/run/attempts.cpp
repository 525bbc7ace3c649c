// SPDX-License-Identifier: Apache-2.0
#include "run/attempts.hpp"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ujoin_run {
namespace {

/// How an attempt ended here.
struct End {
    int status = 0;
    std::string text; // of a failure: one line
    bool may_restart = false;
    bool started = false;
};

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
End start_failed(const Options &options) {
    const int32_t error = ujoin_last_errno();
    End end;
    end.text = ujoin_last_error();
    end.status = exit_usage;
    if (!options.function.empty()) return end;
    const std::string file = find_program(command(options).program);
    struct stat info {};
    if (file.empty()) {
        end.status = exit_not_found;
    } else {
        const bool executable = stat(file.c_str(), &info) == 0 && S_ISREG(info.st_mode) && access(file.c_str(), X_OK) == 0;
        if (!executable || error == ENOEXEC || error == ENOENT || error == ELIBBAD) end.status = exit_cannot_run;
    }
    return end;
}

/// The report, and a last line that says it all: a job's log is often read from its end.
End worker_failed(ujoin_pctx *job, const Place &place) {
    End end;
    end.may_restart = end.started = true;
    std::fputs(pctx_report(job), stderr);
    const int32_t rank = pctx_first_failure(job);
    ujoin_worker_result result{};
    result.size = sizeof result;
    if (rank < 0 || pctx_get_result(job, rank, &result) < 0) {
        end.status = exit_usage;
        end.text = ujoin_last_error();
        return end;
    }
    end.text = "rank " + std::to_string(place.first_rank + rank);
    if (result.state == UJOIN_WORKER_SIGNALED) {
        const char *name = sigabbrev_np(result.signal);
        end.status = exit_signal_base + result.signal;
        end.text +=
            std::string(" died of ") + (name ? std::string("SIG") + name : "signal " + std::to_string(result.signal));
    } else {
        end.status = result.state == UJOIN_WORKER_EXITED && result.exit_code > 0 ? result.exit_code : 1;
        end.text += " failed";
    }
    end.text += ", exit status " + std::to_string(end.status);
    return end;
}

ujoin_status wait_for_job(void *job) { return pctx_wait(static_cast<ujoin_pctx *>(job), -1); }

void write_text(const std::string &path, const std::string &text) {
    if (path == "-") {
        std::fputs(text.c_str(), stdout);
        return;
    }
    const std::string fresh = path + "." + random_id();
    FILE *file = std::fopen(fresh.c_str(), "wex");
    const bool written = file && std::fputs(text.c_str(), file) >= 0;
    const bool closed = file && std::fclose(file) == 0;
    if (written && closed && std::rename(fresh.c_str(), path.c_str()) == 0) return;
    std::fprintf(stderr, "ujoin-run: warning: cannot write %s: %s\n", path.c_str(),
                 std::strerror(errno)); // NOLINT(concurrency-mt-unsafe): one thread is left
    unlink(fresh.c_str());
}

/// One start of the workers on this host.
class Attempt {
  public:
    Attempt(const Options &options, Nodes &nodes, SignalForwarder &signals, int number)
        : options_(options), nodes_(nodes), signals_(signals), number_(number) {}

    End run() {
        place_ = nodes_.meet(number_);
        job_ = make_job(options_, place_, number_);
        if (pctx_start(job_.get()) < 0) return start_failed(options_);
        say_where(options_, job_.get());
        signals_.follow(job_.get(), grace_ms(options_));
        nodes_.watch(number_, [this] { signals_.end_job(); });
        const ujoin_status status = pctx_record(wait_for_job, job_.get()); // the scheduler may want the failure's record
        const std::string error = status < 0 ? ujoin_last_error() : "";
        nodes_.unwatch();
        signals_.stop();
        if (status != UJOIN_OK && status != UJOIN_E_CHILD_FAILED)
            pctx_close(job_.get(), SIGKILL, 0); // aborted: see them out
        End end;
        end.started = true;
        if (const int signal = signals_.ended_by()) {
            const char *name = sigabbrev_np(signal);
            end.status = exit_signal_base + signal;
            end.text = std::string("ended by SIG") + (name ? name : "?");
            return end;
        }
        if (status == UJOIN_OK || nodes_.over()) return end;
        if (status == UJOIN_E_CHILD_FAILED) return worker_failed(job_.get(), place_);
        end.status = exit_usage;
        end.text = error;
        return end;
    }
    std::string json() const { return job_ ? pctx_report_json(job_.get()) : "null"; }

  private:
    const Options &options_;
    Nodes &nodes_;
    SignalForwarder &signals_;
    const int number_;
    Place place_;
    Job job_;
};

} // namespace

int run_attempts(const Options &options, Nodes &nodes, SignalForwarder &signals) {
    for (int number = 0;; number++) {
        Attempt attempt(options, nodes, signals, number);
        const End end = attempt.run();
        if (!end.text.empty()) std::fprintf(stderr, "ujoin-run: %s\n", end.text.c_str());
        Over over{false, end.status, end.text};
        if (end.status != 0) {
            over.restart = end.may_restart && number < options.max_restarts && !signals.asked_to_stop();
            over = nodes.end(number, over);
        } else if (const auto elsewhere = nodes.finish(number)) {
            over = *elsewhere;
            std::fprintf(stderr, "ujoin-run: ended because of %s\n", over.text.c_str());
        }
        if (!over.restart) {
            if (!options.json.empty())
                write_text(options.json, "{\"exit_status\": " + std::to_string(over.status) + ", \"restarts\": " +
                                             std::to_string(number) + ", \"job\": " + attempt.json() + "}\n");
            return over.status;
        }
        std::fprintf(stderr, "ujoin-run: starting again, attempt %d of at most %d\n", number + 1, options.max_restarts);
    }
}

} // namespace ujoin_run
