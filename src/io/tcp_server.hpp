// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "io/loop.hpp"
#include "os/fd.hpp"
#include <memory>
#include <string>
#include <string_view>
#include <unordered_map>

namespace ujoin::io {

/// A server of framed messages (4 bytes of length, little-endian, then so many bytes) on a loop of its own. What it keeps
/// for a client is bounded: one message that is coming in, and what is being sent; while that is under way it reads no
/// further. A client that breaks the rules is dropped, the others do not notice.
class TcpServer {
  public:
    using Client = uint64_t;
    /// Called on the loop's thread. What it throws drops the client that it is about.
    class Handler {
      public:
        virtual ~Handler() = default;
        virtual void on_message(Client client, std::string_view message) = 0;
        virtual void on_closed(Client client) = 0;
    };
    struct Limits {
        size_t clients = 16'384;
        size_t first_message = 64; ///< bytes, until trust()
        int64_t trust_ms = 10'000; ///< a client that has not been trusted after this is dropped
        size_t message = 1024;     ///< bytes, after it
    };

    /// `listening` is a socket that listens. The handler must live longer.
    TcpServer(os::Fd listening, Handler &handler, const Limits &limits, const char *thread_name);
    ~TcpServer();
    TcpServer(const TcpServer &) = delete;
    TcpServer &operator=(const TcpServer &) = delete;

    // On the loop's thread only, with a client that is still there or not.
    /// Sends one message: `head`, then `tail`, which is shared with others and not copied.
    void send(Client client, std::string_view head, std::shared_ptr<const std::string> tail = nullptr);
    /// Lifts the limits of the beginning.
    void trust(Client client);
    /// Drops a client once what was sent to it has left.
    void close(Client client);

  private:
    struct Connection;
    struct Write;
    void accept_client();
    void refuse_client() noexcept;
    Connection *find(Client client);
    void take_input(Connection &connection, const char *bytes, size_t size);
    void handle_input(Connection &connection);
    void read_on(Connection &connection);
    void drop(Connection &connection);
    static void on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer);
    static void on_written(uv_write_t *request, int status);

    Handler &handler_;
    const Limits limits_;
    uv_tcp_t listener_{};
    uv_tcp_t refused_{};
    bool refuses_ = false; // refused_ is not closed yet
    bool refused_one_ = false;
    Client next_ = 1;
    std::unordered_map<Client, std::unique_ptr<Connection>> connections_;
    std::string read_buffer_; // one for all: what was read is taken out at once
    Loop loop_;               // last: its thread ends before the rest goes
};

} // namespace ujoin::io
