// SPDX-License-Identifier: Apache-2.0
#include "run/init.hpp"
#include "run/options.hpp"
#include <cerrno>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

namespace ujoin_run {
namespace {

/// Ends as the child did; a signal as a shell would tell it.
[[noreturn]] void end_as(int status) {
    _exit(WIFSIGNALED(status) ? exit_signal_base + WTERMSIG(status) : WEXITSTATUS(status));
}

/// Frees whoever has ended; ends this process with the child.
void reap_all(pid_t child) {
    for (;;) {
        int status = 0;
        const pid_t pid = waitpid(-1, &status, WNOHANG);
        if (pid == child) end_as(status);
        if (pid <= 0) return;
    }
}

} // namespace

void become_init_if_needed() {
    const char *forced = std::getenv("UJOIN_INIT");
    const bool wanted = forced && std::strcmp(forced, "1") == 0;
    if (getpid() != 1 && !wanted) return;
    unsetenv("UJOIN_INIT");
    if (getpid() != 1) prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    sigset_t all;
    sigset_t old;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, &old);
    const pid_t child = fork();
    if (child < 0) throw Exit(exit_usage, std::string("cannot make a process: ") + std::strerror(errno));
    if (child == 0) {
        setpgid(0, 0); // a key of the terminal must come once, not from it and from the parent
        if (isatty(0)) tcsetpgrp(0, getpid());
        sigprocmask(SIG_SETMASK, &old, nullptr);
        return;
    }
    for (;;) {
        int signal = 0;
        sigwait(&all, &signal);
        if (signal == SIGCHLD)
            reap_all(child);
        else
            kill(child, signal);
    }
}

} // namespace ujoin_run
