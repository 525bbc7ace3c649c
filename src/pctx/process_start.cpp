// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"
#include "base/log.hpp"
#include "os/spawn.hpp"
#include "os/thread.hpp"
#include "pctx/process_set.hpp"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <fcntl.h>
#include <new>
#include <sys/mman.h>
#include <sys/stat.h>
#include <utility>

namespace ujoin {
namespace {

constexpr int pipe_bytes = 256 * 1024; // fewer turns between worker and loop; the system may refuse

std::vector<char *> pointers(const std::vector<std::string> &strings) {
    std::vector<char *> list;
    list.reserve(strings.size() + 1);
    for (const std::string &text : strings) list.push_back(const_cast<char *>(text.c_str()));
    list.push_back(nullptr);
    return list;
}

int host_or(int fd, const os::Fd &null) { return fcntl(fd, F_GETFD) >= 0 ? fd : null.get(); }

bool same_file(int a, int b) {
    struct stat left {};
    struct stat right {};
    return fstat(a, &left) == 0 && fstat(b, &right) == 0 && left.st_dev == right.st_dev && left.st_ino == right.st_ino;
}

} // namespace

ProcessSet::ProcessSet(JobPlan plan)
    : plan_(std::make_unique<JobPlan>(std::move(plan))), workers_(plan_->workers.size()),
      eased_(guarded([this] { console_eased(); })), end_(guarded([this] { end_asked(); })), records_(workers_.size()) {}

ProcessSet::~ProcessSet() = default;

void ProcessSet::start() {
    std::unique_lock lock(mutex_); // the keeper gets it once this thread waits below: see rest()
    try {
        os::start_thread("ujoin-keeper", [self = shared_from_this()] { self->keep(); }).detach();
    } catch (...) {
        plan_->files.undo();
        throw;
    }
    changed_.wait(lock, [&] { return started_ != Started::no; });
    if (start_error_) std::rethrow_exception(std::exchange(start_error_, nullptr));
}

void ProcessSet::keep() {
    std::exception_ptr error;
    try {
        launch_all();
    } catch (...) {
        error = std::current_exception();
    }
    const bool failed = error != nullptr;
    if (failed) undo_start();
    std::unique_lock lock(mutex_);
    start_error_ = std::exchange(error, nullptr);
    started_ = failed ? Started::failed : Started::yes;
    changed_.notify_all();
    if (!failed) {
        changed_.wait(lock, [&] { return loop_done_; });
        lock.unlock();
        finish();
        lock.lock();
    }
    final_ = true;
    changed_.notify_all();
}

/// After the loop's last word.
void ProcessSet::finish() {
    if (broken_ != UJOIN_OK) end_all();
    take_down();
    or_broken([this] { explain_all(); });
}

void ProcessSet::launch_all() {
    {
        auto loop = std::make_unique<io::Loop>("ujoin-pctx");
        std::scoped_lock lock(mutex_);
        loop_ = std::move(loop);
    }
    rest();
    start_warden();
    const os::Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null) fail_errno(errno, "cannot open /dev/null");
    for (size_t i = 0; i < workers_.size(); i++) {
        {
            std::scoped_lock lock(mutex_);
            if (aborted_) fail(UJOIN_E_ABORTED, "aborted by pctx_abort before all workers had started");
        }
        try {
            launch(i, null);
        } catch (Error &error) {
            throw error.in(cat("rank ", plan_->rank_of(i)));
        }
    }
    plan_->inherited.clear();
    loop_->call([this] { attach(); });
    plan_->files.publish();
}

/// A forked copy of this process has every lock as it was taken in that moment, for ever. Those of the C library are made
/// good, those of an allocator that replaces its own may not be: so none of the set's threads is at work then.
void ProcessSet::rest() {
    if (!plan_->job.function.empty() && plan_->job.start_method == UJOIN_START_FORK) loop_->call([] {});
}

