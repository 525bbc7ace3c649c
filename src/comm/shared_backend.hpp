// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/backend.hpp"
#include "comm/mirror.hpp"
#include "comm/shared_area.hpp"
#include <functional>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

namespace ujoin {

/// Operations over memory that every rank sees, whether the ranks are threads or processes. A class over byte ranges: what
/// differs between backends is only how ranks meet and how a death is noticed.
///
/// Every operation is a sequence of steps. In a step a rank copies what the others need into its own staging buffer (or,
/// up to 24 bytes, into its slot), publishes its arrival, waits for all, and reads the others' buffers. Buffers and slots
/// alternate, so one meeting per step is enough. Peers read staging memory only, never the caller's: a rank that gives up
/// can return its caller's memory at once.
class SharedBackend final : public Backend {
  public:
    struct Parts {
        const char *name = "";
        int32_t rank = 0;
        std::vector<RankArea *> areas;     ///< by rank
        std::vector<os::Fd> pidfds;        ///< by rank; empty where ranks are threads
        std::shared_ptr<void> keep_mapped; ///< what keeps the areas mapped
        size_t chunk = default_chunk;
        int64_t spin_ns = 0;
        /// Backend::pass; none: ranks are threads, which share descriptors.
        std::function<std::vector<os::Fd>(const os::Fd &own, const Deadline &deadline)> pass{};
        std::unique_ptr<Mirror> mirror{}; ///< for ranks whose areas are copies; none: all see each other's
    };
    explicit SharedBackend(Parts parts);
    ~SharedBackend() override;
    SharedBackend(const SharedBackend &) = delete;
    SharedBackend &operator=(const SharedBackend &) = delete;

    const char *name() const override { return parts_.name; }
    bool advance(OpArgs &op) override;
    bool run(OpArgs &op, const Deadline &deadline, const Deadline &patience, bool interruptible) override;
    bool pending(int32_t rank, OpArgs &out) override;
    void abort(const std::string &reason, bool left) override;
    void tell(os::Health &health) override;
    std::vector<os::Fd> pass(const os::Fd &own, const Deadline &deadline) override;
    Board &board() override { return board_; }

  private:
    int32_t size() const { return static_cast<int32_t>(parts_.areas.size()); }
    Slot &slot(int32_t rank, uint64_t step) { return parts_.areas[static_cast<size_t>(rank)]->slots[step & 1]; }
    /// Where rank k's data of the present step lie.
    char *data(int32_t rank, size_t length);

    bool wait_for(OpArgs &op, const Deadline &deadline, const Deadline &patience, bool interruptible);
    bool let_others_first(OpArgs &op);
    void begin_step(OpArgs &op);
    void end_step(OpArgs &op);
    void publish(const OpArgs &op);
    void show(const OpArgs &op);
    Mirror::Pieces pieces_for(const OpArgs &op, int32_t rank) const;
    void compare(OpArgs &op);
    std::string use_of(int32_t rank, const Slot &slot);
    [[noreturn]] void report_mismatch(const OpArgs &op, int32_t other);

    size_t span(const OpArgs &op) const;
    size_t part_bytes(const OpArgs &op, int32_t rank) const;
    size_t part_offset(const OpArgs &op, int32_t rank) const;
    size_t part_piece_bytes(const OpArgs &op, int32_t rank) const;
    size_t staged_bytes(const OpArgs &op, int32_t rank) const;
    bool two_phases(const OpArgs &op) const;
    void stage(const OpArgs &op);
    static void stage_scaled(const OpArgs &op, const Memory &from, size_t offset, char *to, size_t length);
    size_t contributions(const OpArgs &op, size_t data_offset, size_t staged);
    void reduce_inputs(ujoin_dtype dtype, ujoin_reduce reduce, const std::vector<const char *> &inputs, size_t n, char *out,
                       size_t count, double divisor) const;
    void reduce_into(const OpArgs &op, size_t data_offset, size_t staged, const Memory &out, size_t out_offset,
                     size_t length);
    std::pair<size_t, size_t> share(size_t length, int32_t rank) const;
    void stage_own_share(const OpArgs &op);
    void copy_shares(const OpArgs &op);
    void gather(const OpArgs &op);

    // shared_parts.cpp: gather, scatter, all_to_all
    struct Part {
        size_t offset = 0;
        size_t bytes = 0;
    };
    Part part_for(const OpArgs &op, int32_t rank) const;
    Part part_from(const OpArgs &op, int32_t rank) const;
    size_t part_piece(const OpArgs &op) const;
    Mirror::Pieces parts_shown(const OpArgs &op, int32_t rank) const;
    bool more_parts(const OpArgs &op) const;
    void stage_parts(const OpArgs &op);
    void take_parts(const OpArgs &op);
    /// A shadow of an operation of the program's: it has staged nothing.
    bool nothing_from(int32_t rank);

    // shared_messages.cpp: transfer
    bool move_messages(OpArgs &op);
    bool post(Message &message);
    bool take(Message &message);
    bool can_move(const OpArgs &op);
    bool run_messages(OpArgs &op, const Deadline &deadline, const Deadline &patience, bool interruptible);
    void check_not_elsewhere(OpArgs &op);
    Mail &mail(int32_t rank) { return parts_.areas[static_cast<size_t>(rank)]->mail; }
    char *mail_piece(int32_t rank, uint64_t sequence);
    static bool is_next(const OpArgs &op, const Message &message);
    size_t message_piece() const { return parts_.chunk / 2; }

    // An owner's step (shared_step.cpp).
    size_t step_elements(const OwnerStep &step) const;
    size_t slot_bytes() const { return parts_.chunk / parts_.areas.size() / 64 * 64; }
    size_t gradient_place(int32_t from, int32_t owner) const;
    Mirror::Pieces step_shown(const OpArgs &op, int32_t rank) const;
    char *gradient_slot(int32_t from, int32_t owner);
    char *value_slot(int32_t owner, uint64_t step);
    void stage_gradients(const OpArgs &op);
    void step_own(const OpArgs &op);
    const char *sum_block(const OpArgs &op, const StepRange &range, size_t first, size_t count, size_t at);
    void take_shared(const OpArgs &op);

    // And one over memory that all ranks see (direct_step.cpp).
    void step_directly(const OpArgs &op);
    const char *sum_directly(const OpArgs &op, const StepRange &range, size_t first, size_t count);
    void check_marks(const OpArgs &op);
    void keep_quiet(const Error &error, OwnerStep &step);

    Parts parts_;
    os::Health *health_ = nullptr; ///< where a launcher listens
    Watch watch_;
    Board board_;
    [[noreturn]] void fail_mismatch(const std::string &text, int32_t other);

    std::optional<OpArgs> shadowed_;    ///< what let_others_first has begun
    uint64_t step_ = 0;                 ///< steps begun
    std::vector<const char *> inputs_;  ///< scratch of reduce_into
    std::vector<const char *> shifted_; ///< likewise
    std::vector<double> scales_;        ///< of inputs_, where any_scaled_
    bool any_scaled_ = false;
    uint64_t met_ = 0;               ///< first step of the direct operation in progress; 0: this rank has not arrived
    std::vector<char> step_scratch_; ///< a block of sums and one of this rank's part of them
};

/// Spin time of a caller's waits: none when `ranks` on this host outnumber the processors, else half a millisecond. A rank
/// that sleeps makes its peer late for the next operation, which then sleeps too; ranks that have a processor each stay in
/// step by spinning.
int64_t spin_time_ns(int32_t ranks);

} // namespace ujoin
