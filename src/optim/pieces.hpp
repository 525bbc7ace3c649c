// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/parallel.hpp"
#include <cstddef>
#include <vector>

namespace ujoin::optim {

/// Elements that one thread works on at a time: whole cache lines of every type, and whole subtrees of a norm's sum.
inline constexpr size_t piece_elements = 32768;

/// Ranges of elements, cut where their indexes are multiples of piece_elements. The cuts, and with them all results, do not
/// depend on the number of threads.
class Pieces {
  public:
    struct Piece {
        size_t range; ///< by the order of add()
        size_t begin; ///< element, as in add()
        size_t count;
    };

    void add(size_t begin, size_t count);
    void clear();
    /// So many ranges can be added without memory.
    void reserve(size_t ranges) { ranges_.reserve(ranges); }
    size_t size() const { return ranges_.empty() ? 0 : ranges_.back().pieces; }
    size_t ranges() const { return ranges_.size(); }
    /// Where the pieces of a range begin among all.
    size_t first_of(size_t range) const { return range == 0 ? 0 : ranges_[range - 1].pieces; }
    Piece at(size_t index) const;

    /// Calls body(piece, index) for each, on as many threads as it is worth to wake up.
    template <class Body> void run(Parallel &parallel, const Body &body) const {
        const size_t most = 1 + elements_ / (2 * piece_elements);
        parallel.run(size(), most, [&](size_t index) { body(at(index), index); });
    }

  private:
    struct Range {
        size_t begin;
        size_t end;
        size_t pieces; ///< with those of all ranges before
    };
    std::vector<Range> ranges_;
    size_t elements_ = 0;
};

} // namespace ujoin::optim
