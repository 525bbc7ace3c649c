// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <array>
#include <cstdint>
#include <string>
#include <string_view>

namespace ujoin {

/// SHA-256 (FIPS 180-4), fed in pieces of any size.
class Sha256 {
  public:
    static constexpr size_t block_bytes = 64;
    using Digest = std::array<uint8_t, 32>;

    void update(const void *data, size_t size);
    void update(std::string_view text) { update(text.data(), text.size()); }
    /// The digest of all that was fed; the object is used up.
    Digest finish();

    static Digest of(std::string_view text);

  private:
    void block(const uint8_t *bytes);

    std::array<uint32_t, 8> state_{0x6a09e667U, 0xbb67ae85U, 0x3c6ef372U, 0xa54ff53aU,
                                   0x510e527fU, 0x9b05688cU, 0x1f83d9abU, 0x5be0cd19U};
    std::array<uint8_t, block_bytes> rest_{};
    uint64_t size_ = 0;
};

/// HMAC-SHA-256 (RFC 2104).
Sha256::Digest hmac_sha256(std::string_view key, std::string_view text);
/// Compares in a time that does not depend on where the first difference is.
bool same_digest(const Sha256::Digest &a, const Sha256::Digest &b);
/// The same of bytes that somebody else gave; of another length they are no digest.
bool same_digest(std::string_view given, const Sha256::Digest &wanted);
/// The digest as it is sent.
inline std::string_view bytes_of(const Sha256::Digest &digest) {
    return {reinterpret_cast<const char *>(digest.data()), digest.size()};
}
/// Lower-case hexadecimal digits.
std::string hex(const Sha256::Digest &digest);

} // namespace ujoin
