// SPDX-License-Identifier: Apache-2.0
#include "zero/state.hpp"
#include "base/error.hpp"
#include <algorithm>
#include <tuple>

namespace ujoin {
namespace {

/// What makes an item the same as another: two are never in one list.
std::string identity(ujoin_item_owner owner, int32_t group, const std::string &param, const std::string &key) {
    const std::string scope = owner == UJOIN_ITEM_OF_PARAM   ? param
                              : owner == UJOIN_ITEM_OF_GROUP ? cat(group)
                                                             : std::string();
    return cat(owner, '/', scope.size(), '/', scope, key);
}

std::string identity(const StateItem &item) { return identity(item.owner, item.group, item.param, item.key); }

bool is_number(const std::string &text) {
    return !text.empty() && std::all_of(text.begin(), text.end(), [](char c) { return c >= '0' && c <= '9'; });
}

/// Parameters without a name are called by their index: those come first, as numbers.
std::tuple<bool, size_t, const std::string &> param_order(const std::string &name) {
    const bool number = is_number(name);
    return {!number, number ? name.size() : 0, name};
}

bool before(const StateItem &a, const StateItem &b) {
    if (a.owner != b.owner) return a.owner < b.owner;
    if (a.group != b.group) return a.group < b.group;
    if (a.param != b.param) return param_order(a.param) < param_order(b.param);
    return a.key < b.key;
}

} // namespace

void State::set(StateItem item) {
    const std::string id = identity(item);
    Pointer next = std::make_shared<const StateItem>(std::move(item));
    const auto less = [](const Pointer &a, const Pointer &b) { return before(*a, *b); };
    if (items_.size() == items_.capacity())
        items_.reserve(2 * items_.size() + 8); // so that the list never lags behind the map
    auto [known, added] = by_identity_.try_emplace(id, next);
    if (!added) {
        items_.erase(std::find(items_.begin(), items_.end(), known->second));
        known->second = next;
    }
    const bool last = items_.empty() || !less(next, items_.back());
    items_.insert(last ? items_.end() : std::upper_bound(items_.begin(), items_.end(), next, less), next);
}

const StateItem *State::find(const std::string &key) const {
    const auto found = by_identity_.find(identity(UJOIN_ITEM_OF_PROGRAM, 0, "", key));
    return found == by_identity_.end() ? nullptr : found->second.get();
}

size_t shape_count(const int64_t *shape, size_t ndim, size_t element_bytes, const std::string &what) {
    bool empty = false;
    bool too_large = false;
    size_t bytes = element_bytes;
    for (size_t i = 0; i < ndim; i++) {
        if (shape[i] < 0) fail_invalid(what, ": dimension ", i, " is ", shape[i], "; it must be 0 or more");
        empty = empty || shape[i] == 0;
        too_large =
            too_large || __builtin_mul_overflow(bytes, static_cast<size_t>(shape[i]), &bytes) || bytes > SIZE_MAX / 4;
    }
    if (empty) return 0;
    if (too_large) fail_invalid(what, ": the product of the shape is too large");
    return bytes / element_bytes;
}

std::string shape_text(const std::vector<int64_t> &shape) { return cat('[', join_list(shape), ']'); }

} // namespace ujoin
