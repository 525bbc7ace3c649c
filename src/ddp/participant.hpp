// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ddp/reducer.hpp"
#include <memory>

namespace ujoin {

inline constexpr size_t no_bucket = static_cast<size_t>(-1);

/// The reducer as a join context sees it. The context may outlive the reducer, whose memory it must not hold on to.
class Ddp::Participant : public Joinable {
  public:
    explicit Participant(std::shared_ptr<Group> group) : Joinable(std::move(group), "ddp") {}
    void serve(const std::shared_ptr<Ddp> &owner) { owner_ = owner; }

    void check_between_uses() const override { owner()->check_between_iterations(); }
    void main_hook(const HookArgs &) override { owner()->shadow(); }
    void post_hook(const HookArgs &args) override {
        const std::shared_ptr<Ddp> ddp = owner();
        ddp->leave_context(!args.is_last_joiner);
        ddp->broadcast_state(args.authoritative_rank);
    }

  private:
    std::shared_ptr<Ddp> owner() const {
        std::shared_ptr<Ddp> ddp = owner_.lock();
        if (!ddp)
            fail_state(
                "rank ", group()->rank(),
                ": the gradient reducer was destroyed while its join context was armed; destroy it after ujoin_ctx_finish");
        return ddp;
    }
    std::weak_ptr<Ddp> owner_;
};

} // namespace ujoin
