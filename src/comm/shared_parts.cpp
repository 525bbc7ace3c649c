// SPDX-License-Identifier: Apache-2.0
// Operations in which a rank has a part for each other one: gather, scatter, all_to_all. In every step a rank stages the
// sizes of its parts, then a piece of each, at equal distances. Sizes may differ from pair to pair, and only the two know
// them; so a step's slots say who needs another one.
#include "comm/copy.hpp"
#include "comm/shared_backend.hpp"
#include <algorithm>
#include <cstring>

namespace ujoin {
namespace {

constexpr size_t head_bytes(size_t ranks) { return ranks * sizeof(uint64_t); }

} // namespace

/// What this rank has for another one.
SharedBackend::Part SharedBackend::part_for(const OpArgs &op, int32_t rank) const {
    const auto k = static_cast<size_t>(rank);
    const bool from_here =
        op.kind == OpKind::all_to_all || (op.kind == OpKind::gather ? rank == op.root : parts_.rank == op.root);
    if (op.empty || !from_here) return {};
    if (op.kind == OpKind::gather) return op.send.absent() ? part_from(op, parts_.rank) : Part{0, op.send.bytes()};
    const std::vector<size_t> &offsets = op.send.absent() ? op.recv_offsets : op.send_offsets;
    return {offsets[k], offsets[k + 1] - offsets[k]};
}

/// What another rank has for this one.
SharedBackend::Part SharedBackend::part_from(const OpArgs &op, int32_t rank) const {
    const auto k = static_cast<size_t>(rank);
    const bool to_here =
        op.kind == OpKind::all_to_all || (op.kind == OpKind::gather ? parts_.rank == op.root : rank == op.root);
    if (op.empty || !to_here) return {};
    if (op.kind == OpKind::scatter) return op.recv.absent() ? part_for(op, parts_.rank) : Part{0, op.recv.bytes()};
    return {op.recv_offsets[k], op.recv_offsets[k + 1] - op.recv_offsets[k]};
}

/// Bytes of each part that a step moves.
size_t SharedBackend::part_piece(const OpArgs &op) const {
    const size_t ranks = parts_.areas.size();
    const size_t piece = (parts_.chunk - head_bytes(ranks)) / (op.kind == OpKind::gather ? 1 : ranks);
    return piece < 64 ? piece : piece / 64 * 64;
}

bool SharedBackend::more_parts(const OpArgs &op) const {
    const size_t done = op.cursor.offset + op.cursor.length;
    for (int32_t k = 0; k < size(); k++)
        if (part_for(op, k).bytes > done) return true;
    return false;
}

void SharedBackend::stage_parts(const OpArgs &op) {
    if (op.empty) return;
    const OpArgs::Cursor &at = op.cursor;
    char *to = parts_.areas[static_cast<size_t>(parts_.rank)]->staging(step_, parts_.chunk);
    char *piece = to + head_bytes(parts_.areas.size());
    for (int32_t k = 0; k < size(); k++) {
        const Part part = part_for(op, k);
        const uint64_t bytes = part.bytes;
        std::memcpy(to + static_cast<size_t>(k) * sizeof bytes, &bytes, sizeof bytes);
        if (part.bytes > at.offset)
            copy_out_of(op.send.absent() ? op.recv : op.send, part.offset + at.offset, piece,
                        std::min(at.length, part.bytes - at.offset));
        if (op.kind != OpKind::gather) piece += at.length;
    }
}

/// The size of the rank's part, which it compares in any case, and a piece of it.
Mirror::Pieces SharedBackend::parts_shown(const OpArgs &op, int32_t rank) const {
    const auto k = static_cast<size_t>(rank);
    const OpArgs::Cursor &at = op.cursor;
    const size_t bytes = part_for(op, rank).bytes;
    const size_t place = op.kind == OpKind::gather ? 0 : k * at.length;
    return {{{k * sizeof(uint64_t), sizeof(uint64_t)},
             {head_bytes(parts_.areas.size()) + place, bytes > at.offset ? std::min(at.length, bytes - at.offset) : 0}}};
}

void SharedBackend::take_parts(const OpArgs &op) {
    const OpArgs::Cursor &at = op.cursor;
    for (int32_t k = 0; k < size(); k++) {
        if (op.empty || nothing_from(k)) continue;
        const Part part = part_from(op, k);
        const char *from = parts_.areas[static_cast<size_t>(k)]->staging(step_, parts_.chunk);
        uint64_t bytes = 0;
        std::memcpy(&bytes, from + static_cast<size_t>(parts_.rank) * sizeof bytes, sizeof bytes);
        if (bytes != part.bytes)
            fail_mismatch(cat("ranks disagree on a part of ", describe(op.kind, op.reduce, op.dtype, op.count, op.root),
                              ": rank ", k, " sends ", bytes, " bytes to rank ", parts_.rank, ", which expects ",
                              part.bytes),
                          k);
        const bool in_place = k == parts_.rank && (op.send.absent() || op.recv.absent());
        if (in_place || part.bytes <= at.offset) continue;
        from += head_bytes(parts_.areas.size());
        if (op.kind != OpKind::gather) from += static_cast<size_t>(parts_.rank) * at.length;
        copy_into(op.recv, part.offset + at.offset, from, std::min(at.length, part.bytes - at.offset));
    }
}

} // namespace ujoin
