// SPDX-License-Identifier: Apache-2.0
#include "comm/work.hpp"
#include "base/callback.hpp"
#include "comm/group.hpp"
#include "comm/watch.hpp"
#include <algorithm>
#include <utility>

namespace ujoin {

Release &Release::operator=(Release &&other) noexcept {
    if (this != &other) {
        now();
        fn_ = std::exchange(other.fn_, nullptr);
        data_ = other.data_;
    }
    return *this;
}

void Release::now() noexcept { end_user_data(std::exchange(fn_, nullptr), data_); }

Work::Work(std::shared_ptr<Group> group, const OpArgs &op, const Deadline &deadline, Release release)
    : group_(group), keep_group_(std::move(group)), op_(op), deadline_(deadline), release_(std::move(release)) {}

void Work::complete(std::optional<Error> error) {
    if (!error && keep_group_)
        if (Group::Tagger *to = keep_group_->tagger()) to->after(op_);
    error_ = std::move(error);
    release_.now();
    done_.store(true, std::memory_order_release);
    os::announce(event_);
}

ujoin_status Work::result() const {
    if (error_) throw Error(*error_);
    return UJOIN_OK;
}

std::vector<int32_t> Work::contributors() const {
    std::vector<int32_t> ranks;
    if (!done() || error_) return ranks;
    const std::vector<int32_t> &shadows = op_.outcome.shadows;
    const int32_t size = op_.outcome.contributors + static_cast<int32_t>(shadows.size());
    for (int32_t k = 0; k < size; k++)
        if (!std::binary_search(shadows.begin(), shadows.end(), k)) ranks.push_back(k);
    return ranks;
}

ujoin_status Work::test() {
    if (!done())
        if (const std::shared_ptr<Group> group = group_.lock(); group && !group->has_progress()) {
            Group::Lock lock(group->progress_->mutex);
            while (!done() && group->step_front(lock, Deadline::in(0), false, false)) {
            }
        }
    return done() ? result() : UJOIN_PENDING;
}

ujoin_status Work::wait(int64_t timeout_ms) {
    const Deadline patience = Deadline::in(timeout_ms);
    const std::shared_ptr<Group> group = group_.lock();
    if (group && !group->has_progress()) {
        Group::Progress &progress = *group->progress_;
        Group::Lock lock(progress.mutex);
        // In slices: an interrupt ends this wait, not the operation.
        while (!done() && !patience.passed()) {
            const Deadline slice = Deadline::earlier(patience, Deadline::in(os::slice_ns / 1'000'000));
            if (progress.busy) // another thread moves it on, but perhaps has less patience than this one
                progress.changed.wait_for(lock, std::chrono::nanoseconds(slice.left_ns(os::slice_ns)));
            else if (group->step_front(lock, slice, false, true))
                continue;
            lock.unlock();
            os::check_interrupt();
            lock.lock();
        }
    }
    // With a progress thread.
    const bool complete = os::wait_event(
        event_, brief_spin_ns, patience, [&] { return done(); },
        [](bool slice) {
            if (slice) os::check_interrupt();
        });
    return complete ? result() : UJOIN_PENDING;
}

void Work::abort() {
    if (done()) return;
    if (const std::shared_ptr<Group> group = group_.lock()) group->abort("an operation in flight was aborted");
}

} // namespace ujoin
