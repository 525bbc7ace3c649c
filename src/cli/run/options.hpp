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

/// The command line, with what PET_ variables add.
struct Options {
    std::string nproc_per_node = "1";
    std::string nnodes = "1";
    std::string role;
    std::string run_id;
    std::string log_dir;
    std::string redirects = "0";
    std::string tee = "0";
    std::string master_addr = "127.0.0.1";
    int master_port = 29500;
    double grace = 30; ///< seconds
    bool standalone = false;
    bool module = false;
    bool no_python = false;
    bool info = false;
    std::string program; ///< or the module's name
    std::vector<std::string> args;

    int32_t workers = 0; ///< nproc_per_node as a number
};

/// Reads argv. Throws Exit with what is to be printed; its code is 0 for --help and --version.
Options parse(int argc, char **argv);

} // namespace ujoin_run
