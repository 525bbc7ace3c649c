// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include <cstddef>
#include <memory>

namespace ujoin::os {

/// Anonymous memory that can be handed to other processes: a sealed memfd, zeroed, with its pages reserved now, so that a
/// lack of memory is UJOIN_E_NO_MEMORY here and not a bus error later. Not bound by the size of /dev/shm.
Fd create_shared_memory(size_t bytes);

/// Maps the whole of it, shared. Checks that it has the size and the seals that create_shared_memory gives.
std::shared_ptr<void> map_shared_memory(const Fd &memory, size_t bytes);

} // namespace ujoin::os
