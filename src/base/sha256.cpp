// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.hpp"
#include <algorithm>
#include <bit>
#include <cstring>

namespace ujoin {
namespace {

// The first 32 bits of the fractional parts of the cube roots of the first 64 primes.
constexpr std::array<uint32_t, 64> round_words{
    0x428a2f98U, 0x71374491U, 0xb5c0fbcfU, 0xe9b5dba5U, 0x3956c25bU, 0x59f111f1U, 0x923f82a4U, 0xab1c5ed5U,
    0xd807aa98U, 0x12835b01U, 0x243185beU, 0x550c7dc3U, 0x72be5d74U, 0x80deb1feU, 0x9bdc06a7U, 0xc19bf174U,
    0xe49b69c1U, 0xefbe4786U, 0x0fc19dc6U, 0x240ca1ccU, 0x2de92c6fU, 0x4a7484aaU, 0x5cb0a9dcU, 0x76f988daU,
    0x983e5152U, 0xa831c66dU, 0xb00327c8U, 0xbf597fc7U, 0xc6e00bf3U, 0xd5a79147U, 0x06ca6351U, 0x14292967U,
    0x27b70a85U, 0x2e1b2138U, 0x4d2c6dfcU, 0x53380d13U, 0x650a7354U, 0x766a0abbU, 0x81c2c92eU, 0x92722c85U,
    0xa2bfe8a1U, 0xa81a664bU, 0xc24b8b70U, 0xc76c51a3U, 0xd192e819U, 0xd6990624U, 0xf40e3585U, 0x106aa070U,
    0x19a4c116U, 0x1e376c08U, 0x2748774cU, 0x34b0bcb5U, 0x391c0cb3U, 0x4ed8aa4aU, 0x5b9cca4fU, 0x682e6ff3U,
    0x748f82eeU, 0x78a5636fU, 0x84c87814U, 0x8cc70208U, 0x90befffaU, 0xa4506cebU, 0xbef9a3f7U, 0xc67178f2U};

uint32_t big_endian(const uint8_t *bytes) {
    return uint32_t{bytes[0]} << 24 | uint32_t{bytes[1]} << 16 | uint32_t{bytes[2]} << 8 | uint32_t{bytes[3]};
}

} // namespace

void Sha256::block(const uint8_t *bytes) {
    std::array<uint32_t, 64> w{};
    for (size_t i = 0; i < 16; i++) w[i] = big_endian(bytes + 4 * i);
    for (size_t i = 16; i < 64; i++) {
        const uint32_t s0 = std::rotr(w[i - 15], 7) ^ std::rotr(w[i - 15], 18) ^ (w[i - 15] >> 3);
        const uint32_t s1 = std::rotr(w[i - 2], 17) ^ std::rotr(w[i - 2], 19) ^ (w[i - 2] >> 10);
        w[i] = w[i - 16] + s0 + w[i - 7] + s1;
    }
    auto [a, b, c, d, e, f, g, h] = state_;
    for (size_t i = 0; i < 64; i++) {
        const uint32_t s1 = std::rotr(e, 6) ^ std::rotr(e, 11) ^ std::rotr(e, 25);
        const uint32_t t1 = h + s1 + ((e & f) ^ (~e & g)) + round_words[i] + w[i];
        const uint32_t s0 = std::rotr(a, 2) ^ std::rotr(a, 13) ^ std::rotr(a, 22);
        const uint32_t t2 = s0 + ((a & b) ^ (a & c) ^ (b & c));
        h = g;
        g = f;
        f = e;
        e = d + t1;
        d = c;
        c = b;
        b = a;
        a = t1 + t2;
    }
    const std::array<uint32_t, 8> add{a, b, c, d, e, f, g, h};
    for (size_t i = 0; i < 8; i++) state_[i] += add[i];
}

void Sha256::update(const void *data, size_t size) {
    const auto *bytes = static_cast<const uint8_t *>(data);
    size_t used = size_ % block_bytes;
    size_ += size;
    while (size > 0) {
        if (used == 0 && size >= block_bytes) {
            block(bytes);
            bytes += block_bytes;
            size -= block_bytes;
            continue;
        }
        const size_t n = std::min(size, block_bytes - used);
        std::memcpy(rest_.data() + used, bytes, n);
        bytes += n;
        size -= n;
        used += n;
        if (used == block_bytes) {
            block(rest_.data());
            used = 0;
        }
    }
}

Sha256::Digest Sha256::finish() {
    const uint64_t bits = size_ * 8;
    const uint8_t one = 0x80;
    const std::array<uint8_t, block_bytes> zeros{};
    update(&one, 1);
    update(zeros.data(), (2 * block_bytes - 8 - size_ % block_bytes) % block_bytes);
    std::array<uint8_t, 8> length{};
    for (size_t i = 0; i < 8; i++) length[i] = static_cast<uint8_t>(bits >> (56 - 8 * i));
    update(length.data(), length.size());
    Digest digest{};
    for (size_t i = 0; i < digest.size(); i++) digest[i] = static_cast<uint8_t>(state_[i / 4] >> (24 - 8 * (i % 4)));
    return digest;
}

Sha256::Digest Sha256::of(std::string_view text) {
    Sha256 sum;
    sum.update(text);
    return sum.finish();
}

Sha256::Digest hmac_sha256(std::string_view key, std::string_view text) {
    std::array<uint8_t, Sha256::block_bytes> padded{};
    if (key.size() > padded.size()) {
        const Sha256::Digest short_key = Sha256::of(key);
        std::copy(short_key.begin(), short_key.end(), padded.begin());
    } else {
        std::copy(key.begin(), key.end(), padded.begin());
    }
    Sha256 inner;
    Sha256 outer;
    for (uint8_t &byte : padded) byte ^= 0x36U;
    inner.update(padded.data(), padded.size());
    inner.update(text);
    const Sha256::Digest inside = inner.finish();
    for (uint8_t &byte : padded) byte ^= 0x36U ^ 0x5cU;
    outer.update(padded.data(), padded.size());
    outer.update(inside.data(), inside.size());
    return outer.finish();
}

bool same_digest(const Sha256::Digest &a, const Sha256::Digest &b) {
    unsigned difference = 0;
    for (size_t i = 0; i < a.size(); i++) difference |= static_cast<unsigned>(a[i] ^ b[i]);
    return difference == 0;
}

bool same_digest(std::string_view given, const Sha256::Digest &wanted) {
    Sha256::Digest digest{};
    if (given.size() != digest.size()) return false;
    std::copy(given.begin(), given.end(), digest.begin());
    return same_digest(digest, wanted);
}

std::string hex(const Sha256::Digest &digest) {
    constexpr std::string_view digits = "0123456789abcdef";
    std::string text;
    for (const uint8_t byte : digest) {
        text += digits[byte >> 4];
        text += digits[byte & 15U];
    }
    return text;
}

} // namespace ujoin
