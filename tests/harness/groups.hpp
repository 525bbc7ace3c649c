// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/group.hpp"
#include "harness/ranks.hpp"
#include <gtest/gtest.h>
#include <string>

namespace harness {

/// Runs body(group) on `size` ranks of a backend: "self" and "local" as threads, "shm" as processes. A new backend that is
/// named here runs every test that is written so. `adjust` changes what the groups are made with.
inline void with_groups(const std::string &backend, int size, const std::function<void(ujoin::Group &)> &body,
                        const std::function<void(ujoin::GroupConfig &)> &adjust = {}) {
    const std::string name = unique("group");
    const auto one = [&](int rank) {
        ujoin::GroupConfig config;
        config.rendezvous = backend == "local" ? "local://" + name : "tcp://127.0.0.1:29500";
        config.backend = backend;
        config.name = name;
        config.rank = rank;
        config.size = size;
        config.rendezvous_timeout_ms = 30'000;
        if (adjust) adjust(config);
        const std::shared_ptr<ujoin::Group> group = ujoin::Group::create(config);
        body(*group);
    };
    if (backend == "shm")
        run_processes(size, one);
    else
        run_threads(size, one);
}

} // namespace harness
