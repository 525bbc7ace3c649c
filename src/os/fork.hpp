// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

namespace ujoin::os {

/// A number that differs between a process and its forked children: every handle keeps the one it was made under, and
/// refuses to work under another. It lies on a page that the kernel wipes on fork, so also a raw clone() is noticed.
uint64_t fork_generation();

/// While it lives, children that are forked have nothing behind this descriptor, although its number stays taken there: a
/// connection then ends with the process that made it. Where too many are kept already it does nothing.
class NotForChildren {
  public:
    explicit NotForChildren(int fd);
    ~NotForChildren();
    NotForChildren(const NotForChildren &) = delete;
    NotForChildren &operator=(const NotForChildren &) = delete;

  private:
    int place_ = -1;
};

} // namespace ujoin::os
