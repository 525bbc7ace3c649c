// SPDX-License-Identifier: Apache-2.0
#include "optim/norm.hpp"
#include "base/dtype.hpp"
#include "optim/blocks.hpp"
#include <bit>
#include <cmath>

namespace ujoin::optim {
namespace {

/// The largest magnitude. Without their sign, numbers are ordered like their bits, with infinity and NaN at the end.
double largest(const double *data, size_t count, double so_far) {
    uint64_t top = std::bit_cast<uint64_t>(so_far);
    for (size_t i = 0; i < count; i++) top = std::max(top, std::bit_cast<uint64_t>(data[i]) & (~uint64_t{0} >> 1));
    return std::bit_cast<double>(top);
}

} // namespace

double norm_part(ujoin_dtype dtype, const void *data, size_t count, double p) {
    LaneSum sum;
    double top = 0;
    alignas(64) double block[block_elements];
    for (size_t at = 0; at < count; at += block_elements) {
        const size_t size = std::min(block_elements, count - at);
        load(dtype, data, at, size, block);
        if (p == 2) {
            sum.add(size, [&](size_t i) { return block[i] * block[i]; });
        } else if (p == 1) {
            sum.add(size, [&](size_t i) { return std::abs(block[i]); });
        } else if (std::isinf(p)) {
            top = largest(block, size, top);
        } else {
            sum.add(size, [&](size_t i) { return std::pow(std::abs(block[i]), p); });
        }
    }
    return std::isinf(p) ? top : sum.total();
}

double whole_norm(const double *parts, size_t count, double p) {
    double all = 0;
    for (size_t i = 0; i < count; i++) {
        if (std::isinf(p)) {
            all = parts[i] > all || std::isnan(parts[i]) ? parts[i] : all;
            if (std::isnan(all)) return all;
        } else {
            all += parts[i];
        }
    }
    return std::isinf(p) || p == 1 ? all : p == 2 ? std::sqrt(all) : std::pow(all, 1 / p);
}

void scale_elements(ujoin_dtype dtype, void *data, size_t count, double factor) {
    switch (dtype) {
    case UJOIN_F32:
        return multiply(static_cast<float *>(data), count, static_cast<float>(factor));
    case UJOIN_F64:
        return multiply(static_cast<double *>(data), count, factor);
    case UJOIN_F16: {
        Half *half = static_cast<Half *>(data);
        for (size_t i = 0; i < count; i++) half[i] = Half(static_cast<float>(half[i]) * static_cast<float>(factor));
        return;
    }
    default:
        BFloat16 *brain = static_cast<BFloat16 *>(data);
        for (size_t i = 0; i < count; i++) brain[i] = BFloat16(static_cast<float>(brain[i]) * static_cast<float>(factor));
    }
}

} // namespace ujoin::optim
