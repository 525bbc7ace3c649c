// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "io/socket.hpp"
#include "os/interrupt.hpp"
#include "os/ready.hpp"
#include "store/core.hpp"
#include "store/protocol.hpp"
#include "store/tcp_store_server.hpp"
#include <cerrno>
#include <cstring>
#include <mutex>
#include <poll.h>

namespace ujoin::store {
namespace {

using protocol::Message;
using protocol::Request;

/// One connection: whole messages with a deadline.
class Connection {
  public:
    Connection(os::Fd fd, std::string peer) : fd_(std::move(fd)), peer_(std::move(peer)) {}

    void send(std::string_view message, const Deadline &deadline, int stop_fd) {
        std::string frame;
        frame.reserve(4 + message.size());
        wire::put_u32(frame, static_cast<uint32_t>(message.size()));
        frame += message;
        int error_number = 0;
        check(io::send_all(fd_.get(), frame, deadline, stop_fd, error_number), error_number);
    }
    /// False: nothing has come by the deadline.
    bool wait_for_message(const Deadline &deadline, int stop_fd) {
        const os::Ready ready = os::wait_ready(fd_.get(), POLLIN, deadline, stop_fd);
        if (ready == os::Ready::stopped) check(io::Moved::stopped, 0);
        return ready == os::Ready::yes;
    }
    std::string receive(size_t limit, const Deadline &deadline, int stop_fd) {
        int error_number = 0;
        std::string length(4, '\0');
        check(io::receive_all(fd_.get(), length.data(), length.size(), deadline, stop_fd, error_number), error_number);
        const uint32_t size = wire::Reader(length).u32();
        if (size == 0 || size > limit) stranger();
        std::string message(size, '\0');
        check(io::receive_all(fd_.get(), message.data(), message.size(), deadline, stop_fd, error_number), error_number);
        return message;
    }
    [[noreturn]] void stranger() const {
        fail(UJOIN_E_MISMATCH, "what answers at ", peer_, " is not a ujoin store of this version");
    }

  private:
    void check(io::Moved moved, int error_number) const {
        switch (moved) {
        case io::Moved::all:
            return;
        case io::Moved::stopped:
            fail(UJOIN_E_ABORTED, "the store was aborted on this handle");
        case io::Moved::late:
            fail(UJOIN_E_TIMEOUT, "the server at ", peer_, " does not answer");
        case io::Moved::broken:
            break;
        }
        throw Error(UJOIN_E_PEER_LOST, cat("the server at ", peer_, " has ended or dropped this connection",
                                           error_number ? ": " + errno_text(error_number) : std::string()))
            .with_errno(error_number);
    }

    os::Fd fd_;
    std::string peer_;
};

/// A client: a connection per call that is under way, so that a call that waits holds up no other.
class TcpCore final : public Core {
  public:
    TcpCore(io::Address address, const Store::Options &options) : address_(std::move(address)), options_(options) {
        if (options_.listen) {
            server_ = std::make_unique<TcpStoreServer>(address_, options_.secret);
        } else if (address_.port == 0) {
            fail_invalid("port 0 is for the process that listens; give the port that it got");
        }
        peer_ = io::to_text(address_);
        url_ = "tcp://" + peer_;
        idle_.push_back(connect(Deadline::in(options_.timeout_ms), -1, true));
    }

    const std::string &url() const override { return url_; }
    bool waits_on_descriptors() const override { return true; }

    void set(const std::string &key, const std::string &value, const Abort &abort) override {
        const std::string reply = call({Message::set, 0, key, value}, abort, nullptr);
        expect(reply, Message::done, 0);
    }
    int64_t add(const std::string &key, int64_t amount, const Abort &abort) override {
        Request request{Message::add, 0, key, {}};
        wire::put_u64(request.value, static_cast<uint64_t>(amount));
        const std::string reply = call(request, abort, nullptr);
        return static_cast<int64_t>(wire::Reader(expect(reply, Message::number, 8)).u64());
    }
    std::optional<std::string> get(const std::string &key, const Deadline &deadline, const Abort &abort) override {
        std::string reply = call({Message::get, 0, key, {}}, abort, &deadline);
        if (kind(reply) == Message::absent) return std::nullopt;
        expect(reply, Message::value, reply.size() - 1);
        return reply.erase(0, 1);
    }
    bool await(const std::string &key, const Deadline &deadline, const Abort &abort) override {
        const std::string reply = call({Message::await, 0, key, {}}, abort, &deadline);
        if (kind(reply) == Message::absent) return false;
        expect(reply, Message::done, 0);
        return true;
    }

  private:
    using Link = std::unique_ptr<Connection>;

    static Message kind(const std::string &reply) { return static_cast<Message>(reply.front()); }

    std::string_view expect(const std::string &reply, Message wanted, size_t size) const {
        if (kind(reply) == wanted && reply.size() == 1 + size) return std::string_view(reply).substr(1);
        fail(UJOIN_E_MISMATCH, "the server at ", peer_, " gave an answer that does not fit");
    }

