// SPDX-License-Identifier: Apache-2.0
#include "optim/blocks.hpp"
#include "optim/rules.hpp"
#include <cmath>

namespace ujoin::optim {
namespace {

enum Place : size_t { lr, beta1, beta2, weight_decay, maximize };

/// Chen et al., "Symbolic Discovery of Optimization Algorithms": the sign of an interpolation, with decoupled decay.
template <class T> struct Lion {
    T sign;
    T keep;
    T b1, fresh1;
    T b2, fresh2;
    T rate;

    Lion(const Hyper &h, const Update &)
        : sign(h[maximize] != 0 ? T(-1) : T(1)), keep(static_cast<T>(1 - h[lr] * h[weight_decay])),
          b1(static_cast<T>(h[beta1])), fresh1(static_cast<T>(1 - h[beta1])), b2(static_cast<T>(h[beta2])),
          fresh2(static_cast<T>(1 - h[beta2])), rate(static_cast<T>(h[lr])) {}

    UJOIN_INLINE void operator()(const Piece<T> &piece) const {
        T *__restrict param = piece.param;
        const T *__restrict grad = piece.grad;
        T *__restrict average = piece.states[0];
        for (size_t i = 0; i < piece.count; i++) {
            const T g = sign * grad[i];
            const T m = average[i];
            const T mix = m * b1 + fresh1 * g;
            const T direction = mix > 0 ? T(1) : mix < 0 ? T(-1) : mix; // 0 and NaN stay
            param[i] = param[i] * keep - rate * direction;
            average[i] = m * b2 + fresh2 * g;
        }
    }
};

void check(const Hyper &h) {
    at_least_zero("lr", h[lr]);
    below_one("beta1", h[beta1]);
    below_one("beta2", h[beta2]);
    at_least_zero("weight_decay", h[weight_decay]);
}

} // namespace

Rule lion_rule() {
    Rule rule;
    rule.id = UJOIN_OPTIMIZER_LION;
    rule.name = "lion";
    rule.hypers = {{"lr", 1e-4}, {"beta1", 0.9}, {"beta2", 0.99}, {"weight_decay", 0}, {"maximize", 0, true}};
    rule.states = {"exp_avg"};
    rule.check = check;
    rule.apply = walk<Lion>;
    return rule;
}

} // namespace ujoin::optim
