// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/op.hpp"
#include <cstdint>
#include <vector>

namespace ujoin {

/// What a rank has to give after an iteration whose gradients are summed elsewhere. What concerns parameters is in the
/// reducer's order.
struct Contribution {
    bool shadow = false;
    double weight = 0;   ///< samples
    double scale = 1;    ///< see OpArgs
    bool weighs = false; ///< every rank's scale is its weight
    Divide divide = Divide::none;
    bool finds_unused = false;    ///< else all are used everywhere
    std::vector<bool> used;       ///< on this rank
    std::vector<int32_t> used_by; ///< ranks
};

/// A reducer that leaves the sums to the step of an optimizer.
class GradientSource {
  public:
    GradientSource() = default;
    virtual ~GradientSource() = default;
    GradientSource(const GradientSource &) = delete;
    GradientSource &operator=(const GradientSource &) = delete;
    /// Of the iteration that was finished last, once. UJOIN_E_STATE if there is none.
    virtual Contribution take() = 0;
    /// It is in an armed join context, where its iterations are shadowed.
    virtual bool takes_part() const = 0;
};

} // namespace ujoin
