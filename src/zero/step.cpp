// SPDX-License-Identifier: Apache-2.0
// The step of a sharded optimizer.
#include "base/callback.hpp"
#include "base/error.hpp"
#include "comm/together.hpp"
#include "optim/norm.hpp"
#include "optim/update.hpp"
#include "zero/zero.hpp"
#include <cmath>
#include <map>
#include <new>

namespace ujoin {
namespace {

double clip_factor(double max_norm, double norm) { return std::min(1.0, max_norm / (norm + 1e-6)); }

} // namespace

ujoin_status Zero::step(ujoin_call_fn closure, void *closure_data, const StepPlan &plan,
                        std::shared_ptr<optim::Scaler> scaler, double *out_norm) {
    check_own_steps("zero_step");
    check_whole("a step");
    if (fused_) check_joined_alike();
    if (closure) {
        // Before the use is published: if the closure runs a ddp, its use comes first, as its collectives do.
        if (const ujoin_status status = call_program([&] { return closure(closure_data); }); status < 0) {
            const std::string cause = last_error().text;
            fail(UJOIN_E_CALLBACK, "rank ", group_->rank(), ": the closure failed with ", status_name(status),
                 cause.empty() ? "" : ": ", cause, "; nothing was changed");
        }
    }
    prepare();
    std::optional<Contribution> given;
    if (fused_) given = take_contribution();
    scaler_ = std::move(scaler);
    const ujoin_status status = joinable()->notify();
    const ujoin_status outcome = run_step(plan, given, false, out_norm);
    return outcome != UJOIN_OK ? outcome : status;
}

void Zero::shadow_step() {
    check_whole("a step");
    prepare();
    std::optional<Contribution> given;
    if (fused_) given = take_contribution();
    StepPlan none;
    none.active = 0;
    run_step(none, given, true, nullptr);
}

/// Makes the state that this step needs, so that nothing of the library's can fail once parameters change.
void Zero::prepare() {
    size_t elements = 0;
    for (size_t i = 0; i < layout_.params.size(); i++) {
        if (!layout_.owns(i) || !layout_.params[i].trained()) continue;
        elements += layout_.own(i).count;
        const unsigned needed = layout_.needed_states(i);
        const size_t bytes = layout_.state_bytes(i, layout_.own(i).count);
        for (size_t place = 0; place < layout_.state_names.size(); place++)
            if ((needed >> place & 1U) != 0 && states_[i].tensors[place].size() != bytes)
                states_[i].tensors[place].resize(bytes);
    }
    batch_.reserve(layout_.params.size(), elements);
}

ujoin_status Zero::run_step(StepPlan plan, const std::optional<Contribution> &given, bool shadow, double *out_norm) {
    if (layout_.options.compare_values) compare_values();
    // A rank that has joined knows nothing of the others' options.
    if (joinable()->armed()) plan = agree_on_plan(plan, shadow);
    if (given && !sums_first(plan)) {
        step_at_once(plan, *given);
        return UJOIN_OK;
    }
    if (given) sum_for_owners(plan, *given);
    Factors factors;
    if (plan.measures()) {
        if (plan.scale != 0) factors.unscale = 1 / plan.scale;
        const double type = plan.max_norm != 0 ? plan.norm_type : HUGE_VAL;
        const double norm = measure(type, digest(plan)) * factors.unscale;
        if (out_norm) *out_norm = norm;
        if (!std::isfinite(norm)) {
            if (scaler_) scaler_->skipped_step();
            return UJOIN_SKIPPED;
        }
        if (plan.max_norm != 0) factors.clip = clip_factor(plan.max_norm, norm);
    }
    update_and_sync(plan, factors);
    if (scaler_) scaler_->good_step();
    return UJOIN_OK;
}

/// In an armed join context: what the ranks that have not joined do in this step.
StepPlan Zero::agree_on_plan(const StepPlan &mine, bool shadow) {
    const auto ranks = static_cast<size_t>(group_->size());
    std::vector<StepPlan> plans(ranks);
    plans[static_cast<size_t>(group_->rank())] = mine;
    std::vector<size_t> offsets(ranks + 1);
    for (size_t k = 0; k <= ranks; k++) offsets[k] = k * sizeof(StepPlan);
    group_->all_gather_parts(Memory(plans.data(), offsets[ranks]), offsets.data());
    if (!shadow) return mine; // a difference between active ranks is found by the next operation
    for (const StepPlan &plan : plans)
        if (plan.active != 0) return plan;
    return mine;
}

/// UJOIN_DEBUG=detail: parameters must be the same on all ranks before a step overwrites the traces of a difference.
void Zero::compare_values() {
    Facts facts;
    for (const ZeroParam &param : layout_.params) {
        Checksum sum;
        sum.bytes(param.data, param.bytes);
        facts.emplace_back(cat("the values of parameter \"", param.name, '"'), cat("checksum ", sum.hex()));
    }
    check_same(*group_, facts);
}

/// The norm of all gradients that a step would use, from their owners. It depends neither on the number of ranks nor on the
/// partition: a whole parameter is one number, pieces are the inner sums of it; added up in the order of the parameters.
double Zero::measure(double norm_type, uint32_t digest) {
    const std::vector<Piece> &pieces = layout_.partition.pieces();
    measure_own(norm_type);
    OpArgs op;
    op.kind = OpKind::all_gather;
    op.recv = Memory(parts_.data(), parts_.size() * sizeof(double));
    op.count = op.recv.bytes();
    op.part_offsets = layout_.numbers_of.data();
    op.digest = digest;
    op.digest_text = StepPlan::differs;
    group_->run(op, Deadline::in(config_.idle_timeout_ms));
    std::vector<double> by_param(layout_.params.size());
    std::map<size_t, optim::NormSum> cut; // parameters
    for (size_t i = 0; i < pieces.size(); i++) {
        const double *numbers = &parts_[layout_.numbers[i]];
        if (layout_.whole(pieces[i])) {
            by_param[pieces[i].param] = *numbers;
        } else {
            cut.try_emplace(pieces[i].param, norm_type).first->second.add_numbers(numbers, pieces[i].count);
        }
    }
    for (const auto &[param, sum] : cut) by_param[param] = sum.total();
    return optim::whole_norm(by_param.data(), by_param.size(), norm_type);
}

/// This rank's numbers.
void Zero::measure_own(double norm_type) {
    const std::vector<Piece> &pieces = layout_.partition.pieces();
    parts_.assign(layout_.numbers.back(), 0);
    std::vector<size_t> own;
    std::vector<optim::NormInput> inputs;
    for (size_t i = 0; i < pieces.size(); i++) {
        const ZeroParam &param = layout_.params[pieces[i].param];
        if (pieces[i].rank != layout_.rank || !param.trained()) continue;
        own.push_back(i);
        inputs.push_back({param.grad_dtype, param.grad_at(pieces[i].offset), pieces[i].offset, pieces[i].count});
    }
    const std::vector<optim::NormSum> sums = optim::norm_sums(inputs, norm_type, group_->parallel());
    for (size_t k = 0; k < own.size(); k++) {
        double *numbers = &parts_[layout_.numbers[own[k]]];
        if (layout_.whole(pieces[own[k]])) {
            *numbers = sums[k].total();
        } else {
            sums[k].get_numbers(numbers);
        }
    }
}

ujoin_status Zero::clip_gradients(double max_norm, double norm_type, double *out_norm) {
    check_own_steps("clipping");
    if (fused_)
        fail_state("rank ", group_->rank(),
                   ": clipping apart from a step is not possible: the optimizer was made with a "
                   "reducer of UJOIN_GRADIENT_SYNC_TO_OWNER, so that gradients are summed in zero_step; give it max_norm");
    if (joinable()->armed())
        fail_state(
            "clipping apart from a step is not possible in an armed join context: ranks that have joined know nothing "
            "of it; give max_norm to zero_step");
    StepPlan plan;
    plan.max_norm = max_norm;
    plan.norm_type = norm_type;
    const double norm = measure(norm_type, digest(plan));
    if (out_norm) *out_norm = norm;
    if (!std::isfinite(norm)) return UJOIN_SKIPPED;
    const double factor = clip_factor(max_norm, norm);
    if (factor == 1) return UJOIN_OK;
    std::vector<optim::ScaleTarget> targets;
    for (const ZeroParam &param : layout_.params)
        if (param.trained()) targets.push_back({param.grad_dtype, param.grad, param.count});
    optim::scale_elements(targets, factor, group_->parallel());
    return UJOIN_OK;
}

/// Of all parameters.
void Zero::update(const Factors &factors) {
    batch_.clear();
    for (size_t i = 0; i < layout_.params.size(); i++)
        if (layout_.owns(i) && layout_.params[i].trained()) add_update(i, factors);
    batch_.run(*layout_.rule, group_->parallel());
}

/// A rule of the program's own runs at once, on this thread.
void Zero::add_update(size_t index, const Factors &factors) {
    const ZeroParam &param = layout_.params[index];
    const optim::Update work = begin_update(index, factors);
    if (config_.custom) {
        config_.custom->update(param, index, hyper_of(param.group), work);
    } else {
        batch_.add(hyper_of(param.group), work);
    }
    end_update(index);
}

/// The next update of what this rank owns of a parameter.
optim::Update Zero::begin_update(size_t index, const Factors &factors) {
    const optim::Rule &rule = *layout_.rule;
    const ZeroParam &param = layout_.params[index];
    const Piece &piece = layout_.own(index);
    ParamState &state = states_[index];
    const unsigned needed = layout_.needed_states(index);
    state.step++;
    if (rule.next_number) state.number = rule.next_number(hyper_of(param.group), state.step, state.number);
    optim::Update work;
    work.param = param.data_at(piece.offset);
    work.dtype = param.dtype;
    work.grad = param.grad_at(piece.offset);
    work.grad_dtype = param.grad_dtype;
    work.count = piece.count;
    work.offset = piece.offset;
    for (size_t place = 0; place < rule.states.size(); place++)
        if ((needed >> place & 1U) != 0) work.states[place] = state.tensors[place].data();
    if (layout_.has_master(index)) work.master = reinterpret_cast<float *>(state.tensors[rule.states.size()].data());
    const unsigned own = needed & ((1U << rule.states.size()) - 1);
    work.number = state.number;
    work.step = state.step;
    work.first = own != 0 ? (state.valid & own) != own : state.step == 1;
    work.unscale = factors.unscale;
    work.clip = factors.clip;
    work.stochastic = layout_.options.stochastic_rounding && param.dtype == UJOIN_BF16 && !work.master;
    if (work.stochastic) {
        Checksum key;
        key.word(layout_.options.seed);
        key.word(static_cast<uint64_t>(state.step));
        key.text(param.name);
        work.random_key = key.value();
    }
    return work;
}

OpArgs Zero::share_op(const Share &share, uint32_t digest) {
    OpArgs op;
    op.kind = OpKind::all_gather; // in place: this rank's parameters lie where they belong
    op.recv = Memory(share.segments.data(), share.segments.size());
    op.count = op.recv.bytes();
    op.part_offsets = share.offsets.data();
    op.digest = digest;
    op.digest_text = StepPlan::differs;
    return op;
}

void Zero::update_and_sync(const StepPlan &plan, const Factors &factors) {
    group_->check_usable();
    OpArgs op = share_op(layout_.share, digest(plan));
    change([&] {
        if (config_.custom) { // the program's code can fail on one rank alone
            together(*group_, [&] { update(factors); });
        } else {
            update(factors);
        }
        group_->run(op, Deadline::in(config_.idle_timeout_ms));
    });
}

uint32_t Zero::digest(const StepPlan &plan) const {
    Checksum sum;
    sum.word(static_cast<uint64_t>(layout_.rule->id));
    for (const optim::Hyper &hyper : layout_.hypers)
        for (const double value : hyper) sum.number(value);
    for (const ZeroParam &param : layout_.params) sum.word((param.grad ? 1U : 0U) | (param.frozen ? 2U : 0U));
    plan.add_to(sum);
    return sum.folded();
}

} // namespace ujoin
