// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/group.hpp"
#include <cstddef>
#include <memory>
#include <vector>

namespace ujoin {

/// Memory that the ranks of a host share, reserved when it is made: each rank's own, or one copy for all.
class SharedMemory {
  public:
    /// Collective.
    static std::shared_ptr<SharedMemory> create(const std::shared_ptr<Group> &group, size_t bytes, bool one_copy);

    char *data() const { return of(rank_); }
    size_t bytes() const { return bytes_; }
    bool one_copy() const { return mapped_.size() == 1 && ranks_ > 1; }
    /// What rank k has, as this rank sees it. Its size is its own.
    char *of(int32_t rank) const {
        return static_cast<char *>(mapped_[mapped_.size() == 1 ? 0 : static_cast<size_t>(rank)].get());
    }
    /// From now on this rank's is its own alone, at the same place and with the same content.
    void withdraw() noexcept;

  private:
    SharedMemory(int32_t rank, int32_t ranks, size_t bytes) : rank_(rank), ranks_(ranks), bytes_(bytes) {}
    void map(const std::vector<os::Fd> &fds, const std::vector<size_t> &sizes, bool one_copy);

    int32_t rank_;
    int32_t ranks_;
    size_t bytes_;
    std::vector<std::shared_ptr<void>> mapped_; ///< by rank, or one
};

} // namespace ujoin
