// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/process.hpp"
#include "os/spawn.hpp"
#include <cstdint>

// What launcher and warden say to each other over a SOCK_SEQPACKET pair; both come from one build.
//
// The launcher starts the warden with descriptor 3 = the socket and 4 = a pidfd of the launcher. For each worker it sends
// `spawn` with descriptors (a memfd with settings and strings, then those of the worker) and waits for `spawned`, with a
// pidfd if it runs. Before the first it may send `hold` with a memfd that has a path: the warden makes that cgroup, answers `held`, and puts
// the workers into it. When a worker ends the warden says `exited`, and keeps it unreaped, so that its number stays its own. At the end
// of the socket, or when the launcher dies, the warden kills until it has no child left, and exits.
namespace ujoin::os::warden {

inline constexpr int socket_fd = 3;
inline constexpr int launcher_fd = 4;

enum class Kind : int32_t { spawn = 1, spawned = 2, exited = 3, hold = 4, held = 5 };

/// Launcher to warden. The memfd holds SpawnSettings, then NUL-terminated strings: program, directory ("" = none),
/// arguments, environment. For `hold`: the path alone.
struct Request {
    Kind kind;
    int32_t index;
    int32_t new_session;
    int32_t arg_count;
    int32_t env_count;
    int32_t has_settings;
    int32_t fd_count; // of the worker
    int32_t reserved;
    uint64_t signal_mask;
    uint64_t bytes;                    // in the memfd
    int32_t fd_numbers[spawn_max_fds]; // what the worker's descriptors become
};

/// Warden to launcher.
struct Event {
    Kind kind;
    int32_t index;
    int32_t pid;
    int32_t error;
    SpawnStep step;
    int32_t reserved;
    ExitInfo exit;
    int64_t end_ns; // CLOCK_REALTIME
};

} // namespace ujoin::os::warden
