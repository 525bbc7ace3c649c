// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <memory>
#include <string>
#include <unordered_map>

namespace ujoin::store {

/// Keys and values of one store; the caller keeps threads apart.
class Table {
  public:
    using Value = std::shared_ptr<const std::string>;
    /// All keys and values of one store.
    static constexpr size_t max_bytes = size_t{1} << 30;

    /// Null if there is none.
    Value find(const std::string &key) const;
    void set(const std::string &key, std::string value);
    /// What set() would have to store to add; UJOIN_E_MISMATCH if the key holds no number.
    int64_t sum(const std::string &key, int64_t amount) const;

  private:
    std::unordered_map<std::string, Value> values_;
    size_t bytes_ = 0;
};

} // namespace ujoin::store
