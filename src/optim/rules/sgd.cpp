// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "optim/blocks.hpp"
#include "optim/rules.hpp"

namespace ujoin::optim {
namespace {

enum Place : size_t { lr, momentum, dampening, nesterov, weight_decay, maximize };
enum class Momentum : unsigned char { none, first, later };
template <Momentum Kind> using MomentumKind = std::integral_constant<Momentum, Kind>;

template <class T> struct Sgd {
    T sign; ///< -1: climb instead of descend
    T minus_lr;
    T keep;  ///< of the momentum buffer
    T fresh; ///< what a gradient adds to it
    T decay;
    bool has_momentum, look_ahead, first;

    Sgd(const Hyper &h, const Update &u)
        : sign(h[maximize] != 0 ? T(-1) : T(1)), minus_lr(static_cast<T>(-h[lr])), keep(static_cast<T>(h[momentum])),
          fresh(static_cast<T>(1 - h[dampening])), decay(static_cast<T>(h[weight_decay])), has_momentum(h[momentum] != 0),
          look_ahead(h[nesterov] != 0), first(u.first) {}

    template <bool Decay, Momentum Kind, bool Nesterov> UJOIN_INLINE void loop(const Piece<T> &piece) const {
        T *__restrict param = piece.param;
        const T *__restrict grad = piece.grad;
        [[maybe_unused]] T *__restrict buffer = piece.states[0];
        for (size_t i = 0; i < piece.count; i++) {
            T g = sign * grad[i];
            if constexpr (Decay) g = g + decay * param[i];
            if constexpr (Kind != Momentum::none) {
                const T b = Kind == Momentum::first ? g : keep * buffer[i] + fresh * g;
                buffer[i] = b;
                g = Nesterov ? g + keep * b : b;
            }
            param[i] = param[i] + minus_lr * g;
        }
    }

    UJOIN_INLINE void operator()(const Piece<T> &piece) const {
        as_constant(decay != 0, [&](auto with_decay) UJOIN_INLINE_LAMBDA {
            const auto with = [&](auto kind, auto ahead) UJOIN_INLINE_LAMBDA {
                loop<decltype(with_decay)::value, decltype(kind)::value, decltype(ahead)::value>(piece);
            };
            if (!has_momentum) return with(MomentumKind<Momentum::none>{}, std::false_type{});
            as_constant(look_ahead, [&](auto ahead) UJOIN_INLINE_LAMBDA {
                if (first) return with(MomentumKind<Momentum::first>{}, ahead);
                with(MomentumKind<Momentum::later>{}, ahead);
            });
        });
    }
};

void check(const Hyper &h) {
    at_least_zero("lr", h[lr]);
    at_least_zero("momentum", h[momentum]);
    at_least_zero("weight_decay", h[weight_decay]);
    if (h[nesterov] != 0 && (h[momentum] <= 0 || h[dampening] != 0))
        fail_invalid("nesterov needs a momentum above 0 and a dampening of 0; momentum is ", h[momentum], ", dampening is ",
                     h[dampening]);
}

unsigned needed(const Hyper &h) { return h[momentum] != 0 ? 1U : 0U; }

} // namespace

Rule sgd_rule() {
    Rule rule;
    rule.id = UJOIN_OPTIMIZER_SGD;
    rule.name = "sgd";
    rule.hypers = {{"lr", 1e-3},          {"momentum", 0},     {"dampening", 0},
                   {"nesterov", 0, true}, {"weight_decay", 0}, {"maximize", 0, true}};
    rule.states = {"momentum_buffer"};
    rule.check = check;
    rule.needed = needed;
    rule.apply = walk<Sgd>;
    return rule;
}

} // namespace ujoin::optim
