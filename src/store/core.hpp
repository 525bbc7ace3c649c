// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include "store/store.hpp"

namespace ujoin::store {

/// Whether one handle was aborted. A core that waits for descriptors polls fd() beside its own.
class Abort {
  public:
    explicit Abort(bool with_descriptor);
    void set() noexcept;
    bool is_set() const { return set_.load(std::memory_order_acquire); }
    void check() const;
    int fd() const { return event_.get(); }

  private:
    std::atomic<bool> set_{false};
    os::Fd event_; // readable from set() on
};

/// What the handles of one store share: the store itself. Keys come whole and checked. All calls from any thread.
class Core {
  public:
    virtual ~Core() = default;
    virtual const std::string &url() const = 0;
    virtual bool waits_on_descriptors() const = 0;
    virtual void set(const std::string &key, const std::string &value, const Abort &abort) = 0;
    virtual int64_t add(const std::string &key, int64_t amount, const Abort &abort) = 0;
    virtual std::optional<std::string> get(const std::string &key, const Deadline &deadline, const Abort &abort) = 0;
    /// As get, without the value.
    virtual bool await(const std::string &key, const Deadline &deadline, const Abort &abort) = 0;
    /// A handle was aborted: whoever waits looks again.
    virtual void wake() {}
};

std::shared_ptr<Core> open_memory(const std::string &name);
std::shared_ptr<Core> open_file(const std::string &path, const Store::Options &options);
std::shared_ptr<Core> open_tcp(const std::string &address, const Store::Options &options);

} // namespace ujoin::store
