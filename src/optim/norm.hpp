// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/parallel.hpp"
#include "ujoin.h"
#include <array>
#include <cstddef>
#include <vector>

namespace ujoin::optim {

/// Elements that stay together: where a parameter is cut, it is cut at a multiple of this.
inline constexpr size_t norm_leaf = 8;

/// The part that one parameter has in a p-norm over several: the sum of |x|^p, or the largest |x| for p = infinity. Not
/// finite if an element is not. Sums are made in a binary tree over the whole parameter, whose leaves are 8 elements, so the
/// bits do not depend on where it is cut: a piece gives the largest subtrees that lie in it, and whoever has those of all
/// pieces goes on from there.
class NormSum {
  public:
    /// `begin` is the first element, in the parameter.
    explicit NormSum(double p, size_t begin = 0) : p_(p), next_(begin / norm_leaf) {}

    /// The next elements. After a count that is no multiple of a leaf there are no more.
    void add(ujoin_dtype dtype, const void *data, size_t count);
    /// The same for elements that another object has added, which began there and gave these numbers.
    void add_numbers(const double *numbers, size_t count);
    /// Writes count_numbers() of them.
    void get_numbers(double *numbers) const;
    /// For elements `begin` to `begin + count` of a parameter.
    static size_t count_numbers(size_t begin, size_t count);
    double total() const;

  private:
    using Lanes = std::array<double, norm_leaf>;
    /// The sum of 2^level leaves, from a multiple of that on.
    struct Node {
        size_t begin;
        int level;
        Lanes value;
    };
    Lanes join(const Lanes &a, const Lanes &b) const;
    void push(int level, const Lanes &value);

    double p_;
    size_t next_; ///< leaf
    std::vector<Node> nodes_;
};

/// Elements of a parameter: `begin` is the first, in the parameter.
struct NormInput {
    ujoin_dtype dtype;
    const void *data;
    size_t begin;
    size_t count;
};
/// The sums of several inputs, by the order given. The bits do not depend on the number of threads either.
std::vector<NormSum> norm_sums(const std::vector<NormInput> &inputs, double p, Parallel &parallel);

/// The part of a whole tensor.
double norm_part(ujoin_dtype dtype, const void *data, size_t count, double p);
/// The norm out of the parts, in their order.
double whole_norm(const double *parts, size_t count, double p);

struct ScaleTarget {
    ujoin_dtype dtype; ///< a floating-point type; 16-bit ones are multiplied in f32
    void *data;
    size_t count;
};
void scale_elements(const std::vector<ScaleTarget> &targets, double factor, Parallel &parallel);

} // namespace ujoin::optim
