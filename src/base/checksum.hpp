// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <string>
#include <string_view>

namespace ujoin {

/// A number that tells damaged or different data apart; no protection against somebody who wants to deceive. Each step
/// maps the running value one to one, so a change in a single word is always noticed.
class Checksum {
  public:
    void word(uint64_t value) {
        hash_ = (hash_ ^ value) * 0x9e3779b97f4a7c15U;
        hash_ ^= hash_ >> 32;
    }
    void number(double value) {
        uint64_t bits = 0;
        std::memcpy(&bits, &value, sizeof bits);
        word(bits);
    }
    /// Bytes and their number. Words are read as they lie in memory: all machines that ujoin runs on are little-endian.
    void bytes(const void *data, size_t size) {
        const auto *at = static_cast<const unsigned char *>(data);
        word(size);
        for (; size >= 8; at += 8, size -= 8) {
            uint64_t value = 0;
            std::memcpy(&value, at, 8);
            word(value);
        }
        if (size > 0) {
            uint64_t value = 0;
            std::memcpy(&value, at, size);
            word(value);
        }
    }
    void text(std::string_view text) { bytes(text.data(), text.size()); }

    uint64_t value() const { return hash_; }
    uint32_t folded() const { return static_cast<uint32_t>(hash_ ^ (hash_ >> 32)); }
    std::string hex() const {
        char text[17];
        std::snprintf(text, sizeof text, "%016llx", static_cast<unsigned long long>(hash_));
        return text;
    }

  private:
    uint64_t hash_ = 0x756a6f696eU;
};

} // namespace ujoin
