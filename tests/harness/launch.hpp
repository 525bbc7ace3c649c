// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <string>
#include <utility>
#include <vector>

namespace harness {

/// A program of the build tree: "bin/ujoin-run", "tests/bin/cli_worker".
std::string built(const std::string &path);

/// One program that a test runs; killed if it is still there at the end. What it prints goes to files.
class Launch {
  public:
    using Variables = std::vector<std::pair<std::string, std::string>>; ///< "" removes one
    Launch(const std::vector<std::string> &argv, const Variables &variables);
    ~Launch();
    Launch(const Launch &) = delete;
    Launch &operator=(const Launch &) = delete;

    int pid() const { return pid_; }
    void signal(int signal) const;
    /// Waits for the end: the exit status, or 1000 + the signal. -1: it has not ended in 30 s (times UJOIN_TEST_SLACK).
    int wait();
    /// Waits until the program is stopped; false as above.
    bool wait_until_stopped();
    std::string out() const;
    std::string err() const;

  private:
    int pid_ = -1;
    int ended_ = -1; // what wait() has returned
    int out_ = -1;
    int err_ = -1;
};

/// Looks until `done` or for 30 s (times UJOIN_TEST_SLACK): for what another process brings about.
bool eventually(const std::function<bool()> &done);

} // namespace harness
