// SPDX-License-Identifier: Apache-2.0
#include "os/spawn.hpp"
#include <cerrno>
#include <csignal>
#include <cstddef>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <sched.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_close_range
#define SYS_close_range 436
#endif
#ifndef CLONE_PIDFD
#define CLONE_PIDFD 0x1000
#endif
#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif

// The child runs on the parent's memory and thread-local storage: nothing there may be instrumented or take a lock.
#define UJOIN_CHILD __attribute__((no_sanitize("address", "undefined", "thread"), noinline))

// ThreadSanitizer takes every clone() for a fork, and marks the memory that this child shares with its parent. The other name
// of the same function escapes it.
#if defined(__has_feature)
#if __has_feature(thread_sanitizer)
#define UJOIN_TSAN
#endif
#endif
#if defined(UJOIN_TSAN) || defined(__SANITIZE_THREAD__)
extern "C" int __clone(int (*)(void *), void *, int, void *, ...); // NOLINT(bugprone-reserved-identifier)
#define UJOIN_CLONE __clone
#else
#define UJOIN_CLONE clone
#endif

namespace ujoin::os {
namespace {

constexpr size_t stack_size = 1 << 16;
constexpr int last_signal = 64;
constexpr size_t mask_size = sizeof(uint64_t);

struct Child {
    const SpawnRequest *request;
    pid_t parent;
    int error;
    SpawnStep step;
};

/// The descriptor that the request's entry `i` becomes.
UJOIN_CHILD int number_of(const SpawnRequest &request, int i) { return request.fd_numbers ? request.fd_numbers[i] : i; }

UJOIN_CHILD bool is_wanted(const SpawnRequest &request, int fd) {
    for (int i = 0; i < request.fd_count; i++)
        if (number_of(request, i) == fd) return true;
    return false;
}

/// close_range for kernels before 5.9: descriptors are marked, so that execve closes them.
UJOIN_CHILD void mark_close_on_exec(const SpawnRequest &request) {
    const long directory = syscall(SYS_openat, AT_FDCWD, "/proc/self/fd", O_RDONLY | O_DIRECTORY | O_CLOEXEC, 0);
    if (directory < 0) {
        for (int fd = 0; fd < 65536; fd++)
            if (!is_wanted(request, fd)) syscall(SYS_close, fd);
        return;
    }
    alignas(8) char buffer[2048];
    for (;;) {
        const long got = syscall(SYS_getdents64, directory, buffer, sizeof buffer);
        if (got <= 0) return;
        for (long at = 0; at < got;) {
            // struct linux_dirent64: inode, offset (8 bytes each), record length (2), type (1), name
            const unsigned length =
                static_cast<unsigned char>(buffer[at + 16]) | static_cast<unsigned char>(buffer[at + 17]) << 8;
            int fd = 0;
            bool number = true;
            for (const char *c = buffer + at + 19; *c; c++) {
                number = number && *c >= '0' && *c <= '9';
                fd = fd * 10 + (*c - '0');
            }
            if (number && !is_wanted(request, fd)) syscall(SYS_fcntl, fd, F_SETFD, FD_CLOEXEC);
            at += length;
        }
    }
}

/// A copy of a descriptor whose number nobody wants: at its own it would be overwritten before its turn.
UJOIN_CHILD int move_away(const SpawnRequest &request, int fd) {
    for (int least = 3;;) { // copies that land on a wanted number are overwritten, as it was to be
        const int copy = static_cast<int>(syscall(SYS_fcntl, fd, F_DUPFD_CLOEXEC, least));
        if (copy < 0 || !is_wanted(request, copy)) return copy;
        least = copy + 1;
    }
}

UJOIN_CHILD void close_others(const SpawnRequest &request) {
    for (unsigned first = 0;;) {
        unsigned next = ~0U; // the lowest wanted number from `first` on
        for (int i = 0; i < request.fd_count; i++) {
            const auto number = static_cast<unsigned>(number_of(request, i));
            if (number >= first && number < next) next = number;
        }
        const unsigned last = next == ~0U ? next : next - 1;
        if ((next == ~0U || next > first) && syscall(SYS_close_range, first, last, 0) != 0)
            return mark_close_on_exec(request);
        if (next == ~0U) return;
        first = next + 1;
    }
}

UJOIN_CHILD bool place_descriptors(const SpawnRequest &request) {
    int from[spawn_max_fds];
    for (int i = 0; i < request.fd_count; i++) {
        from[i] = request.fds[i];
        if (from[i] != number_of(request, i) && is_wanted(request, from[i])) from[i] = move_away(request, from[i]);
        if (from[i] < 0) return false;
    }
    for (int i = 0; i < request.fd_count; i++) {
        const int number = number_of(request, i);
        const long done =
            from[i] == number ? syscall(SYS_fcntl, number, F_SETFD, 0) : syscall(SYS_dup3, from[i], number, 0);
        if (done < 0) return false;
    }
    close_others(request);
    return true;
}

/// Before anything else: whatever this process makes is in it from the beginning.
UJOIN_CHILD bool enter_cgroup(const SpawnRequest &request) {
    if (request.cgroup_procs < 0) return true;
    return syscall(SYS_write, request.cgroup_procs, "0", 1) == 1; // 0: the one that writes
}

UJOIN_CHILD void reset_signals() {
    const uint64_t defaults[4] = {0, 0, 0, 0}; // the kernel's struct: SIG_DFL, no flags, no restorer, empty mask
    for (int number = 1; number <= last_signal; number++) syscall(SYS_rt_sigaction, number, defaults, nullptr, mask_size);
}

/// False, and errno, at the first thing that the system refuses.
UJOIN_CHILD bool apply_settings(const SpawnSettings &settings) {
    constexpr int prefer = 1; // MPOL_PREFERRED: other nodes are used when these are full
    if (settings.umask >= 0) syscall(SYS_umask, settings.umask);
    if (settings.has_cpus && syscall(SYS_sched_setaffinity, 0, sizeof settings.cpus, settings.cpus) < 0) return false;
    if (settings.has_nodes) syscall(SYS_set_mempolicy, prefer, settings.nodes, 8 * sizeof settings.nodes);
    for (int i = 0; i < settings.limit_count; i++) {
        const uint64_t both[2] = {settings.limits[i].value, settings.limits[i].value};
        if (syscall(SYS_prlimit64, 0, settings.limits[i].resource, both, nullptr) != 0) return false;
    }
    return true;
}

/// All that comes before the program itself.
UJOIN_CHILD SpawnStep prepare(const SpawnRequest &request, pid_t parent) {
    reset_signals(); // before the mask: a handler of the host would run on the host's memory
    if (!enter_cgroup(request)) return SpawnStep::cgroup;
    if (!place_descriptors(request)) return SpawnStep::descriptors;
    if (request.directory && syscall(SYS_chdir, request.directory) != 0) return SpawnStep::directory;
    if (request.new_session && syscall(SYS_setsid) < 0) return SpawnStep::session;
    if (request.death_signal != 0) {
        if (syscall(SYS_prctl, PR_SET_PDEATHSIG, request.death_signal, 0, 0, 0) != 0) return SpawnStep::parent;
        if (syscall(SYS_getppid) != parent) { // it died before the signal was asked for
            errno = ESRCH;
            return SpawnStep::parent;
        }
    }
    if (request.settings && !apply_settings(*request.settings)) return SpawnStep::settings;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &request.signal_mask, nullptr, mask_size);
    return SpawnStep::none;
}

UJOIN_CHILD SpawnStep run_child(Child &child) {
    const SpawnRequest &request = *child.request;
    const SpawnStep step = prepare(request, child.parent);
    if (step != SpawnStep::none) return step;
    syscall(SYS_execve, request.program, request.argv, request.envp);
    return SpawnStep::exec;
}

UJOIN_CHILD int child_main(void *argument) {
    Child &child = *static_cast<Child *>(argument);
    child.step = run_child(child);
    child.error = errno;
    syscall(SYS_exit, 127);
    return 127;
}

} // namespace

