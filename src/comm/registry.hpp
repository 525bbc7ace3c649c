// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/backend.hpp"
#include "comm/group.hpp"
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
};

struct BackendFactory {
    const char *name;
    /// Why ranks of this kind cannot use it; "" = they can. `threads`: they meet inside this process.
    std::string (*why_not)(int32_t size, bool threads);
    std::unique_ptr<Backend> (*attach)(const AttachRequest &request);
    const char *about; ///< for ujoin_backends
};

/// The one list, in order of preference; backends/builtin.cpp.
const std::vector<BackendFactory> &backend_factories();
const BackendFactory &choose_backend(const std::string &asked, int32_t size, bool threads);
/// One line per backend, as ujoin_backends gives it.
std::string describe_backends();

} // namespace ujoin
