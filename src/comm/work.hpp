// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/deadline.hpp"
#include "comm/op.hpp"
#include "os/event_count.hpp"
#include <atomic>
#include <memory>
#include <optional>

namespace ujoin {

class Group;

/// Runs a release callback exactly once, when the caller's memory is free again.
class Release {
  public:
    Release() = default;
    Release(ujoin_destroy_fn fn, void *data) : fn_(fn), data_(data) {}
    Release(Release &&other) noexcept : fn_(other.fn_), data_(other.data_) { other.fn_ = nullptr; }
    Release &operator=(Release &&other) noexcept;
    Release(const Release &) = delete;
    Release &operator=(const Release &) = delete;
    ~Release() { now(); }
    void now() noexcept;

  private:
    ujoin_destroy_fn fn_ = nullptr;
    void *data_ = nullptr;
};

/// An operation in flight. Completes exactly once, in the order of submission within its group.
class Work {
  public:
    Work(std::shared_ptr<Group> group, const OpArgs &op, const Deadline &deadline, Release release);

    /// UJOIN_PENDING or UJOIN_OK; throws the operation's error (every time).
    ujoin_status wait(int64_t timeout_ms);
    ujoin_status test();
    void abort();
    bool done() const { return done_.load(std::memory_order_acquire); }
    /// Of a completed operation.
    const OpOutcome &outcome() const { return op_.outcome; }
    /// The ranks that were no shadows; none before it is complete, and none if it failed.
    std::vector<int32_t> contributors() const;

  private:
    friend class Group;
    void complete(std::optional<Error> error);
    ujoin_status result() const;

    std::weak_ptr<Group> group_;
    std::shared_ptr<Group> keep_group_; ///< until completion
    OpArgs op_;
    Deadline deadline_;
    int64_t idle_timeout_ms_ = -1; ///< sets the deadline when the operation's turn comes
    Release release_;
    std::optional<Error> error_;
    std::atomic<bool> done_{false};
    os::EventCount event_;
};

} // namespace ujoin
