// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace ujoin {

/// Entries of a rank's ring of uses: no rank is further than this ahead of another.
inline constexpr uint64_t ring_size = 16;
/// Value of stop_at when there is no stop.
inline constexpr uint64_t no_stop = ~uint64_t{0};

/// The word that says how far a rank is in a context: tag 16 | (free) 1 | joined 1 | stop 1 | pos 45. One word, one store, so
/// that a reader never combines the state of one moment with the position of another. `pos` counts uses: a rank's own while
/// it runs, then those done or shadowed.
struct Head {
    static constexpr uint64_t pos_mask = (uint64_t{1} << 45) - 1;
    static constexpr uint64_t stop_bit = uint64_t{1} << 45;
    static constexpr uint64_t joined_bit = uint64_t{1} << 46;
    static constexpr int tag_shift = 48;

    uint64_t word = 0;

    static Head make(uint64_t context, uint64_t pos, bool joined, bool stop) {
        return Head{(context << tag_shift) | (joined ? joined_bit : 0) | (stop ? stop_bit : 0) | (pos & pos_mask)};
    }
    /// As seen from a context: a word of another one says "running, no uses yet".
    Head in(uint64_t context) const { return word >> tag_shift == (context & 0xffff) ? *this : Head{}; }

    bool started() const { return word >> tag_shift != 0 || word != 0; }
    uint64_t pos() const { return word & pos_mask; }
    bool joined() const { return (word & joined_bit) != 0; }
    bool stop() const { return (word & stop_bit) != 0; }
};

} // namespace ujoin
