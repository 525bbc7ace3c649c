// SPDX-License-Identifier: Apache-2.0
#include "ddp/round.hpp"
#include "comm/watch.hpp"
#include <algorithm>
#include <string>

namespace ujoin {

std::optional<Error> wait_to_the_end(Group &group, Work &work) {
    std::optional<Error> failure;
    while (!failure || !work.done()) {
        try {
            work.wait(-1);
            break;
        } catch (const Error &error) {
            if (!failure) failure = error;
            if (!work.done()) group.abort(error.text());
        }
    }
    return failure;
}

Round::Round(std::shared_ptr<Group> group, const DdpConfig &config, const RoundNote &note, int64_t iteration)
    : group_(std::move(group)), division_(config.division), gradient_kind_(config.gradient_kind),
      idle_timeout_ms_(config.idle_timeout_ms), note_(note), iteration_(iteration),
      exchange_(std::make_shared<Exchange>(Exchange{note, std::vector<RoundNote>(static_cast<size_t>(group_->size()))})) {
    OpArgs op;
    op.kind = OpKind::all_gather;
    op.dtype = UJOIN_U8;
    op.count = sizeof(RoundNote);
    op.send = Memory(&exchange_->mine, sizeof(RoundNote));
    op.recv = Memory(exchange_->all.data(), exchange_->all.size() * sizeof(RoundNote));
    auto keep = std::make_unique<std::shared_ptr<Exchange>>(exchange_);
    work_ = submit(op, Release([](void *p) { delete static_cast<std::shared_ptr<Exchange> *>(p); }, keep.release()));
}

bool Round::reads() const { return !shadow() && (division_ != UJOIN_DIVISION_SAMPLES || note_.samples != 0); }

bool Round::weighs_means() const { return division_ == UJOIN_DIVISION_SAMPLES && gradient_kind_ == UJOIN_GRADIENT_MEAN; }

double Round::scale() const { return weighs_means() ? note_.samples : 1; }

Divide Round::divide() const {
    if (division_ == UJOIN_DIVISION_ACTIVE) return Divide::contributors;
    return division_ == UJOIN_DIVISION_SAMPLES ? Divide::weight : Divide::ranks;
}

std::shared_ptr<Work> Round::submit_sum(ujoin_dtype dtype, const std::vector<Segment> &memory, Release release) const {
    OpArgs op;
    op.kind = OpKind::all_reduce;
    op.dtype = dtype;
    op.recv = Memory(memory.data(), memory.size());
    op.count = op.recv.bytes() / dtype_size(dtype);
    op.divide = divide();
    op.scale = scale();
    return submit(op, std::move(release));
}

std::shared_ptr<Work> Round::submit(OpArgs &op, Release release) const {
    op.shadow = shadow();
    op.weight = samples();
    return group_->submit_idle(op, idle_timeout_ms_, std::move(release));
}

const Agreed &Round::agreed() {
    if (agreed_) return *agreed_;
    if (!failure_) failure_ = wait_to_the_end(*group_, *work_);
    if (!failure_) failure_ = compare();
    if (failure_) throw *failure_;
    Agreed result;
    result.source_rank = -1;
    for (int32_t k = 0; k < group_->size(); k++) {
        const RoundNote &note = exchange_->all[static_cast<size_t>(k)];
        if (result.order_rank < 0 && (note.flags & RoundNote::has_order)) result.order_rank = k;
        if (note.flags & RoundNote::shadow) continue;
        if (result.source_rank < 0) result.source_rank = k;
        result.active++;
        result.samples += note.samples;
        if (division_ != UJOIN_DIVISION_SAMPLES || note.samples != 0) result.contributors++;
    }
    result.source_rank = std::max(result.source_rank, 0);
    if (division_ == UJOIN_DIVISION_INITIAL) result.divisor = group_->size();
    if (division_ == UJOIN_DIVISION_ACTIVE) result.divisor = result.active;
    if (division_ == UJOIN_DIVISION_SAMPLES) result.divisor = result.samples;
    return agreed_.emplace(result);
}

/// Shadows have no window of their own.
std::optional<Error> Round::compare() const {
    const std::vector<RoundNote> &all = exchange_->all;
    const auto active = [](const RoundNote &note) { return !(note.flags & RoundNote::shadow); };
    const auto first = std::find_if(all.begin(), all.end(), active);
    const auto reference = static_cast<int32_t>(first - all.begin());
    for (int32_t rank = 0; rank < group_->size(); rank++) {
        const RoundNote &note = all[static_cast<size_t>(rank)];
        if (note.digest != all[0].digest)
            return disagreement(
                cat("ranks differ in comm hooks, buffer hooks, or in whether the reducer steps an optimizer: ranks 0 and ",
                    rank, " did not set the same; set them alike on every rank before the first iteration"),
                {0, rank});
        if (active(note) && note.window != first->window)
            return disagreement(cat("ranks disagree on which iterations synchronise: rank ", reference, " did so after ",
                                    first->window, ", rank ", rank, " after ", note.window,
                                    " iterations; call ujoin_ddp_set_sync alike on every rank"),
                                {reference, rank});
    }
    return std::nullopt;
}

/// Each rank finds it out by itself; the mark ends what is in flight behind the notes.
Error Round::disagreement(const std::string &text, std::vector<int32_t> ranks) const {
    const Error error = Error(UJOIN_E_MISMATCH, text).with_ranks(std::move(ranks));
    group_->board().watch().mark(Fate::failed, text, UJOIN_E_MISMATCH);
    group_->break_with(error);
    return error;
}

} // namespace ujoin
