// SPDX-License-Identifier: Apache-2.0
#include "pctx/limits.hpp"
#include "base/error.hpp"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <fstream>
#include <sched.h>
#include <sys/resource.h>

namespace ujoin {
namespace {

struct LimitName {
    const char *name;
    int resource;
};
constexpr LimitName limit_names[] = {
    {"as", RLIMIT_AS},
    {"core", RLIMIT_CORE},
    {"cpu", RLIMIT_CPU},
    {"data", RLIMIT_DATA},
    {"fsize", RLIMIT_FSIZE},
    {"memlock", RLIMIT_MEMLOCK},
    {"nice", RLIMIT_NICE},
    {"nofile", RLIMIT_NOFILE},
    {"nproc", RLIMIT_NPROC},
    {"rss", RLIMIT_RSS},
    {"rtprio", RLIMIT_RTPRIO},
    {"sigpending", RLIMIT_SIGPENDING},
    {"msgqueue", RLIMIT_MSGQUEUE},
    {"stack", RLIMIT_STACK},
};

std::vector<std::string> known_limits() {
    std::vector<std::string> names;
    for (const LimitName &entry : limit_names) names.emplace_back(entry.name);
    return names;
}

std::vector<int32_t> usable_cpus() {
    std::vector<int32_t> cpus;
    for (size_t room = 1024; room <= 65536; room *= 4) { // machines with more than the usual set holds
        cpu_set_t *set = CPU_ALLOC(room);
        const size_t size = CPU_ALLOC_SIZE(room);
        const bool got = sched_getaffinity(0, size, set) == 0;
        for (size_t cpu = 0; got && cpu < room; cpu++)
            if (CPU_ISSET_S(cpu, size, set)) cpus.push_back(static_cast<int32_t>(cpu));
        CPU_FREE(set);
        if (got) break;
    }
    return cpus;
}

std::string first_line(const std::string &path) {
    std::ifstream file(path);
    std::string line;
    std::getline(file, line);
    return line;
}

/// Part `index` of `parts` of a list; parts of an empty one, or more parts than items, take turns.
std::vector<int32_t> part_of(const std::vector<int32_t> &all, size_t index, size_t parts) {
    if (all.empty()) return {};
    if (parts >= all.size()) return {all[index % all.size()]};
    const size_t begin = all.size() * index / parts;
    const size_t end = all.size() * (index + 1) / parts;
    return {all.begin() + static_cast<std::ptrdiff_t>(begin), all.begin() + static_cast<std::ptrdiff_t>(end)};
}

} // namespace

std::vector<os::SpawnLimit> read_limits(const ujoin_hyper *limits, size_t count) {
    std::vector<os::SpawnLimit> list;
    if (!limits && count > 0) fail_invalid("worker.limits is NULL, but worker.limit_count is ", count);
    if (count > os::spawn_max_limits) fail_invalid("worker.limit_count is ", count, "; at most ", os::spawn_max_limits);
    for (size_t i = 0; i < count; i++) {
        const std::string name = limits[i].name ? limits[i].name : "";
        const auto *found = std::find_if(std::begin(limit_names), std::end(limit_names),
                                         [&](const LimitName &entry) { return name == entry.name; });
        if (found == std::end(limit_names))
            fail_invalid("worker.limits[", i, "] is \"", name, "\"; known are ", join_list(known_limits()));
        const double value = limits[i].value;
        if (!(value >= 0)) fail_invalid("worker.limits[", i, "] (", name, ") is ", value, "; expected 0 or more");
        const bool endless = std::isinf(value) || value >= 18e18;
        list.push_back({found->resource, 0, endless ? UINT64_MAX : static_cast<uint64_t>(value)});
    }
    return list;
}

std::vector<int32_t> parse_cpu_list(const std::string &text) {
    std::vector<int32_t> list;
    const char *at = text.c_str();
    while (*at >= '0' && *at <= '9') {
        char *end = nullptr;
        const long first = std::strtol(at, &end, 10);
        long last = first;
        if (*end == '-') last = std::strtol(end + 1, &end, 10);
        for (long cpu = first; cpu <= last && cpu < 65536; cpu++) list.push_back(static_cast<int32_t>(cpu));
        at = *end == ',' ? end + 1 : end;
    }
    return list;
}

Topology Topology::read(const std::string &root) {
    Topology topology;
    const std::vector<int32_t> usable = usable_cpus();
    const std::string base = root + "/devices/system/node/";
    for (const int32_t number : parse_cpu_list(first_line(base + "online"))) {
        Node node;
        node.number = number;
        for (const int32_t cpu : parse_cpu_list(first_line(cat(base, "node", number, "/cpulist"))))
            if (std::binary_search(usable.begin(), usable.end(), cpu)) node.cpus.push_back(cpu);
        if (!node.cpus.empty()) topology.nodes.push_back(std::move(node));
    }
    if (topology.nodes.empty()) topology.nodes.push_back({0, usable});
    return topology;
}

std::vector<int32_t> place_worker(const Topology &topology, ujoin_binding binding, size_t index, size_t count) {
    if (binding == UJOIN_BINDING_SPREAD) {
        const size_t nodes = topology.nodes.size();
        const size_t node = index % nodes;
        const size_t sharing = (count - node + nodes - 1) / nodes; // workers of that node
        return part_of(topology.nodes[node].cpus, index / nodes, sharing);
    }
    std::vector<int32_t> all;
    for (const Topology::Node &node : topology.nodes) all.insert(all.end(), node.cpus.begin(), node.cpus.end());
    return part_of(all, index, count);
}

std::vector<int32_t> nodes_of(const Topology &topology, const std::vector<int32_t> &cpus) {
    std::vector<int32_t> nodes;
    for (const Topology::Node &node : topology.nodes) {
        const auto has = [&](int32_t cpu) { return std::find(node.cpus.begin(), node.cpus.end(), cpu) != node.cpus.end(); };
        if (std::any_of(cpus.begin(), cpus.end(), has)) nodes.push_back(node.number);
    }
    return nodes;
}

} // namespace ujoin
