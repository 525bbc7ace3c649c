// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/spawn.hpp"
#include "ujoin.h"
#include <cstdint>
#include <string>
#include <vector>

namespace ujoin {

/// {"nofile", 4096}, ...: UJOIN_E_INVALID names what is not known or no limit.
std::vector<os::SpawnLimit> read_limits(const ujoin_hyper *limits, size_t count);

/// Processors that this process may use, by memory node, both ascending; one node where the system tells of none.
struct Topology {
    struct Node {
        int32_t number = 0;
        std::vector<int32_t> cpus;
    };
    std::vector<Node> nodes;
    /// `root`: "/sys" but in tests.
    static Topology read(const std::string &root);
};

/// The processors of worker `index` of `count`. Spread: workers go to the nodes in turn and share what their node has;
/// compact: equal parts of all processors in the order of the nodes. With fewer processors than workers they share.
std::vector<int32_t> place_worker(const Topology &topology, ujoin_binding binding, size_t index, size_t count);
/// The nodes that have these processors.
std::vector<int32_t> nodes_of(const Topology &topology, const std::vector<int32_t> &cpus);
/// "0-2,5"
std::vector<int32_t> parse_cpu_list(const std::string &text);

} // namespace ujoin
