// SPDX-License-Identifier: Apache-2.0
#include "optim/blocks.hpp"
#include "optim/rules.hpp"
#include <cmath>

namespace ujoin::optim {
namespace {

enum Place : size_t { lr, lr_decay, weight_decay, initial, eps, maximize };

template <class T> struct Adagrad {
    T sign;
    T decay;
    T epsilon;
    T minus_rate;
    T begin; ///< the sum of squares before the first step
    bool first;

    Adagrad(const Hyper &h, const Update &u)
        : sign(h[maximize] != 0 ? T(-1) : T(1)), decay(static_cast<T>(h[weight_decay])), epsilon(static_cast<T>(h[eps])),
          minus_rate(static_cast<T>(-(h[lr] / (1 + static_cast<double>(u.step - 1) * h[lr_decay])))),
          begin(static_cast<T>(h[initial])), first(u.first) {}

    template <bool Decay> UJOIN_INLINE void loop(const Piece<T> &piece) const {
        T *__restrict param = piece.param;
        const T *__restrict grad = piece.grad;
        T *__restrict sum = piece.states[0];
        for (size_t i = 0; i < piece.count; i++) {
            T g = sign * grad[i];
            if constexpr (Decay) g = g + decay * param[i];
            const T s = sum[i] + g * g;
            sum[i] = s;
            param[i] = param[i] + minus_rate * g / (std::sqrt(s) + epsilon);
        }
    }

    UJOIN_INLINE void operator()(const Piece<T> &piece) const {
        if (first) std::fill_n(piece.states[0], piece.count, begin);
        as_constant(decay != 0, [&](auto with_decay) UJOIN_INLINE_LAMBDA { loop<decltype(with_decay)::value>(piece); });
    }
};

void check(const Hyper &h) {
    at_least_zero("lr", h[lr]);
    at_least_zero("lr_decay", h[lr_decay]);
    at_least_zero("weight_decay", h[weight_decay]);
    at_least_zero("initial_accumulator_value", h[initial]);
    at_least_zero("eps", h[eps]);
}

} // namespace

Rule adagrad_rule() {
    Rule rule;
    rule.id = UJOIN_OPTIMIZER_ADAGRAD;
    rule.name = "adagrad";
    rule.hypers = {{"lr", 1e-2},   {"lr_decay", 0},      {"weight_decay", 0}, {"initial_accumulator_value", 0},
                   {"eps", 1e-10}, {"maximize", 0, true}};
    rule.states = {"sum"};
    rule.counts_steps = true;
    rule.check = check;
    rule.apply = walk<Adagrad>;
    return rule;
}

} // namespace ujoin::optim
