// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/aligned.hpp"
#include "optim/hyper.hpp"
#include "optim/update.hpp"
#include "zero/params.hpp"
#include "zero/partition.hpp"
#include <array>
#include <cstdint>
#include <memory>
#include <vector>

namespace ujoin {

/// What zero_create was asked for, apart from parameters.
struct ZeroOptions {
    bool balance_trainable = false;
    bool master_copies = true; ///< of 16-bit parameters
    bool stochastic_rounding = false;
    uint64_t seed = 0;
    ujoin_partition partition = UJOIN_PARTITION_PARAMETERS;
    bool bucket_view = false;    ///< trained parameters lie in memory of the library's
    bool compare_values = false; ///< UJOIN_DEBUG=detail
    bool overlaps = false;       ///< a reducer makes the steps
    bool fuses = false;          ///< steps sum the gradients of a reducer
};

/// Memory that an all_gather of unequal parts shares.
struct Share {
    std::vector<Segment> segments; ///< parameters by rank, in the partition's order; neighbours in memory are one
    std::vector<size_t> offsets;   ///< where the bytes of each rank begin, and the end
    size_t bytes = 0;

    void clear();
    /// In the order of the ranks.
    void add(int32_t rank, std::byte *data, size_t size);
    void complete(size_t ranks);
};

/// Parameters and param groups of an optimizer, and what follows from them.
struct Layout {
    Layout(std::shared_ptr<const optim::Rule> r, const ZeroOptions &how, int32_t own_rank, int32_t ranks);

    /// A copy with one more param group, checked on this rank alone.
    Layout with_group(std::vector<ZeroParam> added, optim::Hyper hyper) const;
    bool owns(size_t index) const { return own_pieces[index] != none; }
    /// This rank's piece of a parameter that it owns, or owns a part of.
    const Piece &own(size_t index) const { return partition.pieces()[own_pieces[index]]; }
    /// The piece is the parameter.
    bool whole(const Piece &piece) const { return piece.count == params[piece.param].count; }
    /// Names and types of its parameters, values of its hyper-parameters: what ranks must agree on in a param group.
    Facts facts_of_group(int32_t group) const;
    /// Computes anew what a step shares.
    void arrange();
    /// Adds a piece, unless it is frozen.
    void add_to(Share &to, const Piece &piece) const;
    void number_pieces();

    // State of a parameter.
    ujoin_dtype state_dtype(size_t index) const { return optim::arithmetic_dtype(params[index].dtype); }
    /// Of so many elements.
    size_t state_bytes(size_t index, size_t count) const;
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
    Share share;                    ///< of a whole step
    std::vector<size_t> own_pieces; ///< by parameter: index of this rank's piece
    std::vector<size_t> numbers;    ///< where the numbers begin that a piece adds to a norm, and the end
    std::vector<size_t> numbers_of; ///< where those of each rank begin, in bytes, and the end
    static constexpr size_t none = SIZE_MAX;
};

/// What is kept for one parameter, or a piece of it, on the rank that owns it.
struct ParamState {
    /// By Layout::state_names. Vector instructions are slower where what they load lies in two cache lines.
    std::array<AlignedBytes, optim::max_states + 1> tensors;
    unsigned valid = 0; ///< bit i: tensors[i] has been through a step; another one was only made for the next
    int64_t step = 0;   ///< steps that updated it, or what was loaded
    double number = 1;  ///< Rule::number
};

} // namespace ujoin