    /// Connects and proves the secret, both ways. `retry`: nobody there yet is no reason to give up before the deadline.
    Link connect(const Deadline &deadline, int stop_fd, bool retry) {
        int64_t pause_ms = 5;
        for (;;) {
            int error_number = 0;
            os::Fd fd = io::connect_tcp(address_, deadline, stop_fd, error_number);
            if (fd) {
                auto link = std::make_unique<Connection>(std::move(fd), peer_);
                greet(*link, deadline, stop_fd);
                return link;
            }
            if (error_number == ECANCELED) fail(UJOIN_E_ABORTED, "the store was aborted on this handle");
            if (error_number == EMFILE || error_number == ENFILE || error_number == ENOBUFS)
                fail_errno(error_number, "cannot make a socket");
            if (!retry)
                throw Error(UJOIN_E_PEER_LOST, cat("the server at ", peer_, " is gone: ", errno_text(error_number)))
                    .with_errno(error_number);
            if (deadline.passed())
                throw Error(UJOIN_E_TIMEOUT,
                            cat("nobody answers at ", peer_, " (", errno_text(error_number), ", tried for ",
                                options_.timeout_ms, " ms); is the process that listens there up?"))
                    .with_errno(error_number);
            os::wait_ready(-1, 0, Deadline::in(deadline.left_ms(static_cast<int>(pause_ms))), stop_fd);
            pause_ms = std::min<int64_t>(2 * pause_ms, 200);
        }
    }

    void greet(Connection &link, const Deadline &deadline, int stop_fd) const {
        const std::string &secret = options_.secret;
        const std::string nonce = protocol::fresh_nonce();
        link.send(cat(static_cast<char>(Message::hello), protocol::magic, static_cast<char>(secret.empty() ? 0 : 1), nonce),
                  deadline, stop_fd);
        const std::string challenge = answer_of(link, Message::challenge, deadline, stop_fd);
        wire::Reader reader(std::string_view(challenge).substr(1));
        if (reader.take(protocol::magic.size()) != protocol::magic) link.stranger();
        const bool server_has_secret = reader.u8() != 0;
        const std::string server_nonce(reader.take(protocol::nonce_bytes));
        reader.end();
        if (server_has_secret == secret.empty()) // what an honest server would have refused
            fail(UJOIN_E_MISMATCH, "the server at ", peer_,
                 secret.empty() ? " wants a secret" : " has no secret, this client has one");
        Sha256::Digest own{};
        if (!secret.empty()) own = protocol::proof(secret, "client", nonce, server_nonce);
        link.send(cat(static_cast<char>(Message::proof), bytes_of(own)), deadline, stop_fd);
        const std::string welcome = answer_of(link, Message::welcome, deadline, stop_fd);
        if (welcome.size() != 1 + sizeof(Sha256::Digest)) link.stranger();
        const std::string_view given = std::string_view(welcome).substr(1);
        if (!secret.empty() && !same_digest(given, protocol::proof(secret, "server", nonce, server_nonce)))
            fail(UJOIN_E_MISMATCH, "the server at ", peer_, " cannot prove that it knows the secret");
    }

    std::string answer_of(Connection &link, Message wanted, const Deadline &deadline, int stop_fd) const {
        std::string answer = link.receive(protocol::max_text, deadline, stop_fd);
        if (kind(answer) == Message::refused)
            fail(UJOIN_E_MISMATCH, "the server at ", peer_, " refused this client: ", std::string_view(answer).substr(1),
                 "; give every process the same secret (the store's option `secret`, or UJOIN_SECRET)");
        if (kind(answer) != wanted) link.stranger();
        return answer;
    }

    Link take(const Deadline &deadline, int stop_fd) {
        {
            std::scoped_lock lock(mutex_);
            if (lost_) throw Error(*lost_);
            if (!idle_.empty()) {
                Link link = std::move(idle_.back());
                idle_.pop_back();
                return link;
            }
        }
        return connect(deadline, stop_fd, false);
    }

    /// One request and its answer. `patience`: how long a get or await may wait for its key; null = the server answers at
    /// once. A store that was lost stays lost: another server at this address would not know the keys.
    std::string call(Request request, const Abort &abort, const Deadline *patience) {
        const Deadline limit = Deadline::in(options_.timeout_ms); // for what the server does at once
        if (patience && patience->passed()) request.flags = protocol::at_once;
        try {
            Link link = take(limit, abort.fd());
            link->send(protocol::encode(request), limit, abort.fd());
            if (patience && request.flags == 0 && !link->wait_for_message(*patience, abort.fd())) {
                constexpr int64_t cancel_ms = 1000;
                link->send(protocol::encode({Message::cancel, 0, {}, {}}), Deadline::in(cancel_ms), abort.fd());
                if (!link->wait_for_message(Deadline::in(cancel_ms),
                                            abort.fd())) // it is stuck: without this connection, then
                    return std::string(1, static_cast<char>(Message::absent));
            }
            std::string reply = link->receive(protocol::max_message, Deadline::in(options_.timeout_ms), abort.fd());
            {
                std::scoped_lock lock(mutex_);
                idle_.push_back(std::move(link));
            }
            if (kind(reply) == Message::error) {
                wire::Reader reader(std::string_view(reply).substr(1));
                const auto code = static_cast<ujoin_status>(reader.u32());
                throw Error(code < 0 ? code : UJOIN_E_INTERNAL, std::string(reader.rest().substr(0, protocol::max_text)));
            }
            return reply;
        } catch (const Error &error) {
            if (error.code() == UJOIN_E_PEER_LOST) {
                std::scoped_lock lock(mutex_);
                if (!lost_) lost_ = std::make_unique<Error>(error);
                idle_.clear();
            }
            throw;
        }
    }

    io::Address address_;
    const Store::Options options_;
    std::unique_ptr<TcpStoreServer> server_; // goes after the connections to it
    std::string peer_;
    std::string url_;
    std::mutex mutex_;
    std::vector<Link> idle_;
    std::unique_ptr<Error> lost_;
};

} // namespace

std::shared_ptr<Core> open_tcp(const std::string &address, const Store::Options &options) {
    return std::make_shared<TcpCore>(io::parse_address(address), options);
}

} // namespace ujoin::store
