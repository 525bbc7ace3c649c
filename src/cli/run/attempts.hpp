// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "run/job.hpp"
#include "run/nodes.hpp"
#include "run/signals.hpp"

namespace ujoin_run {

/// Runs the job, again after a failure as often as the options allow, and says how it ended. Returns the exit status.
int run_attempts(const Options &options, Nodes &nodes, SignalForwarder &signals);

} // namespace ujoin_run
