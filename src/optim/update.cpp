// SPDX-License-Identifier: Apache-2.0
#include "optim/update.hpp"
#include "base/error.hpp"
#include "optim/convert.hpp"

namespace ujoin::optim {

unsigned needed_states(const Rule &rule, const Hyper &hyper) {
    return rule.needed ? rule.needed(hyper) : (1U << rule.states.size()) - 1;
}

void apply(const Rule &rule, const Hyper &hyper, const Update &update) {
    if (!rule.apply) fail(UJOIN_E_INTERNAL, "rule ", rule.name, " has no arithmetic here");
    if (update.count != 0) rule.apply(hyper, update);
}

void read_gradient(const Update &update, void *to) {
    if (arithmetic_dtype(update.dtype) == UJOIN_F64) {
        load_gradient(update, 0, update.count, static_cast<double *>(to));
    } else {
        load_gradient(update, 0, update.count, static_cast<float *>(to));
    }
}

float *read_values(const Update &update, std::vector<float> &scratch) {
    if (update.master) {
        refresh_master(update, 0, update.count);
        return update.master;
    }
    scratch.resize(update.count);
    load(update.dtype, update.param, 0, update.count, scratch.data());
    return scratch.data();
}

void write_values(const Update &update, const float *from) { store_values(update, 0, update.count, from); }

} // namespace ujoin::optim
