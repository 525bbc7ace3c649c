// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ddp/bucket.hpp"
#include "zero/layout.hpp"
#include <cstdint>
#include <deque>
#include <optional>
#include <string>
#include <unordered_map>
#include <vector>

namespace ujoin {

/// What an optimizer keeps that steps within the iterations of a reducer.
class Overlap {
  public:
    explicit Overlap(std::vector<GradParam> reduced);

    /// UJOIN_E_INVALID if a step would use a gradient that is not reduced.
    void check(const ZeroParam &param) const;
    /// The reducer's parameters are found in this list from now on. Cannot fail.
    void find_in(const std::vector<ZeroParam> &params) noexcept;
    /// The optimizer's index of a reducer's parameter; Layout::none.
    size_t index_of(size_t reduced) const { return index_of_[reduced]; }

    // Of the present step.
    bool begun = false;
    std::deque<Share> shares; ///< by bucket; operations in flight refer to them
    std::optional<Error> failure;
    uint32_t digest = 0;

  private:
    std::vector<GradParam> reduced_;
    std::unordered_map<std::string, size_t> by_name_;
    std::vector<size_t> index_of_; ///< by reducer's index
};

} // namespace ujoin
