// SPDX-License-Identifier: Apache-2.0
#include "harness/descriptors.hpp"
#include <chrono>
#include <climits>
#include <cstdlib>
#include <dirent.h>
#include <thread>
#include <unistd.h>

namespace harness {

Descriptors open_descriptors() {
    Descriptors found;
    DIR *dir = opendir("/proc/self/fd");
    if (!dir) return found;
    while (const dirent *entry = readdir(dir)) {
        const int fd = std::atoi(entry->d_name);
        if (entry->d_name[0] == '.' || fd == dirfd(dir)) continue;
        char target[PATH_MAX];
        const ssize_t size = readlinkat(dirfd(dir), entry->d_name, target, sizeof target);
        found[fd] = size > 0 ? std::string(target, static_cast<size_t>(size)) : "?";
    }
    closedir(dir);
    return found;
}

std::string leaked_descriptors(const Descriptors &before) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::seconds(2);
    for (;;) {
        const Descriptors after = open_descriptors();
        if (after.size() <= before.size()) return "";
        if (std::chrono::steady_clock::now() >= end) {
            std::string lines;
            for (const auto &[fd, target] : after) {
                const auto old = before.find(fd);
                if (old == before.end() || old->second != target) {
                    lines += "  descriptor " + std::to_string(fd) + " -> " + target + "\n";
                }
            }
            return lines;
        }
        std::this_thread::sleep_for(std::chrono::milliseconds(5));
    }
}

} // namespace harness
