// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/backend.hpp"
#include "comm/group.hpp"
#include <functional>
#include <memory>
#include <string>
#include <vector>

namespace ujoin {

/// What a backend needs to bring its rank together with the others.
struct AttachRequest {
    int32_t rank = 0;
    int32_t size = 0;
    int32_t host_ranks = 0; ///< that share the processors of this host, those of other groups included
    std::string meeting;    ///< names the place where the ranks of this group meet; the same on every rank
    std::string backend;    ///< as asked for ("auto" included); must be the same on every rank
    Deadline deadline = Deadline::never();

    /// Where ranks may be on several hosts: everybody's text, by rank, for this rank's. Collective; each rank calls it
    /// `exchanges` times.
    std::function<std::vector<std::string>(const std::string &mine)> exchange{};
    static constexpr int exchanges = 2;
    std::string address{};           ///< of this host, for the ranks of others
    HostPlace *host_place = nullptr; ///< set by a backend across hosts
};

struct BackendFactory {
    const char *name;
    /// Why ranks of this kind cannot use it; "" = they can.
    std::string (*why_not)(const RanksAre &ranks);
    std::unique_ptr<Backend> (*attach)(const AttachRequest &request);
    const char *about; ///< for ujoin_backends
};

/// The one list, in order of preference; backends/builtin.cpp.
const std::vector<BackendFactory> &backend_factories();
const BackendFactory &choose_backend(const std::string &asked, const RanksAre &ranks);
/// One line per backend, as ujoin_backends gives it.
std::string describe_backends();

} // namespace ujoin