uint64_t signal_mask() {
    uint64_t mask = 0;
    syscall(SYS_rt_sigprocmask, SIG_BLOCK, nullptr, &mask, mask_size);
    return mask;
}

SpawnResult spawn(const SpawnRequest &request) noexcept {
    SpawnResult result;
    result.step = SpawnStep::clone;
    void *stack = mmap(nullptr, stack_size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    if (stack == MAP_FAILED) {
        result.error = errno;
        return result;
    }
    Child child{&request, getpid(), 0, SpawnStep::none};
    const uint64_t all = ~uint64_t{0};
    uint64_t old = 0;
    // The raw call: the C library's leaves out the signals that it uses itself. Only for this moment, since setuid() in
    // another thread waits for one of them.
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, mask_size);
    int pidfd = -1;
    const int flags = CLONE_VM | CLONE_VFORK | CLONE_PIDFD | SIGCHLD;
    const pid_t pid = UJOIN_CLONE(child_main, static_cast<char *>(stack) + stack_size, flags, &child, &pidfd);
    const int clone_error = errno;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, nullptr, mask_size);
    munmap(stack, stack_size);
    if (pid < 0) {
        result.error = clone_error;
        return result;
    }
    if (child.step != SpawnStep::none) {
        siginfo_t info;
        while (waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED) != 0 && errno == EINTR) {
        }
        close(pidfd);
        result.error = child.error;
        result.step = child.step;
        return result;
    }
    result.pid = pid;
    result.pidfd = pidfd;
    result.step = SpawnStep::none;
    return result;
}

