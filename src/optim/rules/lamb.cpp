// SPDX-License-Identifier: Apache-2.0
#include "optim/blocks.hpp"
#include "optim/rules.hpp"
#include <algorithm>
#include <cmath>

namespace ujoin::optim {
namespace {

enum Place : size_t { lr, beta1, beta2, eps, weight_decay, maximize };

/// You et al., "Large Batch Optimization for Deep Learning": Adam's direction and the decay, scaled by the ratio of the
/// norms of parameter and update. That is one number for a whole tensor, hence two passes. Where one of the norms is 0,
/// the ratio is 1.
template <class T> struct Direction {
    Divisor<T> correction1, correction2;
    T epsilon;
    T decay;

    Direction(const Hyper &h, const Update &u)
        : correction1(1 - std::pow(h[beta1], static_cast<double>(u.step))),
          correction2(1 - std::pow(h[beta2], static_cast<double>(u.step))), epsilon(static_cast<T>(h[eps])),
          decay(static_cast<T>(h[weight_decay])) {}

    UJOIN_INLINE T at(T p, T m, T v) const {
        return correction1.divide(m) / (std::sqrt(correction2.divide(v)) + epsilon) + decay * p;
    }
};

/// Brings the moments up to date, and adds up the squares of parameter and direction.
template <class T> struct LambMoments {
    Direction<T> direction;
    T sign;
    T b1, fresh1;
    T b2, fresh2;
    double *sums;
    LaneSum param_squares, update_squares;

    LambMoments(const Hyper &h, const Update &u)
        : direction(h, u), sign(h[maximize] != 0 ? T(-1) : T(1)), b1(static_cast<T>(h[beta1])),
          fresh1(static_cast<T>(1 - h[beta1])), b2(static_cast<T>(h[beta2])), fresh2(static_cast<T>(1 - h[beta2])),
          sums(u.sums) {}

    /// A few elements at a time, so that all about them stays in the nearest cache.
    UJOIN_INLINE void operator()(const Piece<T> &piece) {
        constexpr size_t few = 32 * LaneSum::lanes;
        alignas(64) double param_terms[few];
        alignas(64) double update_terms[few];
        for (size_t at = 0; at < piece.count; at += few) {
            const size_t count = std::min(few, piece.count - at);
            const T *__restrict param = piece.param + at;
            const T *__restrict grad = piece.grad + at;
            T *__restrict average = piece.states[0] + at;
            T *__restrict square = piece.states[1] + at;
            for (size_t i = 0; i < count; i++) {
                const T g = sign * grad[i];
                const T m = average[i] * b1 + fresh1 * g;
                const T v = square[i] * b2 + fresh2 * g * g;
                average[i] = m;
                square[i] = v;
                const auto p = static_cast<double>(param[i]);
                const auto r = static_cast<double>(direction.at(param[i], m, v));
                param_terms[i] = p * p;
                update_terms[i] = r * r;
            }
            param_squares.add(param_terms, count);
            update_squares.add(update_terms, count);
        }
    }

    void end() const {
        sums[0] = param_squares.total();
        sums[1] = update_squares.total();
    }
};

template <class T> struct LambMove {
    Direction<T> direction;
    T minus_move;

    LambMove(const Hyper &h, const Update &u) : direction(h, u) {
        const double param_norm = std::sqrt(u.sums[0]);
        const double update_norm = std::sqrt(u.sums[1]);
        const double ratio = param_norm == 0 || update_norm == 0 ? 1 : param_norm / update_norm;
        minus_move = static_cast<T>(-h[lr] * ratio);
    }

    UJOIN_INLINE void operator()(const Piece<T> &piece) const {
        T *__restrict param = piece.param;
        const T *__restrict average = piece.states[0];
        const T *__restrict square = piece.states[1];
        for (size_t i = 0; i < piece.count; i++)
            param[i] = param[i] + minus_move * direction.at(param[i], average[i], square[i]);
    }
};

} // namespace

Rule lamb_rule() {
    Rule rule;
    rule.id = UJOIN_OPTIMIZER_LAMB;
    rule.name = "lamb";
    rule.hypers = {{"lr", 1e-3},  {"beta1", 0.9},         {"beta2", 0.999},
                   {"eps", 1e-6}, {"weight_decay", 1e-2}, {"maximize", 0, true}};
    rule.states = {"exp_avg", "exp_avg_sq"};
    rule.per_tensor = true;
    rule.counts_steps = true;
    rule.check = check_like_adam;
    rule.measure = walk<LambMoments>;
    rule.apply = walk<LambMove>;
    return rule;
}

} // namespace ujoin::optim
