// SPDX-License-Identifier: Apache-2.0
#include "run/live.hpp"
#include "run/options.hpp"
#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>
#include <vector>

namespace ujoin_run {
namespace {

constexpr int slice_ms = 100;
constexpr size_t longest_greeting = 128;

addrinfo *look_up(const std::string &host, int port, bool passive) {
    addrinfo hints{};
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = passive ? AI_PASSIVE : 0;
    addrinfo *list = nullptr;
    if (const int code = getaddrinfo(host.c_str(), std::to_string(port).c_str(), &hints, &list); code != 0)
        throw Exit(exit_usage, "cannot find the host " + host + ": " + gai_strerror(code));
    return list;
}

/// A silent host counts as gone after about ten seconds.
void keep_alive(int fd) {
    const int on = 1;
    const int idle = 4;
    const int every = 2;
    const int times = 3;
    setsockopt(fd, SOL_SOCKET, SO_KEEPALIVE, &on, sizeof on);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPIDLE, &idle, sizeof idle);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPINTVL, &every, sizeof every);
    setsockopt(fd, IPPROTO_TCP, TCP_KEEPCNT, &times, sizeof times);
}

struct Line {
    int fd;
    int32_t node = -1; // not yet told
    std::string text;
};

/// What a line's new bytes mean; false: it has ended, or is none of ours.
bool read_line(Line &line, const std::string &token) {
    char buffer[256];
    const ssize_t got = recv(line.fd, buffer, sizeof buffer, MSG_DONTWAIT);
    if (got < 0) return errno == EAGAIN || errno == EINTR;
    if (got == 0) return false;
    line.text.append(buffer, static_cast<size_t>(got));
    if (line.node >= 0) return true;
    const size_t end = line.text.find('\n');
    if (end == std::string::npos) return line.text.size() < longest_greeting;
    const std::string first = line.text.substr(0, end);
    line.text.erase(0, end + 1);
    const size_t space = first.find(' ');
    if (space == std::string::npos || first.substr(0, space) != token) return false;
    line.node = std::atoi(first.c_str() + space + 1);
    return true;
}

} // namespace

int listen_at(const std::string &host, int &port) {
    addrinfo *list = look_up(host, 0, true);
    int fd = -1;
    for (const addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        if (bind(fd, a->ai_addr, a->ai_addrlen) == 0 && listen(fd, SOMAXCONN) == 0) break;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    sockaddr_storage address{};
    socklen_t size = sizeof address;
    if (fd < 0 || getsockname(fd, reinterpret_cast<sockaddr *>(&address), &size) != 0)
        throw Exit(exit_usage, "cannot listen at " + host + ": " + std::strerror(errno)); // NOLINT(concurrency-mt-unsafe)
    port = ntohs(address.ss_family == AF_INET6 ? reinterpret_cast<const sockaddr_in6 *>(&address)->sin6_port
                                               : reinterpret_cast<const sockaddr_in *>(&address)->sin_port);
    return fd;
}

int connect_to(const std::string &host, int port) {
    addrinfo *list = look_up(host, port, false);
    int fd = -1;
    for (const addrinfo *a = list; a && fd < 0; a = a->ai_next) {
        fd = socket(a->ai_family, a->ai_socktype | SOCK_CLOEXEC, a->ai_protocol);
        if (fd < 0) continue;
        if (connect(fd, a->ai_addr, a->ai_addrlen) == 0) break;
        close(fd);
        fd = -1;
    }
    freeaddrinfo(list);
    if (fd < 0)
        throw Exit(exit_usage, "cannot connect to " + host + ": " + std::strerror(errno)); // NOLINT(concurrency-mt-unsafe)
    keep_alive(fd);
    return fd;
}

void send_text(int fd, const std::string &text) { (void)!send(fd, text.data(), text.size(), MSG_NOSIGNAL); }

void serve_lines(int listener, const std::string &token, const std::atomic<bool> &stop, const LiveEvents &events) {
    std::vector<Line> lines;
    while (!stop) {
        std::vector<pollfd> items = {{listener, POLLIN, 0}};
        for (const Line &line : lines) items.push_back({line.fd, POLLIN, 0});
        if (poll(items.data(), items.size(), slice_ms) < 0) continue;
        for (size_t i = lines.size(); i-- > 0;) {
            if (items[i + 1].revents == 0 || read_line(lines[i], token)) continue;
            const Line ended = lines[i];
            close(ended.fd);
            lines.erase(lines.begin() + static_cast<std::ptrdiff_t>(i));
            if (ended.node < 0) continue; // a stranger
            ended.text.find("bye\n") != std::string::npos ? events.said_goodbye(ended.node) : events.gone(ended.node);
        }
        if (items[0].revents & POLLIN) {
            const int fd = accept4(listener, nullptr, nullptr, SOCK_CLOEXEC);
            if (fd < 0) continue;
            keep_alive(fd);
            lines.push_back({fd, -1, {}});
        }
    }
    for (const Line &line : lines) close(line.fd);
}

bool watch_line(int line, const std::atomic<bool> &stop) {
    while (!stop) {
        pollfd item{line, POLLIN, 0};
        if (poll(&item, 1, slice_ms) <= 0) continue;
        char byte = 0;
        const ssize_t got = recv(line, &byte, 1, MSG_DONTWAIT);
        if (got > 0 || (got < 0 && (errno == EAGAIN || errno == EINTR))) continue;
        return stop;
    }
    return true;
}

} // namespace ujoin_run
