// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <variant>
#include <vector>

namespace ujoin {

/// A JSON value. Unlike that of the library that reads the text, it takes no memory to go away: it may be destroyed while an
/// error for want of memory is on its way. Destruction recurses, so what is parsed has a limit of depth.
class Json {
  public:
    using List = std::vector<Json>;
    using Object = std::map<std::string, Json, std::less<>>;
    enum class Broken : uint8_t { refused, replaced }; ///< text that is no UTF-8

    Json() = default; ///< null
    template <class T>
    requires std::is_arithmetic_v<T> Json(T value) : value_(widest(value)) {} // NOLINT(google-explicit-constructor)
    Json(std::string text) : value_(std::move(text)) {}                       // NOLINT(google-explicit-constructor)
    Json(const char *text) : value_(std::string(text)) {}                     // NOLINT(google-explicit-constructor)
    Json(List list) : value_(std::move(list)) {}                              // NOLINT(google-explicit-constructor)
    Json(Object object) : value_(std::move(object)) {}                        // NOLINT(google-explicit-constructor)

    /// One of bool, int64_t, uint64_t, double, std::string, List, Object; null if it is something else. What was parsed is an
    /// int64_t only below 0, and a double if it has a point, an exponent or too many digits.
    template <class T> const T *as() const { return std::get_if<T>(&value_); }
    template <class T> T *as() { return std::get_if<T>(&value_); }
    bool is_null() const { return value_.index() == 0; }
    /// A field of an object; null if it is none, or has none of this name.
    const Json *find(std::string_view name) const;

    /// One line without spaces, names sorted, numbers shortest: one text for one content. Checksums of files depend on it.
    /// UJOIN_E_INVALID if text is no UTF-8, unless that is replaced by U+FFFD.
    std::string dump(Broken broken = Broken::refused) const;
    /// A line for each value, indented by one space for each level.
    std::string dump_lines() const;

  private:
    template <class T> static auto widest(T value) {
        if constexpr (std::is_same_v<T, bool>)
            return value;
        else if constexpr (std::is_floating_point_v<T>)
            return static_cast<double>(value);
        else if constexpr (std::is_signed_v<T>)
            return static_cast<int64_t>(value);
        else
            return static_cast<uint64_t>(value);
    }

    std::variant<std::monostate, bool, int64_t, uint64_t, double, std::string, List, Object> value_;
};

/// What a text of an unknown origin may ask for.
struct JsonLimits {
    size_t depth;              ///< lists and objects within each other
    size_t values;             ///< of all kinds, and names
    bool last_of_name = false; ///< of fields with one name the last counts; else there must be one
};

/// UJOIN_E_MISMATCH if the text is no JSON or exceeds the limits.
Json parse_json(std::string_view text, const JsonLimits &limits);

/// A text in quotes and escaped; UJOIN_E_INVALID if it is no UTF-8.
std::string quoted_json(const std::string &text);

} // namespace ujoin
