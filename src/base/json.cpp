// SPDX-License-Identifier: Apache-2.0
// Lexing and the text of numbers and strings are the JSON library's; its values are not used for anything that nests, as
// their destructor needs memory.
#include "base/json.hpp"
#include "base/error.hpp"
#include <nlohmann/json.hpp>

namespace ujoin {
namespace {

using Library = nlohmann::json;

std::string quoted(const std::string &text, Json::Broken broken) {
    const auto handler =
        broken == Json::Broken::replaced ? Library::error_handler_t::replace : Library::error_handler_t::strict;
    try {
        return Library(text).dump(-1, ' ', false, handler);
    } catch (const Library::exception &) {
        fail_invalid("a text is not UTF-8: ", text);
    }
}

/// Appends a value's text; below 0 the depth means one line.
class Writer {
  public:
    Writer(std::string &out, Json::Broken broken) : out_(out), broken_(broken) {}

    void write(const Json &json, int depth) {
        if (const auto *list = json.as<Json::List>())
            write_all('[', ']', *list, depth, [](const Json &) {});
        else if (const auto *object = json.as<Json::Object>())
            write_all('{', '}', *object, depth,
                      [&](const auto &field) { out_ += quoted(field.first, broken_) + (depth < 0 ? ":" : ": "); });
        else
            write_one(json);
    }

  private:
    static const Json &value_of(const Json &item) { return item; }
    static const Json &value_of(const Json::Object::value_type &item) { return item.second; }

    template <class Items, class Name>
    void write_all(char begin, char end, const Items &items, int depth, const Name &write_name) {
        const int inside = depth < 0 ? depth : depth + 1;
        out_ += begin;
        bool first = true;
        for (const auto &item : items) {
            if (!first) out_ += ',';
            first = false;
            new_line(inside);
            write_name(item);
            write(value_of(item), inside);
        }
        if (!first) new_line(depth);
        out_ += end;
    }

    void write_one(const Json &json) {
        if (const auto *text = json.as<std::string>())
            out_ += quoted(*text, broken_);
        else if (const auto *flag = json.as<bool>())
            out_ += *flag ? "true" : "false";
        else if (const auto *whole = json.as<int64_t>())
            out_ += std::to_string(*whole);
        else if (const auto *count = json.as<uint64_t>())
            out_ += std::to_string(*count);
        else if (const auto *number = json.as<double>())
            out_ += Library(*number).dump();
        else
            out_ += "null";
    }

    void new_line(int depth) {
        if (depth >= 0) out_.append(1, '\n').append(static_cast<size_t>(depth), ' ');
    }

    std::string &out_;
    Json::Broken broken_;
};

/// Takes what the lexer finds.
class Builder : public nlohmann::json_sax<Library> {
  public:
    explicit Builder(const JsonLimits &limits) : limits_(limits), left_(limits.values) {}

    Json root;
    std::string problem; ///< "" if all is well

    bool null() override { return put({}); }
    bool boolean(bool value) override { return put(value); }
    bool number_integer(number_integer_t value) override { return put(value); }
    bool number_unsigned(number_unsigned_t value) override { return put(value); }
    bool number_float(number_float_t value, const string_t &) override { return put(value); }
    bool string(string_t &value) override { return put(std::move(value)); }
    bool binary(binary_t &) override { return bad("binary data"); } // no text has them
    bool start_object(std::size_t) override { return open(Json::Object()); }
    bool start_array(std::size_t) override { return open(Json::List()); }
    bool end_object() override { return close(); }
    bool end_array() override { return close(); }
    bool key(string_t &name) override {
        if (left_-- == 0) return bad("too many values");
        const auto [at, fresh] = open_.back()->as<Json::Object>()->try_emplace(name);
        if (!fresh && !limits_.last_of_name)
            return bad(cat("name ", quoted(name, Json::Broken::replaced), " is given twice"));
        field_ = &at->second;
        return true;
    }
    bool parse_error(std::size_t, const std::string &, const nlohmann::json::exception &) override {
        return bad("no valid JSON");
    }

  private:
    bool bad(std::string text) {
        problem = std::move(text);
        return false;
    }
    /// Where the next value belongs.
    Json &place() {
        if (open_.empty()) return root;
        if (auto *list = open_.back()->as<Json::List>()) return list->emplace_back();
        return *field_;
    }
    bool put(Json value) {
        if (left_-- == 0) return bad("too many values");
        place() = std::move(value);
        return true;
    }
    bool open(Json empty) {
        if (open_.size() == limits_.depth) return bad("nested too deeply");
        if (left_-- == 0) return bad("too many values");
        Json &at = place();
        at = std::move(empty);
        open_.push_back(&at); // it stays where it is as long as it is open: nothing is put beside it
        return true;
    }
    bool close() {
        open_.pop_back();
        return true;
    }

    const JsonLimits limits_;
    size_t left_;
    std::vector<Json *> open_;
    Json *field_ = nullptr; ///< of the innermost object, named but not yet there
};

} // namespace

const Json *Json::find(std::string_view name) const {
    const auto *object = as<Object>();
    if (!object) return nullptr;
    const auto found = object->find(name);
    return found == object->end() ? nullptr : &found->second;
}

std::string Json::dump(Broken broken) const {
    std::string out;
    Writer(out, broken).write(*this, -1);
    return out;
}

std::string Json::dump_lines() const {
    std::string out;
    Writer(out, Broken::refused).write(*this, 0);
    return out;
}

Json parse_json(std::string_view text, const JsonLimits &limits) {
    Builder builder(limits);
    if (!Library::sax_parse(text, &builder)) fail(UJOIN_E_MISMATCH, builder.problem);
    return std::move(builder.root);
}

std::string quoted_json(const std::string &text) { return quoted(text, Json::Broken::refused); }

} // namespace ujoin
