// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <sys/types.h>

// Starting a program. Uses nothing of base/: the warden is built with it too.
namespace ujoin::os {

/// What to start. Everything is read by the child on the parent's memory, hence plain pointers.
struct SpawnRequest {
    const char *program = nullptr; // as execve takes it
    char *const *argv = nullptr;
    char *const *envp = nullptr;
    const char *directory = nullptr; // nullptr: the parent's
    const int *fds = nullptr;        // fds[i] becomes descriptor i; every other one is closed
    int fd_count = 0;                // at most spawn_max_fds
    bool new_session = true;
    int death_signal = 0;     // sent when the thread that called spawn ends; 0: none
    uint64_t signal_mask = 0; // of the program, bit 0 = signal 1
};
inline constexpr int spawn_max_fds = 8;

/// Where a start failed.
enum class SpawnStep : int32_t { none, clone, descriptors, directory, session, parent, exec };

struct SpawnResult {
    pid_t pid = -1;
    int pidfd = -1;
    int error = 0; // errno; 0: the program runs
    SpawnStep step = SpawnStep::none;
};

/// Starts a program by a vfork-style clone: the child borrows the parent's memory until it has executed, so the cost does
/// not grow with the parent and the errno of what failed is exact. A child that failed has been waited for.
SpawnResult spawn(const SpawnRequest &request) noexcept;

/// "enter its working directory", for the text of an error.
const char *spawn_step_text(SpawnStep step);

/// The calling thread's signal mask.
uint64_t signal_mask();

} // namespace ujoin::os
