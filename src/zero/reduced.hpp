// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ddp/bucket.hpp"
#include "zero/layout.hpp"
#include <string>
#include <unordered_map>
#include <vector>

namespace ujoin {

/// The parameters of the reducer that an optimizer was made with, and which of its own they are.
class Reduced {
  public:
    explicit Reduced(std::vector<GradParam> params);

    /// UJOIN_E_INVALID if a step would use a gradient that is not the reducer's.
    void check(const ZeroParam &param) const;
    /// The reducer's parameters are found in this list from now on. Cannot fail once there was room for it.
    void find_in(const std::vector<ZeroParam> &params) noexcept;
    void reserve(size_t params) { reduced_of_.reserve(params); }
    /// The optimizer's index of a reducer's parameter; Layout::none.
    size_t index_of(size_t reduced) const { return index_of_[reduced]; }
    /// The reducer's index of the optimizer's; Layout::none.
    size_t reduced_of(size_t index) const { return reduced_of_[index]; }

  private:
    std::vector<GradParam> params_;
    std::unordered_map<std::string, size_t> by_name_;
    std::vector<size_t> index_of_;   ///< by reducer's index
    std::vector<size_t> reduced_of_; ///< by optimizer's index
};

} // namespace ujoin
