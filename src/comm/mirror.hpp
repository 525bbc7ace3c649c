// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/shared_area.hpp"
#include <array>
#include <cstddef>
#include <cstdint>

namespace ujoin {

class Watch;

/// Shows this rank's area to ranks that do not see its memory: each of them has a copy, which changes in the order of these
/// calls. Every word has one writer, so a copy is a peer that is a little behind, and operations, board and watch need not
/// know which ranks lie here and which are copies. Copies of different ranks keep no order between each other.
///
/// What is shown must not change until the rank that it is shown to has said, in a word of its own, that it has read it: that
/// is so for staging memory and slots anyway. Calls from any thread; none waits for a peer.
class Mirror {
  public:
    /// A part of a staging buffer.
    struct Piece {
        size_t offset = 0;
        size_t bytes = 0;
    };
    using Pieces = std::array<Piece, 2>; ///< empty ones count for nothing

    virtual ~Mirror() = default;
    /// From now on, losses of connections are told to it; it lives until stop().
    virtual void start(Watch &watch) = 0;
    /// After this nothing is written to the copies. What was shown last goes out first, as far as peers take it soon.
    virtual void stop() noexcept = 0;
    /// Whether the rank has a copy of this rank's area, and this rank one of its.
    virtual bool covers(int32_t rank) const = 0;

    virtual void show_slot(int32_t to, uint64_t step, const Pieces &pieces) = 0;
    /// Of context & 1, to all.
    virtual void show_bank(uint64_t context) = 0;
    /// To all. What cannot be told ends the connection, so that it is noticed.
    virtual void show_fate() noexcept = 0;
    /// One more piece of a message, in the buffer of this step; `before` pieces of this rank's had been taken when the message
    /// began, some of them by ranks that this one does not hear of.
    virtual void show_mail(int32_t to, uint64_t step, Piece piece, uint64_t before) = 0;
    /// How many pieces of its mail this rank has taken.
    virtual void show_taken(int32_t of, uint64_t taken) = 0;
};

} // namespace ujoin