void ProcessSet::launch(size_t index, const os::Fd &null) {
    Files files;
    open_stdio(index, files, null);
    files.numbers = {0, 1, 2};
    if (plan_->workers[index].call) open_call(index, files);
    add_inherited(index, files);
    const WorkerPlan &worker = plan_->workers[index];
    const std::vector<char *> argv = pointers(worker.argv);
    const std::vector<char *> envp = pointers(worker.environment);
    os::SpawnRequest request;
    request.program = worker.file.c_str();
    request.argv = argv.data();
    request.envp = envp.data();
    request.directory = worker.directory.empty() ? nullptr : worker.directory.c_str();
    request.fds = files.fds.data();
    request.fd_numbers = files.numbers.data();
    request.fd_count = static_cast<int>(files.fds.size());
    request.new_session = !plan_->job.same_session;
    request.death_signal = SIGKILL;
    request.signal_mask = plan_->signal_mask;
    request.settings = worker.settings ? &*worker.settings : nullptr;
    const int64_t start_ns = os::realtime_ns();
    const os::SpawnResult result = start_worker(index, request);
    if (result.error != 0)
        fail_errno(result.error, cat("cannot ", os::spawn_step_text(result.step), " \"", worker.program, "\"",
                                     result.step == os::SpawnStep::directory ? cat(" (\"", worker.directory, "\")") : ""));
    std::scoped_lock lock(mutex_);
    workers_[index].pidfd.reset(result.pidfd);
    workers_[index].held = true;
    workers_[index].live = true;
    records_[index].pid = result.pid;
    records_[index].start_ns = start_ns;
    records_[index].state = UJOIN_WORKER_RUNNING;
}

os::SpawnResult ProcessSet::start_worker(size_t index, const os::SpawnRequest &request) {
    if (warden_) return warden_->spawn(static_cast<int>(index), request);
    if (!plan_->workers[index].call || plan_->job.start_method != UJOIN_START_FORK) return os::spawn(request);
    return os::spawn_copy(request, [&request] {
        try {
            return run_function_worker(call_files(request));
        } catch (const std::exception &error) {
            std::fprintf(stderr, "function worker: %s\n", error.what());
            return 1;
        }
    });
}

void ProcessSet::open_stdin(size_t index, Files &files, const os::Fd &null) {
    const WorkerPlan &worker = plan_->workers[index];
    switch (worker.stdin_from) {
    case UJOIN_STDIN_INHERIT:
        files.fds[0] = host_or(0, null);
        return;
    case UJOIN_STDIN_BYTES:
        files.input.reset(memfd_create("ujoin-stdin", MFD_CLOEXEC));
        if (!files.input) fail_errno(errno, "cannot make a file in memory for stdin");
        for (size_t at = 0; at < worker.stdin_bytes.size();) {
            const ssize_t done = write(files.input.get(), worker.stdin_bytes.data() + at, worker.stdin_bytes.size() - at);
            if (done < 0 && errno != EINTR) fail_errno(errno, "cannot keep the bytes for stdin");
            if (done > 0) at += static_cast<size_t>(done);
        }
        lseek(files.input.get(), 0, SEEK_SET);
        break;
    case UJOIN_STDIN_FILE:
        files.input.reset(open(worker.stdin_path.c_str(), O_RDONLY | O_CLOEXEC));
        if (!files.input) fail_errno(errno, cat("cannot open \"", worker.stdin_path, "\" for stdin"));
        break;
    default:
        files.fds[0] = null.get();
        return;
    }
    files.fds[0] = files.input.get();
}

void ProcessSet::open_call(size_t index, Files &files) {
    files.call = pack_call(*plan_->workers[index].call);
    workers_[index].answer_file = make_answer();
    files.fds.push_back(files.call.get()); // first, as call_files() takes them
    files.fds.push_back(workers_[index].answer_file.get());
    const CallFiles at = call_files(plan_->workers[index].fds);
    files.numbers.push_back(at.call);
    files.numbers.push_back(at.answer);
}

