// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/head.hpp"
#include "comm/watch.hpp"
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

namespace ujoin {

class Mirror;

/// The words of one rank for one join context; context c uses bank c & 1. Written by the owner only, except the event
/// count. Zero bytes are a valid start: a head whose tag is not c says "running, no uses yet".
struct alignas(64) Bank {
    std::atomic<uint64_t> head{0};    ///< tag (16 bits, from c) | joined | stop | pos (45 bits): one word, one store
    os::EventCount event;             ///< announced after each change of head; never reset
    std::atomic<uint64_t> total{0};   ///< own uses; valid once `joined` is set in head
    std::atomic<uint64_t> stop_at{0}; ///< no use with this number or a higher one is run; all ones = none
    std::atomic<uint32_t> digest{0};  ///< of the joinables and options
    uint32_t reserved = 0;
    std::atomic<uint64_t> rounds{0};           ///< own uses of the first joinable so far
    std::atomic<uint8_t> ring[ring_size] = {}; ///< ring[u % 16] = joinable of own use u
};
static_assert(sizeof(Bank) == 64);

/// Which use of which context an operation belongs to: context (8 bits) | use (16 bits). 0 = it belongs to none.
struct UseTag {
    uint32_t word = 0;
    static UseTag make(uint64_t context, uint64_t use) {
        return UseTag{static_cast<uint32_t>((context & 0xff) << 16 | (use & 0xffff))};
    }
    bool of_context(uint64_t context) const { return word >> 16 == (context & 0xff); }
    /// Is its use before `use`? Both lie close to each other.
    bool before(uint64_t use) const { return static_cast<int16_t>(static_cast<uint16_t>(word - use)) < 0; }
    /// The use itself, given one that is not far from it.
    uint64_t near(uint64_t use) const {
        return use + static_cast<uint64_t>(int64_t{static_cast<int16_t>(static_cast<uint16_t>(word - use))});
    }
};

/// All ranks' banks, and the watch over their lives.
class Board {
  public:
    Board(std::vector<Bank *> first_banks, Watch &watch, Mirror *mirror)
        : banks_(std::move(first_banks)), watch_(watch), mirror_(mirror) {}

    int32_t rank() const { return watch_.rank(); }
    int32_t size() const { return watch_.size(); }
    /// Bank of rank k in context c. A rank's two banks lie one after the other.
    Bank &bank(int32_t k, uint64_t context) { return banks_[static_cast<size_t>(k)][context & 1]; }
    Watch &watch() { return watch_; }
    /// Releases what this rank has written into its bank: one word, one store; then whoever sleeps on it is woken.
    void publish(uint64_t context, Head head);
    /// Contexts of a group are numbered 1, 2, ... on all ranks.
    uint64_t next_context() { return ++contexts_; }
    bool joined(int32_t k, uint64_t context) {
        return Head{bank(k, context).head.load(std::memory_order_acquire)}.in(context).joined();
    }
    bool used() const { return contexts_ != 0; }

    /// Names of the joinables of the context that is armed, for texts. Any thread may ask for a text.
    void name_joinables(std::vector<std::string> names);
    /// 'use 5 (joinable "ddp", round 2)': what rank k is in, as its bank and the tag of its operation say.
    std::string describe_use(int32_t k, UseTag tag);
    /// The same of a use that rank k's ring still holds.
    std::string describe_use(int32_t k, uint64_t context, uint64_t use);

  private:
    static uint64_t round_of(Bank &of, const Head &seen, uint64_t use);

    std::vector<Bank *> banks_;
    Watch &watch_;
    Mirror *mirror_; ///< none: every rank sees the banks
    uint64_t contexts_ = 0;
    std::mutex names_mutex_;
    std::vector<std::string> names_;
};

} // namespace ujoin
