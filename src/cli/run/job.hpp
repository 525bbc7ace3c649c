// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "run/options.hpp"
#include "run/signals.hpp"
#include "ujoin.h"
#include <memory>

namespace ujoin_run {

struct DestroyPctx {
    void operator()(ujoin_pctx *job) const { pctx_destroy(job); }
};
using Job = std::unique_ptr<ujoin_pctx, DestroyPctx>;

/// The workers as the options describe them, not started.
Job make_job(const Options &options);
/// Starts them, waits for their end and says how they failed. Returns the exit status.
int run_job(const Options &options, ujoin_pctx *job, SignalForwarder &signals);

} // namespace ujoin_run
