// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/registry.hpp"

namespace ujoin {

BackendFactory self_backend();
BackendFactory local_backend();
BackendFactory shm_backend();
BackendFactory hier_backend();
BackendFactory tcp_backend();

} // namespace ujoin
