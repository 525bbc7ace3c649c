// SPDX-License-Identifier: Apache-2.0
#include "optim/update.hpp"
#include "base/error.hpp"
#include "optim/rules.hpp"

namespace ujoin::optim {
namespace {

/// Calls `body` with the flag as a constant, so that loops carry no branches.
template <class Body> void as_constant(bool flag, Body &&body) {
    if (flag) {
        body(std::true_type{});
    } else {
        body(std::false_type{});
    }
}

template <Momentum Kind> using MomentumKind = std::integral_constant<Momentum, Kind>;

template <class T> void apply_sgd(const Hyper &h, const Update &u) {
    SgdFactors<T> f;
    f.sign = h[sgd_maximize] != 0 ? T(-1) : T(1);
    f.minus_lr = static_cast<T>(-h[sgd_lr]);
    f.momentum = static_cast<T>(h[sgd_momentum]);
    f.fresh = static_cast<T>(1 - h[sgd_dampening]);
    f.weight_decay = static_cast<T>(h[sgd_weight_decay]);
    T *param = static_cast<T *>(u.param);
    const T *grad = static_cast<const T *>(u.grad);
    T *buffer = static_cast<T *>(u.states[0]);
    as_constant(h[sgd_weight_decay] != 0, [&](auto decay) {
        const auto with = [&](auto kind, auto nesterov) {
            sgd<decltype(decay)::value, decltype(kind)::value, decltype(nesterov)::value>(f, u.count, param, grad, buffer);
        };
        if (h[sgd_momentum] == 0) return with(MomentumKind<Momentum::none>{}, std::false_type{});
        as_constant(h[sgd_nesterov] != 0, [&](auto nesterov) {
            if (u.first) return with(MomentumKind<Momentum::first>{}, nesterov);
            with(MomentumKind<Momentum::later>{}, nesterov);
        });
    });
}

template <class T> void apply_adam(const Hyper &h, bool decoupled, const Update &u) {
    const AdamFactors<T> f = adam_factors<T>(h, decoupled, static_cast<double>(u.step));
    as_constant(!decoupled && h[adam_weight_decay] != 0, [&](auto decay) {
        as_constant(h[adam_amsgrad] != 0, [&](auto amsgrad) {
            adam<decltype(decay)::value, decltype(amsgrad)::value>(
                f, u.count, static_cast<T *>(u.param), static_cast<const T *>(u.grad), static_cast<T *>(u.states[0]),
                static_cast<T *>(u.states[1]), static_cast<T *>(u.states[2]));
        });
    });
}

template <class T> void apply_typed(const Rule &rule, const Hyper &hyper, const Update &update) {
    switch (rule.id) {
    case UJOIN_OPTIMIZER_SGD:
        return apply_sgd<T>(hyper, update);
    case UJOIN_OPTIMIZER_ADAM:
        return apply_adam<T>(hyper, false, update);
    case UJOIN_OPTIMIZER_ADAMW:
        return apply_adam<T>(hyper, true, update);
    default:
        fail(UJOIN_E_INTERNAL, "no update rule with number ", rule.id);
    }
}

} // namespace

unsigned needed_states(const Rule &rule, const Hyper &hyper) {
    if (rule.id == UJOIN_OPTIMIZER_SGD) return hyper[sgd_momentum] != 0 ? 1U : 0U;
    return hyper[adam_amsgrad] != 0 ? 7U : 3U;
}

void apply(const Rule &rule, const Hyper &hyper, ujoin_dtype dtype, const Update &update) {
    if (update.count == 0) return;
    switch (dtype) {
    case UJOIN_F32:
        return apply_typed<float>(rule, hyper, update);
    case UJOIN_F64:
        return apply_typed<double>(rule, hyper, update);
    default:
        fail(UJOIN_E_INTERNAL, "no update rules for element type ", dtype);
    }
}

} // namespace ujoin::optim
