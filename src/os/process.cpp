// SPDX-License-Identifier: Apache-2.0
#include "os/process.hpp"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <poll.h>
#include <sys/ioctl.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#ifndef SYS_pidfd_open
#define SYS_pidfd_open 434
#endif
#ifndef SYS_pidfd_send_signal
#define SYS_pidfd_send_signal 424
#endif

namespace ujoin::os {
namespace {

constexpr int id_pidfd = 3; // P_PIDFD, which old headers lack

/// struct pidfd_info as it first was; later kernels add fields after it.
struct PidfdInfo {
    uint64_t mask;
    uint64_t cgroup;
    uint32_t ids[11];
    int32_t exit_code;
};
static_assert(sizeof(PidfdInfo) == 64);
constexpr uint64_t info_exit = 1U << 3;
constexpr unsigned long get_info = _IOWR(0xFF, 11, PidfdInfo);

int64_t micros(const timeval &t) { return int64_t{t.tv_sec} * 1'000'000 + t.tv_usec; }

void from_wait_status(int status, ExitInfo &out) {
    out.signal = WIFSIGNALED(status) ? WTERMSIG(status) : 0;
    out.code = WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

ExitState peek(int type, int id, ExitInfo &out) {
    siginfo_t info{};
    rusage usage{};
    long done = 0;
    do { // the raw call also gives the resources
        done = syscall(SYS_waitid, type, id, &info, WEXITED | WNOHANG | WNOWAIT, &usage);
    } while (done != 0 && errno == EINTR);
    if (done != 0) return errno == EAGAIN ? ExitState::running : ExitState::taken; // EAGAIN: the pidfd is non-blocking
    if (info.si_pid == 0) return ExitState::running;
    out.code = info.si_code == CLD_EXITED ? info.si_status : -1;
    out.signal = info.si_code == CLD_EXITED ? 0 : info.si_status;
    out.user_us = micros(usage.ru_utime);
    out.system_us = micros(usage.ru_stime);
    out.peak_bytes = static_cast<uint64_t>(usage.ru_maxrss) * 1024;
    return ExitState::ended;
}

/// Calls `visit(number)` for every entry of a directory that is one: /proc has the processes, /proc/<pid>/task the threads.
template <class Visit> void each_number(const char *path, Visit &&visit) {
    const std::unique_ptr<DIR, int (*)(DIR *)> directory(opendir(path), closedir);
    if (!directory) return;
    while (const dirent *entry =
               readdir(directory.get())) { // NOLINT(concurrency-mt-unsafe): the stream is this function's own
        char *end = nullptr;
        const long pid = std::strtol(entry->d_name, &end, 10);
        if (pid > 0 && *end == '\0') visit(static_cast<pid_t>(pid));
    }
}

struct Stat {
    char state = 'X';
    pid_t parent = 0;
    unsigned flags = 0; // the kernel's, of the thread
};

Stat read_stat(pid_t pid, pid_t thread) {
    char path[64];
    std::snprintf(path, sizeof path, "/proc/%d/task/%d/stat", pid, thread);
    const int fd = open(path, O_RDONLY | O_CLOEXEC);
    Stat stat;
    if (fd < 0) return stat;
    char text[512];
    const ssize_t got = read(fd, text, sizeof text - 1);
    close(fd);
    if (got <= 0) return stat;
    text[got] = '\0';
    const char *after_name = std::strrchr(text, ')'); // the name may hold anything
    if (after_name) std::sscanf(after_name + 1, " %c %d %*d %*d %*d %*d %u", &stat.state, &stat.parent, &stat.flags);
    return stat;
}
/// Of the process: what its first thread says.
Stat read_stat(pid_t pid) { return read_stat(pid, pid); }

bool alive(pid_t pid) {
    const char state = read_stat(pid).state;
    return state != 'X' && state != 'x' && state != 'Z';
}

} // namespace

ExitState peek_exit(int pidfd, ExitInfo &out) { return peek(id_pidfd, pidfd, out); }
ExitState peek_exit_of(pid_t pid, ExitInfo &out) { return peek(P_PID, pid, out); }

void reap(int pidfd) {
    siginfo_t info{};
    while (syscall(SYS_waitid, id_pidfd, pidfd, &info, WEXITED | WNOHANG, nullptr) != 0 && errno == EINTR) {
    }
}

bool exit_from_pidfd(int pidfd, ExitInfo &out) {
    PidfdInfo info{};
    info.mask = info_exit;
    if (ioctl(pidfd, get_info, &info) != 0 || !(info.mask & info_exit)) return false;
    from_wait_status(info.exit_code, out);
    return true;
}

int64_t realtime_ns() {
    timespec t{};
    clock_gettime(CLOCK_REALTIME, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

std::string host_name(const char *if_none) {
    char name[256] = {};
    return gethostname(name, sizeof name - 1) == 0 ? name : if_none;
}

int open_pidfd(pid_t pid) { return static_cast<int>(syscall(SYS_pidfd_open, pid, 0)); }

bool has_ended(int pidfd) {
    pollfd polled{pidfd, POLLIN, 0};
    return poll(&polled, 1, 0) == 1 && (polled.revents & POLLIN) != 0;
}

bool is_ending(pid_t pid) {
    constexpr unsigned exiting = 4; // PF_EXITING
    if ((read_stat(pid).flags & exiting) == 0) return false;
    char path[40];
    std::snprintf(path, sizeof path, "/proc/%d/task", pid);
    bool all = true;
    each_number(path, [&](pid_t thread) { // the first one may have ended alone
        const Stat stat = read_stat(pid, thread);
        all = all && (stat.state == 'X' || (stat.flags & exiting) != 0);
    });
    return all;
}

int signal_pidfd(int pidfd, int signal) {
    return syscall(SYS_pidfd_send_signal, pidfd, signal, nullptr, 0) == 0 ? 0 : errno;
}

bool wait_pidfd(int pidfd, int timeout_ms) {
    pollfd item{pidfd, POLLIN, 0};
    return poll(&item, 1, timeout_ms) > 0;
}

std::vector<Member> session_members(const std::vector<pid_t> &sessions, const std::vector<pid_t> &held) {
    std::vector<Member> members;
    const auto contains = [](const std::vector<pid_t> &list, pid_t pid) {
        return std::binary_search(list.begin(), list.end(), pid);
    };
    each_number("/proc", [&](pid_t pid) {
        const pid_t session = getsid(pid);
        if (session <= 0 || pid == session || !contains(sessions, session)) return;
        if (!contains(held, session) && getsid(session) == session) return; // another process leads that session now
        Fd pidfd(open_pidfd(pid));
        if (pidfd && getsid(pid) == session && alive(pid)) // still the one that was seen, now that it is held
            members.push_back({pid, std::move(pidfd)});
    });
    return members;
}

std::vector<pid_t> own_children() {
    std::vector<pid_t> children;
    const pid_t self = getpid();
    char path[64];
    std::snprintf(path, sizeof path, "/proc/self/task/%d/children", self);
    if (FILE *file = std::fopen(path, "re")) { // one thread has them all: who uses this has no other
        int pid = 0;
        while (std::fscanf(file, "%d", &pid) == 1) children.push_back(pid);
        std::fclose(file);
        return children;
    }
    each_number("/proc", [&](pid_t pid) {
        if (read_stat(pid).parent == self) children.push_back(pid);
    });
    return children;
}

} // namespace ujoin::os
