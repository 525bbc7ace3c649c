// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/board.hpp"
#include <atomic>
#include <cstddef>
#include <cstdint>

namespace ujoin {

/// One rank's part in one step of an operation: a single cache line, so that a small operation costs one line's way from
/// processor to processor. `arrived` is stored (release) last; everything else is read after it was seen (acquire).
/// A rank writes slot s & 1 for step s once every rank has arrived at s - 1, that is, has read step s - 2.
struct alignas(64) Slot {
    static constexpr size_t inline_bytes = 24;

    std::atomic<uint64_t> arrived{0}; ///< number of the step, from 1
    os::EventCount event;
    uint64_t fingerprint = 0; ///< the operation, see pack_fingerprint
    double weight = 0;
    uint32_t flags = 0; ///< shadow, stop, and the use tag in the upper 24 bits
    uint32_t digest = 0;
    char data[inline_bytes] = {};
};
static_assert(sizeof(Slot) == 64);

/// A rank's messages to other ranks, one piece after the other through two halves of a staging buffer that no operation
/// uses meanwhile. `posted` is a sequence number with the receiver in its low bits, stored (release) last; the receiver
/// answers with the number in `taken`. A message is described anew only when every piece before it was taken.
struct alignas(64) Mail {
    static constexpr int rank_bits = 12;
    static constexpr uint64_t rank_mask = (uint64_t{1} << rank_bits) - 1;

    std::atomic<uint64_t> posted{0};
    std::atomic<uint64_t> taken{0};
    os::EventCount event; ///< this rank's: announced when somebody has posted to it, or taken from it
    uint64_t count = 0;   ///< elements of the message
    ujoin_dtype dtype = 0;
};
static_assert(sizeof(Mail) == 64);

/// What one rank shows to the others, in memory that all of them have mapped. The staging buffers follow.
struct RankArea {
    FateLine fate;
    Bank banks[2];
    Slot slots[2];
    Mail mail;
    std::atomic<uint64_t> quiet{0}; ///< number of a step in whose memory this rank has no part any more

    static constexpr size_t head_bytes = 4096;
    static constexpr size_t bytes(size_t chunk) { return head_bytes + 2 * chunk; }
    char *staging(uint64_t step, size_t chunk) { return reinterpret_cast<char *>(this) + head_bytes + (step & 1) * chunk; }
};
static_assert(sizeof(RankArea) <= RankArea::head_bytes);

/// Of a group whose ranks are processes.
inline constexpr int32_t most_processes = 1024;

/// Large operations go through the staging buffers in pieces of this size: both of them fit a second-level cache of 1 MiB,
/// and the meetings between pieces do not count (256 KiB is a third slower at 1 MB, 1 MiB no faster).
inline constexpr size_t default_chunk = size_t{512} << 10;

} // namespace ujoin
