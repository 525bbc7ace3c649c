// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "backends/tcp/links.hpp"
#include "base/error.hpp"
#include "comm/registry.hpp"
#include <optional>
#include <string>
#include <vector>

namespace ujoin {

/// What each rank says to all others when a group is made over connections.
struct Introduction {
    std::string backend; ///< as asked for
    int32_t size = 0;
    int32_t pid = 0;
    std::string place;   ///< ranks that say the same share memory
    std::string host;    ///< its name, for texts
    std::string address; ///< where it listens: host:port
    std::string secret;  ///< rank 0's is the group's: who knows it belongs to it
    std::optional<Error> error;

    std::string encode() const;
    static Introduction decode(const std::string &text);
};

/// Throws, on every rank the same, if any rank says that it cannot go on or means another group.
void compare(const std::vector<Introduction> &all);

/// One connection to each of `ranks`, by ascending rank: this rank calls those below it and is called by the others. Both prove
/// that they know the secret. Strangers are dropped.
std::vector<LinkTo> connect_to(const std::vector<int32_t> &ranks, const std::vector<Introduction> &all, int32_t own,
                               const os::Fd &listener, const Deadline &deadline);

} // namespace ujoin
