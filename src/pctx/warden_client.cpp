// SPDX-License-Identifier: Apache-2.0
#include "pctx/warden_client.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "os/process.hpp"
#include "os/unix_socket.hpp"
#include <cerrno>
#include <climits>
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

os::Fd memory_file(const std::string &text) {
    os::Fd file(memfd_create("ujoin-spawn", MFD_CLOEXEC));
    if (!file) fail_errno(errno, "cannot make a file in memory");
    for (size_t at = 0; at < text.size();) {
        const ssize_t done = write(file.get(), text.data() + at, text.size() - at);
        if (done < 0) fail_errno(errno, "cannot write a file in memory");
        at += static_cast<size_t>(done);
    }
    return file;
}

/// A file in memory with the strings of a request.
os::Fd pack(const os::SpawnRequest &request, Request &head) {
    const os::SpawnSettings none{};
    std::string text(reinterpret_cast<const char *>(request.settings ? request.settings : &none), sizeof none);
    head.has_settings = request.settings ? 1 : 0;
    const auto add = [&](const char *part) { text.append(part, std::strlen(part) + 1); };
    add(request.program);
    add(request.directory ? request.directory : "");
    for (char *const *arg = request.argv; *arg; arg++, head.arg_count++) add(*arg);
    for (char *const *variable = request.envp; *variable; variable++, head.env_count++) add(*variable);
    head.bytes = text.size();
    return memory_file(text);
}

std::string as_bytes(const Request &head) {
    std::string bytes(sizeof head, '\0');
    std::memcpy(bytes.data(), &head, sizeof head);
    return bytes;
}

} // namespace

WardenClient::WardenClient(bool new_session, char *const *envp) : WardenClient(find_warden(), new_session, envp) {}

WardenClient::WardenClient(const std::string &program, bool new_session, char *const *envp) {
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
    std::string name = program;
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
    head.fd_count = request.fd_count;
    for (int i = 0; i < request.fd_count; i++) head.fd_numbers[i] = request.fd_numbers ? request.fd_numbers[i] : i;
    const os::Fd strings = pack(request, head);
    std::vector<int> fds = {strings.get()};
    fds.insert(fds.end(), request.fds, request.fds + request.fd_count);
    os::Fd pidfd;
    const Event event = ask(head, fds, Kind::spawned, &pidfd);
    os::SpawnResult result;
    result.pid = event.pid;
    result.pidfd = pidfd.release();
    result.error = event.error;
    result.step = event.step;
    return result;
}

int WardenClient::hold(const std::string &path) {
    Request head{};
    head.kind = Kind::hold;
    head.bytes = path.size();
    const os::Fd text = memory_file(path);
    return ask(head, {text.get()}, Kind::held, nullptr).error;
}

/// Sends a request and waits for its answer; ends of workers that come before it are kept.
Event WardenClient::ask(const Request &head, const std::vector<int> &fds, Kind answer, os::Fd *pidfd) {
    const auto lost = [] { return Error(UJOIN_E_SYSTEM, "the warden ended while it started a worker").with_errno(ESRCH); };
    try {
        os::send_packet(socket_, as_bytes(head), fds);
    } catch (const Error &error) {
        if (error.code() != UJOIN_E_PEER_LOST) throw;
        throw lost();
    }
    for (;;) {
        os::wait_pidfd(socket_.get(), -1); // readable also when the warden has died
        Event event{};
        if (receive(event, pidfd) != Got::event) throw lost();
        if (event.kind == answer) return event;
        early_.push_back(event);
    }
}

WardenClient::Got WardenClient::receive(Event &event, os::Fd *pidfd) {
    // Asked first: receive_packet may run the host's interrupt check when there is nothing.
    if (!os::wait_pidfd(socket_.get(), 0)) return Got::nothing;
    try {
        auto packet = os::receive_packet(socket_, Deadline::in(0));
        if (!packet || packet->bytes.size() != sizeof event) return Got::lost;
        std::memcpy(&event, packet->bytes.data(), sizeof event);
        if (pidfd && !packet->fds.empty()) *pidfd = std::move(packet->fds[0]);
        return Got::event;
    } catch (const Error &) {
        return Got::lost;
    }
}

void WardenClient::end() {
    shutdown(socket_.get(), SHUT_WR); // the end of the socket says it; what the warden tells can still come
}

} // namespace ujoin
