// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "io/socket.hpp"
#include "io/tcp_server.hpp"
#include "store/protocol.hpp"
#include "store/table.hpp"
#include <vector>

namespace ujoin::store {

/// The server of a tcp:// store. Clients' waits rest here; nobody polls. Everything but the constructor and the destructor
/// runs on its loop's thread.
class TcpStoreServer final : private io::TcpServer::Handler {
  public:
    /// Listens on the address; port 0 in it becomes the real one.
    TcpStoreServer(io::Address &address, std::string secret);

  private:
    using Client = io::TcpServer::Client;
    enum class Stage { hello, proof, ready };
    struct Session {
        Stage stage = Stage::hello;
        std::string client_nonce;
        std::string server_nonce;
        std::string waits_for;    // a key; "" = not waiting
        bool wants_value = false; // get, not await
    };

    void on_message(Client client, std::string_view message) override;
    void on_closed(Client client) override;
    void hello(Client client, Session &session, std::string_view message);
    void proof(Client client, Session &session, std::string_view message);
    void request(Client client, Session &session, std::string_view message);
    void refuse(Client client, const std::string &text);
    void answer(Client client, bool with_value, const Table::Value &value);
    void stop_waiting(Client client, Session &session);
    void changed(const std::string &key);

    const std::string secret_;
    Table table_;
    std::unordered_map<Client, Session> sessions_;
    std::unordered_map<std::string, std::vector<Client>> waiting_; // by key
    io::TcpServer server_;                                         // last: goes first
};

} // namespace ujoin::store
