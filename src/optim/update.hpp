// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "optim/hyper.hpp"
#include "ujoin.h"
#include <cstdint>

namespace ujoin::optim {

/// One parameter, or a piece of it, in one step. Memory is aligned for its type.
struct Update {
    void *param = nullptr;
    const void *grad = nullptr;
    size_t count = 0;
    void *states[max_states] = {}; ///< those that needed_states names
    int64_t step = 0;              ///< number of this step for this parameter, from 1; where the rule counts steps
    bool first = false;            ///< the states were made for this step
};

/// The states that a step with these values needs: bit i = Rule::states[i]. New ones begin as zeros.
unsigned needed_states(const Rule &rule, const Hyper &hyper);
/// Applies the rule. `dtype` is UJOIN_F32 or UJOIN_F64.
void apply(const Rule &rule, const Hyper &hyper, ujoin_dtype dtype, const Update &update);

} // namespace ujoin::optim
