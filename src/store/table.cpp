// SPDX-License-Identifier: Apache-2.0
#include "store/table.hpp"
#include "base/error.hpp"
#include <charconv>

namespace ujoin::store {

Table::Value Table::find(const std::string &key) const {
    const auto it = values_.find(key);
    return it == values_.end() ? nullptr : it->second;
}

void Table::set(const std::string &key, std::string value) {
    const Value old = find(key);
    const size_t bytes = bytes_ + value.size() + (old ? 0 : key.size()) - (old ? old->size() : 0);
    if (bytes > max_bytes) fail(UJOIN_E_NO_MEMORY, "the store is full: its keys and values would have ", bytes, " bytes");
    values_[key] = std::make_shared<const std::string>(std::move(value));
    bytes_ = bytes;
}

int64_t Table::sum(const std::string &key, int64_t amount) const {
    int64_t value = 0;
    if (const Value text = find(key)) {
        const char *end = text->data() + text->size();
        const auto [stop, code] = std::from_chars(text->data(), end, value);
        if (code != std::errc{} || stop != end)
            fail(UJOIN_E_MISMATCH, "it holds ", text->size(), " bytes that are no whole number");
    }
    if (__builtin_add_overflow(value, amount, &value)) fail_invalid("adding ", amount, " overflows 64 bits");
    return value;
}

} // namespace ujoin::store
