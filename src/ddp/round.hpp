// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/group.hpp"
#include "ddp/config.hpp"
#include <memory>
#include <vector>

namespace ujoin {

/// What a rank says at the beginning of a synchronised iteration. It goes into one cache line.
struct RoundNote {
    static constexpr uint32_t shadow = 1;
    static constexpr uint32_t has_order = 2; ///< knows in which order gradients become ready

    int64_t window = 0; ///< iterations since the last synchronised one
    double samples = 0;
    uint32_t flags = 0;
    uint32_t digest = 0; ///< of its hooks
};

/// What the notes of all ranks come to, the same on every one of them.
struct Agreed {
    int32_t active = 0;       ///< ranks that have not joined
    int32_t contributors = 0; ///< of them, those whose gradients count
    double samples = 0;
    double divisor = 0;      ///< of the sum; 0: nobody has anything to reduce
    int32_t source_rank = 0; ///< the lowest active rank
    int32_t order_rank = -1; ///< the lowest rank that knows an order
};

/// Waits until an operation is complete, whatever happens: no memory may be in use when the caller gets it back. An interrupt
/// ends a wait, not the operation, so it aborts the group.
std::optional<Error> wait_to_the_end(Group &group, Work &work);

/// One synchronised iteration of a rank, or the shadow of one: what the ranks tell each other, and how sums are divided.
class Round {
  public:
    /// Puts the exchange of notes in flight: the first operation of an iteration.
    Round(std::shared_ptr<Group> group, const DdpConfig &config, const RoundNote &note, int64_t iteration);

    /// Waits for the notes. UJOIN_E_MISMATCH, on every rank, if they do not fit; the group is broken then.
    const Agreed &agreed();
    Group &group() const { return *group_; }
    int64_t iteration() const { return iteration_; }
    bool shadow() const { return (note_.flags & RoundNote::shadow) != 0; }
    /// This rank's gradients count: they may be read.
    bool reads() const;
    /// What a contribution is multiplied with before it is summed.
    double scale() const;
    double samples() const { return shadow() ? 0 : note_.samples; }
    Divide divide() const;
    /// Gradients are means, and weighed by samples.
    bool weighs_means() const;

    /// The divided sum of this memory over the ranks, in place.
    std::shared_ptr<Work> submit_sum(ujoin_dtype dtype, const std::vector<Segment> &memory, Release release) const;
    std::shared_ptr<Work> submit(OpArgs &op, Release release) const;

  private:
    struct Exchange {
        RoundNote mine;
        std::vector<RoundNote> all;
    };
    std::optional<Error> compare() const;
    Error disagreement(const std::string &text, std::vector<int32_t> ranks) const;

    std::shared_ptr<Group> group_;
    ujoin_division division_;
    ujoin_gradient_kind gradient_kind_;
    int64_t idle_timeout_ms_;
    RoundNote note_;
    int64_t iteration_;
    std::shared_ptr<Exchange> exchange_;
    std::shared_ptr<Work> work_;
    std::optional<Agreed> agreed_;
    std::optional<Error> failure_;
};

} // namespace ujoin
