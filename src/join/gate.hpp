// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/group.hpp"
#include <atomic>
#include <memory>

namespace ujoin {

class JoinContext;

/// One per group, as long-lived as the group: which context is armed, who is inside of it, and what the operations issued
/// under it carry. Operations may complete on any thread, and an abort may come from any: so what they touch is here, not
/// in the context, which its owner may destroy at any time.
class Gate final : public Group::Tagger {
  public:
    /// The group's gate, made at the first call.
    static Gate &of(Group &group);
    ~Gate() override;

    /// A call that works on the armed context: one at a time. UJOIN_E_STATE for a second one.
    class Inside {
      public:
        Inside(Gate &gate, const char *call) : gate_(gate) { gate_.enter(call); }
        ~Inside() { gate_.leave(); }
        Inside(const Inside &) = delete;
        Inside &operator=(const Inside &) = delete;

      private:
        Gate &gate_;
    };
    /// A quick look from outside; exact on the thread that arms and disarms.
    bool armed() const { return armed_.load(std::memory_order_relaxed); }
    /// A hook is running: calls from it find the gate taken by their own caller.
    bool in_hook() const { return in_hook_.load(std::memory_order_relaxed); }
    void set_in_hook(bool value) { in_hook_.store(value, std::memory_order_relaxed); }
    /// Disarms whatever is armed: now, or when the call that is inside leaves. From any thread.
    void disarm_soon() noexcept;

    // Only inside.
    const std::shared_ptr<JoinContext> &context() const { return context_; }
    void arm(std::shared_ptr<JoinContext> context, uint64_t number);
    std::shared_ptr<JoinContext> disarm();
    /// Operations from here on belong to this use, as shadows or not.
    /// `follow`: a shadow of that rank's use, whose own operations come between.
    void begin_use(uint64_t use, bool shadow, int32_t follow = -1) {
        follow_.store(follow, std::memory_order_relaxed);
        tag_.store(UseTag::make(number_.load(std::memory_order_relaxed), use).word, std::memory_order_relaxed);
        shadow_.store(shadow, std::memory_order_relaxed);
    }
    /// Operations from here on are those of post hooks: no shadows, and too late to ask for a stop.
    void begin_post();

    /// From any thread, also from a signal handler. Without effect if that context is not armed any more.
    void request_stop(uint64_t number) { requested_.store(number, std::memory_order_relaxed); }
    bool stop_requested() const {
        return requested_.load(std::memory_order_relaxed) == number_.load(std::memory_order_relaxed);
    }
    /// A request has been shown to the others.
    void note_shown() { shown_.store(true, std::memory_order_relaxed); }
    bool stop_shown() const { return shown_.load(std::memory_order_relaxed); }
    /// The operations of a use said that some rank asks for a stop; the same on all ranks.
    bool stop_agreed() const {
        return agreed_.load(std::memory_order_acquire) == context_of(tag_.load(std::memory_order_relaxed));
    }

    void before(OpArgs &op) override;
    void after(const OpArgs &op) override;

  private:
    void enter(const char *call) {
        uint32_t nobody = 0;
        if (!state_.compare_exchange_strong(nobody, taken, std::memory_order_acquire)) refuse(call);
    }
    void leave() noexcept {
        uint32_t only_me = taken;
        if (!state_.compare_exchange_strong(only_me, 0, std::memory_order_release)) leave_disarmed();
    }
    [[noreturn]] void refuse(const char *call);
    void leave_disarmed() noexcept;

    /// Of a tag; never `nothing`.
    static uint32_t context_of(uint32_t tag) { return tag >> 16; }
    static constexpr uint32_t nothing = ~uint32_t{0};

    static constexpr uint32_t taken = 1;
    static constexpr uint32_t disarm_asked = 2;

    std::atomic<uint32_t> state_{0};
    std::atomic<bool> armed_{false};
    std::atomic<bool> in_hook_{false};
    std::shared_ptr<JoinContext> context_; ///< only inside

    std::atomic<uint64_t> number_{0};               ///< of the context armed last
    std::atomic<uint64_t> requested_{~uint64_t{0}}; ///< the context that is to stop
    std::atomic<uint32_t> tag_{0};                  ///< context (8 bits), use (16)
    std::atomic<bool> shadow_{false};
    std::atomic<int32_t> follow_{-1};  ///< where shadow_ and the group's operations are shadowed
    std::atomic<bool> in_uses_{false}; ///< not in post hooks
    std::atomic<bool> shown_{false};
    /// The context, as in a tag, that is to stop. No mere flag: an operation may complete while the next context is armed.
    std::atomic<uint32_t> agreed_{nothing};
};

} // namespace ujoin
