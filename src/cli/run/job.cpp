// SPDX-License-Identifier: Apache-2.0
#include "run/job.hpp"
#include "run/devices.hpp"
#include <cerrno>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <unistd.h>

namespace ujoin_run {
namespace {

/// Options and variables were the user's: whatever the library does not like is a usage error.
void need(ujoin_status status) {
    if (status < 0) throw Exit(exit_usage, ujoin_last_error());
}

} // namespace

Command command(const Options &options) {
    Command result;
    const bool script = options.run_path || (!options.no_python && !options.module && options.program.ends_with(".py"));
    const bool module = options.module && !options.run_path;
    if ((!script && !module) || !options.function.empty()) {
        result.program = options.program;
    } else {
        if (script && access(options.program.c_str(), R_OK) != 0) { // better than one message of Python's per worker
            const int error = errno;
            throw Exit(error == ENOENT || error == ENOTDIR ? exit_not_found : exit_cannot_run,
                       "cannot read \"" + options.program + "\": " + std::strerror(error)); // NOLINT(concurrency-mt-unsafe)
        }
        const char *python = std::getenv("PYTHON_EXEC");
        result.program = python && *python ? python : "python3";
        result.args = {"-u"};
        if (module) result.args.emplace_back("-m");
        result.args.push_back(options.program);
    }
    result.args.insert(result.args.end(), options.args.begin(), options.args.end());
    return result;
}

std::string worker_name(const Options &options) {
    if (!options.role.empty()) return options.role;
    std::string name = options.program.substr(options.program.rfind('/') + 1);
    if (name.ends_with(".py") && name.size() > 3) name.resize(name.size() - 3);
    return name.empty() ? "worker" : name;
}

Variables variables(const Options &options, const Place &place, int attempt, int32_t local_rank) {
    Variables list;
    const auto number = [](int64_t value) { return std::to_string(value); };
    const auto unless_there = [&](const char *name, const char *value) {
        if (!std::getenv(name)) list.emplace_back(name, value);
    };
    if (local_rank >= 0) {
        const std::vector<std::string> devices =
            options.virtual_local_rank ? visible_devices() : std::vector<std::string>();
        list = {{"RANK", number(place.first_rank + local_rank)},
                {"ROLE_RANK", number(place.first_rank + local_rank)},
                {"LOCAL_RANK", options.virtual_local_rank ? "0" : number(local_rank)}};
        if (!devices.empty())
            list.emplace_back("CUDA_VISIBLE_DEVICES", devices[static_cast<size_t>(local_rank) % devices.size()]);
        return list;
    }
    list = {{"WORLD_SIZE", number(place.world_size)},
            {"LOCAL_WORLD_SIZE", number(options.workers)},
            {"ROLE_WORLD_SIZE", number(place.world_size)},
            {"ROLE_NAME", options.role.empty() ? "default" : options.role},
            {"GROUP_RANK", number(place.group_rank)},
            {"GROUP_WORLD_SIZE", number(place.nodes)},
            {"MASTER_ADDR", place.master_addr},
            {"MASTER_PORT", number(place.master_port)},
            {"TORCHELASTIC_RESTART_COUNT", number(attempt)},
            {"TORCHELASTIC_MAX_RESTARTS", number(options.max_restarts)},
            {"TORCHELASTIC_RUN_ID", place.run_id},
            {"TORCHELASTIC_USE_AGENT_STORE", "False"},
            {"TORCHELASTIC_SIGNALS_TO_HANDLE", options.signals}};
    if (!place.store.empty()) list.emplace_back("UJOIN_STORE", place.store);
    unless_there("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1");
    unless_there("NCCL_ASYNC_ERROR_HANDLING", "1");
    if (options.workers > 1) unless_there("OMP_NUM_THREADS", "1");
    return list;
}

namespace {

void set_environment(const Options &options, const Place &place, int attempt, ujoin_pctx *job) {
    for (int32_t rank = -1; rank < options.workers; rank++)
        for (const auto &[name, value] : variables(options, place, attempt, rank))
            need(pctx_set_env(job, rank, name.c_str(), value.c_str()));
}

void set_streams(const Options &options, ujoin_pctx *job) {
    const auto count = static_cast<size_t>(options.workers);
    std::vector<ujoin_std> redirects(count);
    std::vector<ujoin_std> tee(count);
    if (pctx_parse_std(options.redirects.c_str(), redirects.data(), count) < 0)
        throw Exit(exit_usage, std::string("--redirects: ") + ujoin_last_error());
    if (pctx_parse_std(options.tee.c_str(), tee.data(), count) < 0)
        throw Exit(exit_usage, std::string("--tee: ") + ujoin_last_error());
    for (int32_t rank = 0; rank < options.workers; rank++) {
        ujoin_worker worker{};
        worker.size = sizeof worker;
        worker.redirects = redirects[static_cast<size_t>(rank)] | UJOIN_STD_SET;
        worker.tee = tee[static_cast<size_t>(rank)] | UJOIN_STD_SET;
        need(pctx_set_worker(job, rank, &worker));
    }
}

ujoin_binding binding(const std::string &word) {
    if (word.empty() || word == "none") return UJOIN_BINDING_NONE;
    return word == "spread" || word == "node" || word == "socket" ? UJOIN_BINDING_SPREAD : UJOIN_BINDING_COMPACT;
}

std::vector<const char *> pointers(const std::vector<std::string> &texts) {
    std::vector<const char *> list;
    list.reserve(texts.size());
    for (const std::string &text : texts) list.push_back(text.c_str());
    return list;
}

} // namespace

int64_t grace_ms(const Options &options) { return std::llround(options.grace * 1000); }

Job make_job(const Options &options, const Place &place, int attempt) {
    const Command what = command(options);
    const std::vector<const char *> args = pointers(what.args);
    const std::vector<std::string> filters[2] = {split(options.stdout_filters, ','), split(options.stderr_filters, ',')};
    const std::vector<const char *> out_filters = pointers(filters[0]);
    const std::vector<const char *> err_filters = pointers(filters[1]);
    const std::string name = worker_name(options);
    ujoin_pctx_spec spec{};
    spec.size = sizeof spec;
    spec.name = name.c_str();
    (options.function.empty() ? spec.program : spec.function) = what.program.c_str();
    spec.args = args.data();
    spec.arg_count = args.size();
    spec.log_dir = options.log_dir.empty() ? nullptr : options.log_dir.c_str();
    spec.run_id = place.run_id.c_str();
    spec.prefix = options.prefix.empty() ? nullptr : options.prefix.c_str();
    spec.console_ranks = options.console_ranks.empty() ? nullptr : options.console_ranks.data();
    spec.console_rank_count = options.console_ranks.size();
    spec.stdout_filters = out_filters.data();
    spec.stdout_filter_count = out_filters.size();
    spec.stderr_filters = err_filters.data();
    spec.stderr_filter_count = err_filters.size();
    spec.grace_ms = grace_ms(options) == 0 ? int64_t{UJOIN_NOW} : grace_ms(options);
    spec.rotate_bytes = options.rotate_bytes;
    spec.nprocs = options.workers;
    spec.first_rank = place.first_rank;
    spec.restart_count = attempt;
    spec.start_method = options.start_method == "forkserver" ? UJOIN_START_FORKSERVER : UJOIN_START_SPAWN;
    spec.containment = options.containment == "cgroup" ? UJOIN_CONTAINMENT_CGROUP
                       : options.containment == "best" ? UJOIN_CONTAINMENT_BEST
                                                       : UJOIN_CONTAINMENT_WARDEN;
    spec.console = options.console == "drop"    ? UJOIN_CONSOLE_DROP
                   : options.console == "spill" ? UJOIN_CONSOLE_SPILL
                                                : UJOIN_CONSOLE_BLOCK;
    spec.binding = binding(options.numa_binding);
    spec.status_line = shows_status(options) ? 1 : 0;
    ujoin_pctx *job = nullptr;
    need(pctx_create(&spec, &job));
    Job owned(job);
    set_environment(options, place, attempt, job);
    set_streams(options, job);
    return owned;
}

std::string describe(const Options &options, const Place &place) {
    const Command what = command(options);
    std::string text = "would start " + std::to_string(options.workers) + (options.workers == 1 ? " worker" : " workers") +
                       " on this host, " + std::to_string(options.max_restarts) + " restarts at most:\n " + what.program;
    for (const std::string &arg : what.args) text += " " + arg;
    text += "\nvariables of all:\n";
    for (const auto &[name, value] : variables(options, place, 0, -1))
        text.append("  ").append(name).append("=").append(value).append("\n");
    for (int32_t rank = 0; rank < options.workers; rank++) {
        text += "local rank " + std::to_string(rank) + ":";
        for (const auto &[name, value] : variables(options, place, 0, rank))
            text.append(" ").append(name).append("=").append(value);
        text += "\n";
    }
    return text;
}

} // namespace ujoin_run
