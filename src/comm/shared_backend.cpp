// SPDX-License-Identifier: Apache-2.0
#include "comm/shared_backend.hpp"
#include "base/env.hpp"
#include "comm/contribution.hpp"
#include "comm/copy.hpp"
#include "comm/kernels.hpp"
#include "comm/owner_step.hpp"
#include "os/cpu.hpp"
#include <algorithm>
#include <cstring>
#include <fcntl.h>
#include <utility>

namespace ujoin {
namespace {

/// kind 4 | reduction 4 | type 4 | root 12 | count 40: exact, so that both sides can be described in an error.
uint64_t pack_fingerprint(const OpArgs &op) {
    const uint64_t root = has_root(op.kind) ? static_cast<uint64_t>(op.root) & 0xfff : 0;
    return (static_cast<uint64_t>(op.kind) << 60) | (static_cast<uint64_t>(reduces(op.kind) ? op.reduce : 0) << 56) |
           (static_cast<uint64_t>(op.dtype) << 52) | (root << 40) |
           (moves_parts(op.kind) ? 0 : op.count & ((uint64_t{1} << 40) - 1)); // sizes of parts are compared one by one
}
/// The operation that a slot tells of, without its memory.
void unpack(const Slot &from, OpArgs &out) {
    const uint64_t print = from.fingerprint;
    out.kind = static_cast<OpKind>(print >> 60);
    out.reduce = static_cast<ujoin_reduce>((print >> 56) & 0xf);
    out.dtype = static_cast<ujoin_dtype>((print >> 52) & 0xf);
    out.root = static_cast<int32_t>((print >> 40) & 0xfff);
    out.count = print & ((uint64_t{1} << 40) - 1);
    out.digest = from.digest;
    out.use_tag = from.flags >> tag_shift;
    out.shadow = from.flags & flag_shadow;
    out.program = from.flags & flag_program;
}
std::string describe_op(const OpArgs &op) { return describe(op.kind, op.reduce, op.dtype, op.count, op.root); }
std::string describe_slot(const Slot &slot) {
    OpArgs op;
    unpack(slot, op);
    return describe_op(op);
}

std::vector<FateLine *> fates_of(const std::vector<RankArea *> &areas) {
    std::vector<FateLine *> fates;
    fates.reserve(areas.size());
    for (RankArea *area : areas) fates.push_back(&area->fate);
    return fates;
}
std::vector<os::EventCount *> events_of(const std::vector<RankArea *> &areas) {
    std::vector<os::EventCount *> events;
    events.reserve(5 * areas.size());
    for (RankArea *area : areas) {
        for (int i = 0; i < 2; i++) {
            events.push_back(&area->banks[i].event);
            events.push_back(&area->slots[i].event);
        }
        events.push_back(&area->mail.event);
    }
    return events;
}
std::vector<Bank *> banks_of(const std::vector<RankArea *> &areas) {
    std::vector<Bank *> banks;
    banks.reserve(areas.size());
    for (RankArea *area : areas) banks.push_back(area->banks);
    return banks;
}

} // namespace

int64_t spin_time_ns(int32_t ranks) {
    if (const auto us = env::number(env::Var::spin_us, 0, 1'000'000)) return *us * 1000;
    return ranks > os::processor_count() ? 0 : 500'000;
}

SharedBackend::SharedBackend(Parts parts)
    : parts_(std::move(parts)),
      watch_(parts_.rank, fates_of(parts_.areas), std::move(parts_.pidfds), events_of(parts_.areas), parts_.spin_ns),
      board_(banks_of(parts_.areas), watch_, parts_.mirror.get()), inputs_(parts_.areas.size()),
      shifted_(parts_.areas.size()), scales_(parts_.areas.size()) {
    if (!parts_.mirror) return;
    watch_.show_to(parts_.mirror.get());
    parts_.mirror->start(watch_);
}

SharedBackend::~SharedBackend() {
    if (parts_.mirror) parts_.mirror->stop();
}

void SharedBackend::abort(const std::string &reason, bool left) { watch_.mark(left ? Fate::left : Fate::failed, reason); }

void SharedBackend::tell(os::Health &health) {
    health_ = &health;
    watch_.tell(health);
}

bool SharedBackend::pending(int32_t rank, OpArgs &out) {
    const Slot &theirs = slot(rank, step_ + 1);
    if (theirs.arrived.load(std::memory_order_acquire) < step_ + 1) return false;
    unpack(theirs, out);
    return true;
}

bool SharedBackend::run(OpArgs &op, const Deadline &deadline, const Deadline &patience, bool interruptible) {
    if (op.kind == OpKind::transfer) return run_messages(op, deadline, patience, interruptible);
    if (!op.step || !op.step->direct()) return wait_for(op, deadline, patience, interruptible);
    met_ = 0;
    try {
        return wait_for(op, deadline, patience, interruptible);
    } catch (const Error &error) {
        keep_quiet(error, *op.step);
        throw;
    }
}

bool SharedBackend::wait_for(OpArgs &op, const Deadline &deadline, const Deadline &patience, bool interruptible) {
    while (!advance(op)) {
        const OpArgs &now = op.follow >= 0 && shadowed_ ? *shadowed_ : op;
        const bool others_turn = now.follow >= 0;
        const int32_t k = others_turn ? now.follow : now.cursor.peer;
        const uint64_t step = others_turn ? step_ + 1 : step_;
        const auto arrived = [&](int32_t rank) {
            return slot(rank, step).arrived.load(std::memory_order_acquire) >= step ||
                   (others_turn && rank == k && board_.joined(k, now.follow_context));
        };
        const auto what = [&] { return describe_op(now); };
        // Who has arrived at the end of a direct step has done its part, whatever it does then: all end alike.
        const bool ends = op.step && op.step->direct() && op.cursor.offset != 0;
        const auto abort_ends = ends ? Watch::AbortEnds::no : Watch::AbortEnds::yes;
        if (!watch_.wait(k, slot(k, step).event, arrived, deadline, patience, interruptible, what, abort_ends))
            return false;
    }
    return true;
}

/// A joined rank that works on a use: the rank that it follows may issue operations of the program's own in between. Shadows
/// those. False = that rank is not at its next operation yet, or one of those is not complete.
bool SharedBackend::let_others_first(OpArgs &op) {
    for (;;) {
        if (!shadowed_) {
            OpArgs next;
            if (!pending(op.follow, next)) {
                if (!board_.joined(op.follow, op.follow_context)) return false;
                break; // it has nothing to issue any more
            }
            const bool mine = op.program && pack_fingerprint(next) == pack_fingerprint(op); // of the program's own hook
            if (mine || !next.program || next.shadow) break;
            shadowed_.emplace(empty_shadow_of(next));
        }
        if (!advance(*shadowed_)) return false;
        shadowed_.reset();
    }
    op.follow = -1;
    return true;
}

bool SharedBackend::advance(OpArgs &op) {
    watch_.check_own();
    if (op.kind == OpKind::transfer) return move_messages(op);
    if (op.follow >= 0 && !let_others_first(op)) return false;
    OpArgs::Cursor &at = op.cursor;
    for (;;) {
        if (!at.waiting) begin_step(op);
        for (; at.peer < size(); at.peer++)
            if (slot(at.peer, step_).arrived.load(std::memory_order_acquire) < step_) return false;
        at.waiting = false;
        at.peer = 0;
        end_step(op);
        if (!at.last) continue;
        if (health_) health_->end();
        return true;
    }
}

/// Bytes that the operation walks through, per rank or part; elements in a step.
size_t SharedBackend::span(const OpArgs &op) const {
    if (op.part_offsets) {
        size_t longest = 0;
        for (int32_t k = 0; k < size(); k++) longest = std::max(longest, part_bytes(op, k));
        return longest;
    }
    if (op.step && op.step->direct()) return 2; // two meetings
    if (op.step) return op.step->longest() + (op.step->shares() ? step_elements(*op.step) : 0);
    return op.count * dtype_size(op.dtype);
}
size_t SharedBackend::part_bytes(const OpArgs &op, int32_t rank) const {
    const auto k = static_cast<size_t>(rank);
    return op.part_offsets ? op.part_offsets[k + 1] - op.part_offsets[k] : op.count * dtype_size(op.dtype);
}
size_t SharedBackend::part_offset(const OpArgs &op, int32_t rank) const {
    const auto k = static_cast<size_t>(rank);
    return op.part_offsets ? op.part_offsets[k] : k * part_bytes(op, rank);
}
/// Bytes of rank k's part in the present step.
size_t SharedBackend::part_piece_bytes(const OpArgs &op, int32_t rank) const {
    const size_t bytes = part_bytes(op, rank);
    return bytes > op.cursor.offset ? std::min(op.cursor.length, bytes - op.cursor.offset) : 0;
}
/// Bytes that rank k shows to the others in the present step.
size_t SharedBackend::staged_bytes(const OpArgs &op, int32_t rank) const {
    const OpArgs::Cursor &at = op.cursor;
    switch (op.kind) {
    case OpKind::all_reduce:
    case OpKind::reduce:
        return at.length;
    case OpKind::broadcast:
        return rank == op.root ? at.length : 0;
    case OpKind::reduce_scatter:
        return at.length * parts_.areas.size();
    case OpKind::all_gather:
        return part_piece_bytes(op, rank);
    default:
        return 0;
    }
}
char *SharedBackend::data(int32_t rank, size_t length) {
    if (length <= Slot::inline_bytes) return slot(rank, step_).data;
    return parts_.areas[static_cast<size_t>(rank)]->staging(step_, parts_.chunk);
}

/// With many ranks each reduces a share of the piece and the shares are exchanged: O(n) work per rank instead of O(W n),
/// for one more meeting.
bool SharedBackend::two_phases(const OpArgs &op) const {
    return (op.kind == OpKind::all_reduce || op.kind == OpKind::reduce) && size() > 3 && op.cursor.length > 4096;
}

void SharedBackend::begin_step(OpArgs &op) {
    OpArgs::Cursor &at = op.cursor;
    if (health_ && at.phase == 0 && at.offset == 0) health_->begin(op_kind_name(op.kind));
    if (at.phase == 0) {
        size_t piece = parts_.chunk;
        if (op.step) piece = op.step->direct() ? 1 : step_elements(*op.step);
        if (op.kind == OpKind::reduce_scatter) piece = std::max<size_t>(64, piece / parts_.areas.size() / 64 * 64);
        at.length = moves_parts(op.kind) ? part_piece(op) : std::min(span(op) - at.offset, piece);
        step_++;
        stage(op);
    } else {
        stage_own_share(op); // reads the step before
        step_++;
    }
    if (op.step && op.step->direct() && at.offset == 0) met_ = step_; // whatever becomes of it
    publish(op);
    at.waiting = true;
    at.peer = 0;
}

void SharedBackend::end_step(OpArgs &op) {
    OpArgs::Cursor &at = op.cursor;
    if (at.phase == 0 && at.offset == 0) compare(op);
    bool more = false;
    for (int32_t k = 0; moves_parts(op.kind) && k < size(); k++) more = more || slot(k, step_).flags & flag_more;
    if (at.phase == 0 && two_phases(op)) {
        at.phase = 1;
        return;
    }
    if (at.phase == 1) {
        copy_shares(op);
        at.phase = 0;
    } else {
        switch (op.kind) {
        case OpKind::all_reduce:
            reduce_into(op, 0, at.length, op.recv, at.offset, at.length);
            break;
        case OpKind::reduce:
            if (op.root == parts_.rank) reduce_into(op, 0, at.length, op.recv, at.offset, at.length);
            break;
        case OpKind::reduce_scatter:
            reduce_into(op, at.length * static_cast<size_t>(parts_.rank), staged_bytes(op, parts_.rank), op.recv, at.offset,
                        part_piece_bytes(op, parts_.rank));
            break;
        case OpKind::broadcast:
            if (op.root != parts_.rank) copy_into(op.recv, at.offset, data(op.root, at.length), at.length);
            break;
        case OpKind::all_gather:
            gather(op);
            break;
        case OpKind::gather:
        case OpKind::scatter:
        case OpKind::all_to_all:
            take_parts(op);
            break;
        case OpKind::owner_step:
            if (op.step->direct()) {
                if (at.offset == 0) step_directly(op);
                break;
            }
            take_shared(op);
            step_own(op);
            break;
        default:
            break;
        }
    }
    at.offset += at.length;
    at.last = moves_parts(op.kind) ? !more : at.offset >= span(op);
}

std::vector<os::Fd> SharedBackend::pass(const os::Fd &own, const Deadline &deadline) {
    if (parts_.pass) return parts_.pass(own, deadline);
    std::vector<int32_t> numbers(parts_.areas.size());
    const int32_t mine = own.get();
    OpArgs gather;
    gather.kind = OpKind::all_gather;
    gather.count = sizeof mine;
    gather.send = Memory(&mine, sizeof mine);
    gather.recv = Memory(numbers.data(), numbers.size() * sizeof mine);
    run(gather, deadline, Deadline::never(), true);
    std::vector<os::Fd> fds;
    fds.reserve(numbers.size());
    for (const int32_t number : numbers) fds.emplace_back(fcntl(number, F_DUPFD_CLOEXEC, 0));
    OpArgs barrier; // nobody closes its own before
    barrier.kind = OpKind::barrier;
    run(barrier, deadline, Deadline::never(), true);
    return fds;
}

void SharedBackend::publish(const OpArgs &op) {
    Slot &own = slot(parts_.rank, step_);
    own.fingerprint = pack_fingerprint(op);
    own.weight = op.weight;
    own.flags = (op.shadow ? flag_shadow : 0) | (op.stop_request ? flag_stop : 0) |
                (scaled_by_reader(op, op.step ? UJOIN_F16 : op.dtype) ? flag_scaled_by_weight : 0) |
                (op.program ? flag_program : 0) | (op.empty ? flag_empty : 0) |
                (moves_parts(op.kind) && more_parts(op) ? flag_more : 0) | (op.use_tag << tag_shift);
    own.digest = op.digest;
    own.arrived.store(step_, std::memory_order_release);
    os::announce(own.event);
    if (op.program && !op.shadow) // joined ranks look for it while they watch this rank's bank
        for (Bank &bank : parts_.areas[static_cast<size_t>(parts_.rank)]->banks) os::announce(bank.event);
    if (parts_.mirror) show(op);
}

/// The present step, to ranks that have a copy of this rank's area.
void SharedBackend::show(const OpArgs &op) {
    for (int32_t k = 0; k < size(); k++)
        if (parts_.mirror->covers(k)) parts_.mirror->show_slot(k, step_, pieces_for(op, k));
}

/// What rank k reads of this rank's staging buffer in the present step.
Mirror::Pieces SharedBackend::pieces_for(const OpArgs &op, int32_t rank) const {
    const OpArgs::Cursor &at = op.cursor;
    const bool reads = op.kind != OpKind::reduce || rank == op.root;
    if (at.phase == 1) return {{{0, reads ? share(at.length, parts_.rank).second : 0}}};
    if (op.empty) return {};
    if (op.step) return step_shown(op, rank);
    if (moves_parts(op.kind)) return parts_shown(op, rank);
    if (staged_bytes(op, parts_.rank) <= Slot::inline_bytes || (reduces(op.kind) && !own_contributes(op))) return {};
    if (op.kind == OpKind::reduce_scatter) return {{{at.length * static_cast<size_t>(rank), part_piece_bytes(op, rank)}}};
    if (two_phases(op)) {
        const auto [begin, length] = share(at.length, rank);
        return {{{begin, length}}};
    }
    return {{{0, reads ? staged_bytes(op, parts_.rank) : 0}}};
}

/// In the first step of an operation: do all ranks mean the same one, and what did they say of the use?
void SharedBackend::compare(OpArgs &op) {
    const Slot &own = slot(parts_.rank, step_);
    OpOutcome outcome;
    for (int32_t k = 0; k < size(); k++) {
        const Slot &other = slot(k, step_);
        if (other.fingerprint != own.fingerprint || other.digest != own.digest ||
            (other.flags >> tag_shift) != (own.flags >> tag_shift))
            report_mismatch(op, k);
        if (other.flags & flag_shadow) {
            outcome.shadows.push_back(k);
        } else {
            outcome.contributors++;
            outcome.weight += other.weight;
        }
        outcome.stop = outcome.stop || (other.flags & flag_stop);
    }
    op.outcome = std::move(outcome);
    if ((op.kind == OpKind::broadcast || op.kind == OpKind::scatter) && slot(op.root, step_).flags & flag_empty) {
        const std::string text =
            cat(describe_slot(own), ": its root, rank ", op.root, ", has joined and has nothing to send");
        watch_.mark(Fate::failed, text, UJOIN_E_STATE);
        throw Error(UJOIN_E_STATE, text).with_ranks({op.root});
    }
}

std::string SharedBackend::use_of(int32_t rank, const Slot &slot) {
    const UseTag tag{slot.flags >> tag_shift};
    return tag.word == 0 && !board_.used() ? "" : " in " + board_.describe_use(rank, tag);
}

void SharedBackend::report_mismatch(const OpArgs &op, int32_t other_rank) {
    const Slot &own = slot(parts_.rank, step_);
    const Slot &other = slot(other_rank, step_);
    std::string text;
    if (own.fingerprint != other.fingerprint) {
        text = cat("ranks called different operations: rank ", parts_.rank, " ", describe_slot(own),
                   use_of(parts_.rank, own), ", rank ", other_rank, " ", describe_slot(other), use_of(other_rank, other));
    } else if ((own.flags >> tag_shift) != (other.flags >> tag_shift)) {
        text = cat("ranks are in different uses of a join context in ", describe_slot(own), ": rank ", parts_.rank,
                   use_of(parts_.rank, own), ", rank ", other_rank, use_of(other_rank, other),
                   "; a joinable was notified too often or too rarely, or a rank is outside of the context");
    } else {
        text = cat(*op.digest_text ? op.digest_text : "ranks disagree", ": rank ", parts_.rank, " has digest ", own.digest,
                   ", rank ", other_rank, " ", other.digest);
    }
    fail_mismatch(text, other_rank);
}

void SharedBackend::fail_mismatch(const std::string &text, int32_t other) {
    watch_.mark(Fate::failed, text, UJOIN_E_MISMATCH);
    throw Error(UJOIN_E_MISMATCH, text).with_ranks({other});
}

void SharedBackend::stage(const OpArgs &op) {
    if (op.step && op.step->direct()) return;
    if (op.step) return stage_gradients(op);
    const OpArgs::Cursor &at = op.cursor;
    if (moves_parts(op.kind)) return stage_parts(op);
    const size_t staged = staged_bytes(op, parts_.rank);
    if (staged == 0 || op.empty) return;
    const bool for_others = op.kind == OpKind::broadcast || (op.kind == OpKind::all_gather && op.send.absent());
    if (for_others && size() == 1) return; // nobody reads it, and it is as much work as a step of an optimizer
    char *to = data(parts_.rank, staged);
    switch (op.kind) {
    case OpKind::all_reduce:
    case OpKind::reduce:
    case OpKind::reduce_scatter: {
        if (!own_contributes(op)) return; // its memory may hold anything, a NaN even
        const Memory &from = op.send.absent() ? op.recv : op.send;
        if (op.kind != OpKind::reduce_scatter) return stage_scaled(op, from, at.offset, to, at.length);
        for (int32_t p = 0; p < size(); p++, to += at.length)
            stage_scaled(op, from, part_offset(op, p) + at.offset, to, part_piece_bytes(op, p));
        break;
    }
    case OpKind::broadcast:
        copy_out_of(op.send.absent() ? op.recv : op.send, at.offset, to, staged);
        break;
    case OpKind::all_gather:
        if (op.send.absent())
            copy_out_of(op.recv, part_offset(op, parts_.rank) + at.offset, to, staged);
        else
            copy_out_of(op.send, at.offset, to, staged);
        break;
    default:
        break;
    }
}

void SharedBackend::stage_scaled(const OpArgs &op, const Memory &from, size_t offset, char *to, size_t length) {
    if (op.scale == 1 || scaled_by_reader(op, op.dtype)) return copy_out_of(from, offset, to, length);
    for_pieces(from, offset, length, [&](const char *piece, size_t n) {
        scale_elements(op.dtype, piece, to, n / dtype_size(op.dtype), op.scale);
        to += n;
    });
}

/// The present step's contributions, `data_offset` into each; in rank order.
size_t SharedBackend::contributions(const OpArgs &op, size_t data_offset, size_t staged) {
    size_t n = 0;
    for (int32_t k = 0; k < size(); k++) {
        const Slot &of = slot(k, step_);
        if (!contributes(op, of.flags, of.weight)) continue;
        const bool scaled = of.flags & flag_scaled_by_weight;
        any_scaled_ = n == 0 ? scaled : any_scaled_ || scaled;
        scales_[n] = scaled ? of.weight : 1;
        inputs_[n++] = data(k, staged) + data_offset;
    }
    return n;
}

/// Of `n` contributions that lie at `inputs`, by scales_ where any_scaled_.
void SharedBackend::reduce_inputs(ujoin_dtype dtype, ujoin_reduce reduce, const std::vector<const char *> &inputs, size_t n,
                                  char *out, size_t count, double divisor) const {
    if (any_scaled_)
        reduce_scaled_elements(dtype, inputs.data(), scales_.data(), n, out, count, divisor);
    else
        reduce_elements(dtype, reduce, inputs.data(), n, out, count, divisor);
}

void SharedBackend::reduce_into(const OpArgs &op, size_t data_offset, size_t staged, const Memory &out, size_t out_offset,
                                size_t length) {
    const size_t n = contributions(op, data_offset, staged);
    if (n == 0) return; // nobody has anything: what lies there stays
    const double divisor = divisor_of(op, size());
    // In place, what this rank staged still lies where the result goes: one pass over memory less.
    const char *staged_by_us = &out == &op.recv && op.send.absent() && op.kind == OpKind::all_reduce &&
                                       (op.scale == 1 || scaled_by_reader(op, op.dtype))
                                   ? data(parts_.rank, staged) + data_offset
                                   : nullptr;
    size_t done = 0;
    for_pieces(out, out_offset, length, [&](char *piece, size_t bytes) {
        for (size_t k = 0; k < n; k++) shifted_[k] = inputs_[k] == staged_by_us ? piece : inputs_[k] + done;
        const size_t count = bytes / dtype_size(op.dtype);
        reduce_inputs(op.dtype, op.reduce, shifted_, n, piece, count, divisor);
        done += bytes;
    });
}

/// Share k of a piece: a multiple of 64 bytes, so that no cache line has two writers.
std::pair<size_t, size_t> SharedBackend::share(size_t length, int32_t rank) const {
    const size_t lines = (length + 63) / 64;
    const auto k = static_cast<size_t>(rank);
    const size_t begin = std::min(length, lines * k / parts_.areas.size() * 64);
    const size_t end = std::min(length, lines * (k + 1) / parts_.areas.size() * 64);
    return {begin, end - begin};
}

void SharedBackend::stage_own_share(const OpArgs &op) {
    const auto [begin, length] = share(op.cursor.length, parts_.rank);
    if (length == 0) return;
    char *to = parts_.areas[static_cast<size_t>(parts_.rank)]->staging(step_ + 1, parts_.chunk);
    reduce_into(op, begin, op.cursor.length, Memory(to, length), 0, length);
}

void SharedBackend::copy_shares(const OpArgs &op) {
    if (nobody_contributed(op) || (op.kind == OpKind::reduce && op.root != parts_.rank)) return;
    for (int32_t k = 0; k < size(); k++) {
        const auto [begin, length] = share(op.cursor.length, k);
        copy_into(op.recv, op.cursor.offset + begin, parts_.areas[static_cast<size_t>(k)]->staging(step_, parts_.chunk),
                  length);
    }
}

bool SharedBackend::nothing_from(int32_t rank) { return (slot(rank, step_).flags & flag_empty) != 0; }

void SharedBackend::gather(const OpArgs &op) {
    for (int32_t k = 0; k < size(); k++) {
        if ((k == parts_.rank && op.send.absent()) || nothing_from(k)) continue;
        const size_t staged = staged_bytes(op, k);
        copy_into(op.recv, part_offset(op, k) + op.cursor.offset, data(k, staged), staged);
    }
}

} // namespace ujoin
