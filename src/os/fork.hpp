// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace ujoin::os {

/// A number that differs between a process and its forked children: every handle keeps the one it was made under, and
/// refuses to work under another. It lies on a page that the kernel wipes on fork, so also a raw clone() is noticed.
uint64_t fork_generation();

} // namespace ujoin::os
