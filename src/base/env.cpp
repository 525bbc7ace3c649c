// SPDX-License-Identifier: Apache-2.0
#include "base/env.hpp"
#include "base/error.hpp"
#include <charconv>
#include <cstdlib>

namespace ujoin::env {
namespace {

struct Entry {
    Var var;
    const char *name;
};

constexpr Entry table[] = {
    {Var::rank, "RANK"},                                  // this process's rank in the job
    {Var::world_size, "WORLD_SIZE"},                      // ranks of the job
    {Var::local_world_size, "LOCAL_WORLD_SIZE"},          // ranks of this host
    {Var::master_addr, "MASTER_ADDR"},                    // where rank 0 runs
    {Var::master_port, "MASTER_PORT"},                    //
    {Var::slurm_procid, "SLURM_PROCID"},                  // the same under srun,
    {Var::slurm_ntasks, "SLURM_NTASKS"},                  //
    {Var::ompi_rank, "OMPI_COMM_WORLD_RANK"},             // Open MPI's mpirun,
    {Var::ompi_size, "OMPI_COMM_WORLD_SIZE"},             //
    {Var::ompi_local_size, "OMPI_COMM_WORLD_LOCAL_SIZE"}, //
    {Var::pmi_rank, "PMI_RANK"},                          // and a PMI launcher
    {Var::pmi_size, "PMI_SIZE"},                          //
    {Var::run_id, "TORCHELASTIC_RUN_ID"},                 // tells apart jobs that share address and port
    {Var::restart_count, "TORCHELASTIC_RESTART_COUNT"},   // and attempts of one job
    {Var::store, "UJOIN_STORE"},                          // several hosts: where the launcher's store listens
    {Var::secret, "UJOIN_SECRET"},                        // shared secret of tcp stores
    {Var::interface, "UJOIN_IFNAME"},                     // whose address ranks of other hosts connect to
    {Var::host_id, "UJOIN_HOST_ID"},                      // ranks that name the same one are taken to be on one host
    {Var::timeout_ms, "UJOIN_TIMEOUT_MS"},                // deadline of a bare collective
    {Var::spin_us, "UJOIN_SPIN_US"},                      // how long a wait spins before it sleeps
    {Var::progress, "UJOIN_PROGRESS"},                    // 1 or 0: with or without a progress thread
    {Var::threads, "UJOIN_THREADS"},                      // of a group that its options give no number of
    {Var::libexec_dir, "UJOIN_LIBEXEC_DIR"},              // where ujoin-warden lies
    {Var::tmpdir, "TMPDIR"},                              // parent of fresh log directories
    {Var::path, "PATH"},                                  // where programs are looked up
    {Var::debug, "UJOIN_DEBUG"},                          // detail: zero compares parameter values before each step
    {Var::simd, "UJOIN_SIMD"},                            // baseline, avx2 or avx512: what update rules are to use
    {Var::error_file, "TORCHELASTIC_ERROR_FILE"},         // where a worker records its failure
    {Var::no_color, "NO_COLOR"},                          // console prefixes without colour
    {Var::worker, "UJOIN_WORKER"},                        // set by the launcher: this process is to run a function
    {Var::job, "UJOIN_JOB"},                              // set by the launcher: where it says that all are to stop
};

} // namespace

const char *name(Var var) {
    for (const Entry &entry : table)
        if (entry.var == var) return entry.name;
    return "?";
}

std::optional<std::string> text(Var var) {
    const char *value = std::getenv(name(var)); // NOLINT(concurrency-mt-unsafe): POSIX has no other way to read it
    if (!value || !*value) return std::nullopt;
    return std::string(value);
}

std::optional<int64_t> number(Var var, int64_t low, int64_t high) {
    const std::optional<std::string> value = text(var);
    if (!value) return std::nullopt;
    int64_t result = 0;
    const char *end = value->data() + value->size();
    const auto [stop, code] = std::from_chars(value->data(), end, result);
    if (code != std::errc{} || stop != end)
        fail_invalid("environment variable ", name(var), " is \"", *value, "\", not a whole number");
    if (result < low || result > high)
        fail_invalid("environment variable ", name(var), " is ", result, "; expected ", low, " to ", high);
    return result;
}

} // namespace ujoin::env
