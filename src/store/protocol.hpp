// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/sha256.hpp"
#include "base/wire.hpp"
#include "store/store.hpp"

/// What store clients and their server say to each other, each in one framed message (4 bytes of length before it):
///
///   client                                           server
///   hello: magic, has a secret?, nonce        ->
///                                             <-     challenge: magic, has a secret?, nonce      or refused: text
///   proof: of the client, zeros without one   ->
///                                             <-     welcome: proof of the server                or refused: text
///   set, add, get, await                      ->
///                                             <-     done, number, value                         or error: status, text
///   cancel (ends get and await early)         ->
///                                             <-     absent
///
/// A proof is an HMAC over both nonces under the shared secret, which itself never travels. One request at a time per
/// connection. After its end the answer to a request may cross a cancel on the way: the server ignores that cancel.
namespace ujoin::store::protocol {

enum class Message : uint8_t {
    hello = 1,
    challenge,
    proof,
    welcome,
    refused, // the beginning
    set,
    add,
    get,
    await,
    cancel, // requests
    done,
    number,
    value,
    absent,
    error, // answers
};

inline constexpr std::string_view magic = "ujstore1";
inline constexpr size_t nonce_bytes = 16;
inline constexpr size_t max_first = 64;                                              // hello, proof
inline constexpr size_t max_text = 4096;                                             // refused, error
inline constexpr size_t max_message = 1 + 1 + 2 + Store::max_key + Store::max_value; // the rest

/// flags of get and await
inline constexpr uint8_t at_once = 1; // answer absent instead of waiting

struct Request {
    Message kind;
    uint8_t flags = 0;
    std::string key;
    std::string value; // set: the value; add: 8 bytes
};
std::string encode(const Request &request);
/// UJOIN_E_MISMATCH for anything but a whole and correct request.
Request decode(std::string_view message);

std::string fresh_nonce();
/// `who`: "client" or "server", so that one cannot pass off the other's proof as its own.
Sha256::Digest proof(std::string_view secret, std::string_view who, std::string_view client_nonce,
                     std::string_view server_nonce);

} // namespace ujoin::store::protocol
