// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "optim/hyper.hpp"
#include "optim/update.hpp"
#include "zero/params.hpp"
#include "zero/partition.hpp"
#include <array>
#include <memory>
#include <vector>

namespace ujoin {

/// What zero_create was asked for, apart from parameters.
struct ZeroOptions {
    bool balance_trainable = false;
    bool master_copies = true; ///< of 16-bit parameters
    bool stochastic_rounding = false;
    uint64_t seed = 0;
    bool compare_values = false; ///< UJOIN_DEBUG=detail
};

/// Parameters and param groups of an optimizer, and what follows from them.
struct Layout {
    Layout(std::shared_ptr<const optim::Rule> r, const ZeroOptions &how, int32_t own_rank, int32_t ranks);

    /// A copy with one more param group, checked on this rank alone.
    Layout with_group(std::vector<ZeroParam> added, optim::Hyper hyper) const;
    bool owns(size_t index) const { return params[index].owner == rank; }
    /// Names and types of its parameters, values of its hyper-parameters: what ranks must agree on in a param group.
    Facts facts_of_group(int32_t group) const;
    /// Computes the segments anew: frozen parameters are not shared.
    void arrange();

    // State of a parameter.
    ujoin_dtype state_dtype(size_t index) const { return optim::arithmetic_dtype(params[index].dtype); }
    size_t state_bytes(size_t index) const;
    bool has_master(size_t index) const;
    /// Bit i: a step needs state_names[i].
    unsigned needed_states(size_t index) const;
    /// Steps are counted where the rule looks at the number, or random numbers are keyed by it.
    bool counts_steps() const { return rule->counts_steps || options.stochastic_rounding; }

    std::shared_ptr<const optim::Rule> rule;
    ZeroOptions options;
    std::vector<std::string> state_names; ///< the rule's, then "master": the f32 copy of a 16-bit parameter
    int32_t rank;
    std::vector<ZeroParam> params;
    std::vector<optim::Hyper> hypers; ///< by param group
    Partition partition;
    std::vector<Segment> segments; ///< parameters by rank, in the partition's order; neighbours in memory are one
    std::vector<size_t> offsets;   ///< where the bytes of each rank begin, and the end
    std::vector<size_t> pieces_of; ///< where each rank's pieces begin, in bytes of one number each, and the end
};

/// What is kept for one parameter, on the rank that owns it.
struct ParamState {
    std::array<std::vector<std::byte>, optim::max_states + 1> tensors; ///< by Layout::state_names
    unsigned valid = 0; ///< bit i: tensors[i] has been through a step; another one was only made for the next
    int64_t step = 0;   ///< steps that updated it, or what was loaded
    double number = 1;  ///< Rule::number
};

} // namespace ujoin
