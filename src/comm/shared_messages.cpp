// SPDX-License-Identifier: Apache-2.0
// Messages between two ranks. A message ends on both sides when its receiver has taken the last piece, so nothing of it is
// on the way afterwards, and no memory is needed beside the staging buffer of the next operation, which nobody reads before
// this rank enters it.
#include "comm/copy.hpp"
#include "comm/shared_backend.hpp"
#include <algorithm>
#include <utility>

namespace ujoin {
namespace {

constexpr size_t pieces_in_flight = 2;

size_t pieces_of(const Message &message, size_t piece) {
    return std::max<size_t>(1, (message.memory.bytes() + piece - 1) / piece); // an empty message is one empty piece
}
uint64_t sequence_of(uint64_t posted) { return posted >> Mail::rank_bits; }
int32_t receiver_of(uint64_t posted) { return static_cast<int32_t>(posted & Mail::rank_mask); }

} // namespace

/// Piece number `sequence` of a rank's mail; halves alternate.
char *SharedBackend::mail_piece(int32_t rank, uint64_t sequence) {
    // The parity of the next operation's buffer is the same on every rank: all have completed the same operations.
    return parts_.areas[static_cast<size_t>(rank)]->staging(step_ + 1, parts_.chunk) +
           sequence % pieces_in_flight * message_piece();
}

/// The first message of this rank that is not complete, in its direction and with its peer: those before it go first.
bool SharedBackend::is_next(const OpArgs &op, const Message &message) {
    for (const Message &other : op.messages) {
        if (&other == &message) return true;
        if (!other.done && other.outgoing == message.outgoing && (message.outgoing || other.peer == message.peer))
            return false;
    }
    return true;
}

/// Posts pieces as long as there is room. True = something changed.
bool SharedBackend::post(Message &message) {
    Mail &own = mail(parts_.rank);
    const size_t pieces = pieces_of(message, message_piece());
    const uint64_t taken = own.taken.load(std::memory_order_acquire);
    uint64_t posted = sequence_of(own.posted.load(std::memory_order_relaxed));
    if (message.pieces == 0) { // everything before it was taken
        own.count = message.count;
        own.dtype = message.dtype;
    }
    bool moved = false;
    while (message.pieces < pieces && posted - taken < pieces_in_flight) {
        const size_t offset = message.pieces++ * message_piece();
        const size_t bytes = std::min(message_piece(), message.memory.bytes() - offset);
        copy_out_of(message.memory, offset, mail_piece(parts_.rank, ++posted), bytes);
        own.posted.store(posted << Mail::rank_bits | static_cast<uint64_t>(message.peer), std::memory_order_release);
        os::announce(mail(message.peer).event);
        if (parts_.mirror && parts_.mirror->covers(message.peer))
            parts_.mirror->show_mail(message.peer, step_ + 1, {posted % pieces_in_flight * message_piece(), bytes},
                                     posted - message.pieces);
        moved = true;
    }
    message.done = message.pieces == pieces && taken == posted;
    return moved || message.done;
}

/// Takes the pieces that have come. True = something changed.
bool SharedBackend::take(Message &message) {
    Mail &from = mail(message.peer);
    const size_t pieces = pieces_of(message, message_piece());
    bool moved = false;
    while (!message.done) {
        const uint64_t posted = from.posted.load(std::memory_order_acquire);
        const uint64_t taken = from.taken.load(std::memory_order_relaxed);
        if (receiver_of(posted) != parts_.rank || sequence_of(posted) <= taken) break;
        if (message.pieces == 0 && (from.count != message.count || from.dtype != message.dtype)) {
            Message theirs = message;
            theirs.outgoing = true;
            theirs.peer = parts_.rank;
            theirs.count = from.count;
            theirs.dtype = from.dtype;
            fail_mismatch(cat("a message is not what its receiver expects: rank ", message.peer, " ", describe(theirs),
                              ", rank ", parts_.rank, " ", describe(message)),
                          message.peer);
        }
        const size_t offset = message.pieces++ * message_piece();
        copy_into(message.memory, offset, mail_piece(message.peer, taken + 1),
                  std::min(message_piece(), message.memory.bytes() - offset));
        from.taken.store(taken + 1, std::memory_order_release);
        os::announce(from.event);
        if (parts_.mirror && parts_.mirror->covers(message.peer)) parts_.mirror->show_taken(message.peer, taken + 1);
        message.done = message.pieces == pieces;
        moved = true;
    }
    return moved;
}

bool SharedBackend::move_messages(OpArgs &op) {
    if (health_ && !std::exchange(op.cursor.waiting, true)) health_->begin(op_kind_name(op.kind));
    bool moved = true;
    while (moved) {
        moved = false;
        for (Message &message : op.messages)
            if (!message.done && is_next(op, message)) moved = (message.outgoing ? post(message) : take(message)) || moved;
    }
    const bool done =
        std::all_of(op.messages.begin(), op.messages.end(), [](const Message &message) { return message.done; });
    if (done && health_) health_->end();
    return done;
}

/// As move_messages would find.
bool SharedBackend::can_move(const OpArgs &op) {
    const Mail &own = mail(parts_.rank);
    for (const Message &message : op.messages) {
        if (message.done || !is_next(op, message)) continue;
        if (message.outgoing) {
            const uint64_t waiting =
                sequence_of(own.posted.load(std::memory_order_relaxed)) - own.taken.load(std::memory_order_acquire);
            if (waiting == 0 || (waiting < pieces_in_flight && message.pieces < pieces_of(message, message_piece())))
                return true;
        } else {
            const Mail &from = mail(message.peer);
            const uint64_t posted = from.posted.load(std::memory_order_acquire);
            if (receiver_of(posted) == parts_.rank && sequence_of(posted) > from.taken.load(std::memory_order_relaxed))
                return true;
        }
    }
    return false;
}

/// A peer that is in an operation of all ranks waits for this one there: it has no message for it, and takes none.
void SharedBackend::check_not_elsewhere(OpArgs &op) {
    for (Message &message : op.messages) {
        if (message.done || message.peer == parts_.rank) continue;
        OpArgs theirs;
        if (!pending(message.peer, theirs)) continue;
        move_messages(op); // what it did before it went there
        if (!message.done)
            fail_mismatch(cat("ranks called different operations: rank ", parts_.rank, " ", describe(message), ", rank ",
                              message.peer, " ",
                              describe(theirs.kind, theirs.reduce, theirs.dtype, theirs.count, theirs.root)),
                          message.peer);
    }
}

bool SharedBackend::run_messages(OpArgs &op, const Deadline &deadline, const Deadline &patience, bool interruptible) {
    watch_.check_own();
    while (!move_messages(op)) {
        check_not_elsewhere(op);
        const auto open =
            std::find_if(op.messages.begin(), op.messages.end(), [](const Message &message) { return !message.done; });
        if (open == op.messages.end()) break;
        const int32_t k = open->peer;
        const auto part = [&](int32_t rank) {
            OpArgs elsewhere;
            if (rank == k) return can_move(op) || pending(k, elsewhere);
            return std::none_of(op.messages.begin(), op.messages.end(),
                                [&](const Message &message) { return !message.done && message.peer == rank; });
        };
        const auto what = [&] { return describe(*open); };
        if (!watch_.wait(k, mail(parts_.rank).event, part, deadline, patience, interruptible, what, Watch::AbortEnds::yes))
            return false;
    }
    return true;
}

} // namespace ujoin
