// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <optional>
#include <string>

namespace ujoin::env {

/// Every environment variable that the library reads. env.cpp holds name and meaning of each.
enum class Var {
    rank,
    world_size,
    local_world_size,
    master_addr,
    master_port, // the launcher's
    slurm_procid,
    slurm_ntasks,
    ompi_rank,
    ompi_size,
    ompi_local_size,
    pmi_rank,
    pmi_size,
    run_id,
    restart_count,
    store,
    secret,
    interface,
    host_id,
    timeout_ms,
    spin_us,
    progress,
    threads,
    libexec_dir,
    tmpdir,
    path,
    debug,
    simd,
    error_file,
    no_color,
    worker,
    job,
};

const char *name(Var var);
/// The value; nothing if unset or empty.
std::optional<std::string> text(Var var);
/// The value as a number. UJOIN_E_INVALID names the variable and what it holds.
std::optional<int64_t> number(Var var, int64_t low, int64_t high);

} // namespace ujoin::env
