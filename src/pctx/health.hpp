// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "pctx/result.hpp"
#include <optional>
#include <string>
#include <vector>

namespace ujoin {

/// What is known of a worker now: its state, its output, what its group says of itself. Holds what the public struct points to.
class WorkerHealth {
  public:
    WorkerHealth() = default;
    WorkerHealth(const JobPlan &plan, const WorkerRecord &record, size_t index, int64_t last_output_ns);

    ujoin_worker_health fill() const;
    /// "in all_reduce(sum, f32, 100), operation 52, round 17, for 12 s; waits for ranks 1 and 3", "" if it has no group.
    const std::string &doing() const { return doing_; }
    static WorkerHealth not_started(int32_t first_rank, size_t index);

  private:
    void describe(const JobPlan &plan, const WorkerRecord &record);

    size_t index_ = 0;
    WorkerRecord record_;
    int64_t last_output_ns_ = 0;
    int64_t since_ns_ = 0; // CLOCK_REALTIME
    int64_t now_ns_ = 0;   // likewise
    std::optional<os::HealthView> view_;
    std::string doing_;
    std::string text_;
};

} // namespace ujoin
