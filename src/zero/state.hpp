// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ujoin.h"
#include <cstddef>
#include <memory>
#include <string>
#include <unordered_map>
#include <vector>

namespace ujoin {

/// One item of a list; never changed once it is in one.
struct StateItem {
    ujoin_item_owner owner = UJOIN_ITEM_OF_PROGRAM;
    int32_t group = 0;
    std::string param; ///< "" unless a parameter owns it
    std::string key;
    ujoin_item_kind kind = UJOIN_ITEM_NUMBER;
    ujoin_dtype dtype = 0; ///< of a tensor
    std::vector<int64_t> shape;
    std::vector<std::byte> data; ///< a text has one NUL more than `bytes`
    size_t bytes = 0;
    double number = 0;
};

/// A typed list: items in order of owner, group, parameter and key. Copies share the items.
class State {
  public:
    /// Adds an item, or replaces the one with the same owner and key.
    void set(StateItem item);
    size_t count() const { return items_.size(); }
    const StateItem &at(size_t index) const { return *items_[index]; }
    /// An item of the program's own; null if there is none.
    const StateItem *find(const std::string &key) const;

  private:
    using Pointer = std::shared_ptr<const StateItem>;
    std::vector<Pointer> items_;
    std::unordered_map<std::string, Pointer> by_identity_;
};

/// Elements of a shape. UJOIN_E_INVALID: negative, or the bytes do not fit into memory; `what` begins the text.
size_t shape_count(const int64_t *shape, size_t ndim, size_t element_bytes, const std::string &what);
/// "[2, 3]"
std::string shape_text(const std::vector<int64_t> &shape);
inline constexpr int32_t max_dimensions = 64;

} // namespace ujoin
