// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/spawn.hpp"
#include <functional>

// The warden's side of os/warden_protocol.hpp. Uses nothing of base/; state of its own, so one per process, which has one
// thread.
namespace ujoin::os::warden {

/// How a worker is started: os::spawn, or a copy of this process.
using Starter = std::function<SpawnResult(const SpawnRequest &)>;

/// Whether the descriptors of the protocol are there.
bool is_started_by_launcher();
/// Holds workers until the launcher says so or is gone; returns when no child is left.
void serve(const Starter &starter);

} // namespace ujoin::os::warden
