// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/dtype.hpp"
#include <algorithm>
#include <cstddef>
#include <vector>

namespace ujoin {

/// Neighbouring elements of one owner: this rank's gradients of them, and its copy of what they update.
struct StepRange {
    size_t begin = 0;     ///< its place among the elements of its owner
    size_t count = 0;     ///< elements
    char *grad = nullptr; ///< null: nothing is summed, the values are only shared
    char *value = nullptr;
    ujoin_dtype grad_dtype = UJOIN_F32;
    ujoin_dtype dtype = UJOIN_F32;
    bool absent = false;     ///< this rank has no gradient: it gives zeros
    bool as_it_lies = false; ///< no rank has one: the owner takes what its memory holds
    size_t param = 0;        ///< the optimizer's index
};

/// What an operation `owner_step` does: each element's owner sums the ranks' gradients of it, divides, and updates what it
/// owns; then all get the result. The ranges are the same on every rank but for addresses and `absent`.
class OwnerStep {
  public:
    explicit OwnerStep(size_t ranks, bool shares) : ends_(ranks), counts_(ranks), shares_(shares) {}
    OwnerStep(const OwnerStep &) = delete;
    OwnerStep &operator=(const OwnerStep &) = delete;
    virtual ~OwnerStep() = default;

    /// Elements `first` to `first + count` of a range that this rank owns: their summed and divided gradient, which lies in
    /// memory that is soon used again. Cannot fail.
    virtual void update(const StepRange &range, size_t first, size_t count, const char *gradient) = 0;

    /// All ranks see all memory: nothing is staged. Then the next ones answer.
    virtual bool direct() const { return false; }
    /// Rank k's gradients of the range; null: it has none, and gives zeros.
    virtual const char *gradient_of(int32_t, const StepRange &) const { return nullptr; }
    /// Rank k's values of the range; null: they lie where another rank's do, and are written there.
    virtual char *value_of(int32_t, const StepRange &) const { return nullptr; }
    /// What rank k's contribution is multiplied with, which gave this weight.
    virtual double scale_of(double) const { return 1; }
    /// Takes this rank's memory out of the others' reach.
    virtual void withdraw() {}

    /// In the order of the owners.
    void add(size_t owner, StepRange range) {
        range.begin = counts_[owner];
        counts_[owner] += range.count;
        element_bytes_ = std::max({element_bytes_, dtype_size(range.grad_dtype), dtype_size(range.dtype)});
        ranges_.push_back(range);
        for (size_t k = owner; k < ends_.size(); k++) ends_[k] = ranges_.size();
    }
    size_t ranks() const { return ends_.size(); }
    /// Elements of an owner.
    size_t count(size_t owner) const { return counts_[owner]; }
    size_t longest() const { return *std::max_element(counts_.begin(), counts_.end()); }
    /// No element needs more.
    size_t element_bytes() const { return element_bytes_; }
    /// The updated values are shared; else only gradients are summed.
    bool shares() const { return shares_; }

    /// Calls part(range, first, n, place) for what lies between elements `offset` and `offset + count` of an owner, piece by
    /// piece: n elements of the range from `first` on, `place` elements behind the offset.
    template <class Part> void for_parts(size_t owner, size_t offset, size_t count, Part &&part) const {
        const auto begin = ranges_.begin() + static_cast<std::ptrdiff_t>(owner == 0 ? 0 : ends_[owner - 1]);
        const auto end = ranges_.begin() + static_cast<std::ptrdiff_t>(ends_[owner]);
        const size_t last = std::min(offset + count, counts_[owner]);
        auto range = std::upper_bound(begin, end, offset, [](size_t at, const StepRange &r) { return at < r.begin; });
        if (range != begin) --range;
        for (size_t at = offset; at < last; ++range) {
            const size_t first = at - range->begin;
            const size_t n = std::min(range->count - first, last - at);
            part(*range, first, n, at - offset);
            at += n;
        }
    }

  private:
    std::vector<StepRange> ranges_;
    std::vector<size_t> ends_;   ///< by owner: index of the range after its last
    std::vector<size_t> counts_; ///< by owner
    size_t element_bytes_ = 1;
    bool shares_;
};

} // namespace ujoin
