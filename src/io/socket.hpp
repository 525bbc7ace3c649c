// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/deadline.hpp"
#include "os/fd.hpp"
#include <cstdint>
#include <string>
#include <string_view>

namespace ujoin::io {

/// Where a TCP server is.
struct Address {
    std::string host;
    uint16_t port = 0;
};
/// Reads "host:port" or "[v6]:port". UJOIN_E_INVALID says what is wrong.
Address parse_address(std::string_view text);
/// "host:port", an IPv6 host in brackets.
std::string to_text(const Address &address);

/// A socket that listens on this address alone. Port 0: any free one; `address` then has the real one.
os::Fd listen_tcp(Address &address);

/// One try on every address of the host, at most until the deadline; the descriptor is non-blocking. No descriptor:
/// nobody answered, and `error_number` says how the last address failed. UJOIN_E_SYSTEM: there is no such host.
os::Fd connect_tcp(const Address &address, const Deadline &deadline, int stop_fd, int &error_number);

/// A connection to a listening socket, or none; non-blocking, as connect_tcp gives one.
os::Fd accept_tcp(const os::Fd &listener);

/// The address of this host from which packets go there. UJOIN_E_SYSTEM: there is no way to it.
std::string own_address_towards(const Address &address);
/// An address of a network interface, IPv4 before IPv6. UJOIN_E_INVALID: there is no such interface, or it has no address.
std::string address_of_interface(const std::string &name);
/// Whether the host's name or address means this machine alone.
bool is_loopback(const std::string &host);

/// Both move all bytes or say why not; `broken` = the other side has closed, error_number 0 = in good order.
enum class Moved { all, late, stopped, broken };
Moved send_all(int fd, std::string_view bytes, const Deadline &deadline, int stop_fd, int &error_number);
Moved receive_all(int fd, char *out, size_t size, const Deadline &deadline, int stop_fd, int &error_number);

} // namespace ujoin::io
