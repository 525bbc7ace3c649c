// SPDX-License-Identifier: Apache-2.0
// base/json: texts that come back as they were, and those that are refused.
#include "base/error.hpp"
#include "base/json.hpp"
#include <cmath>
#include <gtest/gtest.h>
#include <limits>
#include <nlohmann/json.hpp>

using ujoin::Json;
using ujoin::parse_json;

namespace {

constexpr ujoin::JsonLimits wide{64, 1000};

std::string again(const std::string &text) { return parse_json(text, wide).dump(); }

/// The text of the error; "" if the text was taken.
std::string refusal(const std::string &text, const ujoin::JsonLimits &limits = wide) {
    try {
        parse_json(text, limits);
        return "";
    } catch (const ujoin::Error &error) {
        EXPECT_EQ(error.code(), UJOIN_E_MISMATCH);
        return error.text();
    }
}

TEST(Json, one_text_for_one_content) {
    EXPECT_EQ(again(" { \"b\" : [ 1 , -2 , true , false , null ] ,\n\"a\" : { } , \"aa\":[] } "),
              R"({"a":{},"aa":[],"b":[1,-2,true,false,null]})");
    EXPECT_EQ(again("\"alone\""), "\"alone\"");
    EXPECT_EQ(Json().dump(), "null");
}

/// Files of earlier versions have checksums over the library's text.
TEST(Json, the_text_is_the_librarys) {
    const std::string text =
        R"({"z":[1,2.5,-3,1e300,5e-324,123456789012345678901234567890],"a":{"ü":"\u0007\n\"","":[[],{}]},"t":true})";
    EXPECT_EQ(again(text), nlohmann::json::parse(text).dump());
    EXPECT_EQ(parse_json(text, wide).dump_lines(), nlohmann::json::parse(text).dump(1));
}

TEST(Json, lines_are_indented_by_one_space) {
    EXPECT_EQ(parse_json(R"({"b":[1,{"c":2}],"a":[],"e":{}})", wide).dump_lines(),
              "{\n \"a\": [],\n \"b\": [\n  1,\n  {\n   \"c\": 2\n  }\n ],\n \"e\": {}\n}");
}

TEST(Json, numbers_keep_their_kind_and_are_shortest) {
    EXPECT_EQ(again("[0,18446744073709551615,-9223372036854775808,0.1,1.0,1e20,-0.0,1e-7,18446744073709551616]"),
              "[0,18446744073709551615,-9223372036854775808,0.1,1.0,1e+20,-0.0,1e-07,1.8446744073709552e+19]");
    EXPECT_NE(parse_json("7", wide).as<uint64_t>(), nullptr);
    EXPECT_NE(parse_json("-7", wide).as<int64_t>(), nullptr);
    EXPECT_NE(parse_json("7.0", wide).as<double>(), nullptr);
    EXPECT_EQ(Json(int8_t{-5}).dump(), "-5");
    EXPECT_EQ(Json(size_t{5}).dump(), "5");
    EXPECT_EQ(Json(0.3F).dump(), "0.30000001192092896");
    EXPECT_EQ(Json(true).dump(), "true");
    EXPECT_EQ(Json(std::nan("")).dump(), "null"); // JSON has none
    EXPECT_EQ(Json(std::numeric_limits<double>::infinity()).dump(), "null");
}

TEST(Json, texts_are_escaped_as_little_as_can_be) {
    EXPECT_EQ(Json(std::string("\"\\/\b\f\n\r\t\x01\x1f\x7f\0", 12)).dump(),
              "\"\\\"\\\\/\\b\\f\\n\\r\\t\\u0001\\u001f\x7f\\u0000\"");
    EXPECT_EQ(again(R"("\u00e4\ud83d\ude00")"), "\"\xc3\xa4\xf0\x9f\x98\x80\"");
    EXPECT_EQ(ujoin::quoted_json("a\"b"), R"("a\"b")");
}

TEST(Json, text_that_is_not_utf8) {
    const Json::Object object{{"\xff", "a\xc3"}};
    EXPECT_EQ(Json(object).dump(Json::Broken::replaced), "{\"\xef\xbf\xbd\":\"a\xef\xbf\xbd\"}");
    try {
        Json(object).dump();
        FAIL() << "taken";
    } catch (const ujoin::Error &error) {
        EXPECT_EQ(error.code(), UJOIN_E_INVALID);
    }
    EXPECT_EQ(refusal("\"\xff\""), "no valid JSON");
}

TEST(Json, what_is_no_json) {
    for (const char *text :
         {"", " ", "{", "[1,]", "{\"a\":}", "{\"a\" 1}", "nul", "1 2", "01", "\"a", "1e999", "{1:2}", "]"})
        EXPECT_EQ(refusal(text), "no valid JSON") << text;
}

TEST(Json, a_name_given_twice) {
    EXPECT_EQ(refusal(R"({"a":1,"b":{"a":2},"a":3})"), R"(name "a" is given twice)");
    EXPECT_EQ(refusal(R"([{"a":1},{"a":2}])"), "");
    const Json last = parse_json(R"({"a":{"x":1},"b":2,"a":[3]})", {64, 1000, true});
    EXPECT_EQ(last.dump(), R"({"a":[3],"b":2})");
}

TEST(Json, limits) {
    EXPECT_EQ(refusal("[[[]]]", {3, 100}), "");
    EXPECT_EQ(refusal("[[[[]]]]", {3, 100}), "nested too deeply");
    EXPECT_EQ(refusal(R"({"a":[{}]})", {2, 100}), "nested too deeply");
    EXPECT_EQ(refusal(std::string(1'000'000, '['), wide), "nested too deeply");
    EXPECT_EQ(refusal("[1,2,3]", {3, 4}), "");
    EXPECT_EQ(refusal("[1,2,3,4]", {3, 4}), "too many values");
    EXPECT_EQ(refusal(R"({"a":1,"b":2})", {3, 4}), "too many values"); // names count
    EXPECT_EQ(refusal("[[],[],[],[]]", {3, 4}), "too many values");
}

TEST(Json, fields_are_found) {
    const Json json = parse_json(R"({"a":"text","b":null})", wide);
    ASSERT_NE(json.find("a"), nullptr);
    EXPECT_EQ(*json.find("a")->as<std::string>(), "text");
    EXPECT_EQ(json.find("a")->as<uint64_t>(), nullptr);
    EXPECT_TRUE(json.find("b")->is_null());
    EXPECT_EQ(json.find("c"), nullptr);
    EXPECT_EQ(json.find("a")->find("a"), nullptr);
}

} // namespace
