// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/work.hpp"
#include "ddp/bucket.hpp"
#include <atomic>
#include <cstddef>
#include <memory>
#include <optional>

namespace ujoin {

/// An optimizer that steps within the iterations of a reducer. Per iteration: check_step before anything has happened, then
/// step_bucket for each bucket in order, end_step. Every rank makes the same calls, shadows too.
class BucketStep {
  public:
    BucketStep() = default;
    virtual ~BucketStep() = default;
    BucketStep(const BucketStep &) = delete;
    BucketStep &operator=(const BucketStep &) = delete;
    /// Throws if there can be no step.
    virtual void check_step() = 0;
    /// The gradients of buckets[index] are what they will be. The work in flight shares the updated values; the reducer waits
    /// for it. What fails here on one rank alone has ended the group, so that no rank waits for this one.
    virtual std::shared_ptr<Work> step_bucket(const std::shared_ptr<const Buckets> &buckets, size_t index) = 0;
    /// Nothing is in flight any more. `failure`: of the iteration; returns it, or what failed in the step.
    virtual std::optional<Error> end_step(std::optional<Error> failure) = 0;

    /// The program has destroyed it, though an operation in flight may still keep it.
    bool dropped() const { return dropped_.load(std::memory_order_acquire); }
    void drop() { dropped_.store(true, std::memory_order_release); }

  private:
    std::atomic<bool> dropped_{false};
};

} // namespace ujoin
