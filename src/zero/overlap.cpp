// SPDX-License-Identifier: Apache-2.0
// Steps within the iterations of a reducer: bucket by bucket what Zero::step does at once.
#include "zero/overlap.hpp"
#include "base/error.hpp"
#include "zero/zero.hpp"
#include <new>

namespace ujoin {

void Overlap::plan_for(const std::shared_ptr<const Buckets> &buckets, const Layout &layout, const Reduced &params) {
    if (planned_ == buckets) return;
    planned_.reset();
    plan_.assign(buckets->size(), {});
    std::vector<size_t> bucket_of(layout.params.size(), Layout::none);
    for (size_t b = 0; b < buckets->size(); b++)
        for (const size_t reduced : (*buckets)[b].params)
            if (const size_t index = params.index_of(reduced); index != Layout::none) bucket_of[index] = b;
    for (BucketPlan &plan : plan_) plan.share.clear();
    for (const Piece &piece : layout.partition.pieces())
        if (const size_t b = bucket_of[piece.param]; b != Layout::none) layout.add_to(plan_[b].share, piece);
    for (size_t i = 0; i < bucket_of.size(); i++)
        if (bucket_of[i] != Layout::none && layout.owns(i)) plan_[bucket_of[i]].own.push_back(i);
    for (BucketPlan &plan : plan_) plan.share.complete(layout.partition.ranks());
    planned_ = buckets;
}

size_t Overlap::bytes() const {
    size_t sum = 0;
    for (const BucketPlan &plan : plan_)
        sum += plan.own.size() * sizeof(size_t) + plan.share.segments.size() * sizeof(Segment) +
               plan.share.offsets.size() * sizeof(size_t);
    return sum;
}

void Zero::check_own_steps(const char *what) const {
    if (overlap_)
        fail_state("rank ", group_->rank(), ": ", what,
                   " is not possible: the optimizer was made with options.ddp, so that ",
                   "each parameter is updated in ujoin_ddp_finish before all gradients are known");
}

void Zero::check_between_steps(const char *what) const {
    if (overlap_ && overlap_->begun)
        fail_state(
            "rank ", group_->rank(), ": ", what,
            " is not possible: parameters are being updated while gradients are computed; call ujoin_ddp_finish first");
}

void Zero::check_step() {
    check_whole("a step");
    prepare();
}

/// Where the program's rule fails on one rank alone, that rank goes on without updates, and all agree in the end.
template <class Body> void Zero::attempt(Body &&body) {
    if (overlap_->failure) return;
    try {
        body();
        return;
    } catch (const Error &error) {
        overlap_->failure = error;
    } catch (const std::bad_alloc &) {
        overlap_->failure = Error(UJOIN_E_NO_MEMORY, "out of memory");
    }
    if (config_.custom) return;
    group_->abort(overlap_->failure->text());
    throw *overlap_->failure;
}

/// The operation keeps this object: the program may destroy it within an iteration.
std::shared_ptr<Work> Zero::step_bucket(const std::shared_ptr<const Buckets> &buckets, size_t index) {
    if (!overlap_->begun) begin_step(buckets);
    attempt([&] { update_these(overlap_->plan(index).own); });
    auto keep = std::make_unique<std::shared_ptr<Zero>>(shared_from_this());
    const auto drop = [](void *p) { delete static_cast<std::shared_ptr<Zero> *>(p); };
    return group_->submit_idle(share_op(overlap_->plan(index).share, overlap_->digest), config_.idle_timeout_ms,
                               Release(drop, keep.release()));
}

/// Also updates what is in no bucket: it has no elements, but its steps count.
void Zero::begin_step(const std::shared_ptr<const Buckets> &buckets) {
    overlap_->plan_for(buckets, layout_, *reduced_);
    if (layout_.options.compare_values) compare_values();
    overlap_->failure.reset();
    overlap_->digest = digest({});
    drop_consolidated();
    overlap_->begun = true;
    broken_ = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;
    std::vector<size_t> empty;
    for (size_t i = 0; i < layout_.params.size(); i++)
        if (layout_.params[i].count == 0 && layout_.owns(i)) empty.push_back(i);
    attempt([&] {
        prepare(); // hyper-parameters may have changed since the iteration began
        update_these(empty);
    });
}

void Zero::update_these(const std::vector<size_t> &own) {
    batch_.clear();
    for (const size_t index : own)
        if (layout_.params[index].trained()) add_update(index, {});
    batch_.run(*layout_.rule, group_->parallel());
}

std::optional<Error> Zero::end_step(std::optional<Error> failure) {
    if (!overlap_->begun) return failure;
    overlap_->begun = false;
    if (!failure && config_.custom) {
        try {
            group_->agree(overlap_->failure);
        } catch (const Error &error) {
            failure = error;
        }
    }
    if (failure) {
        break_by(broken_, failure->text());
    } else {
        broken_ = 0;
    }
    return failure;
}

} // namespace ujoin
