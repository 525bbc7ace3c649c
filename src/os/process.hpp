// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include <cstdint>
#include <string>
#include <sys/types.h>
#include <vector>

// Processes by descriptor. Uses nothing of base/: the warden is built with it too.
namespace ujoin::os {

/// How a process ended and what it used.
struct ExitInfo {
    int32_t code = -1;  // exit code; -1: a signal ended it
    int32_t signal = 0; // 0: it exited
    int64_t user_us = 0;
    int64_t system_us = 0;
    uint64_t peak_bytes = 0;
};

enum class ExitState { running, ended, taken }; // taken: somebody else of this process waited for it

/// Looks whether a child has ended, and leaves it as it is: as long as it is not reaped, its number and that of its group
/// and session cannot be given to another process.
ExitState peek_exit(int pidfd, ExitInfo &out);
/// The same for a child by its number.
ExitState peek_exit_of(pid_t pid, ExitInfo &out);
/// Frees a child that has ended. Does not block.
void reap(int pidfd);
/// What the kernel (6.15) keeps in a pidfd after a process was reaped, by whoever; false: not there, or not yet.
bool exit_from_pidfd(int pidfd, ExitInfo &out);

/// Now, on CLOCK_REALTIME.
int64_t realtime_ns();

/// This machine's name as it knows it; nobody is asked.
std::string host_name(const char *if_none);
int open_pidfd(pid_t pid); // -1 and errno
/// Whether its process is no more than a zombie; never waits.
bool has_ended(int pidfd);
/// Whether every thread of it is on its way out: what it had is closed already, or soon, and others may have noticed, though
/// it has not ended.
bool is_ending(pid_t pid);
/// 0 or an errno. Signal 0 asks whether the process is there (also as a zombie).
int signal_pidfd(int pidfd, int signal);
/// Waits until the process has ended (or, for a socket, until it is readable).
bool wait_pidfd(int pidfd, int timeout_ms);

/// A live process of some session, other than its leader.
struct Member {
    pid_t pid;
    Fd pidfd;
};
/// Opens every live process whose session is one of `sessions` (ascending) and that is not its leader. A session whose number
/// now belongs to a live process that is not among `held` (ascending) was reused by the system and is left alone.
std::vector<Member> session_members(const std::vector<pid_t> &sessions, const std::vector<pid_t> &held);

/// The children of this process, which has one thread.
std::vector<pid_t> own_children();

} // namespace ujoin::os
