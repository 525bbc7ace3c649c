// SPDX-License-Identifier: Apache-2.0
#include "zero/zero.hpp"
#include "base/error.hpp"
#include "comm/together.hpp"
#include "zero/consolidate.hpp"
#include <bit>
#include <cstring>

namespace ujoin {

/// What a join context holds. The optimizer may be gone: then nothing of the program's may be touched.
class Zero::Participant final : public Joinable {
  public:
    Participant(std::shared_ptr<Group> group, std::weak_ptr<Zero> zero)
        : Joinable(std::move(group), "zero"), zero_(std::move(zero)) {}
    void main_hook(const HookArgs &) override {
        const std::shared_ptr<Zero> zero = zero_.lock();
        if (!zero) fail_state("the optimizer was destroyed before its join context was finished");
        if (!zero->overlap_) zero->shadow_step(); // else the reducer's shadow is the step's too
    }
    void post_hook(const HookArgs &) override {}

  private:
    std::weak_ptr<Zero> zero_;
};

Zero::Zero(std::shared_ptr<Group> group, ZeroConfig config, Release release)
    : release_(std::move(release)), group_(std::move(group)), config_(std::move(config)),
      layout_(config_.rule, config_.options, group_->rank(), group_->size()) {
    if (!config_.reduced) return;
    reduced_.emplace(*config_.reduced);
    if (config_.fused)
        fused_.emplace();
    else
        overlap_.emplace();
}

const std::shared_ptr<Joinable> &Zero::joinable() {
    if (!joinable_) joinable_ = std::make_shared<Participant>(group_, weak_from_this());
    return joinable_;
}

void Zero::add_param_group(const ujoin_param *params, size_t count, const ujoin_hyper *hyper, size_t hyper_count) {
    check_between_steps("adding a param group");
    std::optional<Layout> next;
    ParamViews::Block block;
    together(*group_, [&] {
        next = layout_.with_group(read_params(params, count, layout_.params),
                                  optim::with_hyper(*layout_.rule, config_.defaults, hyper, hyper_count));
        for (size_t i = layout_.params.size(); reduced_ && i < next->params.size(); i++) reduced_->check(next->params[i]);
        if (reduced_) reduced_->reserve(next->params.size());
        states_.reserve(next->params.size());
        if (config_.options.bucket_view) block = ParamViews::place(*next, layout_.params.size());
        views_.reserve();
    });
    check_same(*group_, next->facts_of_group(static_cast<int32_t>(layout_.hypers.size())));
    const size_t first = layout_.params.size();
    layout_ = std::move(*next);
    views_.keep(std::move(block));
    for (size_t i = first; i < layout_.params.size(); i++)
        if (layout_.params[i].view) ParamViews::copy_in(layout_.params[i]);
    states_.resize(layout_.params.size());
    if (reduced_) reduced_->find_in(layout_.params);
    if (overlap_) overlap_->outdate();
    if (fused_) fused_->places.look_again();
    drop_consolidated();
}

void Zero::check_whole(const char *what) const {
    check_between_steps(what);
    if (broken_ == 0) return;
    const char *parts = broken_ == UJOIN_SAVE_STATE        ? "state"
                        : broken_ == UJOIN_SAVE_PARAMETERS ? "parameters"
                                                           : "parameters and state";
    fail_state("rank ", group_->rank(), ": ", what, " is not possible: a step failed half-way (", cause_, "); load ", parts,
               " anew, or make a new optimizer");
}

void Zero::break_by(int32_t parts, const std::string &cause) {
    broken_ |= parts;
    cause_ = cause;
}

const optim::Hyper &Zero::hyper_of(int32_t group) const { return layout_.hypers[static_cast<size_t>(group)]; }

void Zero::set_hyper(int32_t group, const std::string &name, double value) {
    check_between_steps("changing a hyper-parameter");
    const size_t groups = layout_.hypers.size();
    if (group < -1 || group >= static_cast<int32_t>(groups))
        fail_invalid("group is ", group, "; there are ", groups, " param groups (-1 = all)");
    const size_t place = optim::hyper_index(*layout_.rule, name);
    std::vector<optim::Hyper> next = layout_.hypers;
    for (size_t g = 0; g < groups; g++) {
        if (group != -1 && static_cast<size_t>(group) != g) continue;
        next[g][place] = value;
        optim::check_hyper(*layout_.rule, next[g]);
    }
    layout_.hypers.swap(next);
}

double Zero::get_hyper(int32_t group, const std::string &name) const {
    if (group < 0 || group >= static_cast<int32_t>(layout_.hypers.size()))
        fail_invalid("group is ", group, "; there are ", layout_.hypers.size(), " param groups");
    return hyper_of(group)[optim::hyper_index(*layout_.rule, name)];
}

ZeroParam &Zero::param_at(size_t index) {
    if (index >= layout_.params.size())
        fail_invalid("index is ", index, "; there are ", layout_.params.size(), " parameters");
    return layout_.params[index];
}

void Zero::set_gradient(size_t index, void *grad) {
    check_between_steps("changing a gradient");
    check_gradient(param_at(index), grad);
    ZeroParam next = layout_.params[index];
    next.grad = grad;
    if (reduced_) reduced_->check(next);
    layout_.params[index].grad = grad;
    if (fused_) fused_->places.look_again();
}

void Zero::set_frozen(size_t index, bool frozen) {
    check_between_steps("freezing, or its end,");
    ZeroParam &param = param_at(index);
    if (param.frozen == frozen) return;
    ZeroParam next = param;
    next.frozen = frozen;
    if (reduced_) reduced_->check(next);
    layout_.share.segments.reserve(layout_.partition.pieces().size());
    if (config_.options.bucket_view) {
        if (!frozen && !param.view) give_view(param);
        if (frozen) {
            ParamViews::copy_out(param);
        } else {
            ParamViews::copy_in(param);
        }
        param.data = frozen ? param.home : param.view;
    }
    param.frozen = frozen;
    if (fused_) fused_->places.look_again();
    layout_.arrange();
    if (overlap_) overlap_->outdate();
}

/// For a parameter that was frozen when it came.
void Zero::give_view(ZeroParam &param) {
    ParamViews::Block block(param.bytes);
    views_.reserve();
    param.view = block.begin();
    views_.keep(std::move(block));
}

void *Zero::param_data(size_t index) const { return index < layout_.params.size() ? layout_.params[index].data : nullptr; }

void Zero::clear_gradients() {
    check_between_steps("clearing gradients");
    for (const ZeroParam &param : layout_.params)
        if (param.grad && param.count != 0) std::memset(param.grad, 0, param.grad_bytes());
}

ujoin_zero_memory Zero::memory() const {
    ujoin_zero_memory memory{};
    memory.buffers = layout_.share.segments.size() * sizeof(Segment) + parts_.size() * sizeof(double) +
                     (layout_.share.offsets.size() + layout_.numbers_of.size()) * sizeof(size_t);
    memory.buffers += views_.bytes() + (overlap_ ? overlap_->bytes() : 0);
    for (size_t i = 0; i < layout_.params.size(); i++) {
        const ZeroParam &param = layout_.params[i];
        memory.parameters += param.bytes;
        memory.gradients += param.grad ? param.grad_bytes() : 0;
        for (const AlignedBytes &tensor : states_[i].tensors) memory.state += tensor.size();
        memory.full_state += static_cast<uint64_t>(std::popcount(layout_.needed_states(i))) *
                             static_cast<uint64_t>(layout_.state_bytes(i, param.count));
    }
    return memory;
}

void Zero::consolidate(int32_t to) {
    consolidated_.reset();
    outdated_ = false;
    consolidated_ = consolidate_state(*this, to, group_->timeout_ms(config_.consolidate_timeout_ms));
}

/// What was consolidated is not what the optimizer has any more.
void Zero::drop_consolidated() noexcept {
    outdated_ = outdated_ || consolidated_;
    consolidated_.reset();
}

std::shared_ptr<State> Zero::state_dict() const {
    if (outdated_)
        fail_state(
            "rank ", group_->rank(),
            ": the consolidated state is outdated: a step, a load or a new param group came after it; all ranks must "
            "call zero_consolidate_state_dict anew");
    if (!consolidated_)
        fail_state("rank ", group_->rank(),
                   " has no consolidated state; all ranks must call zero_consolidate_state_dict with to = ", group_->rank(),
                   " first");
    return std::make_shared<State>(*consolidated_);
}

void Zero::load_list(const State *list) {
    check_between_steps("a load");
    std::optional<Staging> staging;
    together(*group_, [&] {
        if (!list) fail_invalid("state is NULL");
        staging.emplace(layout_);
        staging->take_list(*list);
        staging->check_state();
    });
    Facts facts;
    for (size_t g = 0; g < staging->hypers.size(); g++)
        for (size_t i = 0; i < layout_.rule->hypers.size(); i++)
            facts.emplace_back(cat("loaded hyper-parameter ", layout_.rule->hypers[i].name, " of param group ", g),
                               number_text(staging->hypers[g][i]));
    check_same(*group_, facts);
    commit(std::move(*staging), UJOIN_SAVE_STATE);
}

void Zero::commit(Staging &&staging, int32_t parts) noexcept {
    if ((parts & UJOIN_SAVE_STATE) != 0) {
        drop_consolidated();
        layout_.hypers.swap(staging.hypers);
        states_.swap(staging.states);
    }
    for (size_t i = 0; i < staging.params.size(); i++)
        if (!staging.params[i].empty())
            std::memcpy(layout_.params[i].data, staging.params[i].data(), staging.params[i].size());
    broken_ &= ~parts;
}

} // namespace ujoin
