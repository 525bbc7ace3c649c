// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include <string>

// Control groups, version 2: a job's processes in a group of its own can be killed together, wherever they went. Uses nothing
// of base/: the warden is built with it too.
namespace ujoin::os {

/// A cgroup of this library's. Several processes may have one, kill what is inside and remove it.
class Cgroup {
  public:
    Cgroup() = default;
    /// Makes the directory; 0 or an errno, then it is not there.
    int make(const std::string &path);
    /// Takes one that another process made; 0 or an errno.
    int open(const std::string &path);

    explicit operator bool() const { return static_cast<bool>(directory_); }
    /// For SpawnRequest::cgroup_procs.
    int procs() const { return procs_.get(); }

    /// SIGKILL to all that is in it, also below.
    void kill_all() const;
    /// Removes it and what is below; then the object is empty. False: something still lives in it.
    bool remove();

  private:
    std::string path_;
    Fd directory_;
    Fd procs_;
};

/// The directory of this process's cgroup; "": `why` says what is missing. `proc`: "/proc/self" but in tests.
std::string own_cgroup(const std::string &proc, std::string &why);

/// Only test programs define it: true hides cgroup.kill, as in kernels before 5.14.
extern "C" bool ujoin_test_without_cgroup_kill() __attribute__((weak));

} // namespace ujoin::os
