// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/watch.hpp"
#include <atomic>
#include <cstdint>
#include <vector>

namespace ujoin {

/// The words of one rank for one join context; context c uses bank c & 1. Written by the owner only, except the event
/// count. Zero bytes are a valid start: a head whose tag is not c says "running, no uses yet".
struct alignas(64) Bank {
    std::atomic<uint64_t> head{0};    ///< tag (16 bits, from c) | joined | stop | pos (45 bits): one word, one store
    os::EventCount event;             ///< announced after each change of head; never reset
    std::atomic<uint64_t> total{0};   ///< own uses; valid once `joined` is set in head
    std::atomic<uint64_t> stop_at{0}; ///< no use with this number or a higher one is run; all ones = none
    std::atomic<uint32_t> digest{0};  ///< of the joinables and options
    uint32_t reserved = 0;
    std::atomic<uint64_t> rounds{0};    ///< own uses of the first joinable; valid once `joined` is set in head
    std::atomic<uint8_t> ring[16] = {}; ///< ring[u % 16] = joinable of own use u
};
static_assert(sizeof(Bank) == 64);

/// All ranks' banks, and the watch over their lives.
class Board {
  public:
    Board(std::vector<Bank *> first_banks, Watch &watch) : banks_(std::move(first_banks)), watch_(watch) {}

    int32_t rank() const { return watch_.rank(); }
    int32_t size() const { return watch_.size(); }
    /// Bank of rank k in context c. A rank's two banks lie one after the other.
    Bank &bank(int32_t k, uint64_t context) { return banks_[static_cast<size_t>(k)][context & 1]; }
    Watch &watch() { return watch_; }
    /// Contexts of a group are numbered 1, 2, ... on all ranks.
    uint64_t next_context() { return ++contexts_; }

  private:
    std::vector<Bank *> banks_;
    Watch &watch_;
    uint64_t contexts_ = 0;
};

} // namespace ujoin
