// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/op.hpp"
#include <algorithm>
#include <cstring>

namespace ujoin {

/// Calls piece(address, bytes) for the parts of `memory` between offset and offset + length.
template <class Piece> void for_pieces(const Memory &memory, size_t offset, size_t length, Piece &&piece) {
    for (const Segment &segment : memory) {
        if (length == 0) return;
        if (offset >= segment.bytes) {
            offset -= segment.bytes;
            continue;
        }
        const size_t n = std::min(length, segment.bytes - offset);
        piece(static_cast<char *>(segment.data) + offset, n);
        offset = 0;
        length -= n;
    }
}
inline void copy_out_of(const Memory &from, size_t offset, char *to, size_t length) {
    for_pieces(from, offset, length, [&](const char *piece, size_t n) {
        std::memcpy(to, piece, n);
        to += n;
    });
}
inline void copy_into(const Memory &to, size_t offset, const char *from, size_t length) {
    for_pieces(to, offset, length, [&](char *piece, size_t n) {
        std::memcpy(piece, from, n);
        from += n;
    });
}

} // namespace ujoin
