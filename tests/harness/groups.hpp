// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/group.hpp"
#include "harness/meet.hpp"
#include <gtest/gtest.h>
#include <string>
#include <vector>

namespace harness {

/// Runs body(group) on `size` ranks of a backend. `adjust` changes what the groups are made with.
inline void with_groups(const std::string &backend, int size, const std::function<void(ujoin::Group &)> &body,
                        const std::function<void(ujoin::GroupConfig &)> &adjust = {}) {
    const std::string name = unique("group");
    const Meet meet(backend, name);
    meet.run(size, [&](int rank) {
        ujoin::GroupConfig config;
        config.rendezvous = meet.url();
        config.backend = backend;
        config.name = name;
        config.rank = rank;
        config.size = size;
        config.rendezvous_timeout_ms = 30'000;
        if (adjust) adjust(config);
        const std::shared_ptr<ujoin::Group> group = ujoin::Group::create(config);
        body(*group);
    });
}

/// In place.
template <class T> ujoin::OpArgs all_reduce_op(ujoin_dtype dtype, ujoin_reduce reduce, std::vector<T> &data) {
    ujoin::OpArgs op;
    op.kind = ujoin::OpKind::all_reduce;
    op.dtype = dtype;
    op.reduce = reduce;
    op.count = data.size();
    op.recv = ujoin::Memory(data.data(), data.size() * sizeof(T));
    return op;
}

} // namespace harness
