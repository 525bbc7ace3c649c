// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <map>
#include <string>

namespace harness {

/// The open descriptors of this process and what they are, as /proc shows it.
using Descriptors = std::map<int, std::string>;
Descriptors open_descriptors();

/// Waits up to two seconds (what a destroyed handle still holds is closed in the background) until no more descriptors are
/// open than in `before`, then returns "". Otherwise one line per descriptor that was left open.
std::string leaked_descriptors(const Descriptors &before);

} // namespace harness
