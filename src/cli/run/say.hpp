// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <string>

namespace ujoin_run {

/// From now on the terminal may have a status line.
void expect_status_line();
/// Prints on stderr in one piece, over the status line if there may be one; it comes back below.
void say(const std::string &text);

} // namespace ujoin_run
