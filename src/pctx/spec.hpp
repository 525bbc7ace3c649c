// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/callback.hpp"
#include "os/spawn.hpp"
#include "ujoin.h"
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ujoin {

/// The program's callback for output; destroyed with the last job that has it.
struct OutputCallback {
    ujoin_output_fn fn = nullptr;
    void *user_data = nullptr;
    ujoin_destroy_fn destroy = nullptr;

    OutputCallback(ujoin_output_fn call, void *data, ujoin_destroy_fn end) : fn(call), user_data(data), destroy(end) {}
    ~OutputCallback() { end_user_data(destroy, user_data); }
    OutputCallback(const OutputCallback &) = delete;
    OutputCallback &operator=(const OutputCallback &) = delete;
};

/// A copy of an ujoin_pctx_spec with its defaults filled in.
struct JobSpec {
    std::string name;
    std::string program;  // "" if every worker has its own, or a function
    std::string function; // "" if it is a program
    std::vector<std::string> args;
    std::optional<std::string> log_dir;
    std::string run_id;
    std::string prefix; // a template
    std::optional<std::vector<int32_t>> console_ranks;
    std::vector<std::string> filters[2]; // stdout, stderr
    std::shared_ptr<OutputCallback> output;
    uint64_t rotate_bytes = 0;
    int32_t rotate_keep = 1;
    ujoin_start_method start_method = UJOIN_START_SPAWN;
    ujoin_console_policy console = UJOIN_CONSOLE_BLOCK;
    ujoin_binding binding = UJOIN_BINDING_NONE;
    bool no_error_file = false;
    bool no_colour = false;
    int64_t grace_ms = 0;
    int64_t drain_ms = 0;
    int64_t partial_line_ms = 0;
    int32_t nprocs = 0;
    int32_t first_rank = 0;
    int32_t restart_count = 0;
    ujoin_std redirects = UJOIN_STD_NONE;
    ujoin_std tee = UJOIN_STD_NONE;
    ujoin_containment containment = UJOIN_CONTAINMENT_GROUP;
    bool same_session = false;
    bool status_line = false;
};

/// What one worker has of its own.
struct WorkerSpec {
    std::optional<std::string> program;
    std::optional<std::vector<std::string>> args;
    std::string directory;
    std::optional<ujoin_std> redirects;
    std::optional<ujoin_std> tee;
    std::string input;          // of a function
    ujoin_stdin stdin_from = 0; // 0: the default
    std::string stdin_bytes;
    std::string stdin_path;
    std::vector<int32_t> cpus;
    std::vector<os::SpawnLimit> limits;
    std::vector<ujoin_worker_fd> fds;
    int32_t umask = -1;
};

/// A change of the environment; applied in the order given.
struct EnvChange {
    int32_t rank; // -1: all
    std::string name;
    std::optional<std::string> value; // nothing: remove
};

/// Checks and copies. UJOIN_E_INVALID names the field. `output`: the callback that was given, if there is one.
JobSpec read_job(const ujoin_pctx_spec &given, std::shared_ptr<OutputCallback> output = nullptr);
/// Puts the fields that are set over what `spec` has.
void apply_worker(const ujoin_worker &given, WorkerSpec &spec);

/// "3" or "0:1,12:3", one value per rank.
std::vector<ujoin_std> parse_std(const std::string &text, size_t nprocs);

/// Replaces ${name} for each of the pairs; other text stays.
std::string substitute(const std::string &text, const std::vector<std::pair<const char *, std::string>> &values);

/// The environment of worker `rank`: "NAME=value" of `base` with the changes applied.
std::vector<std::string> make_environment(const std::vector<std::string> &base, const std::vector<EnvChange> &changes,
                                          int32_t rank);
/// The value of a variable in such a list.
std::optional<std::string> find_variable(const std::vector<std::string> &environment, const std::string &name);

} // namespace ujoin