/// What the caller gives the worker, from the copies.
void ProcessSet::add_inherited(size_t index, Files &files) {
    for (const ujoin_worker_fd &fd : plan_->workers[index].fds) {
        files.fds.push_back(plan_->inherited[fd.from].get());
        files.numbers.push_back(fd.to);
    }
}

void ProcessSet::open_stdio(size_t index, Files &files, const os::Fd &null) {
    files.fds.assign(3, null.get());
    open_stdin(index, files, null);
    for (size_t s = 0; s < 2; s++) {
        StreamPlan &stream = plan_->files.workers[index].streams[s];
        const int host = static_cast<int>(s) + 1;
        switch (stream.kind) {
        case StreamKind::inherit:
            files.fds[s + 1] = host_or(host, null);
            break;
        case StreamKind::discard:
            break;
        case StreamKind::file:
            files.fds[s + 1] = stream.file.get();
            break;
        case StreamKind::pipe:
            int ends[2];
            if (pipe2(ends, O_CLOEXEC) != 0) fail_errno(errno, "cannot make a pipe");
            workers_[index].pipes[s].reset(ends[0]);
            files.theirs[s].reset(ends[1]);
            fcntl(ends[1], F_SETPIPE_SZ, pipe_bytes);
            files.fds[s + 1] = ends[1];
            break;
        }
    }
}

void ProcessSet::make_console_link() {
    const JobSpec &job = plan_->job;
    console_ = std::make_unique<io::Console>([this] { ask_eased(); });
    console_link_ = std::make_unique<ConsoleLink>(*loop_, *console_, job.partial_line_ms);
    console_link_->state.same = same_file(1, 2);
    console_link_->policy = job.console;
    console_link_->filters = job.filters;
    console_link_->guarded = [this](std::function<void()> fn) { return guarded(std::move(fn)); };
    for (size_t s = 0; s < 2; s++) console_link_->filtered[s] = LogFile(std::move(plan_->files.filtered[s]), "", 0, 0);
    if (!job.output) return;
    output_ = std::make_unique<OutputQueue>(
        [this] {
            std::scoped_lock lock(mutex_);
            changed_.notify_all();
        },
        [this] { ask_eased(); });
    console_link_->output = output_.get();
}

void ProcessSet::attach_streams(size_t index) {
    const JobSpec &job = plan_->job;
    Worker &worker = workers_[index];
    const std::string rank = std::to_string(plan_->rank_of(index));
    const std::string prefix =
        substitute(job.prefix, {{"role_name", job.name}, {"rank", rank}, {"local_rank", std::to_string(index)}});
    for (size_t s = 0; s < 2; s++) {
        StreamPlan &stream = plan_->files.workers[index].streams[s];
        if (stream.kind == StreamKind::file) stream.file.reset(); // the worker has it
        if (stream.kind != StreamKind::pipe) continue;
        if (!console_) make_console_link();
        const int fd = static_cast<int>(s) + 1;
        const bool colour = !job.no_colour && !env::text(env::Var::no_color) && isatty(fd);
        StreamInfo info;
        info.rank = static_cast<int32_t>(index);
        info.fd = fd;
        info.console = stream.console;
        info.prefix = colour ? cat("\033[3", 1 + index % 6, "m", prefix, "\033[0m") : prefix;
        worker.streams[s] =
            std::make_unique<TeeStream>(*console_link_, std::move(worker.pipes[s]),
                                        LogFile(std::move(stream.file), stream.path, job.rotate_bytes, job.rotate_keep),
                                        std::move(info), worker.counters[s], guarded([this] { stream_ended(); }));
        open_streams_++;
    }
}

