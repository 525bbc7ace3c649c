// SPDX-License-Identifier: Apache-2.0
#include "backends/builtin.hpp"

namespace ujoin {

/// Never destroyed: at the end of the process threads of the program may still be in here.
const std::vector<BackendFactory> &backend_factories() {
    static const auto *factories =
        new std::vector<BackendFactory>{self_backend(), local_backend(), shm_backend(), hier_backend(), tcp_backend()};
    return *factories;
}

} // namespace ujoin
