// SPDX-License-Identifier: Apache-2.0
#include "pctx/warden_client.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "os/process.hpp"
#include <cerrno>
#include <climits>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/socket.h>

namespace ujoin {
namespace {

using os::warden::Event;
using os::warden::Kind;
using os::warden::Request;

/// The directory of a file, all links followed; "" if there is none.
std::string real_directory(const char *file) {
    char path[PATH_MAX];
    if (!realpath(file, path)) return {};
    const std::string text = path;
    return text.substr(0, text.rfind('/'));
}

/// Where the helper may lie, best first.
std::vector<std::string> warden_places() {
    std::vector<std::string> places;
    if (const auto given = env::text(env::Var::libexec_dir)) places.push_back(*given + "/ujoin-warden");
    Dl_info info{};
    std::string beside[2]; // the library, and the program that may have it inside
    if (dladdr(reinterpret_cast<const void *>(&warden_places), &info) != 0 && info.dli_fname)
        beside[0] = real_directory(info.dli_fname);
    beside[1] = real_directory("/proc/self/exe");
    for (const std::string &directory : beside) {
        if (directory.empty() || (&directory == &beside[1] && directory == beside[0])) continue;
        places.push_back(directory + "/../libexec/ujoin/ujoin-warden");
        places.push_back(directory + "/../../libexec/ujoin/ujoin-warden");
    }
    places.emplace_back(UJOIN_INSTALLED_LIBEXEC "/ujoin-warden");
    return places;
}

std::string find_warden() {
    const std::vector<std::string> places = warden_places();
    for (const std::string &place : places)
        if (access(place.c_str(), X_OK) == 0) return place;
    throw Error(UJOIN_E_SYSTEM, cat("the helper program ujoin-warden was not found; looked for ", join_list(places),
                                    "; set UJOIN_LIBEXEC_DIR to its directory"))
        .with_errno(ENOENT);
}

/// A file in memory with the strings of a request.
os::Fd pack(const os::SpawnRequest &request, Request &head) {
    std::string text;
    const auto add = [&](const char *part) { text.append(part, std::strlen(part) + 1); };
    add(request.program);
    add(request.directory ? request.directory : "");
    for (char *const *arg = request.argv; *arg; arg++, head.arg_count++) add(*arg);
    for (char *const *variable = request.envp; *variable; variable++, head.env_count++) add(*variable);
    os::Fd file(memfd_create("ujoin-spawn", MFD_CLOEXEC));
    if (!file) fail_errno(errno, "cannot make a file in memory");
    for (size_t at = 0; at < text.size();) {
        const ssize_t done = write(file.get(), text.data() + at, text.size() - at);
        if (done < 0) fail_errno(errno, "cannot write a file in memory");
        at += static_cast<size_t>(done);
    }
    head.bytes = text.size();
    return file;
}

} // namespace

WardenClient::WardenClient(bool new_session, char *const *envp) {
    const std::string program = find_warden();
    int pair[2];
    if (socketpair(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0, pair) != 0)
        fail_errno(errno, "cannot make a socket for the warden");
    socket_.reset(pair[0]);
    const os::Fd theirs(pair[1]);
    const os::Fd launcher(os::open_pidfd(getpid()));
    if (!launcher) fail_errno(errno, "cannot open a descriptor of this process for the warden");
    const os::Fd null(open("/dev/null", O_RDWR | O_CLOEXEC));
    if (!null) fail_errno(errno, "cannot open /dev/null");
    const int fds[] = {null.get(), null.get(), null.get(), theirs.get(), launcher.get()};
    std::string name = "ujoin-warden";
    char *const argv[] = {name.data(), nullptr};
    os::SpawnRequest request;
    request.program = program.c_str();
    request.argv = argv;
    request.envp = envp;
    request.fds = fds;
    request.fd_count = 5;
    request.new_session = new_session; // else it stays on the worker's terminal, with every signal blocked
    const os::SpawnResult result = os::spawn(request);
    if (result.error != 0) fail_errno(result.error, cat("cannot ", os::spawn_step_text(result.step), " \"", program, "\""));
    pidfd_.reset(result.pidfd);
}

os::SpawnResult WardenClient::spawn(int index, const os::SpawnRequest &request) {
    Request head{};
    head.kind = Kind::spawn;
    head.index = index;
    head.new_session = request.new_session ? 1 : 0;
    head.signal_mask = request.signal_mask;
    const os::Fd strings = pack(request, head);
    const int fds[4] = {strings.get(), request.fds[0], request.fds[1], request.fds[2]};
    iovec part{&head, sizeof head};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof fds)] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    cmsghdr *header = CMSG_FIRSTHDR(&message);
    header->cmsg_level = SOL_SOCKET;
    header->cmsg_type = SCM_RIGHTS;
    header->cmsg_len = CMSG_LEN(sizeof fds);
    std::memcpy(CMSG_DATA(header), fds, sizeof fds);
    if (sendmsg(socket_.get(), &message, MSG_NOSIGNAL) < 0) fail_errno(errno, "cannot ask the warden for a worker");
    for (;;) {
        Event event{};
        os::Fd pidfd;
        if (receive_with(event, pidfd, true) == Got::lost)
            throw Error(UJOIN_E_SYSTEM, "the warden ended while it started a worker").with_errno(ESRCH);
        if (event.kind != Kind::spawned) {
            early_.push_back(event);
            continue;
        }
        os::SpawnResult result;
        result.pid = event.pid;
        result.pidfd = pidfd.release();
        result.error = event.error;
        result.step = event.step;
        return result;
    }
}

WardenClient::Got WardenClient::receive(Event &event) {
    os::Fd unused;
    return receive_with(event, unused, false);
}

WardenClient::Got WardenClient::receive_with(Event &event, os::Fd &pidfd, bool wait) {
    iovec part{&event, sizeof event};
    alignas(cmsghdr) char control[CMSG_SPACE(sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &part;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t got = 0;
    do {
        got = recvmsg(socket_.get(), &message, MSG_CMSG_CLOEXEC | (wait ? 0 : MSG_DONTWAIT));
    } while (got < 0 && errno == EINTR);
    if (got < 0 && errno == EAGAIN) return Got::nothing;
    if (got != static_cast<ssize_t>(sizeof event)) return Got::lost;
    if (const cmsghdr *header = CMSG_FIRSTHDR(&message); header && header->cmsg_type == SCM_RIGHTS) {
        int fd = -1;
        std::memcpy(&fd, CMSG_DATA(header), sizeof fd);
        pidfd.reset(fd);
    }
    return Got::event;
}

void WardenClient::end() {
    Request head{};
    head.kind = Kind::end;
    send(socket_.get(), &head, sizeof head, MSG_NOSIGNAL | MSG_DONTWAIT); // full or gone: closing the socket says the same
    shutdown(socket_.get(), SHUT_WR);
}

} // namespace ujoin
