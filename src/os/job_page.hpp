// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include "os/health.hpp"
#include <cstdint>
#include <memory>
#include <string>

namespace ujoin::os {

struct JobWords;

/// What a launcher tells its workers, and whatever they start, without a message, and what they tell it: shared memory that
/// they open through /proc by the value of UJOIN_JOB. So no descriptor is handed down, and nothing stays if the launcher is
/// killed.
class JobPage {
  public:
    explicit JobPage(size_t workers);
    ~JobPage();
    JobPage(const JobPage &) = delete;
    JobPage &operator=(const JobPage &) = delete;

    /// The value of UJOIN_JOB: "<pid>:<descriptor>:<16 hex digits that the page holds too>:<the worker's index>".
    std::string address(size_t worker) const;
    void ask_stop();
    /// What a worker's groups say of themselves; see look_at.
    std::optional<HealthView> health(size_t worker, bool alive) const;
    /// Nobody finds it from now on; who has it mapped keeps it.
    void close() { memory_.reset(); }

  private:
    Fd memory_;
    std::shared_ptr<JobWords> words_;
    size_t workers_;
};

/// The worker's side: the page of this process's launcher. A launcher that is gone, or that this process may not look at, asks
/// for nothing.
class LauncherPage {
  public:
    /// UJOIN_E_INVALID: UJOIN_JOB is not what a launcher writes.
    static LauncherPage find();
    /// Never false again once true.
    bool asks_stop() const;
    /// Where this worker tells of its groups; nothing if there is no place for it.
    std::shared_ptr<HealthLine[]> health_lines() const;

  private:
    std::shared_ptr<JobWords> words_;
    size_t bytes_ = 0;
    size_t worker_ = 0;
};

} // namespace ujoin::os
