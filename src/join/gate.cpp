// SPDX-License-Identifier: Apache-2.0
#include "join/gate.hpp"
#include "join/join_context.hpp"

namespace ujoin {

Gate &Gate::of(Group &group) {
    if (!group.tagger()) group.set_tagger(std::make_unique<Gate>());
    return static_cast<Gate &>(*group.tagger()); // nobody else sets one
}

Gate::~Gate() = default;

void Gate::refuse(const char *call) {
    fail_state(call, " while another call on this group's join context is running", in_hook() ? " (a hook)" : "",
               "; let one thread at a time work with it");
}

void Gate::disarm_soon() noexcept {
    uint32_t seen = state_.load(std::memory_order_acquire);
    for (;;) {
        if (seen & taken) { // the one inside does it
            if (state_.compare_exchange_weak(seen, seen | disarm_asked, std::memory_order_acq_rel)) return;
        } else if (state_.compare_exchange_weak(seen, taken, std::memory_order_acquire)) {
            return leave_disarmed();
        }
    }
}

void Gate::leave_disarmed() noexcept {
    const std::shared_ptr<JoinContext> last = disarm(); // perhaps the last reference: it goes after the gate is free
    state_.store(0, std::memory_order_release);
}

void Gate::arm(std::shared_ptr<JoinContext> context, uint64_t number) {
    context_ = std::move(context);
    number_.store(number, std::memory_order_relaxed);
    shown_.store(false, std::memory_order_relaxed);
    agreed_.store(nothing, std::memory_order_relaxed);
    in_uses_.store(true, std::memory_order_relaxed);
    begin_use(~uint64_t{0}, false); // none yet
    armed_.store(true, std::memory_order_release);
}

std::shared_ptr<JoinContext> Gate::disarm() {
    if (!context_) return nullptr;
    armed_.store(false, std::memory_order_relaxed);
    in_uses_.store(false, std::memory_order_relaxed);
    context_->disarmed();
    return std::move(context_);
}

void Gate::begin_post() {
    in_uses_.store(false, std::memory_order_relaxed);
    shadow_.store(false, std::memory_order_relaxed);
}

void Gate::before(OpArgs &op) {
    if (op.kind == OpKind::transfer) return; // a message is nobody else's business
    if (!armed_.load(std::memory_order_acquire) || !in_uses_.load(std::memory_order_relaxed)) op.program = false;
    if (!armed_.load(std::memory_order_acquire)) return;
    op.use_tag = tag_.load(std::memory_order_relaxed);
    op.shadow = shadow_.load(std::memory_order_relaxed);
    if (op.shadow) {
        op.follow = follow_.load(std::memory_order_relaxed);
        op.follow_context = number_.load(std::memory_order_relaxed);
    }
    if (in_uses_.load(std::memory_order_relaxed) && stop_requested()) {
        op.stop_request = true;
        note_shown();
    }
}

/// Every operation of a use tells the same on all ranks, whichever thread learns of it first.
void Gate::after(const OpArgs &op) {
    if (op.outcome.stop) agreed_.store(context_of(op.use_tag), std::memory_order_release);
}

} // namespace ujoin
