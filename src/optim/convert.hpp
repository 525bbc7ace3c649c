// SPDX-License-Identifier: Apache-2.0
#pragma once
// Between the element types in memory and those in which rules compute.
#include "base/dtype.hpp"
#include "optim/simd.hpp"
#include "optim/update.hpp"

namespace ujoin::optim {

/// Elements `offset` to `offset + count` of memory of a floating-point type.
template <class T> UJOIN_INLINE void load(ujoin_dtype dtype, const void *data, size_t offset, size_t count, T *to) {
    const auto convert = [&](const auto *from) UJOIN_INLINE_LAMBDA {
        for (size_t i = 0; i < count; i++) {
            if constexpr (sizeof(*from) == 2) {
                to[i] = static_cast<T>(static_cast<float>(from[i]));
            } else {
                to[i] = static_cast<T>(from[i]);
            }
        }
    };
    switch (dtype) {
    case UJOIN_F32:
        return convert(static_cast<const float *>(data) + offset);
    case UJOIN_F64:
        return convert(static_cast<const double *>(data) + offset);
    case UJOIN_F16:
        return convert(static_cast<const Half *>(data) + offset);
    default:
        return convert(static_cast<const BFloat16 *>(data) + offset);
    }
}

template <class T> UJOIN_INLINE void multiply(T *data, size_t count, T factor) {
    for (size_t i = 0; i < count; i++) data[i] *= factor;
}

template <class T> UJOIN_INLINE void load_gradient(const Update &u, size_t offset, size_t count, T *to) {
    load(u.grad_dtype, u.grad, offset, count, to);
    if (u.unscale != 1) multiply(to, count, static_cast<T>(u.unscale));
    if (u.clip != 1) multiply(to, count, static_cast<T>(u.clip));
}

/// A random number for one element. Elements are independent of each other: no order, no state.
UJOIN_INLINE uint32_t random_bits(uint64_t key, uint64_t element) {
    auto x = static_cast<uint32_t>(element) * 0x9e3779b1U ^ static_cast<uint32_t>(element >> 32) * 0x85ebca77U;
    x ^= static_cast<uint32_t>(key);
    x = (x ^ x >> 16) * 0x7feb352dU;
    x ^= static_cast<uint32_t>(key >> 32);
    x = (x ^ x >> 15) * 0x846ca68bU;
    return x ^ x >> 16;
}

/// Rounds up or down with the chances that keep the mean; infinities and NaN as always.
UJOIN_INLINE BFloat16 round_stochastic(float value, uint32_t random) {
    const uint32_t bits = std::bit_cast<uint32_t>(value);
    if ((bits & 0x7f800000U) == 0x7f800000U) return BFloat16(value);
    BFloat16 rounded;
    rounded.bits = static_cast<uint16_t>((bits + (random & 0xffffU)) >> 16);
    return rounded;
}

/// Writes values into a 16-bit parameter.
UJOIN_INLINE void store_values(const Update &u, size_t offset, size_t count, const float *from) {
    if (u.dtype == UJOIN_F16) {
        Half *to = static_cast<Half *>(u.param) + offset;
        for (size_t i = 0; i < count; i++) to[i] = Half(from[i]);
        return;
    }
    BFloat16 *to = static_cast<BFloat16 *>(u.param) + offset;
    if (u.stochastic) {
        for (size_t i = 0; i < count; i++)
            to[i] = round_stochastic(from[i], random_bits(u.random_key, u.offset + offset + i));
    } else {
        for (size_t i = 0; i < count; i++) to[i] = BFloat16(from[i]);
    }
}

/// Brings a master copy up to date: where the parameter is not what the copy was rounded to, the program has written it.
template <class Half16> UJOIN_INLINE void refresh_master(const Half16 *values, size_t count, float *master) {
    for (size_t i = 0; i < count; i++)
        master[i] = Half16(master[i]).bits == values[i].bits ? master[i] : static_cast<float>(values[i]);
}

UJOIN_INLINE void refresh_master(const Update &u, size_t offset, size_t count) {
    if (u.dtype == UJOIN_F16) {
        refresh_master(static_cast<const Half *>(u.param) + offset, count, u.master + offset);
    } else {
        refresh_master(static_cast<const BFloat16 *>(u.param) + offset, count, u.master + offset);
    }
}

} // namespace ujoin::optim
