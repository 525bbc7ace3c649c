// SPDX-License-Identifier: Apache-2.0
// The way out of a join context: works for the others until all have joined and caught up.
#include "base/log.hpp"
#include "join/join_context.hpp"
#include <algorithm>

namespace ujoin {

void JoinContext::finish() {
    if (options_.disabled) return;
    const std::shared_ptr<JoinContext> keep = shared_from_this();
    const Gate::Inside inside(gate_, "finish");
    if (gate_.context() != keep) {
        group_->check_usable(); // the first cause is worth more than "not started"
        fail_state("the context is not started, or was aborted or finished");
    }
    struct Disarm {
        Gate &gate;
        ~Disarm() {
            gate.set_in_hook(false);
            gate.disarm();
        }
    } const disarm{gate_};
    leaving_mark([&] {
        board_.watch().check_own();
        for (const auto &joinable : joinables_) joinable->check_between_uses();
        group_->drain();
        join();
        if (options_.throw_on_exhausted)
            finish_exhausting();
        else
            shadow_until_over();
        conclude();
        run_post_hooks();
        board_.watch().check_own();
    });
}

void JoinContext::join() {
    const bool requested = gate_.stop_requested(); // read once: a request that is shown is forgotten, and no other
    if (requested) gate_.note_shown();
    frozen_stop_ = leaving_ || requested || gate_.stop_agreed();
    Bank &mine = bank(rank_);
    mine.total.store(own_, std::memory_order_relaxed);
    mine.rounds.store(rounds_, std::memory_order_relaxed);
    group_->health().in_context(os::Health::Context::joined);
    publish(own_, true);
}

/// Follows the lowest rank that is not done: that has not both joined and been replayed to its total. All ranks run one
/// common sequence of uses, so use u of the next rank is the same use u; and a rank that joined holds in its ring whatever
/// others must still replay.
void JoinContext::shadow_until_over() {
    uint64_t use = own_;
    OpArgs op;
    const auto issued = [&](int32_t r) { return issues_own(r, op); };
    for (int32_t f = 0; f < size_;) {
        board_.watch().check_own();
        const Head seen = head(f);
        if (uses(f, seen) > use) {
            replay(f, use);
            publish(++use, true); // only after the hook: a position says "done"
        } else if (seen.joined()) {
            f++;
        } else if (issued(f)) {
            group_->shadow(op);
        } else {
            const auto part = [&](int32_t r) { return r == f ? known(f, use) || issued(f) : caught(r); };
            wait_for(f, use, part, [&] { return cat("rank ", f, " to begin use ", use, " or to join"); });
        }
    }
    for (int32_t k = 0; k < size_; k++) {
        const auto part = [&](int32_t r) {
            const Head seen = head(r);
            return seen.joined() && seen.pos() >= use;
        };
        wait_for(k, use, part, [&] { return cat("rank ", k, " to catch up"); });
    }
}

/// Rank k is in an operation that the program itself issues, where the group says that such are shadowed.
bool JoinContext::issues_own(int32_t k, OpArgs &op) const {
    return group_->shadows_collectives() && group_->pending(k, op) && op.program && !op.shadow;
}

void JoinContext::replay(int32_t k, uint64_t use) {
    const size_t index = bank(k).ring[use % ring_size].load(std::memory_order_acquire);
    if (index >= joinables_.size()) fail(UJOIN_E_INTERNAL, "use ", use, " of rank ", k, " is of joinable ", index);
    if (index == 0) warn_of_skew();
    hear_launcher();
    if (gate_.stop_requested()) ask_stop_before(use);
    gate_.begin_use(use, true, group_->shadows_collectives() ? k : -1);
    HookArgs args;
    const auto round = static_cast<int64_t>(rounds_) + report_.shadow_rounds;
    if (index == 0) report_.shadow_rounds++;
    group_->health().in_round(static_cast<int64_t>(rounds_) + report_.shadow_rounds);
    args.round = std::max<int64_t>(0, index == 0 ? round : round - 1);
    args.active = hook_active_ = size_ - joined_now();
    const int64_t begin = now_ns();
    for (size_t i = 0; i < joinables_.size(); i++) {
        if (!options_.strict && i != index) continue;
        run_hook(i, false, args);
        report_.shadow_uses++;
    }
    report_.shadow_ns += now_ns() - begin;
}

void JoinContext::warn_of_skew() {
    if (warned_ || options_.skew_warning_rounds < 0 || report_.shadow_rounds <= options_.skew_warning_rounds) return;
    warned_ = true;
    log_warning("join: rank ", rank_, " ran out of inputs after ", rounds_,
                " rounds and has worked for the others for more than ", options_.skew_warning_rounds,
                "; inputs are very uneven");
}

/// Throw mode. One rank that has started the round that this one lacks is not enough to leave: a third might still be in
/// the context before, and would miss the words that the next one overwrites.
void JoinContext::finish_exhausting() {
    if (count_active(own_) > 0) leave_exhausted(cat("Rank ", rank_, " exhausted all inputs before others did"), own_);
}

/// All have joined: what the totals say is the same on every rank.
void JoinContext::conclude() {
    compare_all_uses();
    uint64_t most = 0;
    for (int32_t k = 0; k < size_; k++) {
        const uint64_t total = uses(k, head(k));
        if (total >= most) report_.authoritative_rank = k; // of equals the largest rank
        most = std::max(most, total);
        report_.stopped = report_.stopped || head(k).stop();
    }
    report_.is_last_joiner = own_ == most;
    // A request that came too late to be shown belongs to the next context.
    if (report_.stopped && gate_.stop_shown()) requested_.store(false, std::memory_order_relaxed);
}

void JoinContext::run_post_hooks() {
    gate_.begin_post();
    HookArgs args;
    args.round = static_cast<int64_t>(rounds_) + report_.shadow_rounds;
    args.active = hook_active_ = 0;
    args.is_last_joiner = report_.is_last_joiner;
    args.authoritative_rank = report_.authoritative_rank;
    for (size_t i = 0; i < joinables_.size(); i++) run_hook(i, true, args);
}

void JoinContext::run_hook(size_t index, bool post, HookArgs &args) {
    args.options = &options_.hook_options;
    Joinable &joinable = *joinables_[index];
    struct InHook {
        Gate &gate;
        explicit InHook(Gate &g) : gate(g) { gate.set_in_hook(true); }
        ~InHook() { gate.set_in_hook(false); }
    } const in_hook{gate_};
    try {
        post ? joinable.post_hook(args) : joinable.main_hook(args);
    } catch (Error &error) {
        if (error.ranks().empty()) error.with_ranks({rank_});
        error.in(cat(post ? "post" : "main", " hook ", index, " (joinable \"", joinable.name(), "\") on rank ", rank_));
        throw;
    }
}

} // namespace ujoin
