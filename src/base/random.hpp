// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstddef>
#include <string>

namespace ujoin {

/// Bytes that nobody can guess, from the system. UJOIN_E_SYSTEM if it has none.
std::string random_bytes(size_t count);
/// The same as text: two hexadecimal digits (lower case) for each byte.
std::string random_hex(size_t bytes);

} // namespace ujoin
