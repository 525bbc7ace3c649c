// SPDX-License-Identifier: Apache-2.0
#include "comm/watch.hpp"
#include "comm/mirror.hpp"
#include "os/interrupt.hpp"
#include <algorithm>
#include <cstring>
#include <poll.h>

namespace ujoin {

Watch::Watch(int32_t rank, std::vector<FateLine *> fates, std::vector<os::Fd> pidfds, std::vector<os::EventCount *> events,
             int64_t spin_ns)
    : rank_(rank), fates_(std::move(fates)), pidfds_(std::move(pidfds)), events_(std::move(events)), spin_ns_(spin_ns),
      dead_(std::make_unique<std::atomic<bool>[]>(fates_.size())) {}

bool Watch::wait_slow(int32_t k, os::EventCount &event, const Look &part, const Deadline &deadline,
                      const Deadline &patience, bool interruptible, const std::string &what) {
    struct Over {
        os::Health *health;
        ~Over() {
            if (health) health->wait_over();
        }
    } const over{health_};
    bool first = true;
    const auto look = [&](bool slice) {
        check_own();
        // A wait that begins after a peer's death need not last a slice; many short waits must not poll each time.
        if (slice || (first && now_ns() - polled_ns_.load(std::memory_order_relaxed) >= os::slice_ns)) poll_lives();
        blame(part, what);
        if (health_ && (first || slice)) tell_wait(k, part, what);
        first = false;
        if (slice && interruptible) os::check_interrupt();
    };
    try {
        const auto done = [&] { return part(k); };
        if (os::wait_event(event, 0, Deadline::earlier(deadline, patience), done, look)) return true; // has spun already
    } catch (const Error &error) {
        mark(Fate::failed, error.text(), error.code()); // no effect where blame() left a more precise one
        throw;
    }
    if (deadline.passed()) give_up_late(part, what);
    return false;
}

/// In an operation everybody's part is awaited; on the board one rank's, and the others' may be further ahead.
void Watch::tell_wait(int32_t k, const Look &part, const std::string &what) const {
    std::vector<uint64_t> missing((static_cast<size_t>(size()) + 63) / 64);
    for (int32_t r = 0; r < size(); r++)
        if (r == k || (part.abort_ends() && r != rank_ && !part(r)))
            missing[static_cast<size_t>(r) / 64] |= uint64_t{1} << (r % 64);
    health_->wait(what, missing);
}

void Watch::give_up_late(const Look &part, const std::string &what) {
    std::vector<int32_t> missing;
    for (int32_t r = 0; r < size(); r++)
        if (r != rank_ && !part(r)) missing.push_back(r);
    std::string text = cat("the deadline passed while rank ", rank_, " was waiting for ", what);
    if (!missing.empty())
        text += cat(missing.size() == 1 ? "; missing is rank " : "; missing are ranks ", join_list(missing));
    Error error(UJOIN_E_TIMEOUT, text);
    error.with_ranks(missing);
    mark(Fate::failed, error.text(), error.code());
    throw error;
}

/// A pidfd becomes readable when its process has ended.
void Watch::poll_lives() {
    polled_ns_.store(now_ns(), std::memory_order_relaxed);
    std::vector<pollfd> polled;
    std::vector<int32_t> ranks;
    for (int32_t r = 0; r < static_cast<int32_t>(pidfds_.size()); r++) {
        const os::Fd &fd = pidfds_[static_cast<size_t>(r)];
        if (r == rank_ || !fd || dead_[static_cast<size_t>(r)].load(std::memory_order_relaxed)) continue;
        polled.push_back(pollfd{fd.get(), POLLIN, 0});
        ranks.push_back(r);
    }
    if (polled.empty() || poll(polled.data(), polled.size(), 0) <= 0) return;
    for (size_t i = 0; i < polled.size(); i++)
        if (polled[i].revents & POLLIN) dead_[static_cast<size_t>(ranks[i])].store(true, std::memory_order_release);
}

/// Without looking at processes.
bool Watch::any_failed() const {
    for (int32_t r = 0; r < size(); r++)
        if (fate(r) != Fate::none || dead_[static_cast<size_t>(r)].load(std::memory_order_acquire)) return true;
    return false;
}

/// The order matters: a failure is seen first, then the part is read. A rank that finished and left between the two is
/// not to blame. A dead rank gets its mark only when it is blamed: one that ended in peace is no cause of later failures.
void Watch::blame(const Look &part, const std::string &what) {
    int32_t blamed = -1;
    bool blamed_dead = false;
    for (int32_t r = 0; r < size(); r++) {
        if (r == rank_) continue;
        const bool dead = dead_[static_cast<size_t>(r)].load(std::memory_order_acquire);
        const Fate seen = fate(r);
        if ((!dead && seen == Fate::none) || (part(r) && !(part.abort_ends() && aborted(r, seen)))) continue;
        const bool lost = seen == Fate::lost || (dead && seen == Fate::none);
        if (blamed < 0 || (lost && !blamed_dead)) { // a death comes before those who gave up because of it
            blamed = r;
            blamed_dead = lost;
        }
    }
    if (blamed < 0) return;
    uint32_t none = 0; // if it left a mark of its own just before its death, that one stays
    if (blamed_dead)
        line(blamed).fate.compare_exchange_strong(none, static_cast<uint32_t>(Fate::lost), std::memory_order_seq_cst);
    const Error error = cause_of(blamed, what);
    mark(Fate::failed, error.text(), error.code(), error.ranks().front()); // what comes later names the first cause as well
    throw error;
}

/// By its program, or by Ctrl-C; not by its own deadline: others' may be longer.
bool Watch::aborted(int32_t rank, Fate seen) const {
    return seen == Fate::failed && (line(rank).code == UJOIN_E_ABORTED || line(rank).code == UJOIN_E_CALLBACK);
}

/// The error about the first cause behind a blamed rank. A cause was marked before those who name it, so this ends. The copy
/// of a cause may not have its mark yet: who names it then speaks for it.
Error Watch::cause_of(int32_t blamed, const std::string &what) const {
    int32_t r = blamed;
    for (int32_t cause = named_by(r); cause >= 0 && fate(cause) != Fate::none; cause = named_by(r)) r = cause;
    const std::string waiting = cat("rank ", rank_, " was waiting for ", what);
    ujoin_status code = UJOIN_E_PEER_LOST;
    std::string text;
    switch (fate(r)) {
    case Fate::lost:
        text = cat("rank ", r, " (pid ", line(r).pid, ") ",
                   line(r).reason_length.load(std::memory_order_acquire) == 0 ? "died" : reason(r), " while ", waiting);
        break;
    case Fate::left:
        text = cat("rank ", r, " left the group while ", waiting);
        break;
    default:
        code = line(r).code == UJOIN_E_MISMATCH || line(r).code == UJOIN_E_PEER_LOST ? line(r).code : UJOIN_E_ABORTED;
        text = cat("rank ", r, " gave up: ", reason(r), " (", waiting, ")");
    }
    const int32_t cause = named_by(r);
    return Error(code, text).with_ranks({cause >= 0 ? cause : r});
}

/// The other rank whose failure was the reason of this one's; -1: none.
int32_t Watch::named_by(int32_t rank) const {
    if (fate(rank) != Fate::failed) return -1;
    const int32_t cause = line(rank).cause;
    return cause < size() && cause != rank_ ? cause : -1;
}

void Watch::check_own() {
    const Fate own = fate(rank_);
    if (own == Fate::none) return;
    if (own == Fate::left) throw Error(UJOIN_E_ABORTED, cat("rank ", rank_, " has left the group")).with_ranks({rank_});
    if (own == Fate::lost)
        throw Error(UJOIN_E_ABORTED, cat("rank ", rank_, " was taken for dead by a peer")).with_ranks({rank_});
    const FateLine &mine = line(rank_);
    if (mine.code == UJOIN_E_ABORTED && mine.cause < 0)
        throw Error(UJOIN_E_ABORTED, cat("this rank (", rank_, ") was aborted: ", reason(rank_))).with_ranks({rank_});
    throw Error(mine.code, reason(rank_)).with_ranks({mine.cause < 0 ? rank_ : mine.cause}); // what failed here before
}

void Watch::mark(Fate fate, const std::string &reason, ujoin_status code, int32_t cause) {
    const std::scoped_lock lock(mark_mutex_);
    FateLine &mine = line(rank_);
    if (mine.fate.load(std::memory_order_acquire) == 0) {
        size_t length = std::min(reason.size(), sizeof mine.reason);
        if (length < reason.size()) // not in the middle of a character
            while (length > 0 && (static_cast<unsigned char>(reason[length]) & 0xc0U) == 0x80U) length--;
        std::memcpy(mine.reason, reason.data(), length);
        mine.code = code;
        mine.cause = cause;
        mine.reason_length.store(static_cast<uint32_t>(length), std::memory_order_release);
        uint32_t none = 0;
        mine.fate.compare_exchange_strong(none, static_cast<uint32_t>(fate), std::memory_order_seq_cst);
        if (mirror_) mirror_->show_fate();
    }
    alarm(); // also with an older mark: what the caller gives up may be another wait
}

std::string Watch::reason(int32_t rank) const {
    const FateLine &theirs = line(rank);
    const size_t length = std::min<size_t>(theirs.reason_length.load(std::memory_order_acquire), sizeof theirs.reason);
    return length == 0 ? "no reason was given" : std::string(theirs.reason, length);
}

void Watch::alarm() noexcept {
    for (os::EventCount *event : events_) os::announce(*event);
}

} // namespace ujoin
