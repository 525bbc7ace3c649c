// SPDX-License-Identifier: Apache-2.0
#include "optim/blocks.hpp"
#include "optim/rules.hpp"
#include <cmath>

namespace ujoin::optim {
namespace {

enum Place : size_t { lr, alpha, eps, weight_decay, momentum, centered, maximize };

template <class T> struct RmsProp {
    T sign;
    T decay;
    T keep, fresh;
    T epsilon;
    T inertia;
    T minus_lr;
    bool subtract_mean;

    RmsProp(const Hyper &h, const Update &)
        : sign(h[maximize] != 0 ? T(-1) : T(1)), decay(static_cast<T>(h[weight_decay])), keep(static_cast<T>(h[alpha])),
          fresh(static_cast<T>(1 - h[alpha])), epsilon(static_cast<T>(h[eps])), inertia(static_cast<T>(h[momentum])),
          minus_lr(static_cast<T>(-h[lr])), subtract_mean(h[centered] != 0) {}

    template <bool Decay, bool Centered, bool Momentum> UJOIN_INLINE void loop(const Piece<T> &piece) const {
        T *__restrict param = piece.param;
        const T *__restrict grad = piece.grad;
        T *__restrict square = piece.states[0];
        [[maybe_unused]] T *__restrict buffer = piece.states[1];
        [[maybe_unused]] T *__restrict mean = piece.states[2];
        for (size_t i = 0; i < piece.count; i++) {
            T g = sign * grad[i];
            if constexpr (Decay) g = g + decay * param[i];
            T v = square[i] * keep + fresh * g * g;
            square[i] = v;
            if constexpr (Centered) {
                const T m = mean[i] + fresh * (g - mean[i]);
                mean[i] = m;
                v = v - m * m;
            }
            const T root = std::sqrt(v) + epsilon;
            if constexpr (Momentum) {
                const T b = buffer[i] * inertia + g / root;
                buffer[i] = b;
                param[i] = param[i] + minus_lr * b;
            } else {
                param[i] = param[i] + minus_lr * g / root;
            }
        }
    }

    UJOIN_INLINE void operator()(const Piece<T> &piece) const {
        as_constant(decay != 0, [&](auto d) UJOIN_INLINE_LAMBDA {
            as_constant(subtract_mean, [&](auto c) UJOIN_INLINE_LAMBDA {
                as_constant(inertia > 0, [&](auto m) UJOIN_INLINE_LAMBDA {
                    loop<decltype(d)::value, decltype(c)::value, decltype(m)::value>(piece);
                });
            });
        });
    }
};

void check(const Hyper &h) {
    at_least_zero("lr", h[lr]);
    at_least_zero("alpha", h[alpha]);
    at_least_zero("eps", h[eps]);
    at_least_zero("weight_decay", h[weight_decay]);
    at_least_zero("momentum", h[momentum]);
}

unsigned needed(const Hyper &h) { return 1U | (h[momentum] > 0 ? 2U : 0U) | (h[centered] != 0 ? 4U : 0U); }

} // namespace

Rule rmsprop_rule() {
    Rule rule;
    rule.id = UJOIN_OPTIMIZER_RMSPROP;
    rule.name = "rmsprop";
    rule.hypers = {{"lr", 1e-2},    {"alpha", 0.99},       {"eps", 1e-8},        {"weight_decay", 0},
                   {"momentum", 0}, {"centered", 0, true}, {"maximize", 0, true}};
    rule.states = {"square_avg", "momentum_buffer", "grad_avg"};
    rule.counts_steps = true;
    rule.check = check;
    rule.needed = needed;
    rule.apply = walk<RmsProp>;
    return rule;
}

} // namespace ujoin::optim
