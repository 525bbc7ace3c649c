// SPDX-License-Identifier: Apache-2.0
#include "pctx/stdio_plan.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include <algorithm>
#include <cerrno>
#include <climits>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace ujoin {
namespace {

constexpr const char *error_name = "error.json"; // while it is written something follows
constexpr const char *file_names[2] = {"stdout.log", "stderr.log"};

[[noreturn]] void refuse(int error, const std::string &what, const std::string &path) {
    fail_errno(error, cat("cannot ", what, " \"", path, "\""));
}

std::string absolute(const std::string &path) {
    if (path[0] == '/') return path;
    char here[PATH_MAX];
    if (!getcwd(here, sizeof here)) refuse(errno, "find the working directory for", path);
    return cat(here, "/", path);
}

/// Makes something by `make`, which gives -1 if it could not; what is made is known, whatever comes then.
template <class Make> int make_noted(const std::string &path, std::vector<std::string> &made, const Make &make) {
    made.push_back(path); // first: afterwards there may be no memory for it
    const int result = make();
    const int error = errno;
    if (result < 0) made.pop_back();
    errno = error;
    return result;
}

/// Makes the log directory and those above it.
void make_log_dir(const std::string &path, std::vector<std::string> &made) {
    for (size_t end = path.find('/', 1);; end = path.find('/', end + 1)) {
        const std::string part = path.substr(0, end);
        if (make_noted(part, made, [&] { return mkdir(part.c_str(), 0700); }) == 0) {
            chmod(part.c_str(), 0700); // the umask may have taken bits
        } else if (errno != EEXIST && errno != EISDIR) {
            const int error = errno;
            struct stat info {};
            if (stat(part.c_str(), &info) != 0) refuse(error, "make the log directory", part); // read-only places above it
        }
        if (end == std::string::npos) break;
    }
}

os::Fd open_log_dir(const std::string &path) {
    os::Fd directory(open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory) refuse(errno, "use the log directory", path);
    return directory;
}

std::string make_temporary(std::vector<std::string> &made) {
    std::string path = env::text(env::Var::tmpdir).value_or("/tmp") + "/ujoin_XXXXXX";
    made.reserve(made.size() + 1);
    std::string noted = path; // of this length: its bytes are copied below
    if (!mkdtemp(path.data())) refuse(errno, "make a temporary log directory", path);
    noted.assign(path);
    made.push_back(std::move(noted));
    return absolute(path);
}

/// A directory of ours inside `parent`, new or (if `shared`) there before; never through a link.
os::Fd enter(const os::Fd &parent, const std::string &name, bool shared, const std::string &path,
             std::vector<std::string> &made) {
    const bool fresh = make_noted(path, made, [&] { return mkdirat(parent.get(), name.c_str(), 0700); }) == 0;
    if (!fresh && (errno != EEXIST || !shared)) {
        if (errno != EEXIST) refuse(errno, "make the log directory", path);
        throw Error(UJOIN_E_SYSTEM, cat("the log directory \"", path,
                                        "\" exists already: it holds the output of an earlier start; "
                                        "choose another run_id or restart_count, or remove it"))
            .with_errno(EEXIST);
    }
    os::Fd directory(openat(parent.get(), name.c_str(), O_RDONLY | O_DIRECTORY | O_NOFOLLOW | O_CLOEXEC));
    struct stat info {};
    if (!directory || fstat(directory.get(), &info) != 0) refuse(errno, "enter the log directory", path);
    if (info.st_uid != geteuid()) refuse(EPERM, "use the log directory of another user", path);
    if (fresh) fchmod(directory.get(), 0700);
    return directory;
}

os::Fd make_file(const os::Fd &directory, const char *name, const std::string &path, std::vector<std::string> &made) {
    os::Fd file(make_noted(path, made, [&] {
        return openat(directory.get(), name, O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0600);
    }));
    if (!file) refuse(errno, "make the log file", path);
    fchmod(file.get(), 0600);
    return file;
}

/// <log_dir>/latest -> <run_id>/attempt_<k>, in one step. Not worth a failure.
void link_latest(const os::Fd &log_dir, const std::string &target) {
    struct stat info {};
    if (fstatat(log_dir.get(), "latest", &info, AT_SYMLINK_NOFOLLOW) == 0 && !S_ISLNK(info.st_mode)) {
        log_warning("the log directory has a \"latest\" that is no link; it is left alone");
        return;
    }
    const std::string fresh = cat(".latest_", getpid(), "_", gettid());
    if (symlinkat(target.c_str(), log_dir.get(), fresh.c_str()) == 0 &&
        renameat(log_dir.get(), fresh.c_str(), log_dir.get(), "latest") == 0)
        return;
    log_warning("cannot make the link \"latest\": ", errno_text(errno));
    unlinkat(log_dir.get(), fresh.c_str(), 0);
}

void plan_stream(const JobSpec &job, size_t index, size_t stream, bool redirected, bool teed, bool no_files,
                 StreamPlan &plan) {
    bool shown = true;
    if (job.console_ranks)
        shown = std::find(job.console_ranks->begin(), job.console_ranks->end(), static_cast<int32_t>(index)) !=
                job.console_ranks->end();
    const bool filed = (redirected || teed) && !no_files;
    const bool followed = job.output || (filed && job.rotate_bytes > 0);
    plan.console = teed && shown;
    if (plan.console || followed) {
        plan.kind = StreamKind::pipe;
    } else if (redirected || teed) {
        plan.kind = no_files ? StreamKind::discard : StreamKind::file;
    } else {
        plan.kind = shown ? StreamKind::inherit : StreamKind::discard;
    }
    if (filed) plan.path = file_names[stream]; // as a mark; open() makes it whole
}

os::Fd make_filtered(const os::Fd &attempt, size_t stream, const std::string &path, std::vector<std::string> &made) {
    constexpr const char *names[2] = {"filtered_stdout.log", "filtered_stderr.log"};
    const std::string whole = cat(path, "/", names[stream]);
    os::Fd file(make_noted(whole, made, [&] { // other hosts' ranks may share it
        return openat(attempt.get(), names[stream], O_WRONLY | O_CREAT | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0600);
    }));
    if (!file) refuse(errno, "make the log file", whole);
    fchmod(file.get(), 0600);
    return file;
}

/// What workers that had been started have left in a directory of theirs, whole or begun.
void remove_records(const std::string &directory) noexcept {
    const std::unique_ptr<DIR, int (*)(DIR *)> list(opendir(directory.c_str()), closedir);
    if (!list) return;                                // a file
    while (const dirent *entry = readdir(list.get())) // NOLINT(concurrency-mt-unsafe): the stream is this function's own
        if (std::strncmp(entry->d_name, error_name, std::strlen(error_name)) == 0)
            unlinkat(dirfd(list.get()), entry->d_name, 0);
}

} // namespace

