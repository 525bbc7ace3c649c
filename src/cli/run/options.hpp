// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <stdexcept>
#include <string>
#include <vector>

namespace ujoin_run {

inline constexpr int exit_usage = 2;         ///< wrong options, or the launcher's own trouble
inline constexpr int exit_cannot_run = 126;  ///< as shells do: there, but cannot be executed
inline constexpr int exit_not_found = 127;   ///< as shells do
inline constexpr int exit_signal_base = 128; ///< plus the signal's number

/// Ends the launcher with a text on stderr and a code.
class Exit : public std::runtime_error {
  public:
    Exit(int code, const std::string &text) : std::runtime_error(text), code_(code) {}
    int code() const { return code_; }

  private:
    int code_;
};

/// The command line, with what PET_ and UJOIN_ variables add.
struct Options {
    std::string nproc_per_node = "1";
    std::string nnodes = "1:1";
    std::string rdzv_backend = "static";
    std::string rdzv_endpoint;
    std::string rdzv_conf;
    int node_rank = 0;
    bool node_rank_given = false;
    std::string local_addr;
    int max_restarts = 0;
    double monitor_interval = 0.1; ///< accepted: the end of a worker is noticed at once
    std::string start_method = "spawn";
    std::string role;
    std::string run_id;
    std::string log_dir;
    std::string redirects = "0";
    std::string tee = "0";
    std::string local_ranks_filter;
    std::string stdout_filters;
    std::string stderr_filters;
    std::string logs_specs;
    std::string event_log_handler = "null";
    std::string signals = "SIGTERM,SIGINT,SIGHUP,SIGQUIT";
    bool signals_given = false; ///< so QUIT is meant to end the job
    std::string stop_signal;
    std::string numa_binding;
    std::string console = "block";
    std::string status_line = "auto";
    std::string containment = "warden";
    std::string json;
    std::string completion;
    std::string function; ///< library.so:symbol instead of a program
    std::string master_addr = "127.0.0.1";
    int master_port = 29500;
    double grace = 30; ///< seconds
    uint64_t rotate_bytes = 0;
    bool standalone = false;
    bool module = false;
    bool no_python = false;
    bool run_path = false;
    bool virtual_local_rank = false;
    bool timestamps = false;
    bool dry_run = false;
    bool info = false;
    std::string program; ///< or the module's name
    std::vector<std::string> args;

    int32_t workers = 0; ///< nproc_per_node as a number
    int32_t min_nodes = 1;
    int32_t max_nodes = 1;
    std::vector<int32_t> console_ranks; ///< local_ranks_filter
    std::vector<int> handled;           ///< signals
    int stop_on = 0;                    ///< stop_signal as a number; 0 = none
    std::string prefix;                 ///< of console lines; "" = the default
};

/// Reads argv. Throws Exit with what is to be printed; its code is 0 for --help, --version and --completion.
Options parse(int argc, char **argv);

/// Whether a terminal may have a status line.
bool shows_status(const Options &options);

/// "a,b" as its parts.
std::vector<std::string> split(const std::string &text, char at);
/// The known word that is nearest to a mistyped one; "" if none is near.
std::string nearest(const std::string &word, const std::vector<std::string> &known);

} // namespace ujoin_run
