// SPDX-License-Identifier: Apache-2.0
#include "optim/blocks.hpp"
#include "optim/rules.hpp"
#include <cmath>

namespace ujoin::optim {
namespace {

enum Place : size_t { lr, beta1, beta2, eps, weight_decay, decoupled, maximize };

template <class T> struct RAdam {
    T sign;
    T keep;  ///< decoupled decay of the parameter itself
    T decay; ///< 0 if it is decoupled
    T fresh1, b2, fresh2;
    Divisor<T> correction1;
    T rate;
    T epsilon;
    T root_correction2, rectification;
    bool adaptive; ///< enough steps are behind us to trust the variance

    RAdam(const Hyper &h, const Update &u) : correction1(1 - std::pow(h[beta1], static_cast<double>(u.step))) {
        const auto step = static_cast<double>(u.step);
        const bool apart = h[decoupled] != 0;
        const double power2 = std::pow(h[beta2], step);
        const double longest = 2 / (1 - h[beta2]) - 1;
        const double length = longest - 2 * step * power2 / (1 - power2);
        sign = h[maximize] != 0 ? T(-1) : T(1);
        keep = apart ? static_cast<T>(1 - h[lr] * h[weight_decay]) : T(1);
        decay = apart ? T(0) : static_cast<T>(h[weight_decay]);
        fresh1 = static_cast<T>(1 - h[beta1]);
        b2 = static_cast<T>(h[beta2]);
        fresh2 = static_cast<T>(1 - h[beta2]);
        rate = static_cast<T>(h[lr]);
        epsilon = static_cast<T>(h[eps]);
        root_correction2 = static_cast<T>(std::sqrt(1 - power2));
        adaptive = length > 5;
        rectification = adaptive ? static_cast<T>(std::sqrt((length - 4) * (length - 2) * longest /
                                                            ((longest - 4) * (longest - 2) * length)))
                                 : T(1);
    }

    template <bool Decay, bool Adaptive> UJOIN_INLINE void loop(const Piece<T> &piece) const {
        T *__restrict param = piece.param;
        const T *__restrict grad = piece.grad;
        T *__restrict average = piece.states[0];
        T *__restrict square = piece.states[1];
        for (size_t i = 0; i < piece.count; i++) {
            const T p = param[i] * keep;
            T g = sign * grad[i];
            if constexpr (Decay) g = g + decay * p;
            const T m = average[i] + fresh1 * (g - average[i]);
            const T v = square[i] * b2 + fresh2 * g * g;
            average[i] = m;
            square[i] = v;
            T move = correction1.divide(m) * rate;
            if constexpr (Adaptive) move = move * (root_correction2 / (std::sqrt(v) + epsilon)) * rectification;
            param[i] = p - move;
        }
    }

    UJOIN_INLINE void operator()(const Piece<T> &piece) const {
        as_constant(decay != 0, [&](auto with_decay) UJOIN_INLINE_LAMBDA {
            as_constant(adaptive, [&](auto trust) UJOIN_INLINE_LAMBDA {
                loop<decltype(with_decay)::value, decltype(trust)::value>(piece);
            });
        });
    }
};

} // namespace

Rule radam_rule() {
    Rule rule;
    rule.id = UJOIN_OPTIMIZER_RADAM;
    rule.name = "radam";
    rule.hypers = {{"lr", 1e-3},         {"beta1", 0.9},      {"beta2", 0.999},
                   {"eps", 1e-8},        {"weight_decay", 0}, {"decoupled_weight_decay", 0, true},
                   {"maximize", 0, true}};
    rule.states = {"exp_avg", "exp_avg_sq"};
    rule.counts_steps = true;
    rule.check = check_like_adam;
    rule.apply = walk<RAdam>;
    return rule;
}

} // namespace ujoin::optim
