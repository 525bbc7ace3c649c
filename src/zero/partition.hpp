// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ujoin.h"
#include <cstddef>
#include <cstdint>
#include <vector>

namespace ujoin {

/// A part of a parameter and the rank that owns it: its state lives there, and there it is updated.
struct Piece {
    size_t param = 0;
    size_t offset = 0; ///< elements
    size_t count = 0;
    int32_t rank = 0;
    int32_t group = 0;
};

/// What a partition looks at in a parameter.
struct PartitionMember {
    size_t count = 0;        ///< elements
    size_t line = 16;        ///< of them in a cache line
    bool weightless = false; ///< given away like the others, but no load
};

/// Who owns what. A function of sizes and order alone, so every rank computes the same.
///   parameters   PyTorch's sorted greedy one: whole parameters, the largest of a group first, to the rank with the fewest
///                elements so far
///   elements     a group is one flat array, which is cut at cache lines of its parameters so that loads become equal. What is
///                weightless is an array of its own, cut into equal parts.
class Partition {
  public:
    explicit Partition(int32_t ranks, ujoin_partition kind = UJOIN_PARTITION_PARAMETERS)
        : kind_(kind), load_(static_cast<size_t>(ranks)) {}

    /// Parameters of the next param group, numbered on from the last. Earlier pieces do not move.
    void add_group(const std::vector<PartitionMember> &members);
    /// Ordered by rank, then group, then size or place. A parameter has one piece on a rank at most.
    const std::vector<Piece> &pieces() const { return pieces_; }
    size_t ranks() const { return load_.size(); }
    /// Elements of a rank that count.
    size_t load(int32_t rank) const { return load_[static_cast<size_t>(rank)]; }

  private:
    void give_whole(const std::vector<PartitionMember> &members);
    void cut(const std::vector<PartitionMember> &members, bool weightless);

    ujoin_partition kind_;
    std::vector<size_t> load_;
    std::vector<Piece> pieces_;
    size_t params_ = 0;
    int32_t groups_ = 0;
};

} // namespace ujoin
