// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "optim/blocks.hpp"
#include "optim/rules.hpp"
#include <cmath>

namespace ujoin::optim {
namespace {

enum Place : size_t { lr, etaminus, etaplus, step_min, step_max, maximize };

template <class T> struct Rprop {
    T sign;
    T begin; ///< the size of the first step
    T shrink, grow;
    T least, most;
    bool first;

    Rprop(const Hyper &h, const Update &u)
        : sign(h[maximize] != 0 ? T(-1) : T(1)), begin(static_cast<T>(h[lr])), shrink(static_cast<T>(h[etaminus])),
          grow(static_cast<T>(h[etaplus])), least(static_cast<T>(h[step_min])), most(static_cast<T>(h[step_max])),
          first(u.first) {}

    UJOIN_INLINE void operator()(const Piece<T> &piece) const {
        T *__restrict param = piece.param;
        const T *__restrict grad = piece.grad;
        T *__restrict previous = piece.states[0];
        T *__restrict size = piece.states[1];
        if (first) std::fill_n(size, piece.count, begin);
        for (size_t i = 0; i < piece.count; i++) {
            T g = sign * grad[i];
            const T agreement = g * previous[i];
            const T factor = agreement > 0 ? grow : agreement < 0 ? shrink : agreement == 0 ? T(1) : agreement;
            T s = size[i] * factor;
            s = s < least ? least : s > most ? most : s; // a NaN stays
            g = agreement < 0 ? T(0) : g;
            const T direction = g > 0 ? T(1) : g < 0 ? T(-1) : T(0);
            size[i] = s;
            param[i] = param[i] - direction * s;
            previous[i] = g;
        }
    }
};

void check(const Hyper &h) {
    at_least_zero("lr", h[lr]);
    if (!(h[etaminus] > 0 && h[etaminus] < 1)) fail_invalid("etaminus is ", h[etaminus], "; it must be between 0 and 1");
    if (!(h[etaplus] > 1)) fail_invalid("etaplus is ", h[etaplus], "; it must be above 1");
    at_least_zero("step_min", h[step_min]);
    if (!(h[step_max] >= h[step_min]))
        fail_invalid("step_max is ", h[step_max], ", but step_min is ", h[step_min], "; it must not be less");
}

} // namespace

Rule rprop_rule() {
    Rule rule;
    rule.id = UJOIN_OPTIMIZER_RPROP;
    rule.name = "rprop";
    rule.hypers = {{"lr", 1e-2},       {"etaminus", 0.5}, {"etaplus", 1.2},
                   {"step_min", 1e-6}, {"step_max", 50},  {"maximize", 0, true}};
    rule.states = {"prev", "step_size"};
    rule.counts_steps = true;
    rule.check = check;
    rule.apply = walk<Rprop>;
    return rule;
}

} // namespace ujoin::optim
