// SPDX-License-Identifier: Apache-2.0
// Steps within the iterations of a reducer: bucket by bucket what Zero::step does at once.
#include "zero/overlap.hpp"
#include "base/error.hpp"
#include "zero/zero.hpp"
#include <new>

namespace ujoin {

void Zero::check_own_steps(const char *what) const {
    if (overlap_)
        fail_state("rank ", group_->rank(), ": ", what,
                   " is not possible: the optimizer was made with options.ddp, so that ",
                   "each parameter is updated in ujoin_ddp_finish before all gradients are known");
}

void Zero::check_step() {
    check_whole("a step");
    prepare();
}

std::shared_ptr<Work> Zero::step_bucket(const std::vector<size_t> &params) {
    std::vector<bool> chosen(layout_.params.size());
    for (const size_t reduced : params) {
        const size_t index = reduced_->index_of(reduced);
        if (index != Layout::none) chosen[index] = true;
    }
    if (!overlap_->begun) begin_step(chosen);
    attempt_update(chosen);
    Share &share = overlap_->shares.emplace_back();
    layout_.arrange(share, &chosen);
    return group_->submit_idle(share_op(share, overlap_->digest), config_.idle_timeout_ms);
}

/// Adds what is in no bucket: it has no elements, but its steps count.
void Zero::begin_step(std::vector<bool> &chosen) {
    check_whole("a step"); // a load may have failed since the iteration began
    if (layout_.options.compare_values) compare_values();
    overlap_->failure.reset();
    overlap_->digest = digest({});
    drop_consolidated();
    overlap_->begun = true;
    broken_ = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;
    for (size_t i = 0; i < chosen.size(); i++)
        if (layout_.params[i].count == 0) chosen[i] = true;
}

/// Where the program's rule fails on one rank alone, that rank goes on without updates, and all agree in the end.
void Zero::attempt_update(const std::vector<bool> &chosen) {
    if (overlap_->failure) return;
    try {
        prepare(); // hyper-parameters may have changed since the iteration began
        update({}, &chosen);
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

std::optional<Error> Zero::end_step(std::optional<Error> failure) {
    if (!overlap_->begun) return failure;
    overlap_->begun = false;
    overlap_->shares.clear();
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
