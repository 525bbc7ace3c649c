// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "run/nodes.hpp"
#include "run/options.hpp"
#include "ujoin.h"
#include <memory>
#include <string>
#include <vector>

namespace ujoin_run {

struct DestroyPctx {
    void operator()(ujoin_pctx *job) const { pctx_destroy(job); }
};
using Job = std::unique_ptr<ujoin_pctx, DestroyPctx>;

/// What is executed: the program, or Python with it.
struct Command {
    std::string program;
    std::vector<std::string> args;
};
Command command(const Options &options);

/// What workers are called: the role, or the program without its directory and ".py".
std::string worker_name(const Options &options);

/// The variables of one worker of this host, or of all (local rank -1).
using Variables = std::vector<std::pair<std::string, std::string>>;
Variables variables(const Options &options, const Place &place, int attempt, int32_t local_rank);

int64_t grace_ms(const Options &options);

/// The workers as the options describe them, not started.
Job make_job(const Options &options, const Place &place, int attempt);
/// What would be started, for a person.
std::string describe(const Options &options, const Place &place);

} // namespace ujoin_run
