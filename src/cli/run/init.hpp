// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace ujoin_run {

/// As process 1 of a container: goes on in a child, while this process passes signals on, frees the orphans that the system
/// gives it, and ends as the child does, which ends the container. Else nothing. Before any thread is made. UJOIN_INIT=1
/// forces it, for orphans of this process's own.
void become_init_if_needed();

} // namespace ujoin_run
