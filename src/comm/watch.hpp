// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "os/event_count.hpp"
#include "os/fd.hpp"
#include "os/health.hpp"
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

namespace ujoin {

class Mirror;

/// Spin time where the processor may be wanted by a thread of the same rank.
inline constexpr int64_t brief_spin_ns = 2000;

enum class Fate : uint32_t { none = 0, failed = 1, lost = 2, left = 3 };

/// How a rank ended, in memory that every rank of the group sees. Never reset: a failure ends the group. Written by its
/// owner (failed, left) or by whoever first notices that its process is dead (lost, by compare-and-swap from none).
struct alignas(64) FateLine {
    std::atomic<uint32_t> fate{0};
    std::atomic<uint32_t> reason_length{0}; ///< stored (release) after the text, before `fate`
    int32_t pid = 0;
    int32_t code = 0;   ///< status that the owner returned; written before `fate`
    int32_t cause = -1; ///< rank whose failure, marked earlier, was its reason; -1 = none. Likewise
    char reason[236] = {};
};
static_assert(sizeof(FateLine) == 256);

/// Notices the failure of ranks and decides who is to blame for a wait. A rank is blamed only if it has failed and its part
/// of that wait, read after the failure was seen, is not done. (For the waits of operations see AbortEnds.)
class Watch {
  public:
    /// Whether the abort of a rank whose part is done ends the wait for a third one too. In an operation it does: abort
    /// promises so, and the third rank may never come. On the board it does not: there all survivors end alike.
    enum class AbortEnds : bool { no, yes };

    /// `fates` by rank. `pidfds` by rank, or empty where ranks are threads. `events` = every event count that any rank may
    /// sleep on.
    Watch(int32_t rank, std::vector<FateLine *> fates, std::vector<os::Fd> pidfds, std::vector<os::EventCount *> events,
          int64_t spin_ns);

    /// Marks are shown there too.
    void show_to(Mirror *mirror) { mirror_ = mirror; }
    /// No more comes from this rank; from any thread. Why, if it need not be the end of its process, is in its mark's text.
    void lose(int32_t rank) noexcept {
        dead_[static_cast<size_t>(rank)].store(true, std::memory_order_release);
        alarm();
    }

    /// Wakes everybody who waits: a mark has come.
    void alarm() noexcept;

    /// Tells the launcher from now on whom it waits for.
    void tell(os::Health &health) { health_ = &health; }

    int32_t rank() const { return rank_; }
    int32_t size() const { return static_cast<int32_t>(fates_.size()); }

    /// Waits until part(k), sleeping on `event`, which is announced whenever rank k's part may have become true. part(r)
    /// is asked of every rank r that has failed. Throws PEER_LOST or ABORTED if one is to blame, TIMEOUT past the deadline;
    /// in each case this rank's own mark is left first. `what()` gives the text that completes "rank 1 died while ...".
    /// False when `patience` is at its end before that: no mark is left, the wait may be taken up again.
    template <class Part, class What> bool wait(int32_t k, os::EventCount &event, Part &&part, const Deadline &deadline,
                                                const Deadline &patience, bool interruptible, What &&what,
                                                AbortEnds abort_ends = AbortEnds::no) {
        if (os::spin(spin_ns(interruptible), [&] { return part(k); })) return true;
        return wait_slow(k, event, Look{part, abort_ends}, deadline, patience, interruptible, what());
    }
    template <class Part, class What>
    void wait(int32_t k, os::EventCount &event, Part &&part, const Deadline &deadline, bool interruptible, What &&what) {
        wait(k, event, part, deadline, Deadline::never(), interruptible, what);
    }
    /// One look, without waiting: throws if a rank whose part is not done has failed.
    template <class Part, class What> void look(Part &&part, What &&what) {
        check_own();
        if (any_failed()) blame(Look{part, AbortEnds::no}, what());
    }
    /// The process of the rank has ended.
    bool has_ended(int32_t rank) {
        poll_lives();
        return dead_[static_cast<size_t>(rank)].load(std::memory_order_acquire) || fate(rank) == Fate::lost;
    }
    /// Leaves this rank's mark and throws TIMEOUT, which names the ranks whose part is not done.
    template <class Part> [[noreturn]] void time_out(Part &&part, const std::string &what) {
        give_up_late(Look{part, AbortEnds::no}, what);
    }

    /// Leaves this rank's mark with the error's text, unless it has one, and wakes everybody; from any thread. `code` = what
    /// this rank returns: peers return it too if it is MISMATCH or PEER_LOST, else ABORTED. `cause` = an earlier failed rank.
    void mark(Fate fate, const std::string &reason, ujoin_status code = UJOIN_E_ABORTED, int32_t cause = -1);
    Fate fate(int32_t rank) const {
        return static_cast<Fate>(fates_[static_cast<size_t>(rank)]->fate.load(std::memory_order_seq_cst));
    }
    /// Throws if this rank's own mark is set (aborted from another thread).
    void check_own();

  private:
    /// A reference to part(), so that the slow path is no template.
    class Look {
      public:
        template <class Part> Look(Part &part, AbortEnds abort_ends)
            : abort_ends_(abort_ends == AbortEnds::yes), object_(const_cast<void *>(static_cast<const void *>(&part))),
              call_([](void *object, int32_t rank) {
                  return static_cast<bool>((*static_cast<std::remove_reference_t<Part> *>(object))(rank));
              }) {}
        bool operator()(int32_t rank) const { return call_(object_, rank); }
        bool abort_ends() const { return abort_ends_; }

      private:
        bool abort_ends_;
        void *object_;
        bool (*call_)(void *, int32_t);
    };

    /// A progress thread shares its processor with the thread that computes: it spins but shortly.
    int64_t spin_ns(bool on_callers_thread) const {
        return on_callers_thread ? spin_ns_ : std::min(spin_ns_, brief_spin_ns);
    }
    bool wait_slow(int32_t k, os::EventCount &event, const Look &part, const Deadline &deadline, const Deadline &patience,
                   bool interruptible, const std::string &what);
    [[noreturn]] void give_up_late(const Look &part, const std::string &what);
    void tell_wait(int32_t k, const Look &part, const std::string &what) const;
    void poll_lives();
    bool any_failed() const;
    void blame(const Look &part, const std::string &what);
    bool aborted(int32_t rank, Fate seen) const;
    Error cause_of(int32_t blamed, const std::string &what) const;
    int32_t named_by(int32_t rank) const;
    FateLine &line(int32_t rank) const { return *fates_[static_cast<size_t>(rank)]; }
    std::string reason(int32_t rank) const;

    int32_t rank_;
    std::vector<FateLine *> fates_;
    std::vector<os::Fd> pidfds_;
    std::vector<os::EventCount *> events_;
    int64_t spin_ns_;
    os::Health *health_ = nullptr;
    Mirror *mirror_ = nullptr;
    std::unique_ptr<std::atomic<bool>[]> dead_; ///< the pidfd has fired, or the connection has ended; this rank's own view
    std::atomic<int64_t> polled_ns_{0};
    std::mutex mark_mutex_;
};

} // namespace ujoin
