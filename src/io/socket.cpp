// SPDX-License-Identifier: Apache-2.0
#include "io/socket.hpp"
#include "base/error.hpp"
#include "os/ready.hpp"
#include <arpa/inet.h>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <ifaddrs.h>
#include <memory>
#include <netdb.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

namespace ujoin::io {
namespace {

using AddressList = std::unique_ptr<addrinfo, decltype(&freeaddrinfo)>;

AddressList resolve(const Address &address, int flags) {
    addrinfo hints{};
    hints.ai_family = AF_UNSPEC;
    hints.ai_socktype = SOCK_STREAM;
    hints.ai_flags = flags | AI_NUMERICSERV;
    addrinfo *list = nullptr;
    const int code = getaddrinfo(address.host.c_str(), std::to_string(address.port).c_str(), &hints, &list);
    if (code == 0) return {list, &freeaddrinfo};
    const int error_number = code == EAI_SYSTEM ? errno : 0;
    throw Error(UJOIN_E_SYSTEM, cat("there is no host \"", address.host,
                                    "\": ", error_number ? errno_text(error_number) : std::string(gai_strerror(code))))
        .with_errno(error_number ? error_number : EHOSTUNREACH);
}

void set_option(int fd, int level, int name, int value) { setsockopt(fd, level, name, &value, sizeof value); }

uint16_t local_port(int fd) {
    sockaddr_storage name{};
    socklen_t size = sizeof name;
    if (getsockname(fd, reinterpret_cast<sockaddr *>(&name), &size) != 0) return 0;
    if (name.ss_family == AF_INET6) return ntohs(reinterpret_cast<const sockaddr_in6 *>(&name)->sin6_port);
    return ntohs(reinterpret_cast<const sockaddr_in *>(&name)->sin_port);
}

std::string numeric_host(const sockaddr *name, socklen_t size) {
    char text[NI_MAXHOST] = {};
    if (getnameinfo(name, size, text, sizeof text, nullptr, 0, NI_NUMERICHOST) != 0) return "127.0.0.1";
    return text;
}

/// Connecting again and again to a free port of one's own host can meet itself: a port of that range may be picked as the
/// source. Such a connection echoes, and would keep the server from its own port.
bool connected_to_itself(int fd) {
    sockaddr_storage here{};
    sockaddr_storage there{};
    socklen_t here_size = sizeof here;
    socklen_t there_size = sizeof there;
    if (getsockname(fd, reinterpret_cast<sockaddr *>(&here), &here_size) != 0) return false;
    if (getpeername(fd, reinterpret_cast<sockaddr *>(&there), &there_size) != 0) return false;
    return here_size == there_size && std::memcmp(&here, &there, here_size) == 0;
}

/// Returns 0 or an errno.
int connect_one(int fd, const addrinfo &to, const Deadline &deadline, int stop_fd) {
    if (connect(fd, to.ai_addr, to.ai_addrlen) != 0) {
        if (errno != EINPROGRESS) return errno;
        constexpr int64_t one_address_ms = 10'000; // the next address of the host deserves a try as well
        const Deadline soon = Deadline::in(deadline.left_ms(one_address_ms));
        const os::Ready ready = os::wait_ready(fd, POLLOUT, soon, stop_fd);
        if (ready == os::Ready::stopped) return ECANCELED;
        if (ready == os::Ready::late) return ETIMEDOUT;
        int code = 0;
        socklen_t size = sizeof code;
        if (getsockopt(fd, SOL_SOCKET, SO_ERROR, &code, &size) != 0) return errno;
        if (code != 0) return code;
    }
    return connected_to_itself(fd) ? ECONNREFUSED : 0;
}

void keep_alive(int fd) {
    set_option(fd, IPPROTO_TCP, TCP_NODELAY, 1);
    set_option(fd, SOL_SOCKET, SO_KEEPALIVE, 1); // a host that went silent is noticed in about 10 s
    set_option(fd, IPPROTO_TCP, TCP_KEEPIDLE, 4);
    set_option(fd, IPPROTO_TCP, TCP_KEEPINTVL, 2);
    set_option(fd, IPPROTO_TCP, TCP_KEEPCNT, 3);
    set_option(fd, IPPROTO_TCP, TCP_USER_TIMEOUT, 10'000);
}

} // namespace

Address parse_address(std::string_view text) {
    const size_t colon = text.rfind(':');
    if (colon == std::string_view::npos)
        fail_invalid("\"", text, "\" has no port; expected host:port or [v6 address]:port");
    std::string_view host = text.substr(0, colon);
    const std::string_view port = text.substr(colon + 1);
    if (host.size() >= 2 && host.front() == '[' && host.back() == ']') {
        host = host.substr(1, host.size() - 2);
    } else if (host.find_first_of(":[]") != std::string_view::npos) {
        fail_invalid("the host in \"", text, "\" is not clear; write an IPv6 address in brackets: [::1]:29500");
    }
    if (host.empty()) fail_invalid("\"", text, "\" has no host; expected host:port");
    Address address{std::string(host), 0};
    const char *end = port.data() + port.size();
    const auto [stop, code] = std::from_chars(port.data(), end, address.port);
    if (code != std::errc{} || stop != end) fail_invalid("the port in \"", text, "\" is not a number from 0 to 65535");
    return address;
}

std::string to_text(const Address &address) {
    if (address.host.find(':') != std::string::npos) return cat("[", address.host, "]:", address.port);
    return cat(address.host, ":", address.port);
}

os::Fd listen_tcp(Address &address) {
    int error_number = EADDRNOTAVAIL;
    const AddressList list = resolve(address, AI_PASSIVE);
    for (const addrinfo *to = list.get(); to; to = to->ai_next) {
        os::Fd fd(socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        if (fd) {
            set_option(fd.get(), SOL_SOCKET, SO_REUSEADDR, 1);
            if (to->ai_family == AF_INET6) set_option(fd.get(), IPPROTO_IPV6, IPV6_V6ONLY, 1); // the given address only
            if (bind(fd.get(), to->ai_addr, to->ai_addrlen) == 0 && listen(fd.get(), SOMAXCONN) == 0) {
                address.port = local_port(fd.get());
                return fd;
            }
        }
        error_number = errno;
    }
    fail_errno(error_number, cat("cannot listen on ", to_text(address)));
}

os::Fd connect_tcp(const Address &address, const Deadline &deadline, int stop_fd, int &error_number) {
    const AddressList list = resolve(address, 0);
    for (const addrinfo *to = list.get(); to; to = to->ai_next) {
        os::Fd fd(socket(to->ai_family, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0));
        error_number = fd ? connect_one(fd.get(), *to, deadline, stop_fd) : errno;
        if (error_number == 0) {
            keep_alive(fd.get());
            return fd;
        }
        if (error_number == ECANCELED) break;
    }
    return {};
}

os::Fd accept_tcp(const os::Fd &listener) {
    os::Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC | SOCK_NONBLOCK));
    if (fd) keep_alive(fd.get());
    return fd;
}

std::string own_address_towards(const Address &address) {
    int error_number = EHOSTUNREACH;
    const AddressList list = resolve(address, 0);
    for (const addrinfo *to = list.get(); to; to = to->ai_next) {
        const os::Fd fd(socket(to->ai_family, SOCK_DGRAM | SOCK_CLOEXEC, 0)); // says nothing to anybody
        sockaddr_storage name{};
        socklen_t size = sizeof name;
        if (fd && connect(fd.get(), to->ai_addr, to->ai_addrlen) == 0 &&
            getsockname(fd.get(), reinterpret_cast<sockaddr *>(&name), &size) == 0)
            return numeric_host(reinterpret_cast<const sockaddr *>(&name), size);
        error_number = errno;
    }
    fail_errno(error_number, cat("there is no way to ", to_text(address)));
}

std::string address_of_interface(const std::string &name) {
    ifaddrs *list = nullptr;
    if (getifaddrs(&list) != 0) fail_errno(errno, "cannot read this host's network interfaces");
    const std::unique_ptr<ifaddrs, decltype(&freeifaddrs)> owner(list, &freeifaddrs);
    std::string v6;
    bool there = false;
    for (const ifaddrs *item = list; item; item = item->ifa_next) {
        if (name != item->ifa_name) continue;
        there = true;
        if (!item->ifa_addr) continue;
        if (item->ifa_addr->sa_family == AF_INET) return numeric_host(item->ifa_addr, sizeof(sockaddr_in));
        const bool wide = item->ifa_addr->sa_family == AF_INET6 &&
                          !IN6_IS_ADDR_LINKLOCAL(&reinterpret_cast<const sockaddr_in6 *>(item->ifa_addr)->sin6_addr);
        if (wide && v6.empty()) v6 = numeric_host(item->ifa_addr, sizeof(sockaddr_in6));
    }
    if (v6.empty())
        fail_invalid("UJOIN_IFNAME is \"", name,
                     there ? "\", which has no address" : "\"; there is no such network interface");
    return v6;
}

bool is_loopback(const std::string &host) {
    in6_addr v6{};
    if (inet_pton(AF_INET6, host.c_str(), &v6) == 1) return IN6_IS_ADDR_LOOPBACK(&v6);
    in_addr v4{};
    if (inet_pton(AF_INET, host.c_str(), &v4) == 1) return (ntohl(v4.s_addr) >> 24) == 127;
    return host == "localhost";
}

Moved send_all(int fd, std::string_view bytes, const Deadline &deadline, int stop_fd, int &error_number) {
    error_number = 0;
    while (!bytes.empty()) {
        const ssize_t n = send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
        if (n > 0) {
            bytes.remove_prefix(static_cast<size_t>(n));
            continue;
        }
        if (errno == EINTR) continue;
        if (errno != EAGAIN) {
            error_number = errno;
            return Moved::broken;
        }
        const os::Ready ready = os::wait_ready(fd, POLLOUT, deadline, stop_fd);
        if (ready != os::Ready::yes) return ready == os::Ready::late ? Moved::late : Moved::stopped;
    }
    return Moved::all;
}

Moved receive_all(int fd, char *out, size_t size, const Deadline &deadline, int stop_fd, int &error_number) {
    error_number = 0;
    while (size > 0) {
        const ssize_t n = recv(fd, out, size, MSG_DONTWAIT);
        if (n > 0) {
            out += n;
            size -= static_cast<size_t>(n);
            continue;
        }
        if (n < 0 && errno == EINTR) continue;
        if (n == 0 || errno != EAGAIN) {
            error_number = n == 0 ? 0 : errno;
            return Moved::broken;
        }
        const os::Ready ready = os::wait_ready(fd, POLLIN, deadline, stop_fd);
        if (ready != os::Ready::yes) return ready == os::Ready::late ? Moved::late : Moved::stopped;
    }
    return Moved::all;
}

} // namespace ujoin::io
