// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ddp/bucket.hpp"
#include "ddp/bucket_step.hpp"
#include "ddp/config.hpp"
#include "ddp/gradient_source.hpp"
#include "ddp/hook.hpp"
#include "ddp/reduction.hpp"
#include "ddp/round.hpp"
#include "join/joinable.hpp"
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

namespace ujoin {

/// Averages gradients over the ranks while later ones are computed. An iteration is forward, ready for each gradient,
/// finish; a bucket whose gradients are all ready is put in flight, strictly in the order of the buckets.
class Ddp : public GradientSource {
  public:
    /// `local`: what is wrong with this rank's arguments. The ranks compare notes before anything is written, so that every
    /// one of them fails if one does. `release` runs when no memory of the program is touched any more, also on failure.
    static std::shared_ptr<Ddp> create(std::shared_ptr<Group> group, const DdpConfig &config, std::optional<Error> local,
                                       Release release);
    ~Ddp() override;

    /// UJOIN_OK; UJOIN_JOINED in a hook of a rank that has joined, where no iteration begins.
    ujoin_status forward(double samples);
    void ready(size_t index);
    void finish();
    void set_sync(bool enabled);
    void set_comm_hook(HookChoice hook);
    void set_buffer_hook(ujoin_buffer_time time, HookChoice hook);
    /// Throws if no optimizer can be attached now.
    void check_attachable() const;
    /// From the next iteration on each one makes a step of the optimizer, as long as that lives.
    void attach(std::weak_ptr<BucketStep> optimizer);
    Contribution take() override;
    bool takes_part() const override { return joinable_->takes_part(); }
    /// The gradients are summed by the optimizer's step.
    bool to_owner() const { return config_.to_owner; }
    void *gradient(size_t index) const;
    std::vector<int32_t> used() const;
    ujoin_ddp_report report() const;

    const std::shared_ptr<Group> &group() const { return group_; }
    const std::vector<GradParam> &params() const { return loan_->params; }
    const std::shared_ptr<Joinable> &joinable() const { return joinable_; }
    const Buckets &buckets() const { return *buckets_; }

  private:
    class Participant;
    using Lock = std::unique_lock<std::mutex>;

    Ddp(std::shared_ptr<Group> group, DdpConfig config, std::shared_ptr<Loan> loan);
    void give_gradients_memory();
    void install(Buckets buckets);
    Lock enter() const;
    void broadcast_state(int32_t root);
    void broadcast(const std::vector<Segment> &memory, int32_t root);
    void shadow();
    void leave_context(bool shadowed);
    void check_between_iterations() const;
    void check_before_first(const char *what) const;
    void check_step() const;
    void check_round();
    uint32_t hook_digest() const;
    std::string missing() const;

    // The lock is held in all that follows.
    void begin_iteration();
    void begin_round(bool shadow);
    void rebuild(int32_t order_rank);
    void synchronise_buffers(ujoin_buffer_time now);
    void note_order(size_t index);
    void launch_full();
    void launch(size_t bucket);
    template <class Body> void in_hooks(Body &&body);
    void complete();
    /// That makes the steps; null if there is none, or the program has destroyed it.
    std::shared_ptr<BucketStep> optimizer() const;
    void wait_for_usage();
    void leave_to_owner();
    template <class Body> std::optional<Error> attempt(Body &&body);
    void reduce_all();
    bool asks_for_usage() const;
    bool ends_early() const;
    void end_early(size_t bucket);
    void end_bucket(size_t bucket);
    std::optional<Error> end_round(std::optional<Error> failure);
    [[noreturn]] void end_iteration(const Error &failure);
    void note_users();
    [[noreturn]] void give_up_step() const;
    void exchange_usage();
    std::optional<Error> settle();
    void account();

    std::shared_ptr<Group> group_;
    DdpConfig config_;
    std::shared_ptr<Loan> loan_;
    std::shared_ptr<Joinable> joinable_;
    std::vector<Segment> state_; ///< parameters and buffers, in order
    std::vector<Segment> buffer_memory_;
    std::shared_ptr<const Buckets> buckets_;
    std::vector<size_t> bucket_of_; ///< by parameter
    HookChoice hook_;
    HookChoice buffer_hook_;
    bool hook_set_ = false;
    ujoin_buffer_time buffer_time_ = 0;   ///< 0 = no hook
    std::weak_ptr<BucketStep> optimizer_; ///< see optimizer()

    mutable std::mutex mutex_;                       ///< guards what follows: ready comes from any thread
    mutable std::atomic<std::thread::id> in_hook_{}; ///< the thread that runs a hook, under the mutex
    bool sync_ = true;
    bool iterating_ = false;
    bool reducing_ = false;        ///< this iteration synchronises
    int64_t window_ = 0;           ///< iterations since the last synchronised one, the present one included
    double samples_ = 0;           ///< in them
    std::vector<bool> used_;       ///< by parameter: in them
    std::vector<bool> ready_;      ///< by parameter
    std::vector<bool> awaited_;    ///< by parameter: must become ready; others may if usage is found out
    size_t not_ready_ = 0;         ///< awaited parameters
    std::vector<size_t> unfilled_; ///< by bucket: awaited gradients that are not ready
    std::unique_ptr<Round> round_;
    std::optional<Contribution> untaken_;             ///< of the last iteration, for the step of an optimizer
    std::vector<std::shared_ptr<Reduction>> flights_; ///< launched, by bucket
    bool stepping_ = false;                           ///< the round makes a step
    std::vector<bool> ended_;                         ///< by bucket: nothing is left to do but to wait for its share
    std::vector<std::shared_ptr<Work>> shares_;       ///< of updated parameters, in the order of their steps
    std::optional<Error> early_end_;                  ///< why the iteration was over before finish, which tells it

    int64_t rounds_ = 0;                          ///< synchronised iterations, shadows included: the same on every rank
    std::vector<size_t> order_;                   ///< in which gradients became ready in the first round
    std::vector<bool> own_graph_;                 ///< static graph: what this rank uses; empty until its first iteration
    std::vector<int32_t> used_by_;                ///< by parameter: ranks, in the last round (static graph: in the first)
    std::shared_ptr<std::vector<int32_t>> usage_; ///< on its way to become that
    std::shared_ptr<Work> usage_work_;

    int64_t iterations_ = 0;
    double divisor_ = 0;
    double total_samples_ = 0;
    int64_t reduce_ns_ = 0;
    int64_t exposed_ns_ = 0;
    bool rebuilt_ = false;
    bool joined_uneven_ = false;
};

} // namespace ujoin
