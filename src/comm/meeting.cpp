// SPDX-License-Identifier: Apache-2.0
#include "comm/meeting.hpp"
#include "base/checksum.hpp"
#include "os/process.hpp"
#include "os/ready.hpp"
#include "os/shared_memory.hpp"
#include <cerrno>
#include <cstring>
#include <new>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

namespace ujoin {
namespace {

constexpr uint32_t magic = 0x6e6a6f75; // "ujon"
constexpr uint32_t protocol = 3;       // grows with every change of what ranks share

struct Hello {
    uint32_t magic;
    uint32_t protocol;
    int32_t rank;
    int32_t size;
    char backend[32];
    char meeting[1024];
};

} // namespace

os::Fd own_pidfd() {
    os::Fd fd(os::open_pidfd(getpid()));
    if (!fd) throw Error(UJOIN_E_UNSUPPORTED, cat("this kernel has no pidfds: ", errno_text(errno))).with_errno(errno);
    return fd;
}

std::string Meeting::address() const {
    Checksum name;
    name.text(request_.meeting);
    return cat("ujoin/", geteuid(), "/", name.hex());
}

std::string Meeting::hello() const {
    Hello mine{};
    mine.magic = magic;
    mine.protocol = protocol;
    mine.rank = request_.rank;
    mine.size = request_.size;
    request_.backend.copy(mine.backend, sizeof mine.backend - 1);
    request_.meeting.copy(mine.meeting, sizeof mine.meeting - 1);
    return {reinterpret_cast<const char *>(&mine), sizeof mine};
}

/// What is wrong with a peer's greeting; "" = nothing.
std::string Meeting::check_hello(const std::string &bytes, int32_t &rank) const {
    Hello its{};
    if (bytes.size() != sizeof its) return "a process that is not ujoin, or another version of it, came to the meeting";
    std::memcpy(&its, bytes.data(), sizeof its);
    its.backend[sizeof its.backend - 1] = its.meeting[sizeof its.meeting - 1] = '\0';
    rank = its.rank;
    if (its.magic != magic || its.protocol != protocol) return "ranks use different versions of ujoin";
    if (its.size != request_.size)
        return cat("rank ", its.rank, " says that the group has ", its.size, " ranks, rank 0 says ", request_.size);
    if (its.rank < 1 || its.rank >= request_.size)
        return cat("a process says that it is rank ", its.rank, " of ", request_.size);
    if (request_.meeting.substr(0, sizeof its.meeting - 1) != its.meeting)
        return cat("rank ", its.rank, " came for ", its.meeting, ", rank 0 for ", request_.meeting);
    if (request_.backend != its.backend)
        return cat("rank ", its.rank, " asked for backend \"", its.backend, "\", rank 0 for \"", request_.backend, "\"");
    return "";
}

os::Packet Meeting::receive(const os::Fd &from, int32_t rank) {
    try {
        if (auto packet = os::receive_packet(from, request_.deadline)) return std::move(*packet);
    } catch (Error &error) {
        if (error.code() == UJOIN_E_PEER_LOST)
            throw Error(UJOIN_E_PEER_LOST, cat("rank ", rank, " died or gave up while the group was being made"))
                .with_ranks({rank});
        throw;
    }
    throw Error(UJOIN_E_TIMEOUT, cat("rank ", rank, " did not answer while the group was being made")).with_ranks({rank});
}

/// On rank 0: tells everybody who came, then throws.
void Meeting::fail_all(const Error &error) {
    for (size_t k = 1; k < sockets_.size(); k++) {
        if (!sockets_[k]) continue;
        try {
            os::send_packet(sockets_[k], pack(error));
        } catch (const Error &) { // gone: nobody is left to be told
        }
    }
    throw Error(error);
}

void Meeting::accept_one(const os::Fd &listener, std::vector<Peer> &peers) {
    std::optional<os::Fd> socket = os::accept_peer(listener, request_.deadline);
    if (!socket) {
        std::vector<int32_t> came = {0};
        std::vector<int32_t> missing;
        for (size_t k = 1; k < peers.size(); k++) (sockets_[k] ? came : missing).push_back(static_cast<int32_t>(k));
        fail_all(Error(UJOIN_E_TIMEOUT, cat("ranks ", join_list(missing), " did not come to ", request_.meeting, "; ranks ",
                                            join_list(came), " did"))
                     .with_ranks(missing));
    }
    os::Packet packet;
    try {
        auto received = os::receive_packet(*socket, request_.deadline);
        if (!received) return;
        packet = std::move(*received);
    } catch (const Error &) {
        return; // it went away before it said who it was
    }
    int32_t rank = 0;
    std::string wrong = check_hello(packet.bytes, rank);
    if (wrong.empty() && packet.fds.size() != 2)
        wrong = cat("rank ", rank, " sent ", packet.fds.size(), " descriptors instead of 2");
    if (wrong.empty() && sockets_[static_cast<size_t>(rank)]) wrong = cat("two processes say that they are rank ", rank);
    if (!wrong.empty()) {
        const Error error(UJOIN_E_MISMATCH, wrong);
        try {
            os::send_packet(*socket, pack(error));
        } catch (const Error &) { // it is told by the end of the connection
        }
        fail_all(error);
    }
    peers[static_cast<size_t>(rank)] = {std::move(packet.fds[0]), std::move(packet.fds[1])};
    sockets_[static_cast<size_t>(rank)] = std::move(*socket);
}

std::vector<Peer> Meeting::exchange(const os::Fd &memory, const os::Fd &pidfd) {
    const auto ranks = static_cast<size_t>(request_.size);
    std::vector<Peer> peers(ranks);
    if (request_.rank == 0) {
        sockets_.resize(ranks);
        {
            const std::optional<os::Fd> listener = os::listen_abstract(address());
            if (!listener)
                throw Error(UJOIN_E_SYSTEM, cat("another process already waits as rank 0 of ", request_.meeting))
                    .with_errno(EADDRINUSE);
            for (size_t n = 1; n < ranks;) {
                accept_one(*listener, peers);
                n = 1;
                for (size_t k = 1; k < ranks; k++) n += sockets_[k] ? 1 : 0;
            }
        } // nobody else can come now, not even for the next group of the same name
        peers[0] = {os::Fd(dup(memory.get())), os::Fd(dup(pidfd.get()))};
        try {
            for (size_t to = 1; to < ranks; to++)
                for (size_t k = 0; k < ranks; k++)
                    os::send_packet(sockets_[to], "0 ", {peers[k].memory.get(), peers[k].pidfd.get()});
        } catch (const Error &error) {
            fail_all(error);
        }
        return peers;
    }
    join(memory, pidfd);
    for (size_t k = 0; k < ranks; k++) {
        os::Packet packet = receive(sockets_[0], 0);
        if (const Error verdict = unpack_error(packet.bytes); verdict.code() != UJOIN_OK) throw Error(verdict);
        if (packet.fds.size() != 2) fail(UJOIN_E_MISMATCH, "rank 0 sent ", packet.fds.size(), " descriptors instead of 2");
        peers[k] = {std::move(packet.fds[0]), std::move(packet.fds[1])};
    }
    return peers;
}

/// Elsewhere than on rank 0: until the first packet comes, a connection may also have met the end of an earlier meeting of
/// the same name; then it is tried again.
void Meeting::join(const os::Fd &memory, const os::Fd &pidfd) {
    sockets_.resize(1);
    for (;;) {
        std::optional<os::Fd> socket = os::connect_abstract(address());
        if (socket) {
            try {
                os::send_packet(*socket, hello(), {memory.get(), pidfd.get()});
                pollfd ready{socket->get(), POLLIN, 0};
                os::wait_ready(socket->get(), POLLIN, request_.deadline);
                char byte = 0;
                if (poll(&ready, 1, 0) > 0 && recv(socket->get(), &byte, 1, MSG_PEEK | MSG_DONTWAIT) > 0) {
                    sockets_[0] = std::move(*socket);
                    return;
                }
            } catch (const Error &error) {
                if (error.code() != UJOIN_E_PEER_LOST) throw;
            }
        }
        if (request_.deadline.passed())
            throw Error(UJOIN_E_TIMEOUT,
                        cat("rank 0 did not come to ", request_.meeting, " (this is rank ", request_.rank, ")"))
                .with_ranks({0});
        // Rank 0 is not there yet. Abstract names cannot be watched, so look again soon.
        os::check_interrupt();
        poll(nullptr, 0, 2);
    }
}

void Meeting::conclude(const std::optional<Error> &error) {
    if (request_.rank != 0) {
        os::send_packet(sockets_[0], error ? pack(*error) : "0 ");
        const Error verdict = unpack_error(receive(sockets_[0], 0).bytes);
        if (verdict.code() != UJOIN_OK) throw Error(verdict);
        return;
    }
    std::optional<Error> first = error;
    for (size_t k = 1; k < sockets_.size(); k++) {
        try {
            const Error verdict = unpack_error(receive(sockets_[k], static_cast<int32_t>(k)).bytes);
            if (verdict.code() != UJOIN_OK && !first) first = Error(verdict.code(), cat("rank ", k, ": ", verdict.text()));
        } catch (const Error &caught) {
            if (!first) first = caught;
        }
    }
    if (first) fail_all(*first);
    for (size_t k = 1; k < sockets_.size(); k++) {
        try {
            os::send_packet(sockets_[k], "0 ");
        } catch (const Error &) { // its death will be noticed by whoever waits for it
        }
    }
}

HostAreas meet_on_host(const AttachRequest &request) {
    const size_t bytes = RankArea::bytes(default_chunk);
    const os::Fd memory = os::create_shared_memory(bytes);
    const std::shared_ptr<void> own = os::map_shared_memory(memory, bytes);
    auto *area = new (own.get()) RankArea; // before anybody else can see it
    area->fate.pid = getpid();

    Meeting meeting(request);
    std::vector<Peer> peers = meeting.exchange(memory, own_pidfd());
    auto mapped = std::make_shared<std::vector<std::shared_ptr<void>>>();
    HostAreas host;
    std::optional<Error> error;
    try {
        for (size_t k = 0; k < peers.size(); k++) {
            const bool is_own = k == static_cast<size_t>(request.rank);
            mapped->push_back(is_own ? own : os::map_shared_memory(peers[k].memory, bytes));
            host.areas.push_back(static_cast<RankArea *>(mapped->back().get()));
            host.pidfds.push_back(std::move(peers[k].pidfd));
        }
    } catch (const Error &caught) {
        error = caught;
    }
    meeting.conclude(error);
    host.keep_mapped = mapped;
    return host;
}

} // namespace ujoin
