// SPDX-License-Identifier: Apache-2.0
#include "optim/blocks.hpp"
#include "optim/rules.hpp"
#include <cmath>

namespace ujoin::optim {
namespace {

enum Place : size_t { lr, beta1, beta2, eps, weight_decay, amsgrad, maximize };

/// Adam and AdamW: the second takes the decay from the parameter itself.
template <class T, bool Decoupled> struct Moments {
    T sign;
    T keep; ///< AdamW's decay of the parameter itself; 1 for Adam
    T decay;
    T b1, fresh1;
    T b2, fresh2;
    Divisor<T> root_correction2;
    T epsilon;
    T minus_step;
    bool top;

    Moments(const Hyper &h, const Update &u)
        : root_correction2(std::sqrt(1 - std::pow(h[beta2], static_cast<double>(u.step)))), top(h[amsgrad] != 0) {
        const double correction1 = 1 - std::pow(h[beta1], static_cast<double>(u.step));
        sign = h[maximize] != 0 ? T(-1) : T(1);
        keep = Decoupled ? static_cast<T>(1 - h[lr] * h[weight_decay]) : T(1);
        decay = static_cast<T>(h[weight_decay]);
        b1 = static_cast<T>(h[beta1]);
        fresh1 = static_cast<T>(1 - h[beta1]);
        b2 = static_cast<T>(h[beta2]);
        fresh2 = static_cast<T>(1 - h[beta2]);
        epsilon = static_cast<T>(h[eps]);
        minus_step = static_cast<T>(-(h[lr] / correction1));
    }

    template <bool Decay, bool AmsGrad> UJOIN_INLINE void loop(const Piece<T> &piece) const {
        T *__restrict param = piece.param;
        const T *__restrict grad = piece.grad;
        T *__restrict average = piece.states[0];
        T *__restrict square = piece.states[1];
        [[maybe_unused]] T *__restrict largest = piece.states[2];
        for (size_t i = 0; i < piece.count; i++) {
            const T p = param[i] * keep;
            T g = sign * grad[i];
            if constexpr (Decay) g = g + decay * p;
            const T m = average[i] * b1 + fresh1 * g;
            const T v = square[i] * b2 + fresh2 * g * g;
            average[i] = m;
            square[i] = v;
            T bound = v;
            if constexpr (AmsGrad) {
                const T before = largest[i];
                bound = before > v || before != before ? before : v; // a NaN stays
                largest[i] = bound;
            }
            const T denominator = root_correction2.divide(std::sqrt(bound)) + epsilon;
            param[i] = p + minus_step * m / denominator;
        }
    }

    UJOIN_INLINE void operator()(const Piece<T> &piece) const {
        as_constant(!Decoupled && decay != 0, [&](auto with_decay) UJOIN_INLINE_LAMBDA {
            as_constant(top, [&](auto keep_top) UJOIN_INLINE_LAMBDA {
                loop<decltype(with_decay)::value, decltype(keep_top)::value>(piece);
            });
        });
    }
};
template <class T> using Adam = Moments<T, false>;
template <class T> using AdamW = Moments<T, true>;

unsigned needed(const Hyper &h) { return h[amsgrad] != 0 ? 7U : 3U; }

Rule describe(ujoin_optimizer id, const char *name, double decay) {
    Rule rule;
    rule.id = id;
    rule.name = name;
    rule.hypers = {{"lr", 1e-3},         {"beta1", 0.9},       {"beta2", 0.999}, {"eps", 1e-8}, {"weight_decay", decay},
                   {"amsgrad", 0, true}, {"maximize", 0, true}};
    rule.states = {"exp_avg", "exp_avg_sq", "max_exp_avg_sq"};
    rule.counts_steps = true;
    rule.check = check_like_adam;
    rule.needed = needed;
    return rule;
}

} // namespace

Rule adam_rule() {
    Rule rule = describe(UJOIN_OPTIMIZER_ADAM, "adam", 0);
    rule.apply = walk<Adam>;
    return rule;
}

Rule adamw_rule() {
    Rule rule = describe(UJOIN_OPTIMIZER_ADAMW, "adamw", 1e-2);
    rule.apply = walk<AdamW>;
    return rule;
}

} // namespace ujoin::optim
