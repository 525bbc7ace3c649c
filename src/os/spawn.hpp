// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <functional>
#include <sys/types.h>

// Starting a program, or a copy of this one. Uses nothing of base/: the warden is built with it too.
namespace ujoin::os {

/// A resource limit, soft and hard alike.
struct SpawnLimit {
    int32_t resource;
    int32_t reserved;
    uint64_t value;
};
inline constexpr int spawn_max_limits = 16;

/// What a worker has beside its program; bytes that can be sent to another process.
struct SpawnSettings {
    int32_t umask;       // -1: as the parent
    int32_t limit_count; //
    int32_t has_cpus;    // 1: `cpus` counts
    int32_t has_nodes;   // 1: `nodes` counts; a system that refuses it is not asked twice
    SpawnLimit limits[spawn_max_limits];
    uint64_t cpus[64]; // bits
    uint64_t nodes[16];
};

/// What to start. Everything is read by the child on the parent's memory, hence plain pointers.
struct SpawnRequest {
    const char *program = nullptr; // as execve takes it
    char *const *argv = nullptr;
    char *const *envp = nullptr;
    const char *directory = nullptr; // nullptr: the parent's
    const int *fds = nullptr;        // every other one is closed
    const int *fd_numbers = nullptr; // fds[i] becomes descriptor fd_numbers[i], all different; nullptr: descriptor i
    int fd_count = 0;                // at most spawn_max_fds
    int cgroup_procs = -1;           // open cgroup.procs of the cgroup to enter; -1: the parent's
    bool new_session = true;
    int death_signal = 0;     // sent when the thread that called spawn ends; 0: none
    uint64_t signal_mask = 0; // of the program, bit 0 = signal 1
    const SpawnSettings *settings = nullptr;
};
inline constexpr int spawn_max_fds = 72; // the three streams, two of a function worker, 64 of the caller's, and room

/// Where a start failed.
enum class SpawnStep : int32_t { none, clone, cgroup, descriptors, directory, session, parent, settings, exec };

struct SpawnResult {
    pid_t pid = -1;
    int pidfd = -1;
    int error = 0; // errno; 0: the program runs
    SpawnStep step = SpawnStep::none;
};

/// Starts a program by a vfork-style clone: the child borrows the parent's memory until it has executed, so the cost does
/// not grow with the parent and the errno of what failed is exact. A child that failed has been waited for.
SpawnResult spawn(const SpawnRequest &request) noexcept;

/// The same for a copy of this process, which runs `body` and exits with what it returns, without the exit handlers of the
/// program. `program` is not used, `argv` neither; the environment is replaced. At most spawn_max_fds - 1 descriptors. Who
/// has other threads must know that `body` can do what such a copy can.
SpawnResult spawn_copy(const SpawnRequest &request, const std::function<int()> &body);

/// "enter its working directory", for the text of an error.
const char *spawn_step_text(SpawnStep step);

/// The calling thread's signal mask.
uint64_t signal_mask();

} // namespace ujoin::os
