// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace ujoin::os {

/// The file that executing `name` means: itself if it has a slash, else the first executable in `path` ("a:b"), as seen
/// from `directory` (empty: from here). On failure "" and the errno that execvp would give.
std::string find_program(const std::string &name, const std::string &path, const std::string &directory, int &error);

} // namespace ujoin::os
