// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "optim/hyper.hpp"
#include "ujoin.h"
#include <cstdint>

namespace ujoin::optim {

/// One parameter, or a piece of it, in one step. Memory is aligned for its type.
struct Update {
    void *param = nullptr;
    ujoin_dtype dtype = UJOIN_F32; ///< of param; any floating-point type
    float *master = nullptr;       ///< of a 16-bit parameter: its values in f32; null: it has none
    const void *grad = nullptr;
    ujoin_dtype grad_dtype = UJOIN_F32;
    size_t count = 0;
    size_t offset = 0;             ///< where the piece begins in the parameter
    void *states[max_states] = {}; ///< those that needed_states names; of arithmetic_dtype
    double number = 1;             ///< Rule::number, of this step
    double *sums = nullptr;        ///< Rule::measure; max_sums of them
    int64_t step = 0;              ///< number of this step for this parameter, from 1
    bool first = false;            ///< some of the states were made for this step
    double unscale = 1;            ///< the gradient is multiplied by this,
    double clip = 1;               ///< then by this
    bool stochastic = false;       ///< bf16 without master: round up or down at random
    uint64_t random_key = 0;       ///< what the random numbers are keyed by, beside the element
};

/// The type in which a parameter is updated, and that its state has: f32 for 16-bit types.
inline ujoin_dtype arithmetic_dtype(ujoin_dtype dtype) { return dtype == UJOIN_F64 ? UJOIN_F64 : UJOIN_F32; }
unsigned needed_states(const Rule &rule, const Hyper &hyper);
/// Of a per_tensor rule the whole parameter; of any other what the update names, which may be a part of one.
void apply(const Rule &rule, const Hyper &hyper, const Update &update);
/// The update of elements `at` to `at + count` of those that it names.
Update part_of(const Update &update, size_t at, size_t count);

/// The gradient as a rule of the program's own sees it, multiplied as above; `to` is of arithmetic_dtype(update.dtype).
void read_gradient(const Update &update, void *to);
/// Values of a 16-bit parameter in f32: the master copy, or one in `scratch`; and back, rounded as the update says.
float *read_values(const Update &update, std::vector<float> &scratch);
void write_values(const Update &update, const float *from);

} // namespace ujoin::optim
