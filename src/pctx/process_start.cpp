// SPDX-License-Identifier: Apache-2.0
#include "base/log.hpp"
#include "os/spawn.hpp"
#include "os/thread.hpp"
#include "pctx/process_set.hpp"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <fcntl.h>
#include <sys/stat.h>

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
    : plan_(std::make_unique<JobPlan>(std::move(plan))), workers_(plan_->workers.size()), records_(plan_->workers.size()) {}

ProcessSet::~ProcessSet() = default;

void ProcessSet::start() {
    try {
        os::start_thread("ujoin-keeper", [self = shared_from_this()] { self->keep(); }).detach();
    } catch (...) {
        plan_->files.undo();
        throw;
    }
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return started_ != Started::no; });
    if (start_error_) throw Error(*start_error_);
}

void ProcessSet::keep() {
    std::optional<Error> error;
    try {
        launch_all();
    } catch (const Error &failure) {
        error = failure;
    } catch (const std::bad_alloc &) {
        error = Error(UJOIN_E_NO_MEMORY, "out of memory");
    } catch (const std::exception &failure) {
        error = Error(UJOIN_E_INTERNAL, failure.what());
    }
    if (error) undo_start();
    std::unique_lock lock(mutex_);
    start_error_ = error;
    started_ = error ? Started::failed : Started::yes;
    changed_.notify_all();
    if (!error) {
        changed_.wait(lock, [&] { return loop_done_; });
        lock.unlock();
        take_down();
        lock.lock();
    }
    final_ = true;
    changed_.notify_all();
}

void ProcessSet::launch_all() {
    const std::vector<char *> launcher_env = pointers(plan_->environment);
    {
        auto loop = std::make_unique<io::Loop>("ujoin-pctx");
        std::scoped_lock lock(mutex_);
        loop_ = std::move(loop);
    }
    if (plan_->job.containment == UJOIN_CONTAINMENT_WARDEN) warden_.emplace(!plan_->job.same_session, launcher_env.data());
    const os::Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null) fail_errno(errno, "cannot open /dev/null");
    for (size_t i = 0; i < workers_.size(); i++) {
        {
            std::scoped_lock lock(mutex_);
            if (aborted_) fail(UJOIN_E_ABORTED, "aborted by pctx_abort before all workers had started");
        }
        std::array<os::Fd, 2> theirs;
        int fds[3];
        try {
            open_stdio(i, theirs, fds, null);
            const WorkerPlan &worker = plan_->workers[i];
            const std::vector<char *> argv = pointers(worker.argv);
            const std::vector<char *> envp = pointers(worker.environment);
            os::SpawnRequest request;
            request.program = worker.file.c_str();
            request.argv = argv.data();
            request.envp = envp.data();
            request.directory = worker.directory.empty() ? nullptr : worker.directory.c_str();
            request.fds = fds;
            request.fd_count = 3;
            request.new_session = !plan_->job.same_session;
            request.death_signal = SIGKILL;
            request.signal_mask = plan_->signal_mask;
            const int64_t start_ns = os::realtime_ns();
            const os::SpawnResult result = warden_ ? warden_->spawn(static_cast<int>(i), request) : os::spawn(request);
            if (result.error != 0)
                fail_errno(result.error,
                           cat("cannot ", os::spawn_step_text(result.step), " \"", worker.program, "\"",
                               result.step == os::SpawnStep::directory ? cat(" (\"", worker.directory, "\")") : ""));
            std::scoped_lock lock(mutex_);
            workers_[i].pidfd.reset(result.pidfd);
            workers_[i].held = true;
            workers_[i].live = true;
            records_[i].pid = result.pid;
            records_[i].start_ns = start_ns;
            records_[i].state = UJOIN_WORKER_RUNNING;
        } catch (Error &error) {
            throw error.in(cat("rank ", plan_->rank_of(i)));
        }
    }
    loop_->call([this] { attach(); });
    plan_->files.publish();
}

