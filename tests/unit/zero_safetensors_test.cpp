// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "harness/temp_dir.hpp"
#include "zero/safetensors.hpp"
#include <cstring>
#include <fcntl.h>
#include <functional>
#include <gtest/gtest.h>
#include <nlohmann/json.hpp>
#include <random>
#include <sys/stat.h>

using namespace ujoin;

namespace {

struct Content {
    std::map<std::string, std::string> tensors; ///< "name f32 [2, 3]" -> bytes
    bool operator==(const Content &) const = default;
};

Content read_all(const std::string &path) {
    SafetensorsReader reader(path);
    std::vector<std::string> data;
    for (const FileTensor &tensor : reader.tensors()) data.emplace_back(tensor.bytes, '\0');
    reader.read([&](size_t i) { return data[i].data(); });
    Content content;
    for (size_t i = 0; i < data.size(); i++) {
        std::string key =
            cat(reader.tensors()[i].name, ' ', reader.tensors()[i].dtype, " [", join_list(reader.tensors()[i].shape), ']');
        content.tensors[key] = data[i];
    }
    return content;
}

std::string little_endian(uint64_t value) {
    std::string text;
    for (size_t i = 0; i < 8; i++) text += static_cast<char>(value >> (8 * i));
    return text;
}

/// A file as another program would write it.
std::string file_with(const std::string &header, const std::string &data) {
    return little_endian(header.size()) + header + data;
}

class ZeroSafetensors : public testing::Test {
  protected:
    harness::TempDir dir_;
    std::string path_ = dir_ / "file.safetensors";

    std::string valid() {
        std::vector<float> w(6);
        for (size_t i = 0; i < w.size(); i++) w[i] = static_cast<float>(i) / 3;
        const std::vector<double> v{1.5, -2.5, 1e300};
        const std::vector<int64_t> steps{7};
        const std::string text = "position";
        NewFile file(dir_ / "made.safetensors");
        write_safetensors(file,
                          {{"layer/weight", UJOIN_F32, {2, 3}, 0, 24, w.data()},
                           {"state/exp_avg/\"quoted\"", UJOIN_F64, {3}, 0, 24, v.data()},
                           {"step", UJOIN_I64, {}, 0, 8, steps.data()},
                           {"empty", UJOIN_F32, {0, 4}, 0, 0, nullptr},
                           {"text", UJOIN_U8, {8}, 0, 8, text.data()}},
                          {{"format", "test"}});
        file.finish(false);
        return harness::read_file(dir_ / "made.safetensors");
    }

