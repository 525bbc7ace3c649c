// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/group.hpp"
#include <memory>
#include <string>
#include <vector>

namespace ujoin {

class Gate;
class JoinContext;

struct HookArgs {
    int64_t round = 0;
    int32_t active = 0;
    bool is_last_joiner = false;
    int32_t authoritative_rank = -1;
    const std::vector<std::pair<std::string, double>> *options = nullptr;
};

/// Something with collectives in each round, which a joined rank shadows. ddp and zero derive from it, and the API wraps the
/// program's own hooks.
class Joinable : public std::enable_shared_from_this<Joinable> {
  public:
    Joinable(std::shared_ptr<Group> group, std::string name);
    virtual ~Joinable() = default;
    Joinable(const Joinable &) = delete;
    Joinable &operator=(const Joinable &) = delete;

    /// The collectives of one use, for a rank that has joined.
    virtual void main_hook(const HookArgs &args) = 0;
    /// Once per rank, after all have joined.
    virtual void post_hook(const HookArgs &args) = 0;
    /// Throws in the middle of a use: a rank that joined there would owe the others operations for ever.
    virtual void check_between_uses() const {}
    /// Names of the context's options that the hooks know.
    virtual std::vector<std::string> option_names() const { return {}; }

    const std::shared_ptr<Group> &group() const { return group_; }
    const std::string &name() const { return name_; }

    /// Some context is armed on the group. Exact on the thread that arms and disarms.
    bool armed() const;
    /// This is one of the armed context's.
    bool takes_part() const;

    /// Begins one use. Without an armed context it does nothing. UJOIN_JOINED: called from a hook, nothing published.
    /// `out_active` (may be null): waits until the number of ranks that started this use is known. Throws UJOIN_E_EXHAUSTED.
    ujoin_status notify(int32_t *out_active = nullptr);

  private:
    friend class JoinContext;
    std::shared_ptr<Group> group_;
    std::string name_;
    Gate &gate_;                     ///< the group's
    JoinContext *context_ = nullptr; ///< while armed; only inside the gate
    int32_t index_ = -1;             ///< place in that context's list
};

} // namespace ujoin
