// SPDX-License-Identifier: Apache-2.0
#include "store/protocol.hpp"
#include "base/error.hpp"
#include "base/random.hpp"

namespace ujoin::store::protocol {

std::string encode(const Request &request) {
    std::string out;
    out.reserve(4 + request.key.size() + request.value.size());
    out += static_cast<char>(request.kind);
    out += static_cast<char>(request.flags);
    wire::put_u16(out, static_cast<uint16_t>(request.key.size()));
    out += request.key;
    out += request.value;
    return out;
}

Request decode(std::string_view message) {
    wire::Reader reader(message);
    Request request{static_cast<Message>(reader.u8()), 0, {}, {}};
    if (request.kind < Message::set || request.kind > Message::cancel)
        fail(UJOIN_E_MISMATCH, "unknown request ", static_cast<int>(request.kind));
    request.flags = reader.u8();
    const size_t key_size = reader.u16();
    const bool has_key = request.kind != Message::cancel;
    if (key_size > Store::max_key || (key_size == 0) == has_key) fail(UJOIN_E_MISMATCH, "a key of ", key_size, " bytes");
    request.key = reader.take(key_size);
    request.value = reader.rest();
    const size_t size = request.value.size();
    const bool waits = request.kind == Message::get || request.kind == Message::await;
    if (request.flags > (waits ? at_once : 0)) fail(UJOIN_E_MISMATCH, "unknown flags ", static_cast<int>(request.flags));
    const bool fits =
        request.kind == Message::set ? size <= Store::max_value : size == (request.kind == Message::add ? 8U : 0U);
    if (!fits) fail(UJOIN_E_MISMATCH, "request ", static_cast<int>(request.kind), " with a value of ", size, " bytes");
    return request;
}

std::string fresh_nonce() { return random_bytes(nonce_bytes); }

Sha256::Digest proof(std::string_view secret, std::string_view who, std::string_view client_nonce,
                     std::string_view server_nonce) {
    return hmac_sha256(secret, cat("ujoin store ", who, "\n", client_nonce, server_nonce));
}

} // namespace ujoin::store::protocol
