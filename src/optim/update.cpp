// SPDX-License-Identifier: Apache-2.0
#include "optim/update.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "optim/convert.hpp"
#include "optim/pieces.hpp"
#include <algorithm>
#include <cstddef>

namespace ujoin::optim {

unsigned needed_states(const Rule &rule, const Hyper &hyper) {
    return rule.needed ? rule.needed(hyper) : (1U << rule.states.size()) - 1;
}

void apply(const Rule &rule, const Hyper &hyper, const Update &update) {
    if (!rule.apply) fail(UJOIN_E_INTERNAL, "rule ", rule.name, " has no arithmetic here");
    if (update.count == 0) return;
    if (!rule.measure) return rule.apply(hyper, update);
    double sums[max_sums] = {};
    for (size_t at = 0; at < update.count; at += piece_elements) {
        double added[max_sums] = {};
        Update part = part_of(update, at, std::min(piece_elements, update.count - at));
        part.sums = added;
        rule.measure(hyper, part);
        for (size_t i = 0; i < max_sums; i++) sums[i] += added[i];
    }
    Update measured = update;
    measured.sums = sums;
    rule.apply(hyper, measured);
}

Update part_of(const Update &update, size_t at, size_t count) {
    Update part = update;
    const size_t own = dtype_size(arithmetic_dtype(update.dtype));
    part.param = static_cast<std::byte *>(update.param) + at * dtype_size(update.dtype);
    part.grad = static_cast<const std::byte *>(update.grad) + at * dtype_size(update.grad_dtype);
    if (part.master) part.master += at;
    for (void *&state : part.states)
        if (state) state = static_cast<std::byte *>(state) + at * own;
    part.offset += at;
    part.count = count;
    return part;
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