    void refused(const std::string &content, const std::string &part) {
        harness::write_file(path_, content);
        try {
            read_all(path_);
            ADD_FAILURE() << "accepted; expected: " << part;
        } catch (const Error &error) {
            EXPECT_EQ(error.code(), UJOIN_E_MISMATCH) << error.text();
            EXPECT_NE(error.text().find(path_), std::string::npos) << error.text();
            EXPECT_NE(error.text().find(part), std::string::npos) << error.text();
        }
    }
};

TEST_F(ZeroSafetensors, what_is_written_is_read_back_and_follows_the_format) {
    const std::string content = valid();
    harness::write_file(path_, content);
    const Content all = read_all(path_);
    EXPECT_EQ(all.tensors.size(), 5U);
    EXPECT_EQ(all.tensors.at(cat("text ", UJOIN_U8, " [8]")), "position");

    uint64_t length = 0;
    std::memcpy(&length, content.data(), 8);
    EXPECT_EQ((8 + length) % 8, 0U);
    const auto header = nlohmann::json::parse(content.substr(8, length));
    EXPECT_EQ(header["__metadata__"]["format"], "test");
    EXPECT_EQ(header["layer/weight"]["dtype"], "F32");
    EXPECT_EQ(header["layer/weight"]["shape"], (std::vector<int>{2, 3}));
    size_t end = 0;
    for (const auto &[name, tensor] : header.items()) {
        if (name == "__metadata__") continue;
        const size_t begin = tensor["data_offsets"][0];
        if (tensor["dtype"] == "F64" || tensor["dtype"] == "I64") {
            EXPECT_EQ(begin % 8, 0U) << name;
        }
        end = std::max<size_t>(end, tensor["data_offsets"][1]);
    }
    EXPECT_EQ(8 + length + end, content.size());
}

TEST_F(ZeroSafetensors, files_of_other_programs_are_read) {
    const std::string header =
        R"({ "b":{"dtype":"F16","data_offsets":[4,8],"shape":[2]}, "a":{"shape":[1],"dtype":"I32","data_offsets":[0,4]} }  )";
    harness::write_file(path_, file_with(header, "abcdefgh"));
    const Content content = read_all(path_);
    EXPECT_EQ(content.tensors.at(cat("a ", UJOIN_I32, " [1]")), "abcd");
    EXPECT_EQ(content.tensors.at(cat("b ", UJOIN_F16, " [2]")), "efgh");
    harness::write_file(path_, file_with("{}", ""));
    EXPECT_TRUE(read_all(path_).tensors.empty());
}

TEST_F(ZeroSafetensors, SECURITY_02_fields_that_lie_are_refused) {
    const auto one = [](const std::string &dtype, const std::string &shape, const std::string &offsets) {
        return file_with(R"({"a":{"dtype":")" + dtype + R"(","shape":)" + shape + R"(,"data_offsets":)" + offsets + "}}",
                         "abcdefgh");
    };
    harness::write_file(path_, one("F32", "[2]", "[0,8]"));
    EXPECT_NO_THROW(read_all(path_));
    refused(one("F32", "[1152921504606846976]", "[0,8]"), "too large");                // 2^60
    refused(one("U8", "[1152921504606846976]", "[0,8]"), "data_offsets span 8 bytes"); // 2^60
    refused(one("U8", "[4398046511105,4194304]", "[0,8]"), "too large");               // wraps to a small product
    refused(one("F32", "[4611686018427387904,4]", "[0,0]"), "too large");              // wraps to 0
    refused(one("F32", "[-2]", "[0,8]"), "negative");
    refused(one("F32", "[2.0]", "[0,8]"), "no integer");
    refused(one("F32", "[99999999999999999999999]", "[0,8]"), "no integer");
    refused(one("F32", "[18446744073709551615]", "[0,8]"), "too large");
    refused(one("F32", "[2]", "[0,-8]"), "negative");
    refused(one("F32", "[2]", "[8,0]"), "end before they begin");
    refused(one("F32", "[2]", "[0,4]"), "span 4 bytes");
    refused(one("F32", "[2]", "[8,16]"), "begins at byte 8");
    refused(one("F32", "[4]", "[0,16]"), "but the file has 8");
    refused(one("F32", "[1]", "[0,4]"), "but the file has 8");
    refused(one("F32", "[2]", "[0]"), "fewer than two");
    refused(one("F32", "[2]", "[0,8,9]"), "more than two");
    refused(one("F33", "[2]", "[0,8]"), "dtype \"F33\" is unknown");
    refused(one("F64", "[2]", "[0,8]"), "has 16");
    refused(one("F32", "2", "[0,8]"), "unexpected a number");
    refused(one("F32", "[[2]]", "[0,8]"), "unexpected a list");
    refused(one("F32", "[\"2\"]", "[0,8]"), "unexpected a text");
    refused(one("F32", "null", "[0,8]"), "unexpected null");
    refused(one("F32",
                "[1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,"
                "1,1,1,1,"
                "1,1,1,1,1,1,1,1,2]",
                "[0,8]"),
            "too many dimensions");
    const std::string a = R"("a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]})";
    refused(file_with("{" + a + R"(,"a":{"dtype":"U8","shape":[4],"data_offsets":[4,8]}})", "abcdefgh"),
            "\"a\" is given twice");
    refused(file_with("{" + a + R"(,"b":{"dtype":"U8","shape":[6],"data_offsets":[2,8]}})", "abcdefgh"),
            "begins at byte 2");
    refused(file_with(R"({"a":{"dtype":"U8","shape":[4],"shape":[8],"data_offsets":[0,8]}})", "abcdefgh"),
            "field is given twice");
    refused(file_with(R"({"a":{"dtype":"U8","shape":[8]}})", "abcdefgh"), "missing");
    refused(file_with(R"({"a":{"dtype":"U8","shape":[8],"data_offsets":[0,8],"more":1}})", "abcdefgh"), "unknown");
    refused(file_with(R"({"__metadata__":{"a":1}})", ""), "unexpected a number");
    refused(file_with(R"({"__metadata__":{"a":{"b":"c"}}})", ""), "unexpected an object");
    refused(file_with(R"({"__metadata__":{"a":"1","a":"2"}})", ""), "twice");
    refused(file_with(R"(["a"])", ""), "unexpected a list");
    refused(file_with(R"({"a")", ""), "no valid JSON");
    refused(file_with("{\"\xff\":{}}", ""), "no valid JSON");
    refused(file_with(std::string(1'000'000, '['), ""), "unexpected a list"); // deep nesting takes no stack
    refused(file_with(R"({"a":)" + std::string(1'000'000, '['), ""), "unexpected a list");
}

