// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/parallel.hpp"
#include "os/event_count.hpp"
#include <exception>
#include <mutex>
#include <thread>
#include <vector>

namespace ujoin::os {

/// Threads that are made when they are first needed and sleep between loops. Where the system gives no more threads, loops
/// run on those that there are, at worst on the caller's alone. A helper that wakes too late is not waited for. One loop at
/// a time is shared; a second one meanwhile runs on its caller's thread.
class Pool final : public Parallel {
  public:
    /// So many threads with the caller's.
    explicit Pool(int threads) : threads_(threads) {}
    /// Ends the threads, which are idle.
    ~Pool() override;
    Pool(const Pool &) = delete;
    Pool &operator=(const Pool &) = delete;

    int threads() const override { return threads_; }

  private:
    void run_items(size_t count, size_t most, Call call, const void *data) override;
    void share(size_t helpers, size_t count, Call call, const void *data);
    size_t start(size_t helpers) noexcept;
    void help();
    bool take_ticket();
    void work() noexcept;

    const int threads_;
    std::atomic<bool> busy_{false};    ///< somebody shares a loop, also one inside of which another begins
    std::vector<std::thread> helpers_; ///< of who is busy

    // The present loop; written before tickets are.
    Call call_ = nullptr;
    const void *data_ = nullptr;
    size_t count_ = 0;
    std::atomic<size_t> next_{0};       ///< item
    std::atomic<uint32_t> tickets_{0};  ///< how many helpers may still join in
    std::atomic<uint32_t> finished_{0}; ///< helpers that have
    std::atomic<bool> stopping_{false};
    std::mutex error_mutex_;
    std::exception_ptr error_;
    EventCount begun_;
    EventCount ended_;
};

} // namespace ujoin::os
