// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <filesystem>
#include <fstream>
#include <string>
#include <sys/types.h>
#include <vector>

namespace harness {

/// A process's state as the kernel's letter ('R' running, 'T' stopped, 'Z' zombie, ...); 0 if it is not there.
inline char state_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    if (!std::getline(file, text)) return 0;
    const size_t end = text.rfind(')');
    return end != std::string::npos && end + 2 < text.size() ? text[end + 2] : '\0';
}

/// Folders in /proc of this process's threads that the library has started; a sanitizer may have one of its own.
inline std::vector<std::filesystem::path> library_threads() {
    std::vector<std::filesystem::path> found;
    for (const auto &task : std::filesystem::directory_iterator("/proc/self/task")) {
        std::ifstream file(task.path() / "comm");
        std::string name;
        if (std::getline(file, name) && name.starts_with("ujoin-")) found.push_back(task.path());
    }
    return found;
}

} // namespace harness
