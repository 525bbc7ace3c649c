// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/deadline.hpp"
#include <atomic>
#include <memory>
#include <optional>
#include <string>
#include <vector>

namespace ujoin {

/// Keys and values that the ranks of a job share. All calls from any thread.
class Store {
  public:
    static constexpr size_t max_key = 1024;
    static constexpr size_t max_value = size_t{16} << 20;

    struct Options {
        std::string secret;
        int64_t timeout_ms = 300'000;
        bool listen = false;
    };
    /// "memory://name", "file:///path", "tcp://host:port".
    static std::shared_ptr<Store> open(const std::string &url, const Options &options);
    static std::shared_ptr<Store> with_prefix(const std::shared_ptr<Store> &store, const std::string &prefix);

    virtual ~Store() = default;
    virtual const std::string &url() const = 0;
    virtual void set(const std::string &key, const std::string &value) = 0;
    /// The value, once it exists; nothing when the deadline passes first. Throws UJOIN_E_ABORTED after abort().
    virtual std::optional<std::string> get(const std::string &key, const Deadline &deadline) = 0;
    virtual int64_t add(const std::string &key, int64_t amount) = 0;
    /// Keys that are still missing when the deadline passes; none = all are there.
    virtual std::vector<std::string> wait(const std::vector<std::string> &keys, const Deadline &deadline) = 0;
    /// Ends every wait on this object, now and later.
    virtual void abort() = 0;
};

} // namespace ujoin
