// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a rule walks over a parameter: at once where its memory is what the arithmetic needs, else in blocks that stay in the
// processor's cache while they are converted, updated and rounded.
#include "optim/convert.hpp"
#include "optim/simd.hpp"
#include <algorithm>
#include <type_traits>

namespace ujoin::optim {

template <class T> struct Piece {
    T *param;
    const T *grad;
    T *states[max_states];
    size_t count;
};

/// Calls `body` with the flag as a constant, so that loops carry no branches.
template <class Body> UJOIN_INLINE void as_constant(bool flag, Body &&body) {
    if (flag) {
        body(std::true_type{});
    } else {
        body(std::false_type{});
    }
}

inline constexpr size_t block_elements = 2048;

template <class T, class Body> UJOIN_INLINE void for_blocks(const Update &u, bool write_back, const Body &body) {
    constexpr bool is_f64 = sizeof(T) == 8;
    const ujoin_dtype own = is_f64 ? UJOIN_F64 : UJOIN_F32;
    const bool grad_as_is = u.grad_dtype == own && u.unscale == 1 && u.clip == 1;
    const bool param_as_is = u.dtype == own;
    const size_t step = grad_as_is && param_as_is ? u.count : block_elements;
    alignas(64) T grads[block_elements];
    alignas(64) T params[block_elements];
    for (size_t at = 0; at < u.count; at += step) {
        Piece<T> piece;
        piece.count = std::min(step, u.count - at);
        for (size_t i = 0; i < max_states; i++)
            piece.states[i] = u.states[i] ? static_cast<T *>(u.states[i]) + at : nullptr;
        piece.grad = grads;
        if (grad_as_is) {
            piece.grad = static_cast<const T *>(u.grad) + at;
        } else {
            load_gradient(u, at, piece.count, grads);
        }
        piece.param = params;
        if (param_as_is) {
            piece.param = static_cast<T *>(u.param) + at;
        } else if constexpr (!is_f64) {
            if (u.master) {
                refresh_master(u, at, piece.count);
                piece.param = u.master + at;
            } else {
                load(u.dtype, u.param, at, piece.count, params);
            }
        }
        body(piece);
        if constexpr (!is_f64)
            if (!param_as_is && write_back) store_values(u, at, piece.count, piece.param);
    }
}

/// `Loop<T>(hyper, update)` computes the factors, once; its operator() updates a piece. One that has end() only measures.
template <template <class> class Loop> UJOIN_INLINE void walk_any(const Hyper &hyper, const Update &update) {
    const auto run = [&](auto zero) UJOIN_INLINE_LAMBDA {
        using T = decltype(zero);
        Loop<T> loop(hyper, update);
        constexpr bool measures = requires { loop.end(); };
        for_blocks<T>(update, !measures, [&](const Piece<T> &piece) UJOIN_INLINE_LAMBDA { loop(piece); });
        if constexpr (measures) loop.end();
    };
    if (arithmetic_dtype(update.dtype) == UJOIN_F64) {
        run(double{});
    } else {
        run(float{});
    }
}

#ifdef __x86_64__
template <template <class> class Loop> UJOIN_AVX2 void walk_avx2(const Hyper &hyper, const Update &update) {
    walk_any<Loop>(hyper, update);
}
template <template <class> class Loop> UJOIN_AVX512 void walk_avx512(const Hyper &hyper, const Update &update) {
    walk_any<Loop>(hyper, update);
}
#endif

/// The same code, compiled for each instruction set: without contraction all give the same bits.
template <template <class> class Loop> void walk(const Hyper &hyper, const Update &update) {
#ifdef __x86_64__
    if (simd_target() == SimdTarget::avx512) return walk_avx512<Loop>(hyper, update);
    if (simd_target() == SimdTarget::avx2) return walk_avx2<Loop>(hyper, update);
#endif
    walk_any<Loop>(hyper, update);
}

/// Divides by a number that all elements have in common, with the bits of `/`. Units that divide are the slowest, and rules
/// need theirs for roots. What two f32 divide to is never a tie, and further from one than the error of the product in
/// f64; where results are subnormal, this holds for divisors of at most 1.
template <class T> class Divisor {
  public:
    explicit Divisor(double divisor)
        : divisor_(static_cast<T>(divisor)), inverse_(1 / static_cast<double>(static_cast<T>(divisor))) {}

    UJOIN_INLINE T divide(T value) const {
        if constexpr (sizeof(T) == 8) return value / divisor_;
        return static_cast<T>(static_cast<double>(value) * inverse_);
    }

  private:
    T divisor_;
    double inverse_;
};

/// Sums of f64 in a fixed order: element i goes to lane i mod 16.
class LaneSum {
  public:
    static constexpr size_t lanes = 16;

    /// All calls but the last bring a multiple of `lanes`.
    UJOIN_INLINE void add(const double *terms, size_t count) {
        using Eight = double __attribute__((vector_size(64), aligned(8), may_alias));
        auto *sums = reinterpret_cast<Eight *>(sum_);
        size_t i = 0;
        for (; i + lanes <= count; i += lanes) {
            sums[0] += *reinterpret_cast<const Eight *>(terms + i);
            sums[1] += *reinterpret_cast<const Eight *>(terms + i + lanes / 2);
        }
        for (; i < count; i++) sum_[i % lanes] += terms[i];
    }
    double total() const {
        double all = 0;
        for (const double one : sum_) all += one;
        return all;
    }

  private:
    alignas(64) double sum_[lanes] = {};
};

} // namespace ujoin::optim
