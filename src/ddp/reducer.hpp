// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ddp/bucket.hpp"
#include "ddp/config.hpp"
#include "join/joinable.hpp"
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ujoin {

/// Averages gradients over the ranks while later ones are computed. An iteration is forward, ready for each gradient,
/// finish; a bucket whose gradients are all ready is put in flight, strictly in the order of the buckets.
class Ddp {
  public:
    /// `local`: what is wrong with this rank's arguments. The ranks compare notes before anything is written, so that every
    /// one of them fails if one does. `release` runs when no memory of the program is touched any more, also on failure.
    static std::shared_ptr<Ddp> create(std::shared_ptr<Group> group, const DdpConfig &config, std::optional<Error> local,
                                       Release release);

    /// UJOIN_OK; UJOIN_JOINED in a hook of a rank that has joined, where no iteration begins.
    ujoin_status forward(double samples);
    void ready(size_t index);
    void finish();
    ujoin_ddp_report report() const;

    const std::shared_ptr<Joinable> &joinable() const { return joinable_; }
    const std::vector<Bucket> &buckets() const { return borrowed_->buckets; }

  private:
    class Participant;
    struct InFlight;
    using Works = std::vector<std::shared_ptr<Work>>;

    /// What operations in flight keep alive beyond the reducer: the lists of memory, and the notice that ends the loan.
    struct Borrowed {
        Release release; ///< destroyed last
        std::vector<Bucket> buckets;
        std::vector<Segment> parameters;               ///< all of them, in order
        std::vector<std::atomic<int64_t>> finished_ns; ///< by bucket
    };

    Ddp(std::shared_ptr<Group> group, DdpConfig config, std::shared_ptr<Borrowed> borrowed);
    void broadcast_parameters(int32_t root);
    void shadow();
    void check_between_iterations() const;
    void begin(double samples);
    void launch(Works &works, size_t bucket, bool shadow);
    OpOutcome complete(Works works, bool shadow);
    OpOutcome settle(const Works &works);
    void account(const OpOutcome &outcome);
    std::string missing() const;

    std::shared_ptr<Group> group_;
    DdpConfig config_;
    std::shared_ptr<Borrowed> borrowed_;
    std::shared_ptr<Joinable> joinable_;
    std::vector<size_t> bucket_of_; ///< by parameter

    mutable std::mutex mutex_; ///< guards what follows: ready comes from any thread
    bool iterating_ = false;
    double samples_ = 0;
    std::vector<bool> ready_;      ///< by parameter
    size_t not_ready_ = 0;         ///< parameters
    std::vector<size_t> unfilled_; ///< by bucket: gradients that are not ready
    Works works_;                  ///< in flight, by bucket
    std::vector<int64_t> submitted_ns_;

    int64_t iterations_ = 0;
    double divisor_ = 0;
    double total_samples_ = 0;
    int64_t reduce_ns_ = 0;
    int64_t exposed_ns_ = 0;
    bool joined_uneven_ = false;
};

} // namespace ujoin
