// SPDX-License-Identifier: Apache-2.0
#include "optim/blocks.hpp"
#include "optim/rules.hpp"
#include <cmath>

namespace ujoin::optim {
namespace {

enum Place : size_t { lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled, maximize };

double momentum_at(const Hyper &h, double step) { return h[beta1] * (1 - 0.5 * std::pow(0.96, step * h[momentum_decay])); }

template <class T> struct NAdam {
    T sign;
    T keep;  ///< decoupled decay of the parameter itself
    T decay; ///< 0 if it is decoupled
    T fresh1, b2, fresh2;
    Divisor<T> correction2;
    T epsilon;
    T minus_grad_rate, minus_average_rate;

    NAdam(const Hyper &h, const Update &u) : correction2(1 - std::pow(h[beta2], static_cast<double>(u.step))) {
        const auto step = static_cast<double>(u.step);
        const bool apart = h[decoupled] != 0;
        const double mu = momentum_at(h, step);
        const double mu_next = momentum_at(h, step + 1);
        const double product = u.number;
        sign = h[maximize] != 0 ? T(-1) : T(1);
        keep = apart ? static_cast<T>(1 - h[lr] * h[weight_decay]) : T(1);
        decay = apart ? T(0) : static_cast<T>(h[weight_decay]);
        fresh1 = static_cast<T>(1 - h[beta1]);
        b2 = static_cast<T>(h[beta2]);
        fresh2 = static_cast<T>(1 - h[beta2]);
        epsilon = static_cast<T>(h[eps]);
        minus_grad_rate = static_cast<T>(-h[lr] * (1 - mu) / (1 - product));
        minus_average_rate = static_cast<T>(-h[lr] * mu_next / (1 - product * mu_next));
    }

    template <bool Decay> UJOIN_INLINE void loop(const Piece<T> &piece) const {
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
            const T denominator = std::sqrt(correction2.divide(v)) + epsilon;
            param[i] = p + minus_grad_rate * g / denominator + minus_average_rate * m / denominator;
        }
    }

    UJOIN_INLINE void operator()(const Piece<T> &piece) const {
        as_constant(decay != 0, [&](auto with_decay) UJOIN_INLINE_LAMBDA { loop<decltype(with_decay)::value>(piece); });
    }
};

/// The product over all steps is a number in f32, as PyTorch keeps it.
double next_product(const Hyper &h, int64_t step, double product) {
    return static_cast<double>(static_cast<float>(product) * static_cast<float>(momentum_at(h, static_cast<double>(step))));
}

void check(const Hyper &h) {
    check_like_adam(h);
    at_least_zero("momentum_decay", h[momentum_decay]);
}

} // namespace

Rule nadam_rule() {
    Rule rule;
    rule.id = UJOIN_OPTIMIZER_NADAM;
    rule.name = "nadam";
    rule.hypers = {{"lr", 2e-3},
                   {"beta1", 0.9},
                   {"beta2", 0.999},
                   {"eps", 1e-8},
                   {"weight_decay", 0},
                   {"momentum_decay", 4e-3},
                   {"decoupled_weight_decay", 0, true},
                   {"maximize", 0, true}};
    rule.states = {"exp_avg", "exp_avg_sq"};
    rule.counts_steps = true;
    rule.number = "mu_product";
    rule.next_number = next_product;
    rule.check = check;
    rule.apply = walk<NAdam>;
    return rule;
}

} // namespace ujoin::optim
