// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "harness/ranks.hpp"
#include <cstdlib>
#include <filesystem>
#include <string>

namespace harness {

/// How the ranks of a test come together for a backend: "self", "local" and "tcp" as threads, "shm" and "hier" as processes,
/// the latter as if every second one was on another host.
class Meet {
  public:
    Meet(const std::string &backend, const std::string &name)
        : processes_(backend == "shm" || backend == "hier"), hosts_(backend == "hier") {
        const std::string file = (std::filesystem::temp_directory_path() / name).string();
        url_ = backend == "local" || backend == "tcp" ? "local://" + name : "file://" + file;
        if (hosts_) file_ = file; // the others make none
    }
    ~Meet() {
        if (!file_.empty()) std::filesystem::remove_all(file_);
    }
    Meet(const Meet &) = delete;
    Meet &operator=(const Meet &) = delete;

    const std::string &url() const { return url_; }
    /// Calls `body` for each rank.
    void run(int size, const std::function<void(int rank)> &body) const {
        if (!processes_) return run_threads(size, body);
        run_processes(size, [&](int rank) {
            if (hosts_) setenv("UJOIN_HOST_ID", ("host " + std::to_string(rank % 2)).c_str(), 1); // this rank's own process
            body(rank);
        });
    }

  private:
    bool processes_;
    bool hosts_;
    std::string url_;
    std::string file_;
};

} // namespace harness
