// SPDX-License-Identifier: Apache-2.0
#include "os/pool.hpp"
#include "os/thread.hpp"
#include <algorithm>
#include <utility>

namespace ujoin::os {
namespace {

/// How long the caller looks for the end of its helpers' last items before it sleeps.
constexpr int64_t spin_ns = 20'000;

} // namespace

Pool::~Pool() {
    stopping_.store(true, std::memory_order_release);
    announce(begun_);
    for (std::thread &helper : helpers_) helper.join();
}

void Pool::run_items(size_t count, size_t most, Call call, const void *data) {
    const size_t threads = std::min({most, count, static_cast<size_t>(threads_)});
    if (threads > 1 && !busy_.exchange(true, std::memory_order_acquire)) {
        struct Free {
            std::atomic<bool> &busy;
            ~Free() { busy.store(false, std::memory_order_release); }
        } const free{busy_};
        return share(start(threads - 1), count, call, data);
    }
    for (size_t item = 0; item < count; item++) call(data, item);
}

void Pool::share(size_t helpers, size_t count, Call call, const void *data) {
    call_ = call;
    data_ = data;
    count_ = count;
    next_.store(0, std::memory_order_relaxed);
    finished_.store(0, std::memory_order_relaxed);
    tickets_.store(static_cast<uint32_t>(helpers), std::memory_order_release);
    announce(begun_);
    work();
    const auto came = static_cast<uint32_t>(helpers) - tickets_.exchange(0, std::memory_order_acq_rel);
    const auto all_ended = [&] { return finished_.load(std::memory_order_acquire) == came; };
    if (!spin(spin_ns, all_ended)) sleep_until(ended_, all_ended);
    if (error_) std::rethrow_exception(std::exchange(error_, nullptr));
}

/// Sees to it that there are so many; returns how many there are.
size_t Pool::start(size_t helpers) noexcept {
    try {
        helpers_.reserve(helpers); // a thread that is started must find its place
        while (helpers_.size() < helpers) helpers_.push_back(start_thread("ujoin-compute", [this] { help(); }));
    } catch (const std::exception &) {
        return helpers_.size();
    }
    return helpers;
}

void Pool::help() {
    for (;;) {
        sleep_until(begun_, [&] {
            return stopping_.load(std::memory_order_acquire) || tickets_.load(std::memory_order_relaxed) != 0;
        });
        if (stopping_.load(std::memory_order_acquire)) return;
        if (!take_ticket()) continue;
        work();
        finished_.fetch_add(1, std::memory_order_release);
        announce(ended_);
    }
}

/// Who has one is waited for, and sees the loop that it is for.
bool Pool::take_ticket() {
    uint32_t left = tickets_.load(std::memory_order_relaxed);
    while (left != 0)
        if (tickets_.compare_exchange_weak(left, left - 1, std::memory_order_acquire)) return true;
    return false;
}

void Pool::work() noexcept {
    try {
        for (;;) {
            const size_t item = next_.fetch_add(1, std::memory_order_relaxed);
            if (item >= count_) return;
            call_(data_, item);
        }
    } catch (...) {
        next_.store(count_, std::memory_order_relaxed);
        const std::scoped_lock lock(error_mutex_);
        if (!error_) error_ = std::current_exception();
    }
}

} // namespace ujoin::os
