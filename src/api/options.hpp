// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/error.hpp"
#include <algorithm>
#include <cstring>

namespace ujoin::api {

/// A copy of an option struct, whatever version of the header its caller was compiled with: NULL = all defaults, shorter =
/// filled with zeros, longer = accepted if the unknown tail is zero.
template <class Options> Options read_options(const Options *given, const char *what) {
    Options options{};
    if (!given) return options;
    if (given->size < sizeof(size_t)) fail_invalid(what, ".size is ", given->size, "; set it to sizeof(", what, ")");
    if (given->size > sizeof(Options)) {
        const auto *bytes = reinterpret_cast<const unsigned char *>(given);
        if (given->size > sizeof(Options) + 65536)
            fail_invalid(what, ".size is ", given->size, "; set it to sizeof(", what, ")");
        if (std::any_of(bytes + sizeof(Options), bytes + given->size, [](unsigned char b) { return b != 0; }))
            fail(UJOIN_E_UNSUPPORTED, what, " has fields that this version of ujoin does not know (its size is ",
                 given->size, ", known are ", sizeof(Options), " bytes)");
    }
    std::memcpy(&options, given, std::min(given->size, sizeof(Options)));
    if constexpr (requires { options.reserved; })
        if (options.reserved != 0) fail_invalid(what, ".reserved is not 0");
    return options;
}

/// Fills a struct of the caller's, no more than its `size` says.
template <class Struct> void write_struct(Struct *out, Struct value, const char *what) {
    if (!out) fail_invalid(what, " is NULL");
    if (out->size < sizeof(size_t)) fail_invalid(what, ".size is ", out->size, "; set it to the size of the struct");
    const size_t size = std::min(out->size, sizeof(Struct));
    value.size = out->size;
    std::memcpy(out, &value, size);
}

inline bool flag(int32_t value, const char *name) {
    if (value != 0 && value != 1) fail_invalid(name, " is ", value, "; expected 0 or 1");
    return value != 0;
}
/// A choice with values 1 to `last`; 0 = `fallback`.
inline int32_t choice(int32_t value, int32_t fallback, int32_t last, const char *name) {
    if (value == 0) return fallback;
    if (value < 1 || value > last) fail_invalid(name, " is ", value, "; expected 1 to ", last);
    return value;
}
inline const char *text_or(const char *value, const char *fallback) { return value ? value : fallback; }

} // namespace ujoin::api
