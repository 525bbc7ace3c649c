// SPDX-License-Identifier: Apache-2.0
#include "join/join_context.hpp"
#include "base/checksum.hpp"
#include "base/text.hpp"
#include <algorithm>
#include <limits>
#include <map>
#include <set>

namespace ujoin {

std::shared_ptr<JoinContext> JoinContext::create(std::vector<std::shared_ptr<Joinable>> joinables, JoinOptions options) {
    if (joinables.empty()) fail_invalid("joinables is empty; a join context needs at least one");
    if (joinables.size() > 255) fail_invalid("count is ", joinables.size(), "; a join context takes at most 255 joinables");
    std::set<const Joinable *> seen;
    for (size_t i = 0; i < joinables.size(); i++) {
        if (!joinables[i]) fail_invalid("joinables[", i, "] is NULL");
        if (joinables[i]->group() != joinables[0]->group())
            fail_invalid("joinables[", i, "] (\"", joinables[i]->name(), "\") is of another group than joinables[0] (\"",
                         joinables[0]->name(), "\"); make one context per group");
        if (!seen.insert(joinables[i].get()).second) fail_invalid("joinables[", i, "] is in the list twice");
    }
    return std::shared_ptr<JoinContext>(new JoinContext(std::move(joinables), std::move(options)));
}

JoinContext::JoinContext(std::vector<std::shared_ptr<Joinable>> joinables, JoinOptions options)
    : joinables_(std::move(joinables)), options_(std::move(options)), group_(joinables_[0]->group()),
      gate_(Gate::of(*group_)), board_(group_->board()), rank_(group_->rank()), size_(group_->size()),
      rounds_by_rank_(static_cast<size_t>(group_->size()), -1) {
    check_options();
    digest_ = make_digest();
}

void JoinContext::check_options() const {
    std::set<std::string> names;
    for (const auto &joinable : joinables_)
        for (const std::string &name : joinable->option_names()) names.insert(name);
    for (const auto &[name, value] : options_.hook_options)
        if (names.count(name) == 0)
            fail_invalid("no joinable knows the hook option \"", name, "\"; ",
                         names.empty() ? "they have none" : "known are: ", join_list(names));
}

/// What all ranks must have in common, as 32 bits.
uint32_t JoinContext::make_digest() const {
    std::string all = cat(joinables_.size(), options_.throw_on_exhausted ? " throw" : "", options_.strict ? " strict" : "",
                          group_->shadows_collectives() ? " shadow_collectives" : "");
    for (const auto &joinable : joinables_) all += cat('\n', joinable->name().size(), ' ', joinable->name());
    for (const auto &[name, value] : options_.hook_options) all += cat('\n', name.size(), ' ', name, '=', value);
    Checksum sum;
    sum.text(all);
    return sum.folded();
}

void JoinContext::start() {
    if (options_.disabled) return;
    const Gate::Inside inside(gate_, "start");
    group_->check_usable();
    board_.watch().check_own();
    if (gate_.context())
        fail_state(gate_.context().get() == this ? "the context was started already; finish or abort it first"
                                                 : "another join context of this group is armed; finish or abort it first");
    number_ = board_.next_context();
    own_ = rounds_ = horizon_ = 0;
    stop_at_ = no_stop;
    asked_ = leaving_ = frozen_stop_ = warned_ = heard_ = false;
    checked_.assign(static_cast<size_t>(size_), false);
    report_ = JoinReport{};
    rounds_by_rank_.assign(static_cast<size_t>(size_), -1);

    Bank &mine = bank(rank_); // nobody reads it: every rank has left the context before the last
    mine.total.store(0, std::memory_order_relaxed);
    mine.rounds.store(0, std::memory_order_relaxed);
    mine.stop_at.store(no_stop, std::memory_order_relaxed);
    mine.digest.store(digest_, std::memory_order_relaxed);
    std::vector<std::string> names;
    for (const auto &joinable : joinables_) names.push_back(joinable->name());
    board_.name_joinables(std::move(names)); // nothing fails from here on
    for (size_t i = 0; i < joinables_.size(); i++) {
        joinables_[i]->context_ = this;
        joinables_[i]->index_ = static_cast<int32_t>(i);
    }
    gate_.arm(shared_from_this(), number_);
    armed_.store(number_, std::memory_order_seq_cst); // stop() sees this, or this sees its request
    if (requested_.load(std::memory_order_seq_cst)) gate_.request_stop(number_);
    hear_launcher();
    group_->health().in_round(0);
    group_->health().in_context(os::Health::Context::armed);
    publish(0, false);
}

/// By the gate, on every way out; takes no memory.
void JoinContext::disarmed() {
    group_->health().in_context(os::Health::Context::none);
    for (int32_t k = 0; k < size_; k++) // the next context may overwrite the board
        rounds_by_rank_[static_cast<size_t>(k)] = rounds_of(k);
    report_.joined = joined_now();
    for (const auto &joinable : joinables_) joinable->context_ = nullptr;
    armed_.store(0, std::memory_order_release);
}

void JoinContext::stop() {
    requested_.store(true, std::memory_order_seq_cst);
    if (const uint64_t number = armed_.load(std::memory_order_seq_cst)) gate_.request_stop(number);
}

/// The launcher's wish stays: each pass from then on ends after a round.
void JoinContext::hear_launcher() {
    if (heard_ || !group_->launcher().asks_stop()) return;
    heard_ = true;
    stop();
}

void JoinContext::abort(const std::string &reason) {
    if (!armed_.load(std::memory_order_acquire)) return;
    group_->abort(reason.empty() ? "its join context was aborted" : reason);
    gate_.disarm_soon();
}

JoinReport JoinContext::report() const {
    JoinReport report = report_;
    report.rounds = static_cast<int64_t>(rounds_);
    if (armed_.load(std::memory_order_acquire)) report.joined = joined_now();
    return report;
}

std::vector<int64_t> JoinContext::rounds() const {
    if (!armed_.load(std::memory_order_acquire)) return rounds_by_rank_;
    std::vector<int64_t> result;
    result.reserve(static_cast<size_t>(size_));
    for (int32_t k = 0; k < size_; k++) result.push_back(rounds_of(k));
    return result;
}

int64_t JoinContext::rounds_of(int32_t rank) const {
    const Head seen = Head{bank(rank).head.load(std::memory_order_acquire)}.in(number_);
    return seen.joined() ? static_cast<int64_t>(bank(rank).rounds.load(std::memory_order_relaxed)) : -1;
}

// ------------------------------------------------------------------------------------------------ words of the board

Head JoinContext::head(int32_t k) const {
    const Head seen = Head{bank(k).head.load(std::memory_order_acquire)}.in(number_);
    if (seen.word != 0 && !checked_[static_cast<size_t>(k)]) {
        checked_[static_cast<size_t>(k)] = true;
        if (bank(k).digest.load(std::memory_order_relaxed) != digest_) {
            std::vector<std::string> names;
            for (const auto &joinable : joinables_) names.push_back(joinable->name());
            throw Error(UJOIN_E_MISMATCH,
                        cat("ranks ", std::min(k, rank_), " and ", std::max(k, rank_), " started join context ", number_,
                            " with different joinables or options; on rank ", rank_, " it has: ", join_list(names),
                            options_.throw_on_exhausted ? " (throw_on_exhausted)" : "", options_.strict ? " (strict)" : "",
                            group_->shadows_collectives() ? " (shadow_collectives)" : "", "; make it alike on every rank"))
                .with_ranks({k});
        }
    }
    return seen;
}

void JoinContext::publish(uint64_t pos, bool joined) {
    board_.publish(number_, Head::make(number_, pos, joined, frozen_stop_));
}

uint64_t JoinContext::uses(int32_t k, const Head &seen) const {
    return seen.joined() ? bank(k).total.load(std::memory_order_relaxed) : seen.pos();
}

bool JoinContext::known(int32_t k, uint64_t use) const {
    const Head seen = head(k);
    return seen.pos() > use || seen.joined();
}

/// It has joined and done or shadowed every use that there is so far. For a rank that has failed: once false, false for
/// ever, since its position stays and the uses only grow.
bool JoinContext::caught(int32_t k) const {
    const Head seen = head(k);
    if (!seen.joined()) return false;
    for (int32_t other = 0; other < size_; other++)
        if (uses(other, head(other)) > seen.pos()) return false;
    return true;
}

/// Changes whenever any rank gets on.
uint64_t JoinContext::heads_sum() const {
    uint64_t sum = 0;
    for (int32_t k = 0; k < size_; k++) sum += head(k).word;
    return sum;
}

int32_t JoinContext::joined_now() const {
    int32_t joined = 0;
    for (int32_t k = 0; k < size_; k++)
        if (Head{bank(k).head.load(std::memory_order_acquire)}.in(number_).joined()) joined++;
    return joined;
}

// ------------------------------------------------------------------------------- programs that differ between ranks

/// All ranks run one sequence of uses, so their rings say the same of a use that both still hold. An entry is overwritten 16
/// uses later, after its rank has published that position: who reads the new entry sees the position too.
void JoinContext::compare_uses(int32_t k) {
    if (joinables_.size() == 1 || options_.strict) return;
    const uint64_t theirs = uses(k, head(k));
    const uint64_t most = std::max(own_, theirs);
    for (uint64_t u = most > ring_size ? most - ring_size : 0; u < std::min(own_, theirs); u++) {
        if (bank(k).ring[u % ring_size].load(std::memory_order_acquire) ==
            bank(rank_).ring[u % ring_size].load(std::memory_order_relaxed))
            continue;
        if (uses(k, head(k)) < u + ring_size) fail_different_uses(u, rank_, k);
    }
}

/// When all is over: the same words are compared on every rank, so all decide alike.
void JoinContext::compare_all_uses() {
    if (joinables_.size() == 1 || options_.strict) return;
    std::map<uint64_t, int32_t> first; // who ran this use, by what the rings still hold
    for (int32_t k = 0; k < size_; k++) {
        const uint64_t total = uses(k, head(k));
        for (uint64_t u = total > ring_size ? total - ring_size : 0; u < total; u++) {
            const int32_t a = first.emplace(u, k).first->second;
            const auto entry = [&](int32_t r) { return bank(r).ring[u % ring_size].load(std::memory_order_acquire); };
            if (entry(a) != entry(k)) fail_different_uses(u, a, k);
        }
    }
}

void JoinContext::fail_different_uses(uint64_t use, int32_t a, int32_t b) {
    throw Error(UJOIN_E_MISMATCH,
                cat("ranks ", std::min(a, b), " and ", std::max(a, b), " ran different uses in join context ", number_,
                    ": rank ", a, " ", board_.describe_use(a, number_, use), ", rank ", b, " ",
                    board_.describe_use(b, number_, use), "; a joinable was notified too often or too rarely"))
        .with_ranks({b == rank_ ? a : b});
}

/// A rank that is in an operation of a use which this rank has done without it waits for this rank for ever: a hook and the
/// loop issue different operations, or the loop issues one that no joinable shadows.
std::optional<Error> JoinContext::find_stray(uint64_t first_open) {
    for (int32_t k = 0; k < size_; k++) {
        OpArgs op;
        if (k == rank_ || !group_->pending(k, op)) continue;
        const bool shadowed = !options_.throw_on_exhausted && board_.joined(rank_, number_);
        if (op.program && !op.shadow && shadowed) continue; // its turn comes
        const UseTag tag{op.use_tag};
        if (tag.word != 0 && tag.of_context(number_) && !tag.before(first_open)) continue;
        return Error(UJOIN_E_MISMATCH,
                     cat("rank ", k, " is in ", describe(op.kind, op.reduce, op.dtype, op.count, op.root), " in ",
                         board_.describe_use(k, tag), ", which rank ", rank_, " has left without it: ",
                         op.shadow ? "a main hook issues an operation that the loop did not"
                                   : "the loop issues an operation that no main hook does"))
            .with_ranks({k});
    }
    return std::nullopt;
}

// --------------------------------------------------------------------------------------------------- failure, shared

void JoinContext::leave_mark(const Error &error) {
    if (error.code() == UJOIN_E_EXHAUSTED) return; // no error of the group
    board_.watch().mark(Fate::failed, error.text(), error.code());
    group_->break_with(error);
}

// -------------------------------------------------------------------------------------------------- uses of this rank

ujoin_status JoinContext::notify(int32_t index, int32_t *out_active) {
    if (options_.strict && index != 0) { // only the first one speaks
        if (out_active) *out_active = size_;
        return UJOIN_OK;
    }
    leaving_mark([&] {
        board_.watch().check_own();
        const uint64_t use = own_;
        if (use >= horizon_) make_room(use);
        hear_launcher();
        if (gate_.stop_requested()) ask_stop_before(use);
        Bank &mine = bank(rank_);
        mine.ring[use % ring_size].store(static_cast<uint8_t>(index), std::memory_order_release); // see compare_uses
        own_ = use + 1;
        if (index == 0) mine.rounds.store(++rounds_, std::memory_order_relaxed);
        group_->health().in_round(static_cast<int64_t>(rounds_));
        gate_.begin_use(use, false);
        publish(own_, false);
        if (!options_.throw_on_exhausted && !out_active) return;
        const int32_t active = count_active(use);
        if (options_.throw_on_exhausted && active < size_) {
            if (index == 0) rounds_--; // it was not run
            leave_exhausted("found at least one rank that exhausted inputs", use);
        }
        if (out_active) *out_active = active;
    });
    return UJOIN_OK;
}

ujoin_status JoinContext::notify_in_hook(int32_t *out_active) const {
    if (out_active) *out_active = hook_active_;
    return UJOIN_JOINED;
}

/// The ring rule: use u may be published when every other rank, joined or not, is past use u - 16. What is learned of the
/// others' positions and stops holds until use `horizon_`: a stop that a rank asks for later lies beyond it.
void JoinContext::make_room(uint64_t use) {
    uint64_t least = std::numeric_limits<uint64_t>::max() - ring_size;
    for (int32_t k = 0; k < size_; k++) {
        if (k == rank_) continue;
        const auto part = [&](int32_t r) { return r == rank_ || head(r).pos() + ring_size > use; };
        wait_for(k, use, part, [&] { return cat("rank ", k, " to get to use ", use - ring_size + 1); });
        const Head seen = head(k);
        least = std::min(least, seen.pos());
        if (seen.word != 0) stop_at_ = std::min(stop_at_, bank(k).stop_at.load(std::memory_order_relaxed));
        compare_uses(k);
    }
    horizon_ = least + ring_size;
}

/// A stop without operations: after 16 more uses. Nobody can be past that one before it has seen this word.
void JoinContext::ask_stop_before(uint64_t use) {
    if (asked_) return;
    asked_ = true;
    gate_.note_shown();
    stop_at_ = std::min(stop_at_, use + ring_size);
    bank(rank_).stop_at.store(use + ring_size, std::memory_order_relaxed); // the head that is published next releases it
}

/// n of a use: how many ranks have it. Joined ranks count by their total, not by their position.
int32_t JoinContext::count_active(uint64_t use) {
    int32_t active = 0;
    for (int32_t k = 0; k < size_; k++) {
        wait_for(
            k, use, [&](int32_t r) { return known(r, use); },
            [&] { return cat("rank ", k, " to begin use ", use, " or to join"); });
        if (exists(k, use)) active++;
    }
    return active;
}

void JoinContext::leave_exhausted(const std::string &text, uint64_t use) {
    board_.watch().check_own(); // peers may have blamed a rank that was aborted on the way here
    std::vector<int32_t> exhausted;
    for (int32_t k = 0; k < size_; k++)
        if (!exists(k, use)) exhausted.push_back(k);
    gate_.disarm_soon();
    throw Error(UJOIN_E_EXHAUSTED,
                cat(text, exhausted.size() == 1 ? " (rank " : " (ranks ", join_list(exhausted), ", use ", use, ")"))
        .with_ranks(exhausted);
}

bool JoinContext::stopped() {
    const std::shared_ptr<JoinContext> keep = shared_from_this();
    if (options_.disabled || !gate_.armed()) return false;
    const Gate::Inside inside(gate_, "stopped");
    if (gate_.context() != keep || leaving_) return leaving_ && armed_ != 0;
    leaving_mark([&] {
        group_->drain(); // what the operations of the round say is then known, here as on every rank
        board_.watch().check_own();
        if (!gate_.stop_agreed() && own_ >= horizon_) make_room(own_);
        leaving_ = gate_.stop_agreed() || stop_at_ <= own_;
    });
    return leaving_;
}

} // namespace ujoin
