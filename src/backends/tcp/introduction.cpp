// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/introduction.hpp"
#include "base/sha256.hpp"
#include "base/wire.hpp"
#include "io/socket.hpp"
#include "os/ready.hpp"
#include "store/protocol.hpp"
#include <algorithm>
#include <bit>
#include <cerrno>
#include <poll.h>

namespace ujoin {
namespace {

constexpr std::string_view magic = "ujlinks1"; // its number grows with every change of what ranks show
constexpr int64_t stranger_ms = 3000;          // for one that connects and says nothing

void put_text(std::string &out, const std::string &text) {
    wire::put_u32(out, static_cast<uint32_t>(text.size()));
    out += text;
}
std::string take_text(wire::Reader &from) {
    const uint32_t size = from.u32();
    return std::string(from.take(size));
}

using store::protocol::nonce_bytes;
constexpr size_t hello_bytes = magic.size() + 4 + 4 + nonce_bytes;

Sha256::Digest proof_of(const std::string &secret, const char *role, int32_t caller, int32_t called, std::string_view nonce,
                        std::string_view answer) {
    return store::protocol::proof(secret, cat("link ", role, " ", caller, " ", called), nonce, answer);
}
/// Whole messages of a known size, by a deadline; false: the other side did not keep to that.
bool send(const os::Fd &to, std::string_view bytes, const Deadline &deadline) {
    int error_number = 0;
    return io::send_all(to.get(), bytes, deadline, -1, error_number) == io::Moved::all;
}
std::optional<std::string> receive(const os::Fd &from, size_t bytes, const Deadline &deadline) {
    std::string text(bytes, '\0');
    int error_number = 0;
    if (io::receive_all(from.get(), text.data(), bytes, deadline, -1, error_number) != io::Moved::all) return std::nullopt;
    return text;
}

/// Calls a rank. Its answer and ours prove the secret.
os::Fd call(int32_t rank, const Introduction &of, const std::string &secret, int32_t own, const Deadline &deadline) {
    const auto wrong = [&](const std::string &text) {
        return Error(UJOIN_E_PEER_LOST,
                     cat("rank ", own, " cannot connect to rank ", rank, " at ", of.address, " (", of.host, "): ", text))
            .with_ranks({rank});
    };
    int error_number = 0;
    os::Fd socket = io::connect_tcp(io::parse_address(of.address), deadline, -1, error_number);
    if (!socket) throw wrong(errno_text(error_number)).with_errno(error_number);
    const std::string nonce = store::protocol::fresh_nonce();
    std::string hello(magic);
    wire::put_u32(hello, static_cast<uint32_t>(own));
    wire::put_u32(hello, static_cast<uint32_t>(rank));
    hello += nonce;
    if (!send(socket, hello, deadline)) throw wrong("it dropped the connection");
    const auto answer = receive(socket, nonce_bytes + sizeof(Sha256::Digest), deadline);
    if (!answer) throw wrong("it does not answer, or dropped the connection");
    const std::string_view its_nonce = std::string_view(*answer).substr(0, nonce_bytes);
    if (!same_digest(std::string_view(*answer).substr(nonce_bytes),
                     proof_of(secret, "called", own, rank, nonce, its_nonce)))
        throw wrong("what answers there does not belong to this group");
    if (!send(socket, bytes_of(proof_of(secret, "caller", own, rank, nonce, its_nonce)), deadline))
        throw wrong("it dropped the connection");
    return socket;
}

/// Answers whoever has called: the rank, or -1 for a stranger.
int32_t answer(const os::Fd &socket, const std::string &secret, int32_t own, const Deadline &deadline) {
    const auto hello = receive(socket, hello_bytes, deadline);
    if (!hello) return -1;
    wire::Reader reader(*hello);
    if (reader.take(magic.size()) != magic) return -1;
    const auto caller = static_cast<int32_t>(reader.u32());
    if (static_cast<int32_t>(reader.u32()) != own) return -1;
    const std::string nonce(reader.rest());
    const std::string mine = store::protocol::fresh_nonce();
    if (!send(socket, cat(mine, bytes_of(proof_of(secret, "called", caller, own, nonce, mine))), deadline)) return -1;
    const auto its_proof = receive(socket, sizeof(Sha256::Digest), deadline);
    if (!its_proof || !same_digest(*its_proof, proof_of(secret, "caller", caller, own, nonce, mine))) return -1;
    return caller;
}

} // namespace

std::string Introduction::encode() const {
    std::string out(magic);
    out += std::endian::native == std::endian::little ? 'l' : 'b';
    put_text(out, error ? pack(*error) : std::string());
    put_text(out, backend);
    wire::put_u32(out, static_cast<uint32_t>(size));
    wire::put_u32(out, static_cast<uint32_t>(pid));
    for (const std::string *text : {&place, &host, &address, &secret}) put_text(out, *text);
    return out;
}

Introduction Introduction::decode(const std::string &text) {
    wire::Reader from(text);
    if (text.empty()) fail(UJOIN_E_MISMATCH, "a rank gave up while the group was being made");
    if (text.size() < magic.size() || from.take(magic.size()) != magic)
        fail(UJOIN_E_MISMATCH, "ranks use different versions of ujoin");
    if (from.u8() != (std::endian::native == std::endian::little ? 'l' : 'b'))
        fail(UJOIN_E_MISMATCH, "ranks run on machines of different byte order");
    Introduction is;
    const std::string error = take_text(from);
    if (!error.empty()) is.error = unpack_error(error);
    is.backend = take_text(from);
    is.size = static_cast<int32_t>(from.u32());
    is.pid = static_cast<int32_t>(from.u32());
    for (std::string *part : {&is.place, &is.host, &is.address, &is.secret}) *part = take_text(from);
    from.end();
    return is;
}

void compare(const std::vector<Introduction> &all) {
    for (size_t k = 0; k < all.size(); k++) {
        const auto rank = static_cast<int32_t>(k);
        if (all[k].error)
            throw Error(all[k].error->code(), cat("rank ", rank, ": ", all[k].error->text())).with_ranks({rank});
        if (all[k].size != all[0].size)
            throw Error(UJOIN_E_MISMATCH,
                        cat("rank ", rank, " says that the group has ", all[k].size, " ranks, rank 0 says ", all[0].size))
                .with_ranks({rank});
        if (all[k].backend != all[0].backend)
            throw Error(UJOIN_E_MISMATCH, cat("rank ", rank, " asked for backend \"", all[k].backend, "\", rank 0 for \"",
                                              all[0].backend, "\""))
                .with_ranks({rank});
    }
}

std::vector<LinkTo> connect_to(const std::vector<int32_t> &ranks, const std::vector<Introduction> &all, int32_t own,
                               const os::Fd &listener, const Deadline &deadline) {
    const std::string &secret = all[0].secret;
    std::vector<LinkTo> links(ranks.size());
    size_t missing = 0;
    for (size_t i = 0; i < ranks.size(); i++) {
        const Introduction &of = all[static_cast<size_t>(ranks[i])];
        links[i] = {ranks[i], os::Fd(), of.pid, of.host};
        if (ranks[i] < own)
            links[i].socket = call(ranks[i], of, secret, own, deadline);
        else
            missing++;
    }
    while (missing > 0) {
        if (os::wait_ready(listener.get(), POLLIN, deadline) != os::Ready::yes) {
            std::vector<int32_t> absent;
            for (const LinkTo &link : links)
                if (!link.socket) absent.push_back(link.rank);
            throw Error(UJOIN_E_TIMEOUT,
                        cat("ranks ", join_list(absent), " did not connect to rank ", own, " at ",
                            all[static_cast<size_t>(own)].address, "; can it be reached from their hosts (UJOIN_IFNAME)?"))
                .with_ranks(absent);
        }
        os::Fd socket = io::accept_tcp(listener);
        if (!socket) continue;
        const int32_t caller = answer(socket, secret, own, Deadline::earlier(deadline, Deadline::in(stranger_ms)));
        const auto link = std::find_if(links.begin(), links.end(), [&](const LinkTo &to) { return to.rank == caller; });
        if (caller <= own || link == links.end() || link->socket) continue;
        link->socket = std::move(socket);
        missing--;
    }
    return links;
}

} // namespace ujoin
