// SPDX-License-Identifier: Apache-2.0
// The main job as it is meant to go: what it writes, its test vectors, its check, and that the check can fail.
#include "harness/example.hpp"
#include <cmath>
#include <regex>
#include <sstream>

using namespace example;

namespace {

/// The losses that a rank wrote into its log, as the table in train_text.md has them.
std::vector<double> losses_in(const std::string &log) {
    std::vector<double> losses;
    static const std::regex line(R"( round \d+: loss (\S+))");
    for (std::sregex_iterator at(log.begin(), log.end(), line), end; at != end; ++at) losses.push_back(std::stod((*at)[1]));
    return losses;
}

std::vector<double> losses_in_document(int ranks, int rank) {
    const std::string text = read_file(source_folder() / "examples" / "train_text.md");
    const std::regex line("\\| " + std::to_string(ranks) + " \\| " + std::to_string(rank) + R"( \| \d+ \| ([^|\n]+)\|)");
    std::smatch found;
    std::vector<double> losses;
    if (!std::regex_search(text, found, line)) return losses;
    std::istringstream numbers(found[1]);
    for (double loss = 0; numbers >> loss;) losses.push_back(loss);
    return losses;
}

std::string fingerprint_in(const std::string &log) {
    std::smatch found;
    static const std::regex line(" parameters sha256 ([0-9a-f]{64})\n");
    return std::regex_search(log, found, line) ? found[1].str() : "";
}

class ExampleJob : public testing::TestWithParam<int> {
  protected:
    ExampleJob() : text_(scratch_ / "words.txt"), out_(scratch_ / "out") {
        std::ofstream(text_, std::ios::binary) << word_text(40000);
    }
    int run(const std::vector<std::string> &more) {
        Job job(job_command(GetParam(), text_, out_, more), scratch_ / "job");
        const int status = job.wait();
        stdout_ = job.out();
        said_ = job.all();
        return status;
    }
    Scratch scratch_;
    fs::path text_, out_;
    std::string stdout_, said_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, ExampleJob, testing::Values(1, 2, 3),
                         [](const auto &of) { return std::to_string(of.param); });

TEST_P(ExampleJob, trains_as_the_document_says_and_leaves_whole_files) {
    ASSERT_EQ(run({"--epochs", "1"}), 0) << said_;
    const std::string first = fingerprint_in(read_file(rank_log(out_, 0)));
    EXPECT_EQ(first.size(), 64u) << said_;
    for (int rank = 0; rank < GetParam(); rank++) {
        const std::string log = read_file(rank_log(out_, rank));
        EXPECT_EQ(fingerprint_in(log), first) << "rank " << rank;
        const std::vector<double> wanted = losses_in_document(GetParam(), rank), got = losses_in(log);
        ASSERT_EQ(wanted.size(), 5u) << "train_text.md has no line for rank " << rank << " of " << GetParam();
        ASSERT_EQ(got.size(), 5u) << log;
        for (size_t i = 0; i < 5; i++) EXPECT_NEAR(got[i], wanted[i], 2e-5) << "rank " << rank << ", round " << i + 1;
    }
    EXPECT_NE(stdout_.find("held-out text before training: 4.412 bits"), std::string::npos) << stdout_;
    EXPECT_NE(stdout_.find("held-out text after training: "), std::string::npos) << stdout_;
    EXPECT_NE(stdout_.find("rank 0 after "), std::string::npos) << stdout_;
    EXPECT_NE(read_file(out_ / "loss.svg").find("</svg>"), std::string::npos);
    const std::string model = read_file(out_ / "model.safetensors");
    EXPECT_GT(model.size(), (205200u + 433u * 21u) * sizeof(float));
    EXPECT_NE(model.find("\"weight1\""), std::string::npos);
}

TEST_P(ExampleJob, replayed_in_one_process_is_the_same_job) {
    ASSERT_EQ(run({"--check", "--batch", "32"}), 0) << said_;
    EXPECT_NE(stdout_.find("check: 60 rounds of " + std::to_string(GetParam()) + " ranks"), std::string::npos) << said_;
    for (int rank = 0; rank < GetParam(); rank++)
        EXPECT_NE(stdout_.find("the parameters of rank " + std::to_string(rank) + " are bit-identical"), std::string::npos)
            << said_;
    EXPECT_NE(stdout_.find("check passed"), std::string::npos) << said_;
}

TEST_P(ExampleJob, check_notices_a_missing_shadow) {
    if (GetParam() == 1) {
        EXPECT_NE(run({"--check", "--batch", "32", "--break", "shadow"}), 0)
            << "one rank has no shadow that could be left out";
        return;
    }
    EXPECT_EQ(run({"--check", "--batch", "32", "--break", "shadow"}), 1) << said_;
    for (int rank = 0; rank < GetParam(); rank++)
        EXPECT_NE(stdout_.find("the parameters of rank " + std::to_string(rank) + " DIFFER"), std::string::npos) << said_;
    EXPECT_NE(stdout_.find("MORE THAN 1e-05"), std::string::npos) << said_;
    EXPECT_NE(stdout_.find("check FAILED"), std::string::npos) << said_;
}

/// Wrong use and unusable input end at once, with a text that says what is wrong.
class ExampleInput : public testing::Test {
  protected:
    void expect(const std::vector<std::string> &arguments, int status, const std::string &text) {
        std::vector<std::string> command = {trainer().string(), "--out", (scratch_ / "out").string()};
        command.insert(command.end(), arguments.begin(), arguments.end());
        Job job(command, scratch_ / "job");
        EXPECT_EQ(job.wait(), status) << job.all();
        EXPECT_NE(job.err().find(text), std::string::npos) << job.err();
    }
    Scratch scratch_;
};

TEST_F(ExampleInput, is_refused_with_the_reason) {
    std::ofstream(scratch_ / "short.txt") << "too short";
    expect({"--text", (scratch_ / "nowhere.txt").string()}, 1, "nowhere.txt: No such file");
    expect({"--text", scratch_.path().string()}, 1, "is not a regular file");
    expect({"--text", (scratch_ / "short.txt").string()}, 1, "has 9 characters, at least 20000 are needed");
    expect({"--out", (scratch_ / "a" / "b").string()}, 1, "cannot make the directory");
    expect({"--out", "/proc"}, 1, "/proc");
    expect({"--epochs", "0"}, 2, "--epochs takes a number from 1");
    expect({"--epochs", "many"}, 2, "not \"many\"");
    expect({"--seed", "-1"}, 2, "--seed takes a number");
    expect({"--batch"}, 2, "--batch");
    expect({"--break", "shadow"}, 2, "goes with --check");
    expect({"--brake", "shadow"}, 2, "unknown option --brake");
}

} // namespace
