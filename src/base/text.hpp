// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdio>
#include <string>
#include <string_view>
#include <type_traits>
#include <vector>

namespace ujoin {

inline void append_part(std::string &out, std::string_view part) { out += part; }
inline void append_part(std::string &out, const char *part) { out += part ? part : "(null)"; }
inline void append_part(std::string &out, const std::string &part) { out += part; }
inline void append_part(std::string &out, char part) { out += part; }
template <class T>
requires std::is_integral_v<T>
void append_part(std::string &out, T part) { out += std::to_string(part); }
template <class T>
requires std::is_enum_v<T>
void append_part(std::string &out, T part) { append_part(out, static_cast<std::underlying_type_t<T>>(part)); } // no char
template <class T>
requires std::is_floating_point_v<T>
void append_part(std::string &out, T part) {
    char text[40];
    std::snprintf(text, sizeof text, "%.9g", static_cast<double>(part));
    out += text;
}

/// Joins text and numbers into one string.
template <class... Parts> std::string cat(const Parts &...parts) {
    std::string out;
    (append_part(out, parts), ...);
    return out;
}

/// "a, b, c"
template <class List> std::string join_list(const List &list, std::string_view separator = ", ") {
    std::string out;
    for (const auto &item : list) {
        if (!out.empty()) out += separator;
        append_part(out, item);
    }
    return out;
}

} // namespace ujoin
