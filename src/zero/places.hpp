// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/memory.hpp"
#include "zero/params.hpp"
#include <memory>
#include <vector>

namespace ujoin {

/// Where every rank's parameters and gradients lie, as this rank sees them, if all of them lie in memory that the ranks share.
class Places {
  public:
    /// This rank's may lie elsewhere than before.
    void look_again() { changed_ = true; }
    /// Collective, where memory was made on the group. Whether all lies in it.
    bool find(Group &group, const std::vector<ZeroParam> &params, int64_t idle_timeout_ms);

    const char *gradient(int32_t rank, size_t param) const { return all_[static_cast<size_t>(rank)][param].gradient; }
    /// Null: it is the memory of a rank before, or of this one.
    char *value(int32_t rank, size_t param) const { return all_[static_cast<size_t>(rank)][param].value; }
    void withdraw() noexcept;

  private:
    struct Place {
        int32_t memory = -1; ///< index; -1: in none
        uint64_t offset = 0;
    };
    struct Seen {
        char *gradient = nullptr;
        char *value = nullptr;
    };
    Place place_of(Group &group, const void *data, size_t bytes) const;
    void exchange(Group &group, const std::vector<ZeroParam> &params);

    bool changed_ = true;
    bool shared_ = false; ///< on this rank
    bool all_shared_ = false;
    std::vector<Place> mine_;            ///< of each parameter its gradient and its values
    std::vector<std::vector<Seen>> all_; ///< by rank and parameter
    std::vector<std::shared_ptr<SharedMemory>> kept_;
};

} // namespace ujoin
