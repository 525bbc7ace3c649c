// SPDX-License-Identifier: Apache-2.0
#include "backends/builtin.hpp"

namespace ujoin {

const std::vector<BackendFactory> &backend_factories() {
    static const std::vector<BackendFactory> factories = {self_backend(), local_backend(), shm_backend()};
    return factories;
}

} // namespace ujoin
