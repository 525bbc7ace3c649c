// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/group.hpp"
#include "comm/work.hpp"
#include "ddp/bucket_step.hpp"
#include "join/joinable.hpp"
#include "optim/batch.hpp"
#include "optim/scaler.hpp"
#include "zero/custom_rule.hpp"
#include "zero/fused.hpp"
#include "zero/layout.hpp"
#include "zero/overlap.hpp"
#include "zero/param_views.hpp"
#include "zero/reduced.hpp"
#include "zero/staging.hpp"
#include "zero/state.hpp"
#include "zero/step_plan.hpp"
#include <memory>
#include <string>
#include <vector>

namespace ujoin {

/// What an optimizer is made from.
struct ZeroConfig {
    std::shared_ptr<const optim::Rule> rule;
    std::shared_ptr<const CustomRule> custom; ///< null: the rule is one of the library's
    optim::Hyper defaults;                    ///< what hyper-parameters of param groups start from
    ZeroOptions options;
    int64_t idle_timeout_ms = UJOIN_NEVER;
    int64_t consolidate_timeout_ms = 0; ///< as in an option struct
    /// Of the reducer that it was made with, which makes the steps, unless they are fused.
    std::optional<std::vector<GradParam>> reduced;
    bool fused = false; ///< step() sums the gradients
};

/// An optimizer whose state is sharded over a group.
class Zero : public BucketStep, public std::enable_shared_from_this<Zero> {
  public:
    /// One without parameters; concerns this process alone.
    Zero(std::shared_ptr<Group> group, ZeroConfig config, Release release);

    /// The participant of a join context. It does not keep the optimizer: the program's memory is free when that goes.
    const std::shared_ptr<Joinable> &joinable();
    Group &group() const { return *group_; }
    const Layout &layout() const { return layout_; }
    const std::vector<ParamState> &states() const { return states_; }

    void add_param_group(const ujoin_param *params, size_t count, const ujoin_hyper *hyper, size_t hyper_count);
    /// `scaler` (may be null) is the one whose scale the plan has.
    ujoin_status step(ujoin_call_fn closure, void *closure_data, const StepPlan &plan = {},
                      std::shared_ptr<optim::Scaler> scaler = nullptr, double *out_norm = nullptr);
    /// Where fused steps get their gradients from.
    void take_from(std::weak_ptr<GradientSource> reducer) { fused_->source = std::move(reducer); }
    /// A step for the others' sake, by a rank that has joined.
    void shadow_step();
    void check_step() override;
    std::shared_ptr<Work> step_bucket(const std::shared_ptr<const Buckets> &buckets, size_t index) override;
    std::optional<Error> end_step(std::optional<Error> failure) override;
    /// UJOIN_SKIPPED: a gradient is not finite.
    ujoin_status clip_gradients(double max_norm, double norm_type, double *out_norm);

    void set_hyper(int32_t group, const std::string &name, double value);
    double get_hyper(int32_t group, const std::string &name) const;
    void set_gradient(size_t index, void *grad);
    void set_frozen(size_t index, bool frozen);
    void *param_data(size_t index) const;
    void clear_gradients();
    ujoin_zero_memory memory() const;

    /// Gathers all state on rank `to`.
    void consolidate(int32_t to);
    std::shared_ptr<State> state_dict() const;
    void load_list(const State *list);

    /// UJOIN_E_STATE if a step has failed half-way; `what` is the call that is refused.
    void check_whole(const char *what) const;
    /// UJOIN_E_STATE while a step within a reducer's iteration is under way.
    void check_between_steps(const char *what) const;
    /// Refuses steps and saves until the parts (bits of ujoin_save_part) are loaded anew.
    void break_by(int32_t parts, const std::string &cause);
    /// Puts into place what was loaded and checked, and mends what was broken.
    void commit(Staging &&staging, int32_t parts) noexcept;

  private:
    class Participant;
    const optim::Hyper &hyper_of(int32_t group) const;
    void drop_consolidated() noexcept;
    ZeroParam &param_at(size_t index);
    void give_view(ZeroParam &param);

    // The parts of a step (step.cpp).
    void prepare();
    ujoin_status run_step(StepPlan plan, const std::optional<Contribution> &given, bool shadow, double *out_norm);
    StepPlan agree_on_plan(const StepPlan &mine, bool shadow);
    void compare_values();
    double measure(double norm_type, uint32_t digest);
    void measure_own(double norm_type);
    void update(const Factors &factors);
    void add_update(size_t index, const Factors &factors);
    optim::Update begin_update(size_t index, const Factors &factors);
    void end_update(size_t index) { states_[index].valid |= layout_.needed_states(index); }
    template <class Body> void change(Body &&body);
    void update_and_sync(const StepPlan &plan, const Factors &factors);
    static OpArgs share_op(const Share &share, uint32_t digest);
    uint32_t digest(const StepPlan &plan) const;

    // Of a fused one (fused.cpp).
    class FusedStep;
    class FusedUpdate;
    class FusedSum;
    void check_joined_alike();
    Contribution take_contribution();
    bool sums_first(const StepPlan &plan) const;
    void sum_for_owners(const StepPlan &plan, const Contribution &given);
    void step_at_once(const StepPlan &plan, const Contribution &given);
    void add_ranges(OwnerStep &step, const Contribution &given) const;
    void describe_step(OwnerStep &step, const Contribution &given);
    void run_owner_step(OwnerStep &step, const Contribution &given, uint32_t digest);

    // And of one within a reducer's iteration (overlap.cpp).
    void begin_step(const std::shared_ptr<const Buckets> &buckets);
    template <class Body> void attempt(Body &&body);
    void update_these(const std::vector<size_t> &own);
    void check_own_steps(const char *what) const;

    Release release_; ///< first, hence run last
    std::shared_ptr<Group> group_;
    ZeroConfig config_;
    std::shared_ptr<Joinable> joinable_;
    ParamViews views_;
    Layout layout_;
    std::optional<Reduced> reduced_; ///< with a reducer: either of the next two
    std::optional<Overlap> overlap_;
    std::optional<Fused> fused_;
    std::vector<ParamState> states_;        ///< by parameter; those that other ranks own stay empty
    std::vector<double> parts_;             ///< of a norm, by piece
    optim::Batch batch_;                    ///< the updates of a step
    std::shared_ptr<optim::Scaler> scaler_; ///< of the last step that had one
    std::unique_ptr<State> consolidated_;
    bool outdated_ = false; ///< consolidated_ was there, but a step or a load has been made since
    int32_t broken_ = 0;    ///< bits of ujoin_save_part
    std::string cause_;
};

/// What fails in the middle of a change leaves a broken object.
template <class Body> void Zero::change(Body &&body) {
    broken_ = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;
    drop_consolidated();
    try {
        body();
    } catch (const Error &error) {
        break_by(broken_, error.text());
        throw;
    } catch (const std::bad_alloc &) {
        break_by(broken_, "out of memory");
        throw;
    }
    broken_ = 0;
}

} // namespace ujoin
