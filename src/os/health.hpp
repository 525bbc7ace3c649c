// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

namespace ujoin::os {

/// What one group of a worker tells its launcher, in memory that both have mapped (os/job_page). Zero bytes are a free line.
/// The launcher believes nothing: any bytes give some text.
struct alignas(64) HealthLine {
    static constexpr size_t name_bytes = 32;
    static constexpr size_t text_bytes = 128;
    static constexpr int32_t most_ranks = 1024; ///< of whom it can be said that they are missing

    // Written in every operation: a cache line that nobody else writes, and hardly anybody reads.
    std::atomic<uint64_t> begun{0}; ///< operations
    std::atomic<uint64_t> done{0};  ///< of them
    std::atomic<int64_t> since_ns{0};
    std::atomic<uint64_t> kind[2] = {}; ///< the name of the last one, 16 bytes
    std::atomic<int64_t> round{0};      ///< of the join context
    std::atomic<uint32_t> context{0};   ///< 1 armed, 2 joined
    std::atomic<uint32_t> broken{0};

    // Written once.
    std::atomic<int32_t> pid{0}; ///< 0 = free
    std::atomic<int32_t> rank{0};
    std::atomic<int32_t> size{0};
    std::atomic<uint32_t> told{0}; ///< the other three are there
    std::atomic<uint64_t> name[name_bytes / 8] = {};

    // Written in waits that do not end at once.
    std::atomic<uint32_t> version{0}; ///< odd while it is written
    std::atomic<uint32_t> waiting{0};
    std::atomic<uint64_t> what[text_bytes / 8] = {};
    std::atomic<uint64_t> missing[most_ranks / 64] = {};
};
static_assert(sizeof(HealthLine) == 384);

/// Groups of one worker that can be told of at the same time.
inline constexpr size_t health_lines = 4;

/// The writer's end of a line; without one it tells nobody. Operations come from one thread at a time, the rest from any.
class Health {
  public:
    Health() = default;
    /// Takes the first of the worker's lines that is free or whose process is gone. Tells nobody if there is none.
    Health(std::shared_ptr<HealthLine[]> lines, int32_t rank, int32_t size, std::string_view name);
    ~Health();
    Health(const Health &) = delete;
    Health &operator=(const Health &) = delete;

    explicit operator bool() const { return line_ != nullptr; }

    /// An operation begins; `kind`: its name in 16 bytes, filled up with zeros.
    void begin(const char *kind) {
        if (line_) note_begin(kind);
    }
    void end() {
        if (!line_) return;
        if (waited_.exchange(false, std::memory_order_relaxed))
            line_->since_ns.store(coarse_ns(), std::memory_order_relaxed);
        line_->done.store(begun_, std::memory_order_release);
    }
    void in_round(int64_t round) {
        if (!line_) return;
        line_->round.store(round, std::memory_order_relaxed);
        line_->since_ns.store(coarse_ns(), std::memory_order_relaxed);
    }
    enum class Context : uint32_t { none = 0, armed = 1, joined = 2 };
    void in_context(Context state) {
        if (line_) line_->context.store(static_cast<uint32_t>(state), std::memory_order_relaxed);
    }
    void broken() {
        if (line_) line_->broken.store(1, std::memory_order_relaxed);
    }
    /// It sleeps until `missing` (a bit for each rank) have done their part of `what`.
    void wait(std::string_view what, const std::vector<uint64_t> &missing);
    void wait_over() {
        if (line_) line_->waiting.store(0, std::memory_order_relaxed);
    }

  private:
    void note_begin(const char *kind);
    static int64_t coarse_ns(); ///< the monotonic clock, to a few ms, for a few ns

    std::shared_ptr<HealthLine[]> keep_mapped_;
    HealthLine *line_ = nullptr;
    int32_t pid_ = 0; ///< a forked copy does not give the line back
    uint64_t begun_ = 0;
    std::atomic<bool> waited_{false};
};

/// What a worker's lines say, made harmless.
struct HealthView {
    int32_t pid = 0;
    int32_t rank = -1;
    int32_t size = 0;
    int32_t groups = 0; ///< lines in use
    uint64_t sequence = 0;
    bool in_operation = false;
    bool waiting = false;
    bool armed = false;
    bool joined = false;
    bool broken = false;
    int64_t round = -1;
    int64_t since_ns = 0; ///< CLOCK_MONOTONIC
    std::string name;
    std::string kind;
    std::string what;
    std::vector<int32_t> missing;
};

/// The group that waits longest; if none waits the one that is in an operation longest, or else the first. `alive`: lines of
/// processes that are gone do not count. Nothing if the worker has no group.
std::optional<HealthView> look_at(const HealthLine *lines, bool alive);

} // namespace ujoin::os
