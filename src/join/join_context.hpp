// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/board.hpp"
#include "comm/group.hpp"
#include "comm/head.hpp"
#include "join/gate.hpp"
#include "join/joinable.hpp"
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

namespace ujoin {

struct JoinOptions {
    int64_t idle_timeout_ms = -1;       ///< as Deadline::in takes it
    int64_t skew_warning_rounds = 1000; ///< negative = never
    std::vector<std::pair<std::string, double>> hook_options;
    bool disabled = false;
    bool throw_on_exhausted = false;
    bool strict = false;
};

/// How often a wait looks for ranks that wait for ever for this one: a few slices of a sleep.
inline constexpr int64_t stray_check_ms = 250;

struct JoinReport {
    int64_t rounds = 0;
    int64_t shadow_rounds = 0;
    int64_t shadow_uses = 0;
    int64_t shadow_ns = 0;
    int64_t wait_ns = 0;
    bool is_last_joiner = false;
    int32_t authoritative_rank = -1;
    int32_t joined = 0;
    bool stopped = false;
};

/// A pass over uneven inputs. Each rank publishes its uses of the joinables on the board; a rank without inputs replays the
/// uses of the lowest rank that has not both joined and been replayed, until all have joined and caught up.
///
/// Every decision, of success and of failure, comes from a predicate that never turns false again, so ranks that look at
/// different moments decide alike. Words of rank k in this context: uses(k) = its total once it has joined, else pos; a use
/// u of it exists if uses(k) > u, and is known if pos > u or it has joined.
class JoinContext : public std::enable_shared_from_this<JoinContext> {
  public:
    /// UJOIN_E_INVALID: see ujoin_ctx_create.
    static std::shared_ptr<JoinContext> create(std::vector<std::shared_ptr<Joinable>> joinables, JoinOptions options);

    void start();
    void finish();
    void stop(); ///< from any thread, also from a signal handler
    bool stopped();
    void abort(const std::string &reason); ///< from any thread
    JoinReport report() const;
    /// Rounds by rank, -1 for those that have not joined.
    std::vector<int64_t> rounds() const;
    int32_t size() const { return size_; }

    // For Joinable and Gate, inside the gate.
    ujoin_status notify(int32_t index, int32_t *out_active);
    ujoin_status notify_in_hook(int32_t *out_active) const;
    void disarmed();

  private:
    JoinContext(std::vector<std::shared_ptr<Joinable>> joinables, JoinOptions options);
    void check_options() const;
    uint32_t make_digest() const;

    // Words of the board.
    Bank &bank(int32_t k) const { return board_.bank(k, number_); }
    Head head(int32_t k) const;
    void publish(uint64_t pos, bool joined);
    uint64_t uses(int32_t k, const Head &seen) const;
    bool exists(int32_t k, uint64_t use) const { return uses(k, head(k)) > use; }
    bool known(int32_t k, uint64_t use) const;
    bool caught(int32_t k) const;
    uint64_t heads_sum() const;
    int32_t joined_now() const;
    int64_t rounds_of(int32_t rank) const; ///< -1: it has not joined
    template <class Part, class What> void wait_for(int32_t k, uint64_t first_open, Part &&part, What &&what);
    void compare_uses(int32_t k);
    void compare_all_uses();
    [[noreturn]] void fail_different_uses(uint64_t use, int32_t a, int32_t b);
    std::optional<Error> find_stray(uint64_t first_open);

    // Uses of this rank.
    void hear_launcher();
    void make_room(uint64_t use);
    void ask_stop_before(uint64_t use);
    int32_t count_active(uint64_t use);
    [[noreturn]] void leave_exhausted(const std::string &text, uint64_t use);

    // The way out.
    void join();
    void shadow_until_over();
    void replay(int32_t k, uint64_t use);
    bool issues_own(int32_t k, OpArgs &op) const;
    void finish_exhausting();
    void conclude();
    void run_hook(size_t index, bool post, HookArgs &args);
    void run_post_hooks();
    void warn_of_skew();
    template <class Body> void leaving_mark(Body &&body);
    void leave_mark(const Error &error);

    std::vector<std::shared_ptr<Joinable>> joinables_;
    JoinOptions options_;
    std::shared_ptr<Group> group_;
    Gate &gate_;
    Board &board_;
    int32_t rank_;
    int32_t size_;
    uint32_t digest_ = 0;

    std::atomic<bool> requested_{false}; ///< a stop that no finish has answered yet
    std::atomic<uint64_t> armed_{0};     ///< the number while armed, else 0

    // Since the last start.
    uint64_t number_ = 0;        ///< of the context in its group
    uint64_t own_ = 0;           ///< uses of this rank
    uint64_t horizon_ = 0;       ///< first use for which the others' positions must be looked at again
    uint64_t stop_at_ = no_stop; ///< the smallest seen
    uint64_t rounds_ = 0;
    bool asked_ = false;       ///< own stop_at is written
    bool leaving_ = false;     ///< the agreed stop has been told to the program
    bool frozen_stop_ = false; ///< the stop bit of this rank's head
    bool warned_ = false;
    bool heard_ = false; ///< the launcher asks for a stop
    int32_t hook_active_ = 0;
    mutable std::vector<bool> checked_; ///< whose digest has been compared
    JoinReport report_;
    std::vector<int64_t> rounds_by_rank_;
};

/// Waits until part(k) of another rank's bank; part(r) is asked of every failed rank r. `first_open`: this rank enters no
/// more operations of uses before that one.
template <class Part, class What> void JoinContext::wait_for(int32_t k, uint64_t first_open, Part &&part, What &&what) {
    if (part(k)) return;
    const int64_t begin = now_ns();
    // The others may need an operation of this rank that is still in flight.
    if (!group_->has_progress()) group_->drain();
    const auto told = [&] { return cat(what(), " in join context ", number_); };
    Watch &watch = board_.watch();
    Deadline idle = Deadline::in(options_.idle_timeout_ms);
    uint64_t seen = idle.is_never() ? 0 : heads_sum();
    const auto patience = [&] { return Deadline::earlier(idle, Deadline::in(stray_check_ms)); };
    while (!watch.wait(k, bank(k).event, part, Deadline::never(), patience(), true, told)) {
        if (const std::optional<Error> stray = find_stray(first_open))
            if (!part(k)) throw Error(*stray); // a rank that is through may be ahead of this one
        if (!idle.passed()) continue;
        const uint64_t now = heads_sum();
        if (now == seen) watch.time_out(part, cat(told(), " (idle for ", options_.idle_timeout_ms, " ms)"));
        seen = now;
        idle = Deadline::in(options_.idle_timeout_ms);
    }
    report_.wait_ns += now_ns() - begin;
}

/// A rank that returns an error from a context always leaves its mark, else those who wait for it would sleep for ever.
template <class Body> void JoinContext::leaving_mark(Body &&body) {
    try {
        body();
    } catch (const Error &error) {
        leave_mark(error);
        throw;
    } catch (const std::bad_alloc &) {
        leave_mark(Error(UJOIN_E_NO_MEMORY, "out of memory"));
        throw;
    } catch (...) {
        leave_mark(Error(UJOIN_E_INTERNAL, "a hook threw an exception"));
        throw;
    }
}

} // namespace ujoin
