// SPDX-License-Identifier: Apache-2.0
#pragma once
// How a rule walks over a parameter: at once where its memory is what the arithmetic needs, else in blocks that stay in the
// processor's cache while they are converted, updated and rounded.
#include "optim/convert.hpp"
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
template <class Body> void as_constant(bool flag, Body &&body) {
    if (flag) {
        body(std::true_type{});
    } else {
        body(std::false_type{});
    }
}

inline constexpr size_t block_elements = 2048;

template <class T, class Body> void for_blocks(const Update &u, bool write_back, const Body &body) {
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

/// `Loop<T>(hyper, update)` computes the factors, once; its operator() updates a piece. A rule that needs the whole
/// tensor first has a second pass: `measured()` between the two, then `second(piece)`.
template <template <class> class Loop> void walk(const Hyper &hyper, const Update &update) {
    const auto run = [&](auto zero) {
        using T = decltype(zero);
        Loop<T> loop(hyper, update);
        constexpr bool two = requires(const Piece<T> &piece) { loop.second(piece); };
        for_blocks<T>(update, !two, [&](const Piece<T> &piece) { loop(piece); });
        if constexpr (two) {
            loop.measured();
            for_blocks<T>(update, true, [&](const Piece<T> &piece) { loop.second(piece); });
        }
    };
    if (arithmetic_dtype(update.dtype) == UJOIN_F64) {
        run(double{});
    } else {
        run(float{});
    }
}

/// Sums of f64 in a fixed order, whatever the blocks: element i goes to lane i mod 16.
class LaneSum {
  public:
    template <class Term> void add(size_t count, const Term &term) {
        size_t i = 0;
        for (; at_ % lanes != 0 && i < count; i++) sum_[at_++ % lanes] += static_cast<double>(term(i));
        for (; i + lanes <= count; i += lanes, at_ += lanes)
            for (size_t k = 0; k < lanes; k++) sum_[k] += static_cast<double>(term(i + k));
        for (; i < count; i++) sum_[at_++ % lanes] += static_cast<double>(term(i));
    }
    double total() const {
        double all = 0;
        for (const double one : sum_) all += one;
        return all;
    }

  private:
    static constexpr size_t lanes = 16;
    double sum_[lanes] = {};
    size_t at_ = 0;
};

} // namespace ujoin::optim
