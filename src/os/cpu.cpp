// SPDX-License-Identifier: Apache-2.0
#include "os/cpu.hpp"
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <sched.h>
#include <string>

namespace ujoin::os {
namespace {

int affinity_count() {
    cpu_set_t set;
    CPU_ZERO(&set);
    if (sched_getaffinity(0, sizeof set, &set) != 0) return 1; // more processors than the set holds: cannot be few
    return CPU_COUNT(&set);
}

/// Quota of this process's own cgroup v2, 0 if there is none or it cannot be read.
int cgroup_quota() {
    std::string group;
    if (FILE *file = std::fopen("/proc/self/cgroup", "re")) {
        char line[4096];
        while (std::fgets(line, sizeof line, file))
            if (line[0] == '0' && line[1] == ':' && line[2] == ':') group = line + 3;
        std::fclose(file);
    }
    while (!group.empty() && (group.back() == '\n' || group.back() == '/')) group.pop_back();
    long long quota = 0;
    long long period = 0;
    if (FILE *file = std::fopen(("/sys/fs/cgroup" + group + "/cpu.max").c_str(), "re")) {
        char text[64] = "";
        if (std::fgets(text, sizeof text, file)) {
            char *end = nullptr;
            quota = std::strtoll(text, &end, 10); // "max" gives 0
            period = std::strtoll(end, nullptr, 10);
        }
        std::fclose(file);
    }
    return quota > 0 && period > 0 ? static_cast<int>((quota + period - 1) / period) : 0;
}

} // namespace

int processor_count() {
    const int by_affinity = affinity_count();
    const int by_quota = cgroup_quota();
    return std::max(1, by_quota > 0 ? std::min(by_affinity, by_quota) : by_affinity);
}

} // namespace ujoin::os
