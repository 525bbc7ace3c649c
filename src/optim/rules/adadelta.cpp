// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "optim/blocks.hpp"
#include "optim/rules.hpp"
#include <cmath>

namespace ujoin::optim {
namespace {

enum Place : size_t { lr, rho, eps, weight_decay, maximize };

template <class T> struct Adadelta {
    T sign;
    T decay;
    T keep, fresh;
    T epsilon;
    T minus_lr;

    Adadelta(const Hyper &h, const Update &)
        : sign(h[maximize] != 0 ? T(-1) : T(1)), decay(static_cast<T>(h[weight_decay])), keep(static_cast<T>(h[rho])),
          fresh(static_cast<T>(1 - h[rho])), epsilon(static_cast<T>(h[eps])), minus_lr(static_cast<T>(-h[lr])) {}

    template <bool Decay> UJOIN_INLINE void loop(const Piece<T> &piece) const {
        T *__restrict param = piece.param;
        const T *__restrict grad = piece.grad;
        T *__restrict square = piece.states[0];
        T *__restrict moved = piece.states[1];
        for (size_t i = 0; i < piece.count; i++) {
            T g = sign * grad[i];
            if constexpr (Decay) g = g + decay * param[i];
            const T v = square[i] * keep + fresh * g * g;
            square[i] = v;
            const T a = moved[i];
            const T delta = std::sqrt(a + epsilon) / std::sqrt(v + epsilon) * g;
            moved[i] = a * keep + fresh * delta * delta;
            param[i] = param[i] + minus_lr * delta;
        }
    }

    UJOIN_INLINE void operator()(const Piece<T> &piece) const {
        as_constant(decay != 0, [&](auto with_decay) UJOIN_INLINE_LAMBDA { loop<decltype(with_decay)::value>(piece); });
    }
};

void check(const Hyper &h) {
    at_least_zero("lr", h[lr]);
    if (!(h[rho] >= 0 && h[rho] <= 1)) fail_invalid("rho is ", h[rho], "; it must be between 0 and 1");
    at_least_zero("eps", h[eps]);
    at_least_zero("weight_decay", h[weight_decay]);
}

} // namespace

Rule adadelta_rule() {
    Rule rule;
    rule.id = UJOIN_OPTIMIZER_ADADELTA;
    rule.name = "adadelta";
    rule.hypers = {{"lr", 1}, {"rho", 0.9}, {"eps", 1e-6}, {"weight_decay", 0}, {"maximize", 0, true}};
    rule.states = {"square_avg", "acc_delta"};
    rule.counts_steps = true;
    rule.check = check;
    rule.apply = walk<Adadelta>;
    return rule;
}

} // namespace ujoin::optim
