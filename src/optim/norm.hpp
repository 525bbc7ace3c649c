// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ujoin.h"
#include <cstddef>

namespace ujoin::optim {

/// The part that one tensor has in a p-norm over several: the sum of |x|^p, or the largest |x| for p = infinity. Not finite
/// if an element is not. In a fixed order: the same bits wherever it is computed.
double norm_part(ujoin_dtype dtype, const void *data, size_t count, double p);
/// The norm out of the parts, in their order.
double whole_norm(const double *parts, size_t count, double p);

/// Multiplies elements of a floating-point type; 16-bit ones in f32.
void scale_elements(ujoin_dtype dtype, void *data, size_t count, double factor);

} // namespace ujoin::optim
