// SPDX-License-Identifier: Apache-2.0
// Steps that sum the gradients of a reducer: each element is summed by the rank that owns it, updated and shared, piece by
// piece, in one operation. Where a step must see all gradients first, that operation only sums; a step like any other follows.
#include "base/error.hpp"
#include "comm/owner_step.hpp"
#include "zero/zero.hpp"
#include <cstring>
#include <new>

namespace ujoin {

/// A reducer without its optimizer in a join context, or the other way round, would have shadows of half an iteration.
void Zero::check_joined_alike() {
    const std::shared_ptr<GradientSource> source = fused_->source.lock();
    const bool joins = joinable()->takes_part();
    if (!source || source->takes_part() == joins) return;
    fail_state("rank ", group_->rank(), ": ", joins ? "the optimizer" : "the reducer",
               " is in an armed join context, but its ", joins ? "reducer" : "optimizer",
               " is not: give both to ujoin_ctx_create");
}

Contribution Zero::take_contribution() {
    const std::shared_ptr<GradientSource> source = fused_->source.lock();
    if (!source) fail_state("rank ", group_->rank(), ": the reducer that the optimizer was made with was destroyed");
    return source->take();
}

/// What looks at all gradients before the first update, or at whole ones.
bool Zero::sums_first(const StepPlan &plan) const { return plan.measures() || config_.custom || layout_.rule->per_tensor; }

/// What both kinds of steps know of memory that the ranks share.
class Zero::FusedStep : public OwnerStep {
  public:
    FusedStep(Zero &zero, const Contribution &given, bool shares)
        : OwnerStep(zero.layout_.partition.ranks(), shares), zero_(zero), given_(given) {}
    void find_places() {
        direct_ = fused().places.find(*zero_.group_, zero_.layout_.params, zero_.config_.idle_timeout_ms);
        if (direct_ && given_.finds_unused) exchange_used();
    }
    bool direct() const override { return direct_; }
    const char *gradient_of(int32_t rank, const StepRange &range) const override {
        const size_t count = given_.used.size();
        const size_t reduced = zero_.reduced_->reduced_of(range.param);
        if (given_.finds_unused && fused().used[static_cast<size_t>(rank) * count + reduced] == 0) return nullptr;
        return fused().places.gradient(rank, range.param) + offset(range) * dtype_size(range.grad_dtype);
    }
    char *value_of(int32_t rank, const StepRange &range) const override {
        char *const value = fused().places.value(rank, range.param);
        return value ? value + offset(range) * dtype_size(range.dtype) : nullptr;
    }
    double scale_of(double weight) const override { return given_.weighs ? weight : 1; }
    void withdraw() override { fused().places.withdraw(); }

  protected:
    Fused &fused() const { return *zero_.fused_; }
    Zero &zero_;
    const Contribution &given_;

  private:
    size_t offset(const StepRange &range) const { return zero_.layout_.own(range.param).offset; }
    void exchange_used() {
        const size_t count = given_.used.size();
        const size_t ranks = zero_.layout_.partition.ranks();
        std::vector<size_t> offsets(ranks + 1);
        for (size_t k = 0; k <= ranks; k++) offsets[k] = k * count;
        fused().used.assign(ranks * count, 0);
        for (size_t i = 0; i < count; i++)
            fused().used[static_cast<size_t>(zero_.group_->rank()) * count + i] = given_.used[i] ? 1 : 0;
        zero_.group_->all_gather_parts(Memory(fused().used.data(), fused().used.size()), offsets.data(),
                                       Deadline::in(zero_.config_.idle_timeout_ms));
    }
    bool direct_ = false;
};

/// Leaves the sums in the owners' gradients.
class Zero::FusedSum final : public FusedStep {
  public:
    FusedSum(Zero &zero, const Contribution &given) : FusedStep(zero, given, false) {}
    void update(const StepRange &range, size_t first, size_t count, const char *gradient) override {
        const size_t bytes = dtype_size(range.grad_dtype);
        char *to = range.grad + first * bytes;
        if (to != gradient) std::memcpy(to, gradient, count * bytes);
    }
};

/// Updates elements in the cache.
class Zero::FusedUpdate final : public FusedStep {
  public:
    FusedUpdate(Zero &zero, const Contribution &given) : FusedStep(zero, given, true) {}
    /// Counts the step, also of parameters without elements.
    void begin() {
        std::vector<optim::Update> &updates = zero_.fused_->updates;
        for (size_t i = 0; i < updates.size(); i++) {
            if (!zero_.layout_.owns(i) || !zero_.layout_.params[i].trained()) continue;
            updates[i] = zero_.begin_update(i, {});
            zero_.end_update(i);
        }
    }
    void update(const StepRange &range, size_t first, size_t count, const char *gradient) override {
        optim::Update part = optim::part_of(zero_.fused_->updates[range.param], first, count);
        part.grad = gradient;
        optim::apply(*zero_.layout_.rule, zero_.hyper_of(zero_.layout_.params[range.param].group), part);
    }
};

void Zero::add_ranges(OwnerStep &step, const Contribution &given) const {
    for (const Piece &piece : layout_.partition.pieces()) {
        const ZeroParam &param = layout_.params[piece.param];
        if (piece.count == 0 || param.frozen || (!param.grad && !step.shares())) continue;
        StepRange range;
        range.count = piece.count;
        range.value = reinterpret_cast<char *>(param.data_at(piece.offset));
        range.dtype = param.dtype;
        range.grad_dtype = param.grad_dtype;
        range.param = piece.param;
        if (param.grad) {
            const size_t reduced = reduced_->reduced_of(piece.param);
            range.grad = static_cast<char *>(param.grad) + piece.offset * dtype_size(param.grad_dtype);
            range.absent = given.finds_unused && !given.used[reduced];
            range.as_it_lies = given.finds_unused && given.used_by[reduced] == 0;
        }
        step.add(static_cast<size_t>(piece.rank), range);
    }
}

/// The others wait for this rank: what fails before the operation must be known to them.
void Zero::describe_step(OwnerStep &step, const Contribution &given) {
    try {
        add_ranges(step, given);
        fused_->updates.resize(layout_.params.size());
    } catch (const std::bad_alloc &) {
        const Error error(UJOIN_E_NO_MEMORY, cat("rank ", group_->rank(), ": out of memory before a step"));
        group_->abort(error.text());
        throw Error(error);
    }
}

void Zero::run_owner_step(OwnerStep &step, const Contribution &given, uint32_t digest) {
    OpArgs op;
    op.kind = OpKind::owner_step;
    op.step = &step;
    for (size_t k = 0; k < step.ranks(); k++) op.count += step.count(k);
    op.shadow = given.shadow;
    op.weight = given.weight;
    op.scale = given.scale;
    op.divide = given.divide;
    op.digest = digest;
    op.digest_text = StepPlan::differs;
    group_->run(op, Deadline::in(config_.idle_timeout_ms));
}

void Zero::sum_for_owners(const StepPlan &plan, const Contribution &given) {
    FusedSum step(*this, given);
    step.find_places();
    describe_step(step, given);
    run_owner_step(step, given, digest(plan));
}

void Zero::step_at_once(const StepPlan &plan, const Contribution &given) {
    group_->check_usable();
    FusedUpdate step(*this, given);
    step.find_places();
    describe_step(step, given);
    const uint32_t expected = digest(plan);
    change([&] {
        step.begin();
        run_owner_step(step, given, expected);
    });
}

} // namespace ujoin
