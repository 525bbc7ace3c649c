// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "zero/layout.hpp"
#include "zero/safetensors.hpp"
#include "zero/state.hpp"
#include <array>
#include <string>
#include <unordered_map>
#include <vector>

namespace ujoin {

/// What a load has read: it is collected and checked here, and nothing of the optimizer changes before all ranks have done
/// so. What does not fit is UJOIN_E_MISMATCH.
class Staging {
  public:
    explicit Staging(const Layout &layout);

    /// The index of a parameter.
    size_t find(const std::string &name) const;
    void take_hyper(int64_t group, const std::string &name, double value);
    /// Where elements `offset` to `offset + count` of a tensor of a parameter's state go, of the type of its state: as far as
    /// they are in this rank's piece. The caller fills that.
    ReadTarget take_tensor(size_t index, const std::string &key, ujoin_dtype dtype, const std::vector<int64_t> &shape,
                           size_t offset, size_t count);
    void take_step(size_t index, double value);
    /// Rule::number.
    void take_number(size_t index, double value);
    /// Everything in a list, of the program's own items apart.
    void take_list(const State &list);
    /// Nothing is missing, and the values make sense.
    void check_state();

    std::vector<optim::Hyper> hypers;
    std::vector<ParamState> states;             ///< by parameter
    std::vector<std::vector<std::byte>> params; ///< values of the parameters; empty: leave them
    State extra;

  private:
    void take_param_item(size_t index, const StateItem &item);
    void check_whole(size_t index) const;

    const Layout &layout_;
    std::vector<std::array<size_t, optim::max_states + 1>> taken_; ///< elements of this rank's pieces, by parameter
    std::unordered_map<std::string, size_t> index_by_name_;
    std::vector<bool> has_step_, has_number_;
};

} // namespace ujoin
