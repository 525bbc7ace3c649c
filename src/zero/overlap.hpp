// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/error.hpp"
#include "zero/layout.hpp"
#include "zero/reduced.hpp"
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <vector>

namespace ujoin {

/// What a step does with one bucket.
struct BucketPlan {
    std::vector<size_t> own; ///< parameters of which this rank owns a piece
    Share share;
};

/// What an optimizer keeps that steps within the iterations of a reducer.
class Overlap {
  public:
    /// What has become of the layout is not what the plan was made from.
    void outdate() noexcept { planned_.reset(); }
    /// Makes the plan for these buckets, unless it is there. Not within a step: operations in flight refer to it.
    void plan_for(const std::shared_ptr<const Buckets> &buckets, const Layout &layout, const Reduced &params);
    const BucketPlan &plan(size_t bucket) const { return plan_[bucket]; }
    size_t bytes() const;

    // Of the present step.
    std::atomic<bool> begun{false}; ///< from its first bucket to its end
    std::optional<Error> failure;
    uint32_t digest = 0;

  private:
    std::vector<BucketPlan> plan_;           ///< by bucket
    std::shared_ptr<const Buckets> planned_; ///< what it was made for; null: it is outdated
};

} // namespace ujoin
