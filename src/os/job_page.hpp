// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include <cstdint>
#include <memory>
#include <string>

namespace ujoin::os {

struct JobWords;

/// What a launcher tells its workers, and whatever they start, without a message: a page of shared memory that they open
/// through /proc by the value of UJOIN_JOB. So no descriptor is handed down, and nothing stays if the launcher is killed.
class JobPage {
  public:
    JobPage();
    ~JobPage();
    JobPage(const JobPage &) = delete;
    JobPage &operator=(const JobPage &) = delete;

    /// The value of UJOIN_JOB: "<pid>:<descriptor>:<16 hex digits that the page holds too>".
    std::string address() const;
    void ask_stop();
    /// Nobody finds it from now on; who has it mapped keeps it.
    void close() { memory_.reset(); }

  private:
    Fd memory_;
    std::shared_ptr<JobWords> words_;
};

/// The worker's side: the page of this process's launcher. A launcher that is gone, or that this process may not look at, asks
/// for nothing.
class LauncherPage {
  public:
    /// UJOIN_E_INVALID: UJOIN_JOB is not what a launcher writes.
    static LauncherPage find();
    /// Never false again once true.
    bool asks_stop() const;

  private:
    std::shared_ptr<const JobWords> words_;
};

} // namespace ujoin::os
