// SPDX-License-Identifier: Apache-2.0
// A matrix M (with what earlier rounds left out) is reduced as P Q^T: P = M Q is averaged and made orthonormal, Q = M^T P is
// averaged. What P Q^T lacks of a rank's M is added to its next gradient. Q is where the next round begins.
#include "ddp/reduction.hpp"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <type_traits>

namespace ujoin {
namespace {

/// Columns of length `rows` in row-major a, by the modified Gram-Schmidt process. A column without length becomes zeros.
template <class T> void orthonormalize(T *a, size_t rows, size_t columns) {
    const auto dot = [&](size_t c, size_t d) {
        double sum = 0;
        for (size_t i = 0; i < rows; i++) sum += static_cast<double>(a[i * columns + c]) * a[i * columns + d];
        return sum;
    };
    for (size_t c = 0; c < columns; c++) {
        const double before = std::sqrt(dot(c, c));
        for (size_t d = 0; d < c; d++) {
            const double along = dot(c, d);
            for (size_t i = 0; i < rows; i++) a[i * columns + c] -= static_cast<T>(along * a[i * columns + d]);
        }
        const double length = std::sqrt(dot(c, c));
        const double by = length > before * 1e-6 && length > 0 ? 1 / length : 0; // else nothing but rounding is left
        for (size_t i = 0; i < rows; i++) a[i * columns + c] = static_cast<T>(a[i * columns + c] * by);
    }
}

/// Numbers between -1 and 1, the same on every rank.
template <class T> void fill_alike(T *to, size_t count, uint64_t seed) {
    uint64_t state = (seed + 1) * 0x9e3779b97f4a7c15U;
    for (size_t i = 0; i < count; i++) {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        to[i] = static_cast<T>(static_cast<double>(static_cast<int64_t>(state)) * 0x1p-63);
    }
}

/// T: the type in which factors are computed and travel.
template <class T> class LowRank final : public Reduction {
  public:
    LowRank(Place place, int32_t rank) : Reduction(std::move(place)), rank_(static_cast<size_t>(rank)) {
        size_t at = 0;
        for (size_t k = 0; k < bucket().params.size(); k++) {
            const size_t rows = param(k).rows;
            const size_t columns = rows == 0 ? 0 : param(k).elements / rows;
            const size_t r = std::min({rank_, rows, columns});
            if (rows == 0 || (rows + columns) * r * 2 > rows * columns) continue; // factors would be no smaller
            matrices_.push_back({k, rows, columns, r, at, at + rows * r});
            at += (rows + columns) * r;
        }
        factors_ = at;
    }

    void start(Round &round) override {
        // Behind the factors: zeros in the place of absent gradients that are no matrices.
        size_t bytes = factors_ * sizeof(T);
        for (size_t k = 0; k < bucket().params.size(); k++)
            if (!is_matrix(k) && absent(k)) bytes += param(k).bytes();
        memory_ = scratch(bytes);
        for (const Matrix &m : matrices_) {
            prepare(m, round);
            append_segment(p_, factor(m.p), m.rows * m.r * sizeof(T));
            append_segment(q_, factor(m.q), m.columns * m.r * sizeof(T));
        }
        char *next = memory_ + factors_ * sizeof(T);
        for (size_t k = 0; k < bucket().params.size(); k++) {
            if (is_matrix(k)) continue;
            append_segment(rest_, absent(k) ? next : param(k).grad, param(k).bytes());
            if (!absent(k)) continue;
            std::memset(next, 0, param(k).bytes());
            next += param(k).bytes();
        }
        if (!p_.empty()) put_in_flight(round.submit_sum(factor_type(), p_, keep()));
        if (!rest_.empty()) put_in_flight(round.submit_sum(bucket().dtype, rest_, keep()));
    }

    bool then(Round &round) override {
        if (halfway_ || matrices_.empty() || round.agreed().divisor == 0) return false;
        halfway_ = true;
        for (const Matrix &m : matrices_) {
            T *p = factor(m.p);
            T *q = factor(m.q);
            orthonormalize(p, m.rows, m.r);
            std::fill_n(q, m.columns * m.r, T{0});
            if (!round.reads()) continue;
            const T *a = error(m);
            for (size_t i = 0; i < m.rows; i++)
                for (size_t j = 0; j < m.columns; j++)
                    for (size_t c = 0; c < m.r; c++) q[j * m.r + c] += a[i * m.columns + j] * p[i * m.r + c];
        }
        put_in_flight(round.submit_sum(factor_type(), q_, keep()));
        return true;
    }

    void end(Round &round, const std::vector<int32_t> &used) override {
        const Agreed &agreed = round.agreed();
        if (agreed.divisor == 0) return;
        // The result times this is the mean over the contributors, which is what the errors must add up to.
        const double mean = round.weighs_means() ? 1 : agreed.divisor / agreed.contributors;
        for (const Matrix &m : matrices_) finish(m, static_cast<T>(mean), round, used);
        const char *from = memory_ + factors_ * sizeof(T);
        for (size_t k = 0; k < bucket().params.size(); k++) {
            if (is_matrix(k) || !absent(k)) continue;
            if (writes(round, k, used)) std::memcpy(param(k).grad, from, param(k).bytes());
            from += param(k).bytes();
        }
    }

  private:
    struct Matrix {
        size_t k; ///< place in the bucket
        size_t rows;
        size_t columns;
        size_t r;
        size_t p; ///< where its factors begin, in elements
        size_t q;
    };
    static constexpr ujoin_dtype factor_type() { return std::is_same_v<T, double> ? UJOIN_F64 : UJOIN_F32; }
    bool is_matrix(size_t k) const {
        return std::any_of(matrices_.begin(), matrices_.end(), [&](const Matrix &m) { return m.k == k; });
    }
    T *factor(size_t at) const { return reinterpret_cast<T *>(memory_) + at; }
    LowRankState &state(const Matrix &m) const { return loan().low_rank[bucket().params[m.k]]; }
    T *error(const Matrix &m) const { return reinterpret_cast<T *>(state(m).error.data()); }
    T *start_of(const Matrix &m) const { return reinterpret_cast<T *>(state(m).q.data()); }

    /// Adds the gradient (an absent one is zero) to what was left out so far, and P = M Q.
    void prepare(const Matrix &m, Round &round) {
        if (state(m).q.empty()) {
            state(m).error.resize(m.rows * m.columns * sizeof(T));
            state(m).q.resize(m.columns * m.r * sizeof(T));
            fill_alike(start_of(m), m.columns * m.r, bucket().params[m.k]);
        }
        T *p = factor(m.p);
        std::fill_n(p, m.rows * m.r, T{0});
        if (!round.reads()) return;
        T *a = error(m);
        if (!absent(m.k))
            visit_dtype(bucket().dtype, [&](auto zero) {
                using G = decltype(zero);
                const auto *grad = static_cast<const char *>(param(m.k).grad);
                for (size_t i = 0; i < m.rows * m.columns; i++) {
                    G value;
                    std::memcpy(&value, grad + i * sizeof(G), sizeof(G));
                    a[i] += static_cast<T>(static_cast<double>(widen(value)));
                }
            });
        const T *q = start_of(m);
        for (size_t i = 0; i < m.rows; i++)
            for (size_t j = 0; j < m.columns; j++)
                for (size_t c = 0; c < m.r; c++) p[i * m.r + c] += a[i * m.columns + j] * q[j * m.r + c];
    }

    void finish(const Matrix &m, T mean, Round &round, const std::vector<int32_t> &used) {
        const T *p = factor(m.p);
        const T *q = factor(m.q);
        std::memcpy(start_of(m), q, m.columns * m.r * sizeof(T));
        if (!writes(round, m.k, used)) return;
        T *a = round.reads() ? error(m) : nullptr;
        visit_dtype(bucket().dtype, [&](auto zero) {
            using G = decltype(zero);
            auto *grad = static_cast<char *>(param(m.k).grad);
            for (size_t i = 0; i < m.rows; i++)
                for (size_t j = 0; j < m.columns; j++) {
                    T value = 0;
                    for (size_t c = 0; c < m.r; c++) value += p[i * m.r + c] * q[j * m.r + c];
                    const size_t at = i * m.columns + j;
                    const G result = narrow<G>(value);
                    std::memcpy(grad + at * sizeof(G), &result, sizeof(G));
                    if (a) a[at] -= mean * value;
                }
        });
    }
    template <class G> static auto widen(G value) {
        if constexpr (sizeof(G) == 2)
            return static_cast<float>(value);
        else
            return value;
    }
    template <class G> static G narrow(T value) {
        if constexpr (sizeof(G) == 2)
            return G(static_cast<float>(value));
        else
            return static_cast<G>(value);
    }

    size_t rank_;
    std::vector<Matrix> matrices_;
    size_t factors_ = 0; ///< elements
    char *memory_ = nullptr;
    std::vector<Segment> p_, q_, rest_;
    bool halfway_ = false;
};

} // namespace

std::shared_ptr<Reduction> make_low_rank(Reduction::Place place, int32_t rank) {
    if ((*place.buckets)[place.index].dtype == UJOIN_F64) return std::make_shared<LowRank<double>>(std::move(place), rank);
    return std::make_shared<LowRank<float>>(std::move(place), rank);
}

} // namespace ujoin
