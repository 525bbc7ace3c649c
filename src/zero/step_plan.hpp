// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/checksum.hpp"
#include <cstdint>

namespace ujoin {

/// What a step does with the gradients before it uses them: the same on every rank. Sent as it is.
struct StepPlan {
    /// What another digest of a step means.
    static constexpr const char *differs =
        "ranks differ in hyper-parameters, in options of the step, or in which parameters have a gradient or are frozen";

    double scale = 0;    ///< that gradients carry; 0: none
    double max_norm = 0; ///< 0: no clipping
    double norm_type = 2;
    int32_t check = 0;  ///< skip if a gradient is not finite
    int32_t active = 1; ///< of a rank that has not joined

    /// The ranks must look at all gradients before one is used.
    bool measures() const { return scale != 0 || max_norm != 0 || check != 0; }
    void add_to(Checksum &sum) const {
        sum.number(scale);
        sum.number(max_norm);
        sum.number(norm_type);
        sum.word(static_cast<uint64_t>(check));
    }
};

/// What gradients are multiplied by, one after the other.
struct Factors {
    double unscale = 1;
    double clip = 1;
};

} // namespace ujoin
