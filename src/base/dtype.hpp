// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/error.hpp"
#include <bit>
#include <cstddef>
#include <cstdint>

namespace ujoin {

inline bool dtype_known(ujoin_dtype dtype) { return dtype >= UJOIN_F32 && dtype <= UJOIN_U8; }
/// Bytes per element; 0 for an unknown type.
inline size_t dtype_size(ujoin_dtype dtype) {
    constexpr size_t sizes[] = {0, 4, 8, 2, 2, 4, 8, 1};
    return dtype_known(dtype) ? sizes[dtype] : 0;
}
inline const char *dtype_name(ujoin_dtype dtype) {
    constexpr const char *names[] = {"?", "f32", "f64", "f16", "bf16", "i32", "i64", "u8"};
    return names[dtype_known(dtype) ? dtype : 0];
}
inline bool dtype_is_float(ujoin_dtype dtype) { return dtype >= UJOIN_F32 && dtype <= UJOIN_BF16; }

/// 16-bit types as they lie in memory; arithmetic happens in f32.
struct BFloat16 {
    uint16_t bits;
    BFloat16() = default;
    explicit BFloat16(float value) {
        uint32_t u = std::bit_cast<uint32_t>(value);
        if ((u & 0x7fffffffU) > 0x7f800000U) {
            bits = static_cast<uint16_t>((u >> 16) | 0x40U); // quiet NaN
        } else {
            bits = static_cast<uint16_t>((u + 0x7fffU + ((u >> 16) & 1U)) >> 16); // to nearest even
        }
    }
    explicit operator float() const { return std::bit_cast<float>(uint32_t{bits} << 16); }
};

struct Half {
    uint16_t bits;
    Half() = default;
    explicit Half(float value) : bits(from_float(value)) {}
    explicit operator float() const { return to_float(bits); }

    static uint16_t from_float(float value) {
        const uint32_t u = std::bit_cast<uint32_t>(value);
        const uint16_t sign = static_cast<uint16_t>((u >> 16) & 0x8000U);
        const uint32_t magnitude = u & 0x7fffffffU;
        if (magnitude > 0x7f800000U) return static_cast<uint16_t>(sign | 0x7e00U);
        if (magnitude >= 0x477ff000U) return static_cast<uint16_t>(sign | 0x7c00U); // 65520 and more round to infinity
        if (magnitude < 0x38800000U) {                                              // subnormal: steps of 2^-24
            const float steps = std::bit_cast<float>(magnitude) * 16777216.0F;
            const auto whole = static_cast<uint32_t>(steps);
            const float rest = steps - static_cast<float>(whole);
            const uint32_t up = rest > 0.5F || (rest == 0.5F && (whole & 1U)) ? 1U : 0U;
            return static_cast<uint16_t>(sign | (whole + up));
        }
        const uint32_t rounded = magnitude + 0xfffU + ((magnitude >> 13) & 1U); // to nearest even
        return static_cast<uint16_t>(sign | ((rounded - 0x38000000U) >> 13));
    }
    static float to_float(uint16_t bits) {
        const uint32_t sign = uint32_t{bits & 0x8000U} << 16;
        const uint32_t exponent = (bits >> 10) & 0x1fU;
        const uint32_t fraction = bits & 0x3ffU;
        if (exponent == 0x1fU) return std::bit_cast<float>(sign | 0x7f800000U | (fraction << 13));
        if (exponent == 0) {
            const float magnitude = static_cast<float>(fraction) * 0x1p-24F;
            return std::bit_cast<float>(sign | std::bit_cast<uint32_t>(magnitude));
        }
        return std::bit_cast<float>(sign | ((exponent + 112U) << 23) | (fraction << 13));
    }
};

/// Calls `body` with a value of the element type of `dtype`: visit_dtype(d, [&](auto zero) { using T = decltype(zero); ... }).
template <class Body> decltype(auto) visit_dtype(ujoin_dtype dtype, Body &&body) {
    switch (dtype) {
    case UJOIN_F32:
        return body(float{});
    case UJOIN_F64:
        return body(double{});
    case UJOIN_F16:
        return body(Half{});
    case UJOIN_BF16:
        return body(BFloat16{});
    case UJOIN_I32:
        return body(int32_t{});
    case UJOIN_I64:
        return body(int64_t{});
    case UJOIN_U8:
        return body(uint8_t{});
    default:
        fail_invalid("dtype is ", dtype, "; expected a value of ujoin_dtype_value");
    }
}

} // namespace ujoin
