// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "pctx/process_set.hpp"
#include "pctx/spec.hpp"
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ujoin {

/// A job that can be described, started once, waited for and ended: what an ujoin_pctx is.
class ProcessContext {
  public:
    explicit ProcessContext(JobSpec job);
    /// Ends what still runs, in the background.
    ~ProcessContext();
    ProcessContext(const ProcessContext &) = delete;
    ProcessContext &operator=(const ProcessContext &) = delete;

    void set_env(int32_t rank, const char *name, const char *value);
    void set_worker(int32_t rank, const ujoin_worker &worker);
    void start();
    ujoin_status wait(int64_t timeout_ms);
    int32_t first_failure() const;
    ujoin_worker_result result(int32_t rank) const;
    ujoin_worker_health health(int32_t rank);
    const char *report();
    const char *json_report();
    void signal(int32_t rank, int32_t signal);
    void stop(); ///< asks the workers' join contexts to leave after the same round
    ujoin_status close(int32_t signal, int64_t grace_ms);
    void abort();

  private:
    void check_rank(int32_t rank, bool all_allowed) const;
    void check_not_started(const char *what) const;
    std::shared_ptr<ProcessSet> set() const;
    std::shared_ptr<ProcessSet> need_set() const;
    JobPlan make_plan() const;
    void plan_program(JobPlan &plan, size_t index) const;
    void copy_descriptors(JobPlan &plan) const;
    bool forks() const; // workers are copies of this process
    void check_programs() const;
    bool is_set(const char *name, int32_t rank) const;

    const JobSpec job_;
    std::vector<WorkerSpec> workers_;
    std::vector<EnvChange> changes_;
    std::string report_;
    std::string json_;

    std::mutex health_mutex_;
    std::vector<WorkerHealth> health_; // by rank: what was told last

    mutable std::mutex mutex_;
    std::shared_ptr<ProcessSet> set_; // from a start on
    bool started_ = false;
    bool failed_ = false; // the start did
    bool closed_ = false;
    bool aborted_ = false;
};

} // namespace ujoin
