// SPDX-License-Identifier: Apache-2.0
#include "run/signals.hpp"
#include "run/options.hpp"
#include "run/say.hpp"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <fcntl.h>
#include <poll.h>
#include <unistd.h>

namespace ujoin_run {
namespace {

constexpr unsigned char stop_byte = 0;
constexpr unsigned char end_byte = 255;
int g_pipe[2] = {-1, -1}; // handlers write to it, the thread reads

extern "C" void on_signal(int signal) {
    const int kept = errno;
    const auto byte = static_cast<unsigned char>(signal);
    (void)!write(g_pipe[1], &byte, 1); // full: 64 KiB of signals are enough
    errno = kept;
}

int64_t now_ms() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC, &t);
    return int64_t{t.tv_sec} * 1000 + t.tv_nsec / 1'000'000;
}

void install(int signal) {
    struct sigaction old {};
    // nohup asked for it; other inherited ones are a shell's habit for jobs in the background, where `kill -INT` should work.
    if (signal == SIGHUP && sigaction(signal, nullptr, &old) == 0 && old.sa_handler == SIG_IGN) return;
    struct sigaction action {};
    action.sa_handler = on_signal;
    action.sa_flags = SA_RESTART;
    sigemptyset(&action.sa_mask);
    sigaction(signal, &action, nullptr);
}

} // namespace

SignalForwarder::SignalForwarder(std::vector<int> handled, int stop_on, bool quit_ends, int32_t workers)
    : handled_(std::move(handled)), stop_on_(stop_on), quit_ends_(quit_ends), workers_(workers) {
    if (pipe2(g_pipe, O_CLOEXEC | O_NONBLOCK) != 0)
        throw Exit(exit_usage, std::string("cannot make a pipe: ") + std::strerror(errno)); // NOLINT(concurrency-mt-unsafe)
    for (const int signal : handled_) install(signal);
    if (stop_on != 0) install(stop_on);
    std::signal(SIGPIPE, SIG_IGN); // whoever reads our output may leave; the exit status still counts
    install(SIGTSTP);
    install(SIGCONT);
}

bool SignalForwarder::ends(int signal) const {
    return std::find(handled_.begin(), handled_.end(), signal) != handled_.end();
}

SignalForwarder::~SignalForwarder() {
    stop();
} // handlers and pipe stay until the process ends: a late signal must not kill it

void SignalForwarder::follow(ujoin_pctx *job, int64_t grace_ms) {
    job_ = job;
    grace_ms_ = grace_ms;
    kill_at_ms_ = -1;
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    pthread_sigmask(SIG_SETMASK, &all, &old);
    thread_ = std::thread([this] { run(); });
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
}

void SignalForwarder::stop() {
    if (!thread_.joinable()) return;
    pollfd room{g_pipe[1], POLLOUT, 0};
    while (write(g_pipe[1], &stop_byte, 1) != 1) poll(&room, 1, -1);
    thread_.join();
}

void SignalForwarder::end_job() { (void)!write(g_pipe[1], &end_byte, 1); }

void SignalForwarder::run() {
    for (;;) {
        int wait_ms = -1;
        if (kill_at_ms_ >= 0) wait_ms = static_cast<int>(std::clamp<int64_t>(kill_at_ms_ - now_ms(), 0, 3'600'000));
        pollfd item{g_pipe[0], POLLIN, 0};
        poll(&item, 1, wait_ms);
        unsigned char byte = 0;
        while (read(g_pipe[0], &byte, 1) == 1) {
            if (byte == stop_byte) return;
            handle(byte);
        }
        if (kill_at_ms_ >= 0 && now_ms() >= kill_at_ms_) {
            kill_at_ms_ = -1;
            pctx_abort(job_);
        }
    }
}

void SignalForwarder::handle(int signal) {
    if (signal == stop_on_) {
        if (!asked_to_stop_.exchange(true)) return ask_stop();
        if (!ends(signal)) return;
    }
    if (signal == SIGQUIT) {
        print_health();
        if (!quit_ends_) return;
    }
    if (signal == SIGTSTP) return suspend();
    if (signal == SIGCONT) {
        pctx_signal(job_, -1, SIGCONT);
        return;
    }
    if (signal == SIGUSR1 || signal == SIGUSR2) {
        pctx_signal(job_, -1, signal);
        return;
    }
    if (signal == end_byte) return begin_end(SIGTERM);
    int none = 0;
    if (ended_by_.compare_exchange_strong(none, signal)) {
        begin_end(signal);
    } else if (signal == SIGINT || signal == SIGTERM) {
        pctx_abort(job_); // they mean it
    } else {
        pctx_signal(job_, -1, signal);
    }
}

/// One line per worker, in one piece: lines of workers do not come between.
void SignalForwarder::print_health() const {
    std::string text;
    for (int32_t rank = 0; rank < workers_; rank++) {
        ujoin_worker_health health{};
        health.size = sizeof health;
        const bool known = pctx_health(job_, rank, &health) == UJOIN_OK;
        text.append("ujoin-run: ").append(known ? health.text : ujoin_last_error()).append("\n");
    }
    say(text);
}

void SignalForwarder::ask_stop() {
    say("ujoin-run: asking the workers to stop after the same round\n");
    pctx_stop(job_);
}

void SignalForwarder::begin_end(int signal) {
    if (grace_ms_ >= 0 && kill_at_ms_ < 0) kill_at_ms_ = now_ms() + grace_ms_;
    pctx_signal(job_, -1, signal);
    pctx_signal(job_, -1, SIGCONT); // a worker that was stopped could not hear it
}

/// Workers have sessions of their own, where the system ignores SIGTSTP unless a worker has a handler for it: a moment for
/// that, then SIGSTOP, then this process.
void SignalForwarder::suspend() {
    constexpr int moment_ms = 50;
    pctx_signal(job_, -1, SIGTSTP);
    poll(nullptr, 0, moment_ms);
    pctx_signal(job_, -1, SIGSTOP);
    kill(getpid(), SIGSTOP);
}

} // namespace ujoin_run
