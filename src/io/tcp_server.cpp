// SPDX-License-Identifier: Apache-2.0
#include "io/tcp_server.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/wire.hpp"
#include <new>
#include <vector>

namespace ujoin::io {

struct TcpServer::Connection {
    TcpServer *server = nullptr;
    Client id = 0;
    uv_tcp_t tcp{};
    uv_timer_t timer{};
    std::string input;
    bool trusted = false;
    bool handling = false; // inside handle_input
    bool reading = false;
    int writes = 0;
    bool closing = false; // after the last write
    int open_handles = 2; // the connection is freed when libuv has let go of both
};

struct TcpServer::Write {
    uv_write_t request{};
    Connection *connection = nullptr;
    std::string head;
    std::shared_ptr<const std::string> tail;
};

TcpServer::TcpServer(os::Fd listening, Handler &handler, const Limits &limits, const char *thread_name)
    : handler_(handler), limits_(limits), read_buffer_(size_t{64} << 10, '\0'), loop_(thread_name) {
    loop_.call([&] {
        uv_tcp_init(loop_.uv(), &listener_);
        listener_.data = this;
        int code = uv_tcp_open(&listener_, listening.get());
        if (code == 0) {
            listening.release();
            code = uv_listen(reinterpret_cast<uv_stream_t *>(&listener_), 1024, [](uv_stream_t *stream, int status) {
                auto *server = static_cast<TcpServer *>(stream->data);
                if (status != 0) return;
                try {
                    server->accept_client();
                } catch (const std::bad_alloc &) {
                    server->refuse_client();
                }
            });
        }
        if (code != 0) {
            uv_close(reinterpret_cast<uv_handle_t *>(&listener_), nullptr);
            fail(UJOIN_E_SYSTEM, "cannot serve a socket: ", uv_strerror(code));
        }
    });
}

TcpServer::~TcpServer() {
    loop_.call([this] {
        uv_close(reinterpret_cast<uv_handle_t *>(&listener_), nullptr);
        for (const auto &[id, connection] : connections_) drop(*connection);
    });
}

void TcpServer::accept_client() {
    const bool room = connections_.size() < limits_.clients;
    const auto at = connections_.emplace(next_, nullptr).first;
    try {
        at->second = std::make_unique<Connection>();
    } catch (...) {
        connections_.erase(at);
        throw;
    }
    Connection *connection = at->second.get();
    connection->server = this;
    connection->id = next_++;
    uv_tcp_init(loop_.uv(), &connection->tcp);
    uv_timer_init(loop_.uv(), &connection->timer);
    connection->tcp.data = connection->timer.data = connection;
    if (uv_accept(reinterpret_cast<uv_stream_t *>(&listener_), reinterpret_cast<uv_stream_t *>(&connection->tcp)) != 0 ||
        !room) {
        if (!room) log_warning("a server dropped a client: it has ", limits_.clients, " already");
        return drop(*connection);
    }
    uv_tcp_nodelay(&connection->tcp, 1);
    uv_tcp_keepalive(&connection->tcp, 1, 10);
    uv_timer_start(
        &connection->timer,
        [](uv_timer_t *timer) {
            auto &late = *static_cast<Connection *>(timer->data);
            late.server->drop(late);
        },
        static_cast<uint64_t>(limits_.trust_ms), 0);
    read_on(*connection);
}

/// There is no memory for a client. It has to be taken nevertheless: until then libuv listens no more.
void TcpServer::refuse_client() noexcept {
    if (refuses_ || uv_is_closing(reinterpret_cast<uv_handle_t *>(&listener_))) return;
    uv_tcp_init(loop_.uv(), &refused_);
    refused_.data = this;
    refuses_ = true;
    refused_one_ = uv_accept(reinterpret_cast<uv_stream_t *>(&listener_), reinterpret_cast<uv_stream_t *>(&refused_)) == 0;
    uv_close(reinterpret_cast<uv_handle_t *>(&refused_), [](uv_handle_t *handle) {
        auto *server = static_cast<TcpServer *>(handle->data);
        server->refuses_ = false;
        if (server->refused_one_) server->refuse_client(); // the next one may have come meanwhile
    });
}

TcpServer::Connection *TcpServer::find(Client client) {
    const auto it = connections_.find(client);
    if (it == connections_.end() || uv_is_closing(reinterpret_cast<uv_handle_t *>(&it->second->tcp))) return nullptr;
    return it->second.get();
}

void TcpServer::read_on(Connection &connection) {
    const bool wanted = connection.writes == 0 && !connection.closing;
    if (wanted == connection.reading) return;
    connection.reading = wanted;
    auto *stream = reinterpret_cast<uv_stream_t *>(&connection.tcp);
    if (!wanted) {
        uv_read_stop(stream);
        return;
    }
    const int code = uv_read_start(
        stream,
        [](uv_handle_t *handle, size_t, uv_buf_t *buffer) {
            std::string &shared = static_cast<Connection *>(handle->data)->server->read_buffer_;
            *buffer = uv_buf_init(shared.data(), static_cast<unsigned>(shared.size()));
        },
        on_read);
    if (code != 0) drop(connection);
}

void TcpServer::on_read(uv_stream_t *stream, ssize_t size, const uv_buf_t *buffer) {
    auto &connection = *static_cast<Connection *>(stream->data);
    if (size == 0) return; // libuv: nothing there after all
    if (size < 0) return connection.server->drop(connection);
    connection.server->take_input(connection, buffer->base, static_cast<size_t>(size));
}

void TcpServer::take_input(Connection &connection, const char *bytes, size_t size) {
    try {
        connection.input.append(bytes, size);
        handle_input(connection);
    } catch (const std::exception &error) {
        log_warning("a server dropped a client: ", error.what());
        connection.handling = false;
        drop(connection);
    }
}

/// Hands on every whole message, until one is answered: the rest waits until the answer has left.
void TcpServer::handle_input(Connection &connection) {
    if (connection.handling) return;
    connection.handling = true;
    size_t used = 0;
    while (find(connection.id) && !connection.closing && connection.writes == 0) {
        const std::string_view rest = std::string_view(connection.input).substr(used);
        if (rest.size() < 4) break;
        const uint32_t length = wire::Reader(rest).u32();
        const size_t limit = connection.trusted ? limits_.message : limits_.first_message;
        if (length == 0 || length > limit) fail(UJOIN_E_MISMATCH, "it announced a message of ", length, " bytes");
        if (rest.size() - 4 < length) break;
        handler_.on_message(connection.id, rest.substr(4, length));
        used += 4 + size_t{length};
    }
    connection.input.erase(0, used);
    if (connection.input.empty() && connection.input.capacity() > read_buffer_.size()) std::string().swap(connection.input);
    connection.handling = false;
    if (find(connection.id)) read_on(connection);
}

void TcpServer::send(Client client, std::string_view head, std::shared_ptr<const std::string> tail) {
    Connection *connection = find(client);
    if (!connection) return;
    auto write = std::make_unique<Write>();
    write->connection = connection;
    wire::put_u32(write->head, static_cast<uint32_t>(head.size() + (tail ? tail->size() : 0)));
    write->head += head;
    write->tail = std::move(tail);
    write->request.data = write.get();
    uv_buf_t buffers[2] = {uv_buf_init(write->head.data(), static_cast<unsigned>(write->head.size())),
                           uv_buf_init(nullptr, 0)};
    if (write->tail) // libuv only reads what it sends
        buffers[1] = uv_buf_init(const_cast<char *>(write->tail->data()), static_cast<unsigned>(write->tail->size()));
    const int code = uv_write(&write->request, reinterpret_cast<uv_stream_t *>(&connection->tcp), buffers,
                              write->tail && !write->tail->empty() ? 2 : 1, on_written);
    if (code != 0) return drop(*connection);
    (void)write.release(); // on_written has it now
    connection->writes++;
    read_on(*connection);
}

void TcpServer::on_written(uv_write_t *request, int status) {
    const std::unique_ptr<Write> write(static_cast<Write *>(request->data));
    Connection &connection = *write->connection;
    TcpServer &server = *connection.server;
    connection.writes--;
    if (uv_is_closing(reinterpret_cast<uv_handle_t *>(&connection.tcp))) return;
    if (status != 0 || (connection.closing && connection.writes == 0)) return server.drop(connection);
    server.take_input(connection, "", 0);
}

void TcpServer::trust(Client client) {
    Connection *connection = find(client);
    if (!connection) return;
    connection->trusted = true;
    uv_timer_stop(&connection->timer);
}

void TcpServer::close(Client client) {
    Connection *connection = find(client);
    if (!connection) return;
    connection->closing = true;
    if (connection->writes == 0) return drop(*connection);
    read_on(*connection);
}

void TcpServer::drop(Connection &connection) {
    if (uv_is_closing(reinterpret_cast<uv_handle_t *>(&connection.tcp))) return;
    try {
        handler_.on_closed(connection.id);
    } catch (const std::exception &error) {
        log_warning("a server lost track of a client: ", error.what());
    }
    const uv_close_cb closed = [](uv_handle_t *handle) {
        auto *gone = static_cast<Connection *>(handle->data);
        if (--gone->open_handles == 0) gone->server->connections_.erase(gone->id);
    };
    uv_close(reinterpret_cast<uv_handle_t *>(&connection.tcp), closed);
    uv_close(reinterpret_cast<uv_handle_t *>(&connection.timer), closed);
}

} // namespace ujoin::io
