// SPDX-License-Identifier: Apache-2.0
#include "optim/blocks.hpp"
#include "optim/rules.hpp"
#include <cmath>

namespace ujoin::optim {
namespace {

enum Place : size_t { lr, beta1, beta2, eps, weight_decay, maximize };

template <class T> struct Adamax {
    T sign;
    T decay;
    T fresh1, b2;
    T epsilon;
    T minus_rate;

    Adamax(const Hyper &h, const Update &u)
        : sign(h[maximize] != 0 ? T(-1) : T(1)), decay(static_cast<T>(h[weight_decay])),
          fresh1(static_cast<T>(1 - h[beta1])), b2(static_cast<T>(h[beta2])), epsilon(static_cast<T>(h[eps])),
          minus_rate(static_cast<T>(-(h[lr] / (1 - std::pow(h[beta1], static_cast<double>(u.step)))))) {}

    template <bool Decay> UJOIN_INLINE void loop(const Piece<T> &piece) const {
        T *__restrict param = piece.param;
        const T *__restrict grad = piece.grad;
        T *__restrict average = piece.states[0];
        T *__restrict largest = piece.states[1];
        for (size_t i = 0; i < piece.count; i++) {
            T g = sign * grad[i];
            if constexpr (Decay) g = g + decay * param[i];
            const T m = average[i] + fresh1 * (g - average[i]);
            average[i] = m;
            const T before = largest[i] * b2;
            const T now = std::abs(g) + epsilon;
            const T bound = before > now || before != before ? before : now; // a NaN stays
            largest[i] = bound;
            param[i] = param[i] + minus_rate * m / bound;
        }
    }

    UJOIN_INLINE void operator()(const Piece<T> &piece) const {
        as_constant(decay != 0, [&](auto with_decay) UJOIN_INLINE_LAMBDA { loop<decltype(with_decay)::value>(piece); });
    }
};

} // namespace

Rule adamax_rule() {
    Rule rule;
    rule.id = UJOIN_OPTIMIZER_ADAMAX;
    rule.name = "adamax";
    rule.hypers = {{"lr", 2e-3},  {"beta1", 0.9},      {"beta2", 0.999},
                   {"eps", 1e-8}, {"weight_decay", 0}, {"maximize", 0, true}};
    rule.states = {"exp_avg", "exp_inf"};
    rule.counts_steps = true;
    rule.check = check_like_adam;
    rule.apply = walk<Adamax>;
    return rule;
}

} // namespace ujoin::optim
