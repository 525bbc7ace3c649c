// SPDX-License-Identifier: Apache-2.0
#include "os/program.hpp"
#include "base/text.hpp"
#include <algorithm>
#include <cerrno>
#include <string_view>
#include <sys/stat.h>
#include <unistd.h>

namespace ujoin::os {

std::string find_program(const std::string &name, const std::string &path, const std::string &directory, int &error) {
    error = 0;
    if (name.find('/') != std::string::npos) return name;
    error = ENOENT;
    for (size_t begin = 0; begin <= path.size();) {
        const size_t end = std::min(path.find(':', begin), path.size());
        std::string_view folder = std::string_view(path).substr(begin, end - begin);
        if (folder.empty()) folder = "."; // an empty entry is the working directory
        const std::string file = cat(folder, "/", name);
        begin = end + 1;
        const bool relative = file[0] != '/' && !directory.empty();
        const std::string seen = relative ? cat(directory, "/", file) : file;
        struct stat info {};
        if (stat(seen.c_str(), &info) != 0) {
            if (errno == EACCES) error = EACCES;
            continue;
        }
        if (S_ISREG(info.st_mode) && access(seen.c_str(), X_OK) == 0) {
            error = 0;
            return file;
        }
        error = EACCES;
    }
    return {};
}

} // namespace ujoin::os
