// SPDX-License-Identifier: Apache-2.0
#pragma once
// The arithmetic of the update rules, once for all element types. Every rule works element by element, so a result does
// not depend on how elements are spread over ranks. Factors are computed in double and used in the element's type, and
// each expression is evaluated in the order in which PyTorch evaluates it.
#include <cmath>
#include <cstddef>
#include <type_traits>

namespace ujoin::optim {

// Places of the hyper-parameters in Rule::hypers.
enum SgdHyper : size_t { sgd_lr, sgd_momentum, sgd_dampening, sgd_nesterov, sgd_weight_decay, sgd_maximize };
enum AdamHyper : size_t { adam_lr, adam_beta1, adam_beta2, adam_eps, adam_weight_decay, adam_amsgrad, adam_maximize };

template <class T> struct SgdFactors {
    T sign; ///< -1: climb instead of descend
    T minus_lr;
    T momentum;
    T fresh; ///< what a gradient adds to the momentum buffer
    T weight_decay;
};

enum class Momentum : unsigned char { none, first, later };

template <bool Decay, Momentum Kind, bool Nesterov, class T> void sgd(const SgdFactors<T> &f, size_t count,
                                                                      T *__restrict param, const T *__restrict grad,
                                                                      [[maybe_unused]] T *__restrict buffer) {
    for (size_t i = 0; i < count; i++) {
        T g = f.sign * grad[i];
        if constexpr (Decay) g = g + f.weight_decay * param[i];
        if constexpr (Kind != Momentum::none) {
            const T b = Kind == Momentum::first ? g : f.momentum * buffer[i] + f.fresh * g;
            buffer[i] = b;
            g = Nesterov ? g + f.momentum * b : b;
        }
        param[i] = param[i] + f.minus_lr * g;
    }
}

template <class T> struct AdamFactors {
    T sign;
    T keep; ///< AdamW's decay of the parameter itself; 1 for Adam
    T weight_decay;
    T beta1, fresh1;
    T beta2, fresh2;
    T root_correction2;
    T eps;
    T minus_step;
};

/// Bias corrections of step number `step` (the first is 1).
template <class T, class Values> AdamFactors<T> adam_factors(const Values &h, bool decoupled, double step) {
    const double correction1 = 1 - std::pow(h[adam_beta1], step);
    const double correction2 = 1 - std::pow(h[adam_beta2], step);
    AdamFactors<T> f;
    f.sign = h[adam_maximize] != 0 ? T(-1) : T(1);
    f.keep = decoupled ? static_cast<T>(1 - h[adam_lr] * h[adam_weight_decay]) : T(1);
    f.weight_decay = static_cast<T>(h[adam_weight_decay]);
    f.beta1 = static_cast<T>(h[adam_beta1]);
    f.fresh1 = static_cast<T>(1 - h[adam_beta1]);
    f.beta2 = static_cast<T>(h[adam_beta2]);
    f.fresh2 = static_cast<T>(1 - h[adam_beta2]);
    f.root_correction2 = static_cast<T>(std::sqrt(correction2));
    f.eps = static_cast<T>(h[adam_eps]);
    f.minus_step = static_cast<T>(-(h[adam_lr] / correction1));
    return f;
}

template <bool Decay, bool AmsGrad, class T> void adam(const AdamFactors<T> &f, size_t count, T *__restrict param,
                                                       const T *__restrict grad, T *__restrict average,
                                                       T *__restrict square, [[maybe_unused]] T *__restrict largest) {
    for (size_t i = 0; i < count; i++) {
        const T p = param[i] * f.keep;
        T g = f.sign * grad[i];
        if constexpr (Decay) g = g + f.weight_decay * p;
        const T m = average[i] * f.beta1 + f.fresh1 * g;
        const T v = square[i] * f.beta2 + f.fresh2 * g * g;
        average[i] = m;
        square[i] = v;
        T top = v;
        if constexpr (AmsGrad) {
            const T before = largest[i];
            top = before > v || before != before ? before : v; // a NaN stays
            largest[i] = top;
        }
        const T denominator = std::sqrt(top) / f.root_correction2 + f.eps;
        param[i] = p + f.minus_step * m / denominator;
    }
}

} // namespace ujoin::optim
