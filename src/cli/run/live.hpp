// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <cstdint>
#include <functional>
#include <string>

// Lines between launchers of several hosts: their end tells of the end of a launcher.
namespace ujoin_run {

struct LiveEvents {
    std::function<void(int32_t node)> said_goodbye;
    std::function<void(int32_t node)> gone; ///< without a goodbye
};

/// Listens on one address; `port` becomes the real one. Throws Exit.
int listen_at(const std::string &host, int &port);
int connect_to(const std::string &host, int port);
void send_text(int fd, const std::string &text);

/// Serves lines whose first words are the token and the node's number, until `stop`.
void serve_lines(int listener, const std::string &token, const std::atomic<bool> &stop, const LiveEvents &events);
/// Returns false when the other side is gone, true when `stop` came first.
bool watch_line(int line, const std::atomic<bool> &stop);

} // namespace ujoin_run
