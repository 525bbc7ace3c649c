// SPDX-License-Identifier: Apache-2.0
#include "comm/kernels.hpp"
#include <algorithm>
#include <cstring>
#include <type_traits>

namespace ujoin {
namespace {

// Through memcpy: the caller's memory may have any alignment. Compilers make plain (vector) loads and stores of it.
template <class T> T load(const char *from, size_t i) {
    T value;
    std::memcpy(&value, from + i * sizeof(T), sizeof(T));
    return value;
}
template <class T> void store(char *to, size_t i, T value) { std::memcpy(to + i * sizeof(T), &value, sizeof(T)); }

// `out` may be an input itself: each case has a loop of its own, in which nothing overlaps, so that it becomes vectors.
/// out[i] = f(a[i])
template <class T, class F> void transform(const char *a, char *out, size_t count, F f) {
    char *__restrict to = out;
    if (a == out) {
        for (size_t i = 0; i < count; i++) store<T>(to, i, f(load<T>(to, i)));
    } else {
        const char *__restrict from = a;
        for (size_t i = 0; i < count; i++) store<T>(to, i, f(load<T>(from, i)));
    }
}
/// out[i] = f(a[i], b[i])
template <class T, class F> void transform(const char *a, const char *b, char *out, size_t count, F f) {
    char *__restrict to = out;
    if (a == out) {
        const char *__restrict second = b;
        for (size_t i = 0; i < count; i++) store<T>(to, i, f(load<T>(to, i), load<T>(second, i)));
    } else if (b == out) {
        const char *__restrict first = a;
        for (size_t i = 0; i < count; i++) store<T>(to, i, f(load<T>(first, i), load<T>(to, i)));
    } else {
        const char *__restrict first = a;
        const char *__restrict second = b;
        for (size_t i = 0; i < count; i++) store<T>(to, i, f(load<T>(first, i), load<T>(second, i)));
    }
}

template <class T> inline constexpr bool is_16_bit = std::is_same_v<T, Half> || std::is_same_v<T, BFloat16>;

/// The type in which sums, minima and maxima of T are computed.
template <class T> struct Plain { using type = T; };
template <> struct Plain<Half> { using type = float; };
template <> struct Plain<BFloat16> { using type = float; };
template <> struct Plain<uint8_t> { using type = uint32_t; };
template <> struct Plain<int32_t> { using type = uint32_t; }; // sums wrap
template <> struct Plain<int64_t> { using type = uint64_t; };
/// The type in which averages are computed: a sum of any number of ranks' values fits.
__extension__ typedef __int128 Int128;
template <class T> struct Wide { using type = double; };
template <> struct Wide<double> { using type = long double; };
template <> struct Wide<int32_t> { using type = int64_t; };
template <> struct Wide<int64_t> { using type = Int128; };
template <> struct Wide<uint8_t> { using type = int64_t; };

template <class A, class T> A widen(T value) {
    if constexpr (is_16_bit<T>)
        return static_cast<A>(static_cast<float>(value));
    else
        return static_cast<A>(value);
}
template <class T, class A> T narrow(A value) {
    if constexpr (is_16_bit<T>)
        return T(static_cast<float>(value));
    else
        return static_cast<T>(value);
}

struct Sum {
    template <class A> static A combine(A a, A b) { return a + b; }
};
struct Prod {
    template <class A> static A combine(A a, A b) { return a * b; }
};
struct Min {
    template <class A> static A combine(A a, A b) { return a < b || a != a ? a : b; } // a NaN, or b NaN: the NaN
};
struct Max {
    template <class A> static A combine(A a, A b) { return a > b || a != a ? a : b; }
};

template <class T, class A, class Op, bool divides>
void reduce_as(const char *const *inputs, size_t input_count, char *out, size_t count, double divisor) {
    const A by = divides ? static_cast<A>(divisor) : A{1};
    const auto finish = [=](A value) { return narrow<T>(divides ? static_cast<A>(value / by) : value); };
    if (input_count == 1) return transform<T>(inputs[0], out, count, [=](T a) { return finish(widen<A>(a)); });
    if (input_count == 2)
        return transform<T>(inputs[0], inputs[1], out, count,
                            [=](T a, T b) { return finish(Op::template combine<A>(widen<A>(a), widen<A>(b))); });
    constexpr size_t block = 1024; // accumulators that stay in the first-level cache
    A sums[block];
    for (size_t first = 0; first < count; first += block) {
        const size_t n = std::min(block, count - first);
        for (size_t i = 0; i < n; i++) sums[i] = widen<A>(load<T>(inputs[0], first + i));
        for (size_t k = 1; k < input_count; k++) {
            const char *__restrict in = inputs[k] + first * sizeof(T);
            for (size_t i = 0; i < n; i++) sums[i] = Op::template combine<A>(sums[i], widen<A>(load<T>(in, i)));
        }
        for (size_t i = 0; i < n; i++) store<T>(out, first + i, finish(sums[i]));
    }
}

template <class T> void reduce_typed(ujoin_reduce reduce, const char *const *inputs, size_t input_count, char *out,
                                     size_t count, double divisor) {
    using P = typename Plain<T>::type;
    using Ordered = std::conditional_t<std::is_integral_v<T>, T, P>; // wrapping sums are unsigned, comparisons are not
    switch (reduce) {
    case UJOIN_AVG:
        reduce_as<T, typename Wide<T>::type, Sum, true>(inputs, input_count, out, count, divisor);
        break;
    case UJOIN_MIN:
        reduce_as<T, Ordered, Min, false>(inputs, input_count, out, count, 1);
        break;
    case UJOIN_MAX:
        reduce_as<T, Ordered, Max, false>(inputs, input_count, out, count, 1);
        break;
    case UJOIN_PROD:
        reduce_as<T, P, Prod, false>(inputs, input_count, out, count, 1);
        break;
    default:
        if (divisor == 1)
            reduce_as<T, P, Sum, false>(inputs, input_count, out, count, 1);
        else
            reduce_as<T, P, Sum, true>(inputs, input_count, out, count, divisor);
    }
}

template <class T> void reduce_scaled(const char *const *inputs, const double *scales, size_t input_count, char *out,
                                      size_t count, double divisor) {
    const auto by = static_cast<float>(divisor);
    constexpr size_t block = 1024;
    float sums[block];
    for (size_t first = 0; first < count; first += block) {
        const size_t n = std::min(block, count - first);
        std::fill_n(sums, n, 0.0F);
        for (size_t k = 0; k < input_count; k++) {
            const char *in = inputs[k] + first * sizeof(T);
            const auto scale = static_cast<float>(scales[k]);
            for (size_t i = 0; i < n; i++) sums[i] += widen<float>(load<T>(in, i)) * scale;
        }
        for (size_t i = 0; i < n; i++) store<T>(out, first + i, narrow<T>(sums[i] / by));
    }
}

} // namespace

void reduce_elements(ujoin_dtype dtype, ujoin_reduce reduce, const char *const *inputs, size_t input_count, char *out,
                     size_t count, double divisor) {
    visit_dtype(dtype, [&](auto zero) { reduce_typed<decltype(zero)>(reduce, inputs, input_count, out, count, divisor); });
}

void reduce_scaled_elements(ujoin_dtype dtype, const char *const *inputs, const double *scales, size_t input_count,
                            char *out, size_t count, double divisor) {
    visit_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (is_16_bit<T>)
            reduce_scaled<T>(inputs, scales, input_count, out, count, divisor);
        else
            fail(UJOIN_E_INTERNAL, "only 16-bit types are scaled while they are summed");
    });
}

void scale_elements(ujoin_dtype dtype, const char *in, char *out, size_t count, double scale) {
    visit_dtype(dtype, [&](auto zero) {
        using T = decltype(zero);
        if constexpr (std::is_integral_v<T>) {
            fail(UJOIN_E_INTERNAL, "integers are not scaled");
        } else {
            using P = typename Plain<T>::type;
            const P by = static_cast<P>(scale);
            for (size_t i = 0; i < count; i++) store<T>(out, i, narrow<T>(widen<P>(load<T>(in, i)) * by));
        }
    });
}

} // namespace ujoin
