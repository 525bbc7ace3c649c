// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/op.hpp"
#include <cstddef>

namespace ujoin {

/// out[i] = (inputs[0][i] (+) inputs[1][i] (+) ...) / divisor, always in this order, so that every rank gets the same bits.
/// Any alignment. `out` may be one of the inputs, but overlaps none in part. 16-bit types are accumulated in f32; an average
/// in a wider type, which cannot overflow; integer sums and products wrap; min and max give NaN where an input has one.
/// divisor 1 = none (only avg divides integers).
void reduce_elements(ujoin_dtype dtype, ujoin_reduce reduce, const char *const *inputs, size_t input_count, char *out,
                     size_t count, double divisor);

/// The same sum of inputs[k][i] * scales[k], for 16-bit types: scaled in f32, where no product overflows.
void reduce_scaled_elements(ujoin_dtype dtype, const char *const *inputs, const double *scales, size_t input_count,
                            char *out, size_t count, double divisor);

/// out[i] = in[i] * scale, for floating-point types.
void scale_elements(ujoin_dtype dtype, const char *in, char *out, size_t count, double scale);

} // namespace ujoin
