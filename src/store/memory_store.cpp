// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "os/event_count.hpp"
#include "os/fork.hpp"
#include "store/core.hpp"
#include "store/table.hpp"
#include <mutex>

namespace ujoin::store {
namespace {

class MemoryCore final : public Core {
  public:
    const std::string &url() const override { return url_; }
    bool waits_on_descriptors() const override { return false; }

    void set(const std::string &key, const std::string &value, const Abort &) override {
        {
            std::scoped_lock lock(mutex_);
            table_.set(key, value);
        }
        os::announce(event_);
    }
    int64_t add(const std::string &key, int64_t amount, const Abort &) override {
        int64_t value = 0;
        {
            std::scoped_lock lock(mutex_);
            value = table_.sum(key, amount);
            if (amount != 0) table_.set(key, std::to_string(value)); // 0 only reads
        }
        os::announce(event_);
        return value;
    }
    std::optional<std::string> get(const std::string &key, const Deadline &deadline, const Abort &abort) override {
        const Table::Value value = wait_for(key, deadline, abort);
        return value ? std::optional(*value) : std::nullopt;
    }
    bool await(const std::string &key, const Deadline &deadline, const Abort &abort) override {
        return wait_for(key, deadline, abort) != nullptr;
    }
    void wake() override { os::announce(event_); }

  private:
    Table::Value wait_for(const std::string &key, const Deadline &deadline, const Abort &abort) {
        Table::Value value;
        os::wait_event(
            event_, 0, deadline,
            [&] {
                std::scoped_lock lock(mutex_);
                value = table_.find(key);
                return value != nullptr;
            },
            [&](bool slice) {
                abort.check();
                if (slice) os::check_interrupt();
            });
        return value;
    }

    const std::string url_; // not reachable from another process
    std::mutex mutex_;
    Table table_;
    os::EventCount event_;
};

/// Stores by name, in this process: a forked child begins with none.
struct Names {
    uint64_t generation = os::fork_generation();
    const Names *inherited = nullptr; // left alone: a thread of the parent may have held its lock
    std::mutex mutex;
    std::unordered_map<std::string, std::weak_ptr<MemoryCore>> stores;
};

Names &names() {
    static std::atomic<Names *> current{nullptr};
    Names *now = current.load(std::memory_order_acquire);
    while (!now || now->generation != os::fork_generation()) {
        auto fresh = std::make_unique<Names>();
        fresh->inherited = now;
        if (current.compare_exchange_strong(now, fresh.get(), std::memory_order_acq_rel)) return *fresh.release();
    }
    return *now;
}

} // namespace

std::shared_ptr<Core> open_memory(const std::string &name) {
    if (name.empty()) fail_invalid("it has no name; expected memory://name");
    Names &known = names();
    std::scoped_lock lock(known.mutex);
    std::erase_if(known.stores, [](const auto &entry) { return entry.second.expired(); });
    std::weak_ptr<MemoryCore> &entry = known.stores[name];
    std::shared_ptr<MemoryCore> core = entry.lock();
    if (!core) entry = core = std::make_shared<MemoryCore>();
    return core;
}

} // namespace ujoin::store
