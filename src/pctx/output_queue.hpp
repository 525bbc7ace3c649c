// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ujoin.h"
#include <deque>
#include <functional>
#include <mutex>
#include <optional>
#include <string>

namespace ujoin {

/// Output on its way from the loop to the program's callback, which runs on the thread that waits. Bounded by who pushes.
class OutputQueue {
  public:
    struct Item {
        int32_t rank;
        ujoin_std stream;
        std::string bytes;
    };
    /// `pushed` runs after a push, `eased` when a queue that was full has room again.
    OutputQueue(std::function<void()> pushed, std::function<void()> eased)
        : pushed_(std::move(pushed)), eased_(std::move(eased)) {}

    void push(Item item) {
        {
            std::scoped_lock lock(mutex_);
            bytes_ += item.bytes.size();
            items_.push_back(std::move(item));
            full_ = full_ || bytes_ >= full_at;
        }
        pushed_();
    }
    bool full() const {
        std::scoped_lock lock(mutex_);
        return full_;
    }
    bool empty() const {
        std::scoped_lock lock(mutex_);
        return items_.empty();
    }
    std::optional<Item> pop() {
        std::optional<Item> item;
        bool eased = false;
        {
            std::scoped_lock lock(mutex_);
            if (items_.empty()) return item;
            item = std::move(items_.front());
            items_.pop_front();
            bytes_ -= item->bytes.size();
            eased = full_ && bytes_ <= full_at / 2;
            if (eased) full_ = false;
        }
        if (eased) eased_();
        return item;
    }

  private:
    static constexpr size_t full_at = 1 << 20;
    mutable std::mutex mutex_;
    std::deque<Item> items_;
    size_t bytes_ = 0;
    bool full_ = false;
    std::function<void()> pushed_;
    std::function<void()> eased_;
};

} // namespace ujoin