StdioPlan StdioPlan::open(const JobSpec &job, const std::vector<WorkerSpec> &workers) {
    StdioPlan plan;
    const bool no_files = job.log_dir == "/dev/null";
    bool needs_file = false;
    for (const WorkerSpec &worker : workers) {
        WorkerStdio &stdio = plan.workers.emplace_back();
        for (int i = 0; i < 2; i++) {
            StreamPlan &stream = stdio.streams[static_cast<size_t>(i)];
            plan_stream(job, plan.workers.size() - 1, static_cast<size_t>(i),
                        worker.redirects.value_or(job.redirects) & (1 << i), worker.tee.value_or(job.tee) & (1 << i),
                        no_files, stream);
            needs_file = needs_file || !stream.path.empty();
        }
    }
    if (no_files || (!job.log_dir && !needs_file)) return plan;
    std::string log_dir;
    if (job.log_dir) {
        log_dir = absolute(*job.log_dir);
        make_log_dir(log_dir, plan.made_);
    } else {
        log_dir = make_temporary(plan.made_);
    }
    os::Fd top = open_log_dir(log_dir);
    const std::string attempt = cat("attempt_", job.restart_count);
    const std::string run_path = cat(log_dir, "/", job.run_id);
    const os::Fd run = enter(top, job.run_id, true, run_path, plan.made_);
    plan.directory = cat(run_path, "/", attempt);
    const os::Fd attempt_dir = enter(run, attempt, true, plan.directory, plan.made_);
    for (size_t i = 0; i < plan.workers.size(); i++) {
        const std::string rank = std::to_string(job.first_rank + static_cast<int32_t>(i));
        const std::string path = cat(plan.directory, "/", rank);
        const os::Fd rank_dir = enter(attempt_dir, rank, false, path, plan.made_);
        if (!job.no_error_file) plan.workers[i].error_file = cat(path, "/", error_name);
        for (size_t s = 0; s < 2; s++) {
            StreamPlan &stream = plan.workers[i].streams[s];
            if (stream.path.empty()) continue;
            stream.path = cat(path, "/", file_names[s]);
            stream.file = make_file(rank_dir, file_names[s], stream.path, plan.made_);
        }
    }
    for (size_t s = 0; s < 2; s++)
        if (!job.filters[s].empty()) plan.filtered[s] = make_filtered(attempt_dir, s, plan.directory, plan.made_);
    plan.top_ = std::move(top);
    plan.latest_ = cat(job.run_id, "/", attempt);
    return plan;
}

void StdioPlan::publish() {
    if (top_) link_latest(top_, latest_);
    top_.reset();
    made_.clear();
}

void StdioPlan::undo() noexcept {
    for (auto path = made_.rbegin(); path != made_.rend(); ++path) {
        remove_records(*path);
        std::remove(path->c_str()); // only files and empty directories
    }
    made_.clear();
}

} // namespace ujoin