void ProcessSet::open_stdio(size_t index, std::array<os::Fd, 2> &theirs, int *fds, const os::Fd &null) {
    fds[0] = plan_->job.same_session ? host_or(0, null) : null.get();
    for (size_t s = 0; s < 2; s++) {
        StreamPlan &stream = plan_->files.workers[index].streams[s];
        const int host = static_cast<int>(s) + 1;
        switch (stream.kind) {
        case StreamKind::inherit:
            fds[host] = host_or(host, null);
            break;
        case StreamKind::discard:
            fds[host] = null.get();
            break;
        case StreamKind::file:
            fds[host] = stream.file.get();
            break;
        case StreamKind::tee:
            int ends[2];
            if (pipe2(ends, O_CLOEXEC) != 0) fail_errno(errno, "cannot make a pipe");
            workers_[index].pipes[s].reset(ends[0]);
            theirs[s].reset(ends[1]);
            fcntl(ends[1], F_SETPIPE_SZ, pipe_bytes);
            fds[host] = ends[1];
            break;
        }
    }
}

/// On the loop's thread: from here on it waits for everything.
void ProcessSet::attach() {
    const JobSpec &job = plan_->job;
    timer_ = std::make_unique<io::Timer>(*loop_);
    retry_timer_ = std::make_unique<io::Timer>(*loop_);
    live_ = workers_.size();
    for (size_t i = 0; i < workers_.size(); i++) {
        Worker &worker = workers_[i];
        const std::string rank = std::to_string(plan_->rank_of(i));
        const std::string prefix =
            substitute(job.prefix, {{"role_name", job.name}, {"rank", rank}, {"local_rank", std::to_string(i)}});
        for (size_t s = 0; s < 2; s++) {
            StreamPlan &stream = plan_->files.workers[i].streams[s];
            if (stream.kind == StreamKind::file) stream.file.reset(); // the worker has it
            if (stream.kind != StreamKind::tee) continue;
            if (!console_) {
                console_ = std::make_unique<io::Console>([this] { post([this] { console_eased(); }); });
                console_link_ = std::make_unique<ConsoleLink>(ConsoleLink{*loop_, *console_, {}, job.partial_line_ms});
                console_link_->state.same = same_file(1, 2);
            }
            worker.streams[s] = std::make_unique<TeeStream>(*console_link_, std::move(worker.pipes[s]),
                                                            std::move(stream.file), static_cast<int>(s) + 1, prefix,
                                                            worker.counters[s], guarded([this] { stream_ended(); }));
            open_streams_++;
        }
        if (!warden_)
            worker.exit_watch =
                std::make_unique<io::Watch>(*loop_, worker.pidfd.get(), guarded([this, i] { exit_ready(i); }));
    }
    attached_ = true;
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

/// Kills and reaps what was started before something failed.
void ProcessSet::undo_start() {
    {
        std::scoped_lock lock(mutex_);
        for (Worker &worker : workers_)
            if (worker.held) signal_worker(worker, SIGKILL);
    }
    if (warden_) warden_->end();
    const Deadline deadline = Deadline::in(kill_limit_ms);
    for (Worker &worker : workers_) {
        if (!worker.held) continue;
        os::wait_pidfd(worker.pidfd.get(), deadline.left_ms(kill_limit_ms));
        if (!warden_) os::reap(worker.pidfd.get());
    }
    if (warden_ && os::wait_pidfd(warden_->pidfd(), deadline.left_ms(kill_limit_ms))) os::reap(warden_->pidfd());
    take_down();
    plan_->files.undo();
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
            for (Worker &worker : workers_) {
                worker.exit_watch.reset();
                for (auto &stream : worker.streams) stream.reset();
            }
        });
    }
    console_.reset();
    console_link_.reset();
    loop.reset();
    warden_.reset();
    std::scoped_lock lock(mutex_);
    for (Worker &worker : workers_) {
        worker.held = false;
        worker.pidfd.reset();
        for (os::Fd &pipe : worker.pipes) pipe.reset();
    }
    for (WorkerStdio &stdio : plan_->files.workers)
        for (StreamPlan &stream : stdio.streams) stream.file.reset();
}

} // namespace ujoin