namespace {

struct CopyReport {
    SpawnStep step;
    int error;
};

/// The copy: tells how far it came, and goes on when the parent holds a descriptor of it.
[[noreturn]] void run_copy(SpawnRequest request, int line, pid_t parent, const std::function<int()> &body) {
    int fds[spawn_max_fds];
    int numbers[spawn_max_fds];
    for (int i = 0; i < request.fd_count; i++) {
        fds[i] = request.fds[i];
        numbers[i] = number_of(request, i);
    }
    if (is_wanted(request, line)) line = move_away(request, line);
    fds[request.fd_count] = numbers[request.fd_count] = line;
    request.fd_count++;
    request.fds = fds;
    request.fd_numbers = numbers;
    CopyReport report{};
    report.step = prepare(request, parent);
    report.error = report.step == SpawnStep::none ? 0 : errno;
    char go = 0;
    if (write(line, &report, sizeof report) != sizeof report || report.error != 0 || read(line, &go, 1) != 1) _exit(127);
    close(line);
    clearenv();
    for (char *const *entry = request.envp; *entry; entry++) putenv(strdup(*entry));
    const int code = body();
    std::fflush(nullptr);
    _exit(code);
}

} // namespace

SpawnResult spawn_copy(const SpawnRequest &request, const std::function<int()> &body) {
    SpawnResult result;
    result.step = SpawnStep::clone;
    int line[2];
    if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC, 0, line) != 0) {
        result.error = errno;
        return result;
    }
    std::fflush(nullptr); // else the copy would write it once more
    const pid_t parent = getpid();
    const uint64_t all = ~uint64_t{0};
    uint64_t old = 0;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &all, &old, mask_size);
    const pid_t pid = fork();
    if (pid == 0) {
        close(line[0]);
        run_copy(request, line[1], parent, body);
    }
    const int fork_error = errno;
    syscall(SYS_rt_sigprocmask, SIG_SETMASK, &old, nullptr, mask_size);
    close(line[1]);
    CopyReport report{SpawnStep::clone, fork_error};
    if (pid > 0) {
        ssize_t got = 0;
        do {
            got = read(line[0], &report, sizeof report);
        } while (got < 0 && errno == EINTR);
        if (got != sizeof report) report = {}; // killed before it could tell: it did start
        const int pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
        if (pidfd < 0) report = {SpawnStep::clone, errno};
        result.pid = pid;
        result.pidfd = pidfd;
    }
    const char go = 1;
    if (report.error == 0 && send(line[0], &go, 1, MSG_NOSIGNAL) != 1 && errno != EPIPE) report = {SpawnStep::clone, errno};
    close(line[0]);
    result.step = report.step;
    result.error = report.error;
    if (report.error != 0 && pid > 0) {
        waitpid(pid, nullptr, 0); // it has ended, or does: its line is closed
        if (result.pidfd >= 0) close(result.pidfd);
        result.pid = result.pidfd = -1;
    }
    return result;
}

const char *spawn_step_text(SpawnStep step) {
    switch (step) {
    case SpawnStep::clone:
        return "make a process";
    case SpawnStep::cgroup:
        return "enter its cgroup for";
    case SpawnStep::descriptors:
        return "set up its descriptors";
    case SpawnStep::directory:
        return "enter its working directory";
    case SpawnStep::session:
        return "make its session";
    case SpawnStep::parent:
        return "tie it to its parent";
    case SpawnStep::settings:
        return "set its processors and limits";
    default:
        return "execute";
    }
}

} // namespace ujoin::os