/// On the loop's thread: from here on it waits for everything.
void ProcessSet::attach() {
    timer_ = std::make_unique<io::Timer>(*loop_);
    retry_timer_ = std::make_unique<io::Timer>(*loop_);
    live_ = workers_.size();
    for (size_t i = 0; i < workers_.size(); i++) {
        attach_streams(i);
        if (!warden_)
            workers_[i].exit_watch =
                std::make_unique<io::Watch>(*loop_, workers_[i].pidfd.get(), guarded([this, i] { exit_ready(i); }));
    }
    attached_ = true;
    if (may_show_status()) {
        if (!console_) make_console_link();
        status_timer_ = std::make_unique<io::Timer>(*loop_);
        show_status();
    }
    if (warden_) {
        warden_watch_ = std::make_unique<io::Watch>(*loop_, warden_->socket(), guarded([this] { warden_ready(); }));
        for (const os::warden::Event &event : warden_->take_early()) warden_event(event);
    }
    bool aborted = false;
    {
        std::scoped_lock lock(mutex_);
        aborted = aborted_;
    }
    if (aborted) begin_end(SIGKILL, 0);
}

/// For a job of which something failed before all had started.
void ProcessSet::undo_start() {
    plan_->inherited.clear();
    if (loop_) loop_->call([this] { phase_ = Phase::done; }); // what is watched already says nothing more
    end_all();
    take_down();
    plan_->files.undo();
}

/// Kills and reaps whatever runs. Without memory too, but then what has left a worker's process group is not found.
void ProcessSet::end_all() {
    {
        std::scoped_lock lock(mutex_);
        for (Worker &worker : workers_)
            if (worker.held) try {
                    signal_worker(worker, SIGKILL);
                } catch (const std::bad_alloc &) {
                }
    }
    try {
        for (const os::Member &member : members()) os::signal_pidfd(member.pidfd.get(), SIGKILL);
    } catch (const std::bad_alloc &) {
    }
    if (warden_) warden_->end();
    const Deadline deadline = Deadline::in(kill_limit_ms);
    for (size_t i = 0; i < workers_.size(); i++)
        if (workers_[i].held) await_end(i, deadline);
    if (warden_ && os::wait_pidfd(warden_->pidfd(), deadline.left_ms(kill_limit_ms))) os::reap(warden_->pidfd());
}

void ProcessSet::await_end(size_t index, const Deadline &deadline) {
    const int pidfd = workers_[index].pidfd.get();
    os::wait_pidfd(pidfd, deadline.left_ms(kill_limit_ms));
    os::ExitInfo info;
    const bool known = (!warden_ && os::peek_exit(pidfd, info) == os::ExitState::ended) || os::exit_from_pidfd(pidfd, info);
    if (!warden_) os::reap(pidfd);
    std::scoped_lock lock(mutex_);
    WorkerRecord &record = records_[index];
    if (record.state != UJOIN_WORKER_RUNNING) return;
    record.state = known ? state_of(info) : UJOIN_WORKER_UNKNOWN;
    record.exit = info;
    record.stopped = true;
    record.end_ns = os::realtime_ns();
}

/// Closes threads and descriptors. The results stay.
void ProcessSet::take_down() {
    std::unique_ptr<io::Loop> loop;
    {
        std::scoped_lock lock(mutex_);
        loop = std::move(loop_);
    }
    if (loop) {
        loop->call([this] {
            leftovers_.clear();
            warden_watch_.reset();
            warden_exit_.reset();
            timer_.reset();
            retry_timer_.reset();
            status_timer_.reset();
            for (Worker &worker : workers_) {
                worker.exit_watch.reset();
                for (auto &stream : worker.streams) stream.reset();
            }
        });
    }
    plan_->page->close();
    console_link_.reset();
    console_.reset();
    loop.reset();
    leave_cgroup();
    warden_.reset();
    std::scoped_lock lock(mutex_);
    for (Worker &worker : workers_) {
        worker.held = false;
        worker.pidfd.reset();
        worker.answer_file.reset();
        for (os::Fd &pipe : worker.pipes) pipe.reset();
    }
    for (os::Fd &file : plan_->files.filtered) file.reset();
    for (WorkerStdio &stdio : plan_->files.workers)
        for (StreamPlan &stream : stdio.streams) stream.file.reset();
}

} // namespace ujoin
