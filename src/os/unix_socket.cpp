// SPDX-License-Identifier: Apache-2.0
#include "os/unix_socket.hpp"
#include "os/ready.hpp"
#include <cerrno>
#include <cstring>
#include <poll.h>
#include <sys/socket.h>
#include <sys/un.h>

namespace ujoin::os {
namespace {

constexpr size_t max_packet = 16384;
constexpr size_t max_fds = 80; // the warden gets all of a worker's at once

socklen_t make_address(const std::string &name, sockaddr_un &address) {
    address = {};
    address.sun_family = AF_UNIX;
    if (name.size() + 1 > sizeof address.sun_path) fail(UJOIN_E_INTERNAL, "the socket name ", name, " is too long");
    std::memcpy(address.sun_path + 1, name.data(), name.size()); // a NUL in front: abstract
    return static_cast<socklen_t>(offsetof(sockaddr_un, sun_path) + 1 + name.size());
}

Fd make_socket() {
    Fd socket(::socket(AF_UNIX, SOCK_SEQPACKET | SOCK_CLOEXEC, 0));
    if (!socket) fail_errno(errno, "cannot make a socket");
    return socket;
}

std::optional<uid_t> peer_uid(const Fd &socket) {
    ucred peer{};
    socklen_t size = sizeof peer;
    if (getsockopt(socket.get(), SOL_SOCKET, SO_PEERCRED, &peer, &size) != 0) return std::nullopt;
    return peer.uid;
}

[[noreturn]] void lost() { fail(UJOIN_E_PEER_LOST, "the other side closed the connection"); }

} // namespace

std::optional<Fd> listen_abstract(const std::string &name) {
    Fd socket = make_socket();
    sockaddr_un address{};
    const socklen_t size = make_address(name, address);
    if (bind(socket.get(), reinterpret_cast<sockaddr *>(&address), size) != 0) {
        if (errno == EADDRINUSE) return std::nullopt;
        fail_errno(errno, "cannot bind a local socket");
    }
    if (listen(socket.get(), 1024) != 0) fail_errno(errno, "cannot listen on a local socket");
    return socket;
}

std::optional<Fd> accept_peer(const Fd &listener, const Deadline &deadline) {
    while (wait_ready(listener.get(), POLLIN, deadline) == Ready::yes) {
        Fd peer(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        if (!peer) {
            if (errno == EINTR || errno == ECONNABORTED || errno == EAGAIN) continue;
            fail_errno(errno, "cannot accept a local connection");
        }
        if (peer_uid(peer) == geteuid()) return peer;
    }
    return std::nullopt;
}

std::optional<Fd> connect_abstract(const std::string &name) {
    Fd socket = make_socket();
    sockaddr_un address{};
    const socklen_t size = make_address(name, address);
    if (connect(socket.get(), reinterpret_cast<sockaddr *>(&address), size) != 0) {
        if (errno == ECONNREFUSED || errno == EAGAIN || errno == EINTR) return std::nullopt;
        fail_errno(errno, "cannot connect a local socket");
    }
    if (const auto uid = peer_uid(socket); uid != geteuid())
        fail_errno(EPERM, cat("the meeting place is held by user ", uid.value_or(0), ", not by ", geteuid()));
    return socket;
}

void send_packet(const Fd &socket, const std::string &bytes, const std::vector<int> &fds) {
    if (bytes.size() > max_packet || fds.size() > max_fds)
        fail(UJOIN_E_INTERNAL, "a packet of ", bytes.size(), " bytes is too large");
    iovec data{const_cast<char *>(bytes.data()), bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(max_fds * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    if (!fds.empty()) {
        message.msg_control = control;
        message.msg_controllen = CMSG_SPACE(fds.size() * sizeof(int));
        cmsghdr *head = CMSG_FIRSTHDR(&message);
        head->cmsg_level = SOL_SOCKET;
        head->cmsg_type = SCM_RIGHTS;
        head->cmsg_len = CMSG_LEN(fds.size() * sizeof(int));
        std::memcpy(CMSG_DATA(head), fds.data(), fds.size() * sizeof(int));
    }
    while (sendmsg(socket.get(), &message, MSG_NOSIGNAL) < 0) {
        if (errno == EINTR) continue;
        if (errno == EPIPE || errno == ECONNRESET) lost();
        fail_errno(errno, "cannot send to a local socket");
    }
}

std::optional<Packet> receive_packet(const Fd &socket, const Deadline &deadline) {
    if (wait_ready(socket.get(), POLLIN, deadline) != Ready::yes) return std::nullopt;
    Packet packet;
    packet.bytes.resize(max_packet);
    packet.fds.reserve(max_fds); // once they have been received there must be a place for them
    iovec data{packet.bytes.data(), packet.bytes.size()};
    alignas(cmsghdr) char control[CMSG_SPACE(max_fds * sizeof(int))] = {};
    msghdr message{};
    message.msg_iov = &data;
    message.msg_iovlen = 1;
    message.msg_control = control;
    message.msg_controllen = sizeof control;
    ssize_t n = 0;
    do {
        n = recvmsg(socket.get(), &message, MSG_CMSG_CLOEXEC);
    } while (n < 0 && errno == EINTR);
    if (n < 0 && errno != ECONNRESET) fail_errno(errno, "cannot receive from a local socket");
    if (n <= 0) lost();
    packet.bytes.resize(static_cast<size_t>(n));
    for (cmsghdr *head = CMSG_FIRSTHDR(&message); head; head = CMSG_NXTHDR(&message, head)) {
        if (head->cmsg_level != SOL_SOCKET || head->cmsg_type != SCM_RIGHTS) continue;
        for (size_t i = 0; i < (head->cmsg_len - CMSG_LEN(0)) / sizeof(int); i++) {
            int fd = -1;
            std::memcpy(&fd, CMSG_DATA(head) + i * sizeof(int), sizeof fd);
            packet.fds.emplace_back(fd);
        }
    }
    if (message.msg_flags & (MSG_TRUNC | MSG_CTRUNC))
        fail(UJOIN_E_MISMATCH, "a packet from a peer was cut: too many open descriptors, or not ujoin");
    return packet;
}

} // namespace ujoin::os
