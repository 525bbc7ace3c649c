// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <fstream>
#include <string>
#include <sys/types.h>

namespace harness {

/// A process's state as the kernel's letter ('R' running, 'T' stopped, 'Z' zombie, ...); 0 if it is not there.
inline char state_of(pid_t pid) {
    std::ifstream file("/proc/" + std::to_string(pid) + "/stat");
    std::string text;
    if (!std::getline(file, text)) return 0;
    const size_t end = text.rfind(')');
    return end != std::string::npos && end + 2 < text.size() ? text[end + 2] : '\0';
}

} // namespace harness
