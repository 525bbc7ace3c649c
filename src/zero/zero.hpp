// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/group.hpp"
#include "comm/work.hpp"
#include "join/joinable.hpp"
#include "zero/layout.hpp"
#include "zero/staging.hpp"
#include "zero/state.hpp"
#include <memory>
#include <string>
#include <vector>

namespace ujoin {

/// An optimizer whose state is sharded over a group.
class Zero : public std::enable_shared_from_this<Zero> {
  public:
    /// One without parameters; concerns this process alone. `defaults`: what hyper-parameters of param groups start from.
    Zero(std::shared_ptr<Group> group, const optim::Rule &rule, optim::Hyper defaults, int64_t idle_timeout_ms,
         Release release);
    Zero(const Zero &) = delete;
    Zero &operator=(const Zero &) = delete;

    /// The participant of a join context. It does not keep the optimizer: the program's memory is free when that goes.
    const std::shared_ptr<Joinable> &joinable();
    Group &group() const { return *group_; }
    const Layout &layout() const { return layout_; }
    const std::vector<ParamState> &states() const { return states_; }

    void add_param_group(const ujoin_param *params, size_t count, const ujoin_hyper *hyper, size_t hyper_count);
    ujoin_status step(ujoin_call_fn closure, void *closure_data);
    /// A step for the others' sake, by a rank that has joined.
    void shadow_step();

    void set_hyper(int32_t group, const std::string &name, double value);
    double get_hyper(int32_t group, const std::string &name) const;
    void set_gradient(size_t index, void *grad);
    void clear_gradients();

    /// Gathers all state on rank `to`.
    void consolidate(int32_t to);
    std::shared_ptr<State> state_dict() const;
    void load_list(const State *list);

    /// UJOIN_E_STATE if a step has failed half-way; `what` is the call that is refused.
    void check_whole(const char *what) const;
    /// Refuses steps and saves until the parts (bits of ujoin_save_part) are loaded anew.
    void break_by(int32_t parts, const std::string &cause);
    /// Puts into place what was loaded and checked, and mends what was broken.
    void commit(Staging &&staging, int32_t parts) noexcept;

  private:
    class Participant;
    void prepare();
    void update();
    void update_and_sync();
    uint32_t digest() const;
    const optim::Hyper &hyper_of(int32_t group) const;

    Release release_; ///< first, hence run last
    std::shared_ptr<Group> group_;
    optim::Hyper defaults_;
    int64_t idle_timeout_ms_;
    std::shared_ptr<Joinable> joinable_;
    Layout layout_;
    std::vector<ParamState> states_; ///< by parameter; those that other ranks own stay empty
    std::unique_ptr<State> consolidated_;
    int32_t broken_ = 0; ///< bits of ujoin_save_part
    std::string cause_;
};

} // namespace ujoin
