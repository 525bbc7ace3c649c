// SPDX-License-Identifier: Apache-2.0
// What the ranks' slots say about sums: whose data count, what they are multiplied with and divided by.
#pragma once
#include "base/dtype.hpp"
#include "comm/op.hpp"
#include <cstdint>

namespace ujoin {

inline constexpr uint32_t flag_shadow = 1;
inline constexpr uint32_t flag_stop = 2;
inline constexpr uint32_t flag_scaled_by_weight = 4; ///< by whoever reads the contribution
inline constexpr uint32_t flag_program = 8;
inline constexpr uint32_t flag_empty = 16;
inline constexpr uint32_t flag_more = 32; ///< of parts of unequal size: this rank needs another step
inline constexpr uint32_t tag_shift = 8;

inline bool contributes(const OpArgs &op, uint32_t flags, double weight) {
    return !(flags & flag_shadow) && !(op.divide == Divide::weight && weight == 0);
}
inline bool own_contributes(const OpArgs &op) { return contributes(op, op.shadow ? flag_shadow : 0, op.weight); }
/// A 16-bit type cannot hold a gradient times a number of samples: the weight is published, and applied in f32 by the reader.
inline bool scaled_by_reader(const OpArgs &op, ujoin_dtype dtype) {
    return op.scale != 1 && op.scale == op.weight && dtype_size(dtype) == 2;
}
inline double divisor_of(const OpArgs &op, int32_t ranks) {
    if (op.reduce == UJOIN_AVG) return op.outcome.contributors;
    switch (op.divide) {
    case Divide::ranks:
        return ranks;
    case Divide::contributors:
        return op.outcome.contributors;
    case Divide::weight:
        return op.outcome.weight;
    default:
        return 1;
    }
}
inline bool nobody_contributed(const OpArgs &op) {
    return op.divide == Divide::weight ? op.outcome.weight == 0 : op.outcome.contributors == 0;
}

} // namespace ujoin
