// SPDX-License-Identifier: Apache-2.0
// A synchronised iteration of the reducer from its first operation to its last, on a rank that trains and on one that has
// joined and works for the others. Every rank issues the same operations in the same order:
//   notes; in the second round the order of the gradients; buffers; buckets; which parameters were used; what hooks add to
//   the buckets, and updated parameters, bucket by bucket; buffers.
// Where parameters are released early, what a bucket has to do when it is reduced comes right behind the reduction of the next.
#include "ddp/buffers.hpp"
#include "ddp/participant.hpp"
#include "ddp/reducer.hpp"
#include <algorithm>
#include <set>

namespace ujoin {

/// Code of the program runs under the mutex; a call of its own to the reducer is refused.
template <class Body> void Ddp::in_hooks(Body &&body) {
    struct Inside {
        std::atomic<std::thread::id> &thread;
        explicit Inside(std::atomic<std::thread::id> &t) : thread(t) { thread = std::this_thread::get_id(); }
        ~Inside() { thread = std::thread::id(); }
    } const inside{in_hook_};
    body();
}

void Ddp::broadcast(const std::vector<Segment> &memory, int32_t root) {
    if (group_->size() == 1) return;
    OpArgs op;
    op.kind = OpKind::broadcast;
    op.dtype = UJOIN_U8;
    op.root = root;
    op.recv = Memory(memory.data(), memory.size());
    op.count = op.recv.bytes();
    group_->run(op, Deadline::in(config_.idle_timeout_ms));
}

void Ddp::broadcast_state(int32_t root) { broadcast(state_, root); }

void Ddp::begin_iteration() {
    early_end_.reset();
    std::fill(ready_.begin(), ready_.end(), false);
    std::fill(unfilled_.begin(), unfilled_.end(), size_t{0});
    not_ready_ = 0;
    for (size_t i = 0; i < ready_.size(); i++) {
        awaited_[i] = !loan_->params[i].ignored && (own_graph_.empty() || own_graph_[i]);
        if (!awaited_[i]) continue;
        not_ready_++;
        if (bucket_of_[i] != no_bucket) unfilled_[bucket_of_[i]]++;
    }
    iterating_ = true;
}

void Ddp::begin_round(bool shadow) {
    stepping_ = optimizer() != nullptr;
    RoundNote note;
    note.window = shadow ? 0 : window_;
    note.samples = shadow ? 0 : samples_;
    note.flags = (shadow ? RoundNote::shadow : 0) | (order_.empty() ? 0 : RoundNote::has_order);
    note.digest = hook_digest();
    flights_.clear();
    untaken_.reset();
    usage_work_.reset();
    window_ = 0;
    samples_ = 0;
    round_ = std::make_unique<Round>(group_, config_, note, rounds_++);
    if (round_->iteration() == 1 && config_.may_rebuild()) rebuild(round_->agreed().order_rank);
    ended_.assign(buckets_->size(), false);
    if (!config_.buffers.empty()) synchronise_buffers(UJOIN_BUFFER_BEFORE_FORWARD);
}

/// Every rank takes the same order, whatever it saw itself.
void Ddp::rebuild(int32_t order_rank) {
    if (order_rank < 0) return;
    const std::vector<GradParam> &params = loan_->params;
    std::vector<uint64_t> places(params.size());
    if (order_rank == group_->rank()) std::copy(order_.begin(), order_.end(), places.begin());
    broadcast({{places.data(), places.size() * sizeof(uint64_t)}}, order_rank);
    const std::vector<size_t> order(places.begin(), places.end());
    const std::set<size_t> all(order.begin(), order.end());
    if (all.size() != params.size() || *all.rbegin() >= params.size())
        fail(UJOIN_E_INTERNAL, "the order of gradients from rank ", order_rank, " is no order");
    install(assign_buckets(params, order, config_.first_bucket_bytes, config_.bucket_bytes));
    rebuilt_ = true;
}

/// In the first round on this rank. What does not become ready then comes last.
void Ddp::note_order(size_t index) {
    if (round_->iteration() == 0) order_.push_back(index);
}

void Ddp::synchronise_buffers(ujoin_buffer_time now) {
    if (buffer_time_ == 0) {
        if (now == UJOIN_BUFFER_BEFORE_FORWARD && config_.buffer_broadcast)
            broadcast(buffer_memory_, round_->agreed().source_rank);
    } else if (buffer_time_ != now) {
        return;
    } else if (buffer_hook_.custom) {
        in_hooks([&] { run_buffer_hook(*round_, config_.buffers, *buffer_hook_.custom); });
    } else {
        average_buffers(*round_, config_.buffers, Deadline::in(config_.idle_timeout_ms));
    }
}

/// A failure ends the iteration: what was not put in flight here is waited for by others.
void Ddp::launch_full() {
    const int64_t start_ns = now_ns();
    const std::optional<Error> failure = attempt([&] {
        while (flights_.size() < buckets_->size() && unfilled_[flights_.size()] == 0) launch(flights_.size());
    });
    if (ends_early()) exposed_ns_ += now_ns() - start_ns;
    if (failure) end_iteration(*failure);
}

/// Before finish, which tells it again.
void Ddp::end_iteration(const Error &failure) {
    iterating_ = false;
    early_end_ = end_round(failure);
    throw Error(*early_end_);
}

/// The error of this rank's part.
template <class Body> std::optional<Error> Ddp::attempt(Body &&body) {
    try {
        body();
        return std::nullopt;
    } catch (const Error &error) {
        return error;
    } catch (const std::bad_alloc &) {
        return group_->abort_without_memory();
    }
}

void Ddp::launch(size_t bucket) {
    flights_.push_back(Reduction::make(hook_, {loan_, buckets_, bucket}, *round_));
    const Usage usage{config_.finds_unused(), &used_};
    if (hook_.kind == UJOIN_COMM_HOOK_CUSTOM)
        in_hooks([&] { flights_.back()->begin(*round_, usage); });
    else
        flights_.back()->begin(*round_, usage);
    if (bucket > 0 && ends_early()) end_early(bucket - 1);
}

/// Updates are made while gradients are computed, unless it must be known first which parameters were used.
bool Ddp::ends_early() const { return stepping_ && config_.params_released && !asks_for_usage(); }

/// Its place in the order of operations is behind the reduction of the next bucket, on every rank, whoever is slow.
void Ddp::end_early(size_t bucket) {
    if (bucket == 0) note_users();
    for (bool more = true; more;) {
        if (std::optional<Error> error = flights_[bucket]->wait(*group_)) throw *error;
        in_hooks([&] { more = flights_[bucket]->then(*round_); });
    }
    end_bucket(bucket);
}

/// Launches the buckets that are not in flight (gradients that are not ready are not used), waits for all, and ends. No
/// memory of the program is in use when it returns, well or not.
void Ddp::complete() {
    // It stays until the end.
    const std::shared_ptr<BucketStep> step = config_.to_owner ? nullptr : optimizer();
    std::optional<Error> failure = attempt([&] {
        if (stepping_ && !step && !config_.to_owner) give_up_step();
        reduce_all();
    });
    if (failure = end_round(std::move(failure)); failure) throw *failure;
}

/// Nothing is in flight when it returns. The first error: what is in flight tells the cause of what failed behind it.
std::optional<Error> Ddp::end_round(std::optional<Error> failure) {
    std::optional<Error> first = settle();
    // What this rank itself gave up for is the cause, not the end of its operations.
    const bool own = first && first->code() == UJOIN_E_ABORTED && first->ranks() == std::vector<int32_t>{group_->rank()};
    if (failure && (!first || own || failure->code() == UJOIN_E_NO_MEMORY)) first = std::move(failure);
    if (const std::shared_ptr<BucketStep> step = optimizer_.lock(); step && !config_.to_owner)
        first = step->end_step(std::move(first));
    if (!first) account();
    if (!first && config_.to_owner) leave_to_owner();
    std::fill(used_.begin(), used_.end(), false);
    flights_.clear();
    return first;
}

void Ddp::give_up_step() const {
    const std::string text =
        cat("rank ", group_->rank(), ": the optimizer was destroyed within an iteration of its reducer");
    group_->abort(text);
    throw Error(UJOIN_E_STATE, text);
}

void Ddp::reduce_all() {
    group_->check_usable();
    while (flights_.size() < buckets_->size()) launch(flights_.size());
    exchange_usage();
    note_users();
    std::vector<bool> reduced = ended_;
    for (bool more = true; more;) {
        more = false;
        for (size_t b = 0; b < flights_.size(); b++) {
            if (reduced[b]) continue;
            if (std::optional<Error> error = flights_[b]->wait(*group_)) throw *error;
            bool again = false;
            in_hooks([&] { again = flights_[b]->then(*round_); });
            more = more || again;
            reduced[b] = !again;
            if (reduced[b] && !usage_work_) end_bucket(b);
        }
    }
    wait_for_usage();
    for (size_t b = 0; b < flights_.size(); b++)
        if (!ended_[b]) end_bucket(b);
    if (!config_.buffers.empty()) synchronise_buffers(UJOIN_BUFFER_AFTER_FORWARD);
}

void Ddp::wait_for_usage() {
    if (!usage_work_) return;
    if (std::optional<Error> error = wait_to_the_end(*group_, *usage_work_)) throw *error;
    used_by_ = *usage_;
}

/// What a step needs to sum the gradients of this iteration.
void Ddp::leave_to_owner() {
    Contribution left;
    left.shadow = round_->shadow();
    left.weight = round_->samples();
    left.scale = round_->scale();
    left.weighs = round_->weighs_means();
    left.divide = round_->divide();
    left.finds_unused = config_.finds_unused();
    left.used = used_;
    left.used_by = used_by_;
    untaken_.emplace(std::move(left));
}

/// Where that is not found out: every rank that has not joined uses every parameter.
void Ddp::note_users() {
    const Agreed &agreed = round_->agreed();
    for (size_t i = 0; !config_.finds_unused() && i < used_by_.size(); i++)
        used_by_[i] = loan_->params[i].ignored ? 0 : agreed.active;
}

/// Its gradients are final; a rule of the program's may run.
void Ddp::end_bucket(size_t bucket) {
    flights_[bucket]->end(*round_, used_by_);
    ended_[bucket] = true;
    if (!stepping_) return;
    const std::shared_ptr<BucketStep> step = optimizer();
    if (!step) give_up_step();
    in_hooks([&] { shares_.push_back(step->step_bucket(buckets_, bucket)); });
}

/// In each round of a dynamic graph, in the first of a static one.
bool Ddp::asks_for_usage() const { return config_.finds_unused() && !(config_.static_graph && round_->iteration() > 0); }

/// A shadow uses nothing.
void Ddp::exchange_usage() {
    if (!asks_for_usage()) return;
    usage_ = std::make_shared<std::vector<int32_t>>(used_.size(), 0);
    if (!round_->shadow()) std::copy(used_.begin(), used_.end(), usage_->begin());
    OpArgs op;
    op.kind = OpKind::all_reduce;
    op.dtype = UJOIN_I32;
    op.count = usage_->size();
    op.recv = Memory(usage_->data(), usage_->size() * sizeof(int32_t));
    auto keep = std::make_unique<std::shared_ptr<std::vector<int32_t>>>(usage_);
    const auto drop = [](void *p) { delete static_cast<std::shared_ptr<std::vector<int32_t>> *>(p); };
    usage_work_ = round_->submit(op, Release(drop, keep.release()));
}

/// Waits for everything of the round, and tells the first error: that of the notes before those of the buckets.
std::optional<Error> Ddp::settle() {
    std::optional<Error> first;
    const auto note = [&](std::optional<Error> error) {
        if (!first) first = std::move(error);
    };
    try {
        round_->agreed();
    } catch (const Error &error) {
        note(error);
    }
    for (const std::shared_ptr<Reduction> &flight : flights_) note(flight->wait(*group_));
    if (usage_work_) note(wait_to_the_end(*group_, *usage_work_));
    for (const std::shared_ptr<Work> &share : shares_) note(wait_to_the_end(*group_, *share));
    shares_.clear();
    return first;
}

void Ddp::account() {
    int64_t before = 0;
    for (const std::shared_ptr<Reduction> &flight : flights_) {
        reduce_ns_ += std::max<int64_t>(0, flight->finished_ns() - std::max(flight->started_ns(), before));
        before = std::max(before, flight->finished_ns());
    }
    const Agreed &agreed = round_->agreed();
    total_samples_ = agreed.samples;
    divisor_ = agreed.divisor;
    if (agreed.active < group_->size()) joined_uneven_ = true;
    if (round_->shadow()) return;
    if (round_->iteration() == 0)
        for (const size_t i : backward_order(ready_.size()))
            if (!ready_[i]) order_.push_back(i);
    if (config_.static_graph && own_graph_.empty()) own_graph_ = used_;
}

/// The operations of one iteration, for a rank that has joined: it contributes nothing and gets the result, so that an
/// optimizer that follows steps its part with the same gradients as everybody.
void Ddp::shadow() {
    check_step();
    const Lock lock = enter();
    begin_round(true);
    complete();
}

/// What was accumulated and not synchronised belongs to no iteration any more, on no rank.
void Ddp::leave_context(bool shadowed) {
    const Lock lock = enter();
    window_ = 0;
    samples_ = 0;
    std::fill(used_.begin(), used_.end(), false);
    joined_uneven_ = joined_uneven_ || shadowed;
}

} // namespace ujoin
