// SPDX-License-Identifier: Apache-2.0
#include "store/tcp_store_server.hpp"
#include "base/error.hpp"
#include <algorithm>

namespace ujoin::store {

using protocol::Message;

namespace {

std::string head(Message kind) { return std::string(1, static_cast<char>(kind)); }

io::TcpServer::Limits limits() {
    io::TcpServer::Limits limits;
    limits.first_message = protocol::max_first;
    limits.message = protocol::max_message;
    return limits;
}

} // namespace

TcpStoreServer::TcpStoreServer(io::Address &address, std::string secret)
    : secret_(std::move(secret)), server_(io::listen_tcp(address), *this, limits(), "ujoin-store") {}

void TcpStoreServer::on_message(Client client, std::string_view message) {
    Session &session = sessions_[client];
    switch (session.stage) {
    case Stage::hello:
        return hello(client, session, message);
    case Stage::proof:
        return proof(client, session, message);
    case Stage::ready:
        return request(client, session, message);
    }
}

void TcpStoreServer::on_closed(Client client) {
    const auto it = sessions_.find(client);
    if (it == sessions_.end()) return;
    stop_waiting(client, it->second);
    sessions_.erase(it);
}

void TcpStoreServer::refuse(Client client, const std::string &text) {
    server_.send(client, head(Message::refused) + text);
    server_.close(client);
}

void TcpStoreServer::hello(Client client, Session &session, std::string_view message) {
    wire::Reader reader(message);
    if (static_cast<Message>(reader.u8()) != Message::hello || reader.take(protocol::magic.size()) != protocol::magic)
        fail(UJOIN_E_MISMATCH, "it does not speak this store's protocol");
    const bool has_secret = reader.u8() != 0;
    session.client_nonce = reader.take(protocol::nonce_bytes);
    reader.end();
    if (has_secret && secret_.empty()) return refuse(client, "the server has no secret, this client has one");
    if (!has_secret && !secret_.empty()) return refuse(client, "the server wants a secret, this client has none");
    session.server_nonce = protocol::fresh_nonce();
    session.stage = Stage::proof;
    server_.send(client, cat(head(Message::challenge), protocol::magic, static_cast<char>(secret_.empty() ? 0 : 1),
                             session.server_nonce));
}

void TcpStoreServer::proof(Client client, Session &session, std::string_view message) {
    wire::Reader reader(message);
    if (static_cast<Message>(reader.u8()) != Message::proof) fail(UJOIN_E_MISMATCH, "it gave no proof");
    const std::string_view given = reader.take(sizeof(Sha256::Digest));
    reader.end();
    Sha256::Digest own{};
    if (!secret_.empty()) {
        if (!same_digest(given, protocol::proof(secret_, "client", session.client_nonce, session.server_nonce)))
            return refuse(client, "this client has another secret than the server");
        own = protocol::proof(secret_, "server", session.client_nonce, session.server_nonce);
    }
    session.stage = Stage::ready;
    server_.trust(client);
    server_.send(client, cat(head(Message::welcome), bytes_of(own)));
}

void TcpStoreServer::request(Client client, Session &session, std::string_view message) {
    const protocol::Request request = protocol::decode(message);
    if (request.kind == Message::cancel) {
        if (session.waits_for.empty()) return; // it crossed the answer
        stop_waiting(client, session);
        return server_.send(client, head(Message::absent));
    }
    if (!session.waits_for.empty()) fail(UJOIN_E_MISMATCH, "a request while another one waits");
    try {
        if (request.kind == Message::set) {
            table_.set(request.key, request.value);
            server_.send(client, head(Message::done));
            changed(request.key);
        } else if (request.kind == Message::add) {
            const auto amount = static_cast<int64_t>(wire::Reader(request.value).u64());
            const int64_t value = table_.sum(request.key, amount);
            if (amount != 0) table_.set(request.key, std::to_string(value)); // 0 only reads
            std::string reply = head(Message::number);
            wire::put_u64(reply, static_cast<uint64_t>(value));
            server_.send(client, reply);
            if (amount != 0) changed(request.key);
        } else {
            const bool with_value = request.kind == Message::get;
            const Table::Value value = table_.find(request.key);
            if (value) return answer(client, with_value, value);
            if (request.flags & protocol::at_once) return server_.send(client, head(Message::absent));
            waiting_[request.key].push_back(client);
            session.waits_for = request.key;
            session.wants_value = with_value;
        }
    } catch (const Error &error) { // the request's own, not the client's
        std::string reply = head(Message::error);
        wire::put_u32(reply, static_cast<uint32_t>(error.code()));
        server_.send(client, reply + error.text());
    }
}

void TcpStoreServer::answer(Client client, bool with_value, const Table::Value &value) {
    if (with_value) {
        server_.send(client, head(Message::value), value);
    } else {
        server_.send(client, head(Message::done));
    }
}

void TcpStoreServer::stop_waiting(Client client, Session &session) {
    const auto it = waiting_.find(session.waits_for);
    session.waits_for.clear();
    if (it == waiting_.end()) return;
    std::erase(it->second, client);
    if (it->second.empty()) waiting_.erase(it);
}

void TcpStoreServer::changed(const std::string &key) {
    const auto it = waiting_.find(key);
    if (it == waiting_.end()) return;
    const std::vector<Client> clients = std::move(it->second);
    waiting_.erase(it);
    const Table::Value value = table_.find(key);
    for (const Client client : clients) {
        Session &session = sessions_.at(client);
        session.waits_for.clear();
        answer(client, session.wants_value, value);
    }
}

} // namespace ujoin::store
