// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "optim/hyper.hpp"
#include "zero/params.hpp"
#include "zero/partition.hpp"
#include <array>
#include <vector>

namespace ujoin {

/// Parameters and param groups of an optimizer, and what follows from them.
struct Layout {
    Layout(const optim::Rule &r, int32_t own_rank, int32_t ranks) : rule(&r), rank(own_rank), partition(ranks) {}

    /// A copy with one more param group, checked on this rank alone.
    Layout with_group(std::vector<ZeroParam> added, optim::Hyper hyper) const;
    bool owns(size_t index) const { return params[index].owner == rank; }
    /// Names and types of its parameters, values of its hyper-parameters: what ranks must agree on in a param group.
    Facts facts_of_group(int32_t group) const;

    const optim::Rule *rule;
    int32_t rank;
    std::vector<ZeroParam> params;
    std::vector<optim::Hyper> hypers; ///< by param group
    Partition partition;
    std::vector<Segment> segments; ///< all parameters by rank, in the partition's order; neighbours in memory are one
    std::vector<size_t> offsets;   ///< where the bytes of each rank begin, and the end
};

/// What a rule keeps for one parameter, on the rank that owns it.
struct ParamState {
    std::array<std::vector<std::byte>, optim::max_states> tensors;
    unsigned valid = 0; ///< bit i: tensors[i] has been through a step; another one was only made for the next
    int64_t step = 0;
};

} // namespace ujoin
