// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ddp/bucket.hpp"
#include "ddp/hook.hpp"
#include "ddp/round.hpp"
#include <atomic>
#include <memory>
#include <optional>
#include <vector>

namespace ujoin {

/// What the low-rank reduction keeps of a matrix from one iteration to the next.
struct LowRankState {
    std::vector<char> error; ///< what the factors lacked, rows x columns
    std::vector<char> q;     ///< columns x rank, the same on every rank
};

/// What operations in flight keep alive beyond the reducer: memory, and the notice that ends the loan of the program's.
struct Loan {
    Release release; ///< destroyed last
    std::vector<GradParam> params;
    std::vector<std::vector<char>> gradients; ///< with bucket views: one block for each type
    std::vector<std::vector<char>> scratch;   ///< by bucket; kept, since new pages cost more than the reduction
    std::vector<LowRankState> low_rank;       ///< by parameter
};

/// Which of the gradients count, of a rank in one iteration.
struct Usage {
    bool finds_unused = false;
    const std::vector<bool> *used = nullptr; ///< by parameter: since the last synchronised iteration, on this rank
};

/// One bucket on its way through one iteration. `start` in the order of the buckets; then rounds of `then`, each when what
/// is in flight is complete, until no bucket has more to do; `end` puts the result into the gradients.
class Reduction : public std::enable_shared_from_this<Reduction> {
  public:
    struct Place {
        std::shared_ptr<Loan> loan;
        std::shared_ptr<const Buckets> buckets;
        size_t index;
    };
    static std::shared_ptr<Reduction> make(const HookChoice &hook, Place place, const Round &round);
    explicit Reduction(Place place) : place_(std::move(place)) {}
    virtual ~Reduction() = default;
    Reduction(const Reduction &) = delete;
    Reduction &operator=(const Reduction &) = delete;

    void begin(Round &round, const Usage &usage);
    /// Whether it has put more in flight.
    virtual bool then(Round &round);
    /// `used`: how many ranks used each parameter.
    virtual void end(Round &round, const std::vector<int32_t> &used) = 0;

    /// Waits for what is in flight; the first error.
    std::optional<Error> wait(Group &group);
    /// The memory of this object is not kept alive by what is in flight.
    virtual bool must_be_waited_for() const { return false; }
    int64_t started_ns() const { return started_ns_; }
    int64_t finished_ns() const { return finished_ns_.load(std::memory_order_relaxed); }

  protected:
    virtual void start(Round &round) = 0;
    const Bucket &bucket() const { return (*place_.buckets)[place_.index]; }
    const GradParam &param(size_t k) const { return place_.loan->params[bucket().params[k]]; }
    Loan &loan() const { return *place_.loan; }
    size_t index() const { return place_.index; }
    bool is_last() const { return place_.index + 1 == place_.buckets->size(); }
    /// At least `bytes`, the same at each call in an iteration if it asks for no more.
    char *scratch(size_t bytes);

    /// Gradient k of the bucket takes no part on this rank: it is neither read nor, before it is known that others use it,
    /// written.
    bool absent(size_t k) const { return !absent_.empty() && absent_[k]; }
    bool any_absent() const { return !absent_.empty(); }
    bool reads(const Round &round, size_t k) const { return round.reads() && !absent(k); }
    bool writes(Round &round, size_t k, const std::vector<int32_t> &used) const {
        return round.agreed().divisor != 0 && (!absent(k) || used[bucket().params[k]] > 0);
    }

    /// What becomes the operation's release notice: keeps this object until then.
    Release keep();
    void put_in_flight(std::shared_ptr<Work> work) { works_.push_back(std::move(work)); }
    void note_finished() { finished_ns_.store(now_ns(), std::memory_order_relaxed); }
    bool in_flight() const;

  private:
    Place place_;
    std::vector<bool> absent_; ///< by place in the bucket; empty = none
    std::vector<std::shared_ptr<Work>> works_;
    int64_t started_ns_ = 0;
    std::atomic<int64_t> finished_ns_{0};
};

/// Matrices as P Q^T, after Vogels, Karimireddy, Jaggi: PowerSGD (2019).
std::shared_ptr<Reduction> make_low_rank(Reduction::Place place, int32_t rank);

} // namespace ujoin