TEST_F(ZeroSafetensors, SECURITY_02_lengths_that_lie_are_refused) {
    refused("", "0 bytes");
    refused("1234567", "7 bytes");
    for (const uint64_t length : {uint64_t{3}, uint64_t{1} << 31, uint64_t{1} << 60, ~uint64_t{0}, ~uint64_t{0} - 7})
        refused(little_endian(length) + "{}", "the header's length");
    refused(little_endian(0) + "{}", "no valid JSON");
}

TEST_F(ZeroSafetensors, SECURITY_02_a_file_that_is_cut_is_refused) {
    const std::string content = valid();
    ASSERT_GT(content.size(), 400U);
    for (size_t size = 0; size < content.size(); size += 64) refused(content.substr(0, size), "");
    refused(content.substr(0, content.size() - 1), "");
    refused(content + "x", "");
}

TEST_F(ZeroSafetensors, SECURITY_02_ten_thousand_changed_bytes) {
    const std::string content = valid();
    harness::write_file(path_, content);
    const Content original = read_all(path_);
    std::mt19937 random(20240607);
    int same = 0;
    const os::Fd fd(::open(path_.c_str(), O_WRONLY | O_CLOEXEC));
    const auto put = [&](size_t at, char byte) { ASSERT_EQ(::pwrite(fd.get(), &byte, 1, static_cast<off_t>(at)), 1); };
    for (int i = 0; i < 10'000; i++) {
        const size_t at = random() % content.size();
        put(at, static_cast<char>(content[at] ^ (1 + random() % 255)));
        try {
            const Content other = read_all(path_);
            // The name of the checksum's field may be what has changed; then the file is one without.
            EXPECT_EQ(other, original) << "byte " << at;
            same++;
        } catch (const Error &error) {
            EXPECT_EQ(error.code(), UJOIN_E_MISMATCH) << error.text();
        }
        put(at, content[at]);
    }
    EXPECT_LT(same, 2'000);
}

TEST_F(ZeroSafetensors, only_regular_files_are_read) {
    const auto code_of = [](const std::string &path) {
        try {
            read_all(path);
        } catch (const Error &error) {
            return error.code();
        }
        return UJOIN_OK + 0;
    };
    EXPECT_EQ(code_of(path_), UJOIN_E_SYSTEM); // not there
    EXPECT_EQ(code_of(dir_.path()), UJOIN_E_SYSTEM);
    ASSERT_EQ(mkfifo((dir_ / "pipe").c_str(), 0600), 0);
    EXPECT_EQ(code_of(dir_ / "pipe"), UJOIN_E_MISMATCH); // and it does not wait for a writer
}

TEST_F(ZeroSafetensors, a_file_that_is_not_finished_disappears) {
    {
        NewFile file(path_);
        file.write("abc", 3);
        file.finish(false);
        EXPECT_EQ(harness::names_in(dir_.path()).size(), 1U);
        EXPECT_THROW(NewFile second(path_), Error); // it must not exist, and is not taken away from its owner
        EXPECT_EQ(harness::names_in(dir_.path()).size(), 1U);
    }
    EXPECT_TRUE(harness::names_in(dir_.path()).empty());
}

TEST_F(ZeroSafetensors, a_file_has_its_name_only_when_it_is_whole) {
    const int fd = ::open(dir_.path().c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0600);
    if (fd < 0) GTEST_SKIP() << "this file system has no files without a name";
    ::close(fd);
    NewFile file(path_);
    file.write("abc", 3);
    EXPECT_TRUE(harness::names_in(dir_.path()).empty()) << "a process that is killed now leaves it behind";
    file.finish(true);
    EXPECT_EQ(harness::names_in(dir_.path()).size(), 1U);
    file.keep();
}

TEST_F(ZeroSafetensors, names_must_be_text) {
    NewFile file(path_);
    EXPECT_THROW(write_safetensors(file, {{"\xff", UJOIN_U8, {0}, 0, 0, nullptr}}, {}), Error);
    EXPECT_THROW(write_safetensors(file, {{"__metadata__", UJOIN_U8, {0}, 0, 0, nullptr}}, {}), Error);
}

} // namespace
