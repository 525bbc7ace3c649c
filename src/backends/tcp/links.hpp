// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/mirror.hpp"
#include "os/fd.hpp"
#include "os/fork.hpp"
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

namespace ujoin {

/// A connection to a rank of another host.
struct LinkTo {
    int32_t rank = 0;
    os::Fd socket; ///< non-blocking
    int32_t pid = 0;
    std::string host;
};

/// Mirrors over connections, one to each rank. A thread reads all of them, at once and always, into the copies; so whoever
/// shows something finds a reader, and writes it itself as far as the socket takes it. The rest is left to the thread.
class Links final : public Mirror {
  public:
    /// `own` outlives it, as do the copies that it gives.
    Links(RankArea *own, int32_t ranks, size_t chunk, std::vector<LinkTo> links);
    ~Links() override;
    Links(const Links &) = delete;
    Links &operator=(const Links &) = delete;
    RankArea *copy_of(int32_t rank) const;

    void start(Watch &watch) override;
    void stop() noexcept override;
    bool covers(int32_t rank) const override { return by_rank_[static_cast<size_t>(rank)] != nullptr; }
    void show_slot(int32_t to, uint64_t step, const Pieces &pieces) override;
    void show_bank(uint64_t context) override;
    void show_fate() noexcept override;
    void show_mail(int32_t to, uint64_t step, Piece piece, uint64_t before) override;
    void show_taken(int32_t of, uint64_t taken) override;

  private:
    struct Frame;
    struct Link;

    void send(Link &link, Frame *frames, size_t count);
    bool write_queue(Link &link);
    void run() noexcept;
    void serve(Link &link, short events) noexcept;
    bool read_some(Link &link);
    bool take_frames(Link &link);
    void apply(Link &link, uint32_t kind, const char *body);
    void lose(Link &link, const std::string &why) noexcept;
    void close(Link &link) noexcept;
    void wake() const noexcept;
    char *staging(RankArea *area, uint64_t step) const { return area->staging(step, chunk_); }

    RankArea *own_;
    size_t chunk_;
    std::vector<std::unique_ptr<Link>> links_;
    std::vector<Link *> by_rank_; ///< null: no link
    os::Fd wake_;
    std::mutex bank_mutex_; ///< what is shown of a bank never goes back
    Watch *watch_ = nullptr;
    std::atomic<bool> stopping_{false};
    std::thread thread_;
};

} // namespace ujoin
