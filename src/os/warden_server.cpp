// SPDX-License-Identifier: Apache-2.0
// Parent, subreaper and death anchor of a job's workers; see os/warden_protocol.hpp.
#include "os/warden_server.hpp"
#include "os/cgroup.hpp"
#include "os/process.hpp"
#include "os/warden_protocol.hpp"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <ctime>
#include <poll.h>
#include <string>
#include <sys/prctl.h>
#include <sys/signalfd.h>
#include <sys/socket.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

namespace ujoin::os::warden {
namespace {

constexpr int received_fds = 1 + spawn_max_fds; // strings, and the worker's

struct Worker {
    int32_t index;
    pid_t pid;
    bool reported;
    bool found = false;
};

std::vector<Worker> g_workers;
int g_signals = -1;
Cgroup g_cgroup; // empty where no such containment is asked for

/// SIGKILL to the cgroup, to every child, and to those that come to this process when their parents die, until none is left.
void kill_all() {
    for (;;) {
        g_cgroup.kill_all();
        for (const pid_t pid : own_children()) kill(pid, SIGKILL);
        siginfo_t info{};
        int done = 0;
        do {
            info.si_pid = 0;
            done = waitid(P_ALL, 0, &info, WEXITED | WNOHANG);
        } while (done == 0 && info.si_pid != 0);
        if (done != 0 && errno == ECHILD && g_cgroup.remove()) return;
        pollfd item{g_signals, POLLIN, 0};
        poll(&item, 1, 10); // the list of children can miss one that was just handed over: look again soon
        signalfd_siginfo ignored;
        while (read(g_signals, &ignored, sizeof ignored) > 0) {
        }
    }
}

bool read_file(int fd, std::string &out) {
    for (size_t at = 0; at < out.size();) {
        const ssize_t got = pread(fd, out.data() + at, out.size() - at, static_cast<off_t>(at));
        if (got <= 0) return false;
        at += static_cast<size_t>(got);
    }
    return true;
}

/// The strings of a request, as pointers into `text`; empty if there are not as many as it says.
std::vector<char *> split(std::string &text, size_t count) {
    std::vector<char *> parts;
    for (size_t at = 0; at < text.size() && parts.size() < count; at += std::strlen(text.data() + at) + 1)
        parts.push_back(text.data() + at);
    if (parts.size() != count) parts.clear();
    return parts;
}

/// What the request's memfd holds; "" if it is not what the request says.
std::string read_text(const Request &request, int fd) {
    struct stat info {};
    if (fstat(fd, &info) != 0 || static_cast<uint64_t>(info.st_size) < request.bytes) return {};
    std::string text(request.bytes, '\0');
    return read_file(fd, text) ? text : std::string();
}

SpawnResult start(const Starter &starter, const Request &request, const int *fds, int fd_count) {
    SpawnResult result;
    result.error = EINVAL;
    result.step = SpawnStep::clone;
    std::string text = read_text(request, fds[0]);
    SpawnSettings settings;
    if (request.arg_count < 1 || request.env_count < 0 || text.size() <= sizeof settings || text.back() != '\0')
        return result;
    std::memcpy(&settings, text.data(), sizeof settings);
    text.erase(0, sizeof settings);
    const auto args = static_cast<size_t>(request.arg_count);
    const auto variables = static_cast<size_t>(request.env_count);
    const std::vector<char *> parts = split(text, 2 + args + variables);
    if (parts.empty()) return result;
    std::vector<char *> argv(parts.begin() + 2, parts.begin() + 2 + static_cast<std::ptrdiff_t>(args));
    std::vector<char *> envp(parts.begin() + 2 + static_cast<std::ptrdiff_t>(args), parts.end());
    argv.push_back(nullptr);
    envp.push_back(nullptr);
    SpawnRequest spawn_request;
    spawn_request.program = parts[0];
    spawn_request.directory = *parts[1] ? parts[1] : nullptr;
    spawn_request.argv = argv.data();
    spawn_request.envp = envp.data();
    spawn_request.fds = fds + 1;
    spawn_request.fd_numbers = request.fd_numbers;
    spawn_request.cgroup_procs = g_cgroup.procs();
    spawn_request.fd_count = fd_count;
    spawn_request.settings = request.has_settings ? &settings : nullptr;
    spawn_request.new_session = request.new_session != 0;
    spawn_request.death_signal = SIGKILL;
    spawn_request.signal_mask = request.signal_mask;
    return starter(spawn_request);
}

bool send_event(const Event &event, int pidfd, int flags) {
    iovec part{const_cast<Event *>(&event), sizeof event};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    if (pidfd >= 0) {
        message.msg_control = control;
        message.msg_controllen = sizeof control;
        cmsghdr *header = CMSG_FIRSTHDR(&message);
        header->cmsg_level = SOL_SOCKET;
        header->cmsg_type = SCM_RIGHTS;
        header->cmsg_len = CMSG_LEN(sizeof(int));
        std::memcpy(CMSG_DATA(header), &pidfd, sizeof pidfd);
    }
    ssize_t sent = 0;
    do {
        sent = sendmsg(socket_fd, &message, MSG_NOSIGNAL | flags);
    } while (sent < 0 && errno == EINTR);
    return sent >= 0;
}

void handle_spawn(const Starter &starter, const Request &request, const int *fds, int fd_count) {
    SpawnResult result;
    result.error = EMFILE; // the system has left descriptors out
    result.step = SpawnStep::descriptors;
    if (fd_count == request.fd_count) result = start(starter, request, fds, fd_count);
    Event event{};
    event.kind = Kind::spawned;
    event.index = request.index;
    event.pid = result.pid;
    event.error = result.error;
    event.step = result.step;
    if (result.error == 0) g_workers.push_back({request.index, result.pid, false});
    send_event(event, result.pidfd, 0);
    if (result.pidfd >= 0) close(result.pidfd);
}

void handle_hold(const Request &request, int fd) {
    Event event{};
    event.kind = Kind::held;
    event.error = g_cgroup ? EBUSY : g_cgroup.make(read_text(request, fd));
    send_event(event, -1, 0);
}

/// One request of the launcher's; false: it has shut the socket, or is gone.
bool handle_request(const Starter &starter) {
    Request request{};
    iovec part{&request, sizeof request};
    alignas(cmsghdr) char control[CMSG_SPACE(received_fds * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    const ssize_t got = recvmsg(socket_fd, &message, MSG_CMSG_CLOEXEC | MSG_DONTWAIT);
    if (got < 0) return errno == EINTR || errno == EAGAIN;
    int fds[received_fds];
    size_t count = 0;
    for (cmsghdr *header = CMSG_FIRSTHDR(&message); header; header = CMSG_NXTHDR(&message, header)) {
        if (header->cmsg_level != SOL_SOCKET || header->cmsg_type != SCM_RIGHTS) continue;
        count = (header->cmsg_len - CMSG_LEN(0)) / sizeof(int);
        std::memcpy(fds, CMSG_DATA(header), count * sizeof(int));
    }
    const bool whole = got == static_cast<ssize_t>(sizeof request);
    const bool spawns = whole && request.kind == Kind::spawn;
    const bool holds = whole && request.kind == Kind::hold && count == 1;
    if (spawns) handle_spawn(starter, request, fds, static_cast<int>(count) - 1);
    if (holds) handle_hold(request, fds[0]);
    for (size_t i = 0; i < count; i++) close(fds[i]);
    return spawns || holds;
}

/// The workers that have ended and were not reported yet, those that died of a signal first: where several have ended, an
/// exit is more likely the answer to a death than its cause. Looks twice, so that no cause is missed whose effect was seen.
std::vector<Event> ended_workers() {
    std::vector<Event> ended;
    for (int look = 0; look < 2; look++) {
        for (Worker &worker : g_workers) {
            Event event{};
            if (worker.reported || worker.found || peek_exit_of(worker.pid, event.exit) != ExitState::ended) continue;
            worker.found = true;
            event.kind = Kind::exited;
            event.index = worker.index;
            event.pid = worker.pid;
            event.end_ns = realtime_ns();
            ended.push_back(event);
        }
    }
    for (Worker &worker : g_workers) worker.found = false;
    std::stable_partition(ended.begin(), ended.end(), [](const Event &event) { return event.exit.signal != 0; });
    return ended;
}

/// Tells which workers have ended and frees orphans that were handed to this process. False: the socket is full.
bool handle_children() {
    for (const Event &event : ended_workers()) {
        if (!send_event(event, -1, MSG_DONTWAIT)) return errno != EAGAIN;
        for (Worker &worker : g_workers) worker.reported = worker.reported || worker.pid == event.pid;
    }
    for (const pid_t pid : own_children()) {
        bool is_worker = false;
        for (const Worker &worker : g_workers) is_worker = is_worker || worker.pid == pid;
        siginfo_t info;
        if (!is_worker) waitid(P_PID, static_cast<id_t>(pid), &info, WEXITED | WNOHANG);
    }
    return true;
}

} // namespace

bool is_started_by_launcher() {
    struct stat info {};
    return fstat(socket_fd, &info) == 0 && S_ISSOCK(info.st_mode) && fstat(launcher_fd, &info) == 0;
}

void serve(const Starter &starter) {
    sigset_t all;
    sigfillset(&all);
    sigprocmask(SIG_SETMASK, &all, nullptr); // nothing but SIGKILL ends it before its children
    prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0);
    sigset_t child;
    sigemptyset(&child);
    sigaddset(&child, SIGCHLD);
    g_signals = signalfd(-1, &child, SFD_CLOEXEC | SFD_NONBLOCK);
    bool socket_full = false;
    for (bool more = true; more;) {
        const auto wanted = static_cast<short>(socket_full ? POLLIN | POLLOUT : POLLIN);
        pollfd items[3] = {{socket_fd, wanted, 0}, {launcher_fd, POLLIN, 0}, {g_signals, POLLIN, 0}};
        if (poll(items, 3, -1) < 0) continue;
        if (items[1].revents != 0) break;
        if (items[0].revents & (POLLIN | POLLHUP | POLLERR)) more = handle_request(starter);
        if (items[2].revents != 0 || socket_full) {
            signalfd_siginfo ignored;
            while (read(g_signals, &ignored, sizeof ignored) > 0) {
            }
            socket_full = !handle_children();
        }
    }
    kill_all();
}

} // namespace ujoin::os::warden
