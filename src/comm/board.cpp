// SPDX-License-Identifier: Apache-2.0
#include "comm/board.hpp"
#include "base/text.hpp"
#include "comm/mirror.hpp"

namespace ujoin {

void Board::publish(uint64_t context, Head head) {
    Bank &mine = bank(rank(), context);
    mine.head.store(head.word, std::memory_order_release);
    os::announce(mine.event);
    if (mirror_) mirror_->show_bank(context);
}

void Board::name_joinables(std::vector<std::string> names) {
    const std::scoped_lock lock(names_mutex_);
    names_ = std::move(names);
}

std::string Board::describe_use(int32_t k, UseTag tag) {
    if (tag.word == 0) return "no use (no join context is armed)";
    const uint64_t context = tag.of_context(contexts_) ? contexts_ : contexts_ - 1; // a rank is one away at most
    const Head seen = Head{bank(k, context).head.load(std::memory_order_acquire)}.in(context);
    return describe_use(k, context, tag.near(seen.pos()));
}

std::string Board::describe_use(int32_t k, uint64_t context, uint64_t use) {
    Bank &of = bank(k, context);
    const Head seen = Head{of.head.load(std::memory_order_acquire)}.in(context);
    if (use + 1 == 0) return cat("no use yet of context ", context);
    std::string text = cat("use ", use);
    if (context != contexts_) text += cat(" of context ", context);
    if (seen.joined() && use >= of.total.load(std::memory_order_relaxed)) return text + " (as a shadow)";
    const size_t index = of.ring[use % ring_size].load(std::memory_order_acquire);
    const std::scoped_lock lock(names_mutex_);
    if (index < names_.size()) text += cat(" (joinable \"", names_[index], "\", round ", round_of(of, seen, use), ")");
    return text;
}

/// Rounds are numbered from 0. The bank counts those begun; going back from the last use, the ring tells which uses began one.
uint64_t Board::round_of(Bank &of, const Head &seen, uint64_t use) {
    const uint64_t uses = seen.joined() ? of.total.load(std::memory_order_relaxed) : seen.pos();
    uint64_t rounds = of.rounds.load(std::memory_order_relaxed);
    for (uint64_t u = use + 1; u < uses && rounds > 0; u++)
        if (of.ring[u % ring_size].load(std::memory_order_acquire) == 0) rounds--;
    return rounds == 0 ? 0 : rounds - 1;
}

} // namespace ujoin
