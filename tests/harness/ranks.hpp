// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <string>

namespace harness {

/// Runs `body(rank)` for 0 to size - 1, each on a thread of its own, and waits for all. Failures carry the rank; an
/// exception is a failure. Threads cannot be ended from outside: when the deadline passes (60 s times UJOIN_TEST_SLACK),
/// the process says which ranks hang and aborts.
void run_threads(int size, const std::function<void(int rank)> &body);

/// The same with forked children. Call it before this process has threads. Failures in a child fail the test here, with the
/// rank, as do an exit by other means, a signal, and a descriptor left open. When the deadline passes, all children are
/// killed and the ranks that hang are named. A child that is meant to die says so in `body` with expect_death().
void run_processes(int size, const std::function<void(int rank)> &body);

/// In a child of run_processes: from here on, being killed by `signal` is the right end for this rank.
void expect_death(int signal);

/// `stem` with something that no other call, test or process on this machine has: for local:// and memory:// names.
std::string unique(const std::string &stem);

/// The value of UJOIN_TEST_SLACK (1 if unset): factor for the upper bounds of waits on a slow machine or build.
double slack();

} // namespace harness
