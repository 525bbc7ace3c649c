// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/error.hpp"
#include <cstdint>
#include <string>
#include <string_view>

/// Numbers and texts in messages and files: little-endian, and every length is checked before it is used.
namespace ujoin::wire {

template <class T> void put(std::string &out, T value) {
    for (size_t i = 0; i < sizeof(T); i++) out += static_cast<char>(static_cast<uint8_t>(value >> (8 * i)));
}
inline void put_u16(std::string &out, uint16_t value) { put(out, value); }
inline void put_u32(std::string &out, uint32_t value) { put(out, value); }
inline void put_u64(std::string &out, uint64_t value) { put(out, value); }

/// Reads from the front of bytes that somebody else wrote. UJOIN_E_MISMATCH when they end too soon.
class Reader {
  public:
    explicit Reader(std::string_view bytes) : bytes_(bytes) {}

    uint8_t u8() { return number<uint8_t>(); }
    uint16_t u16() { return number<uint16_t>(); }
    uint32_t u32() { return number<uint32_t>(); }
    uint64_t u64() { return number<uint64_t>(); }
    std::string_view take(size_t size) {
        if (size > bytes_.size()) fail(UJOIN_E_MISMATCH, "a message ends ", size - bytes_.size(), " bytes too soon");
        const std::string_view part = bytes_.substr(0, size);
        bytes_.remove_prefix(size);
        return part;
    }
    std::string_view rest() { return take(bytes_.size()); }
    void end() const {
        if (!bytes_.empty()) fail(UJOIN_E_MISMATCH, "a message has ", bytes_.size(), " bytes too many");
    }

  private:
    template <class T> T number() {
        const std::string_view part = take(sizeof(T));
        uint64_t value = 0;
        for (size_t i = 0; i < sizeof(T); i++) value |= uint64_t{static_cast<uint8_t>(part[i])} << (8 * i);
        return static_cast<T>(value);
    }
    std::string_view bytes_;
};

} // namespace ujoin::wire
