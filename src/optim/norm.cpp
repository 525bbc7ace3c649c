// SPDX-License-Identifier: Apache-2.0
#include "optim/norm.hpp"
#include "base/dtype.hpp"
#include "optim/blocks.hpp"
#include "optim/pieces.hpp"
#include <algorithm>
#include <bit>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <type_traits>

namespace ujoin::optim {
namespace {

constexpr int block_level = 8;
static_assert(norm_leaf << block_level == block_elements && piece_elements % block_elements == 0);

/// Without their sign, numbers are ordered like their bits, with infinity and NaN at the end.
double larger(double a, double b) { return std::bit_cast<uint64_t>(a) < std::bit_cast<uint64_t>(b) ? b : a; }

/// What elements add to the norm, at most a block of them.
void load_terms(ujoin_dtype dtype, const void *data, size_t at, size_t count, double p, double *terms) {
    load(dtype, data, at, count, terms);
    if (p == 2) {
        for (size_t i = 0; i < count; i++) terms[i] *= terms[i];
    } else if (p == 1 || std::isinf(p)) {
        for (size_t i = 0; i < count; i++) terms[i] = std::abs(terms[i]);
    } else {
        for (size_t i = 0; i < count; i++) terms[i] = std::pow(std::abs(terms[i]), p);
    }
}

/// Adds up the leaves of a block, in pairs and pairs of pairs; the first leaf is the sum then.
void fold_block(double (&terms)[block_elements], bool largest) {
    as_constant(largest, [&](auto is_largest) {
        for (size_t leaves = block_elements / norm_leaf / 2; leaves > 0; leaves /= 2)
            for (size_t leaf = 0; leaf < leaves; leaf++)
                for (size_t i = 0; i < norm_leaf; i++) {
                    const double *pair = terms + 2 * leaf * norm_leaf + i;
                    double &sum = terms[leaf * norm_leaf + i];
                    if constexpr (decltype(is_largest)::value) {
                        sum = larger(pair[0], pair[norm_leaf]);
                    } else {
                        sum = pair[0] + pair[norm_leaf];
                    }
                }
    });
}

void scale(ujoin_dtype dtype, void *data, size_t count, double factor) {
    const auto by_f32 = [&](auto *halves) {
        using Half16 = std::remove_pointer_t<decltype(halves)>;
        for (size_t i = 0; i < count; i++) halves[i] = Half16(static_cast<float>(halves[i]) * static_cast<float>(factor));
    };
    switch (dtype) {
    case UJOIN_F32:
        return multiply(static_cast<float *>(data), count, static_cast<float>(factor));
    case UJOIN_F64:
        return multiply(static_cast<double *>(data), count, factor);
    case UJOIN_F16:
        return by_f32(static_cast<Half *>(data));
    default:
        return by_f32(static_cast<BFloat16 *>(data));
    }
}

/// Calls visit(level) for the largest subtrees that cover so many leaves, from left to right.
template <class Visit> void for_subtrees(size_t begin, size_t leaves, Visit &&visit) {
    while (leaves > 0) {
        const int largest = std::bit_width(leaves) - 1;
        const int level = begin == 0 ? largest : std::min(largest, std::countr_zero(begin));
        visit(level);
        begin += size_t{1} << level;
        leaves -= size_t{1} << level;
    }
}

size_t leaves_of(size_t count) { return (count + norm_leaf - 1) / norm_leaf; }

} // namespace

void NormSum::add(ujoin_dtype dtype, const void *data, size_t count) {
    alignas(64) double terms[block_elements];
    for (size_t at = 0; at < count;) {
        const bool whole_block = next_ % (block_elements / norm_leaf) == 0 && count - at >= block_elements;
        const size_t size = whole_block ? block_elements : std::min(norm_leaf, count - at);
        load_terms(dtype, data, at, size, p_, terms);
        std::fill(terms + size, terms + std::max(size, norm_leaf), 0.0);
        if (whole_block) fold_block(terms, std::isinf(p_));
        Lanes value;
        std::copy(terms, terms + norm_leaf, value.begin());
        push(whole_block ? block_level : 0, value);
        at += size;
    }
}

NormSum::Lanes NormSum::join(const Lanes &a, const Lanes &b) const {
    Lanes both;
    for (size_t i = 0; i < norm_leaf; i++) both[i] = std::isinf(p_) ? larger(a[i], b[i]) : a[i] + b[i];
    return both;
}

void NormSum::push(int level, const Lanes &value) {
    Node node{next_, level, value};
    next_ += size_t{1} << level;
    // The last node is the other half of a larger one?
    while (!nodes_.empty() && nodes_.back().level == node.level && (nodes_.back().begin >> node.level & 1U) == 0) {
        node = {nodes_.back().begin, node.level + 1, join(nodes_.back().value, node.value)};
        nodes_.pop_back();
    }
    nodes_.push_back(node);
}

void NormSum::add_numbers(const double *numbers, size_t count) {
    for_subtrees(next_, leaves_of(count), [&](int level) {
        Lanes value;
        std::copy(numbers, numbers + norm_leaf, value.begin());
        push(level, value);
        numbers += norm_leaf;
    });
}

void NormSum::get_numbers(double *numbers) const {
    for (const Node &node : nodes_) numbers = std::copy(node.value.begin(), node.value.end(), numbers);
}

size_t NormSum::count_numbers(size_t begin, size_t count) {
    size_t numbers = 0;
    for_subtrees(begin / norm_leaf, leaves_of(count), [&](int) { numbers += norm_leaf; });
    return numbers;
}

double NormSum::total() const {
    Lanes all{};
    for (const Node &node : nodes_) all = join(all, node.value);
    double sum = 0;
    for (const double lane : all) sum = std::isinf(p_) ? larger(sum, lane) : sum + lane;
    return sum;
}

double norm_part(ujoin_dtype dtype, const void *data, size_t count, double p) {
    NormSum sum(p);
    sum.add(dtype, data, count);
    return sum.total();
}

double whole_norm(const double *parts, size_t count, double p) {
    double all = 0;
    for (size_t i = 0; i < count; i++) {
        if (std::isinf(p)) {
            all = parts[i] > all || std::isnan(parts[i]) ? parts[i] : all;
            if (std::isnan(all)) return all;
        } else {
            all += parts[i];
        }
    }
    return std::isinf(p) || p == 1 ? all : p == 2 ? std::sqrt(all) : std::pow(all, 1 / p);
}

std::vector<NormSum> norm_sums(const std::vector<NormInput> &inputs, double p, Parallel &parallel) {
    Pieces pieces;
    std::vector<NormSum> sums;
    for (const NormInput &input : inputs) {
        pieces.add(input.begin, input.count);
        sums.emplace_back(p, input.begin);
    }
    std::vector<size_t> places(1);
    for (size_t i = 0; i < pieces.size(); i++) {
        const Pieces::Piece piece = pieces.at(i);
        places.push_back(places.back() + NormSum::count_numbers(piece.begin, piece.count));
    }
    std::vector<double> numbers(places.back());
    pieces.run(parallel, [&](const Pieces::Piece &piece, size_t index) {
        const NormInput &input = inputs[piece.range];
        const size_t at = (piece.begin - input.begin) * dtype_size(input.dtype);
        NormSum sum(p, piece.begin);
        sum.add(input.dtype, static_cast<const std::byte *>(input.data) + at, piece.count);
        sum.get_numbers(numbers.data() + places[index]);
    });
    for (size_t i = 0; i < pieces.size(); i++) {
        const Pieces::Piece piece = pieces.at(i);
        sums[piece.range].add_numbers(numbers.data() + places[i], piece.count);
    }
    return sums;
}

void scale_elements(const std::vector<ScaleTarget> &targets, double factor, Parallel &parallel) {
    Pieces pieces;
    for (const ScaleTarget &target : targets) pieces.add(0, target.count);
    pieces.run(parallel, [&](const Pieces::Piece &piece, size_t) {
        const ScaleTarget &target = targets[piece.range];
        const size_t at = piece.begin * dtype_size(target.dtype);
        scale(target.dtype, static_cast<std::byte *>(target.data) + at, piece.count, factor);
    });
}

} // namespace ujoin::optim
