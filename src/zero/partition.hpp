// SPDX-License-Identifier: Apache-2.0
#pragma once
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

/// PyTorch's sorted greedy partition: whole parameters, the largest of a group first, to the rank with the fewest elements
/// so far. A function of sizes and order alone, so every rank computes the same.
class Partition {
  public:
    explicit Partition(int32_t ranks) : load_(static_cast<size_t>(ranks)) {}

    /// Parameters of the next param group, numbered on from the last. Earlier pieces do not move.
    /// Those that are `weightless` (empty: none) are given away like the others, but do not count as load.
    void add_group(const std::vector<size_t> &counts, const std::vector<bool> &weightless = {});
    /// Ordered by rank, then group, then size.
    const std::vector<Piece> &pieces() const { return pieces_; }
    size_t ranks() const { return load_.size(); }
    /// Elements of a rank that count.
    size_t load(int32_t rank) const { return load_[static_cast<size_t>(rank)]; }

  private:
    std::vector<size_t> load_;
    std::vector<Piece> pieces_;
    size_t params_ = 0;
    int32_t groups_ = 0;
};

} // namespace ujoin
