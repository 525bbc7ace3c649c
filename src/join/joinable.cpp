// SPDX-License-Identifier: Apache-2.0
#include "join/joinable.hpp"
#include "join/gate.hpp"
#include "join/join_context.hpp"

namespace ujoin {

Joinable::Joinable(std::shared_ptr<Group> group, std::string name)
    : group_(std::move(group)), name_(std::move(name)), gate_(Gate::of(*group_)) {}

bool Joinable::armed() const { return gate_.armed(); }

bool Joinable::takes_part() const {
    if (!gate_.armed()) return false;
    if (gate_.in_hook()) return context_ != nullptr;
    const Gate::Inside inside(gate_, "a step");
    return context_ != nullptr;
}

ujoin_status Joinable::notify(int32_t *out_active) {
    if (gate_.armed()) {
        if (gate_.in_hook()) {
            if (context_) return context_->notify_in_hook(out_active);
        } else {
            const Gate::Inside inside(gate_, "notify");
            if (context_) return context_->notify(index_, out_active);
        }
    }
    if (out_active) *out_active = group_->size();
    return UJOIN_OK;
}

} // namespace ujoin
