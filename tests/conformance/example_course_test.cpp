// SPDX-License-Identifier: Apache-2.0
// The numbered examples: what each rank prints, and that it finds it right.
#include "harness/example.hpp"
#include <regex>

using namespace example;

namespace {

constexpr int inputs = 5; ///< of rank 0; each further rank has one more

class ExampleCourse : public testing::TestWithParam<int> {
  protected:
    static int size() { return GetParam(); }
    /// Runs a lesson to its good end; what each rank wrote.
    std::vector<std::string> run(const std::string &lesson) {
        const fs::path logs = scratch_ / "logs", program = build_folder() / "examples" / lesson;
        Job job({launcher(), "--standalone", "--nproc-per-node", std::to_string(size()), "--log-dir", logs, "--redirects",
                 "3", program},
                scratch_ / "job");
        EXPECT_EQ(job.wait(), 0) << job.all();
        std::vector<std::string> said;
        for (int rank = 0; rank < size(); rank++) {
            said.push_back(read_file(rank_log(scratch_.path(), rank)));
            EXPECT_NE(said.back().find("all well\n"), std::string::npos) << "rank " << rank << ": " << said.back();
            EXPECT_EQ(read_file(rank_log(scratch_.path(), rank).replace_filename("stderr.log")), "") << "rank " << rank;
        }
        return said;
    }

  private:
    Scratch scratch_;
};
INSTANTIATE_TEST_SUITE_P(Ranks, ExampleCourse, testing::Values(1, 2, 3),
                         [](const auto &of) { return std::to_string(of.param); });

void expect_line(const std::string &said, const std::string &line) {
    EXPECT_NE(("\n" + said).find("\n" + line + "\n"), std::string::npos) << "no line: " << line << "\nin: " << said;
}

/// The numbers that a pattern finds, one for each of its groups.
std::vector<double> numbers_in(const std::string &said, const std::string &pattern) {
    std::smatch found;
    std::vector<double> numbers;
    if (!std::regex_search(said, found, std::regex(pattern))) {
        ADD_FAILURE() << "no " << pattern << " in: " << said;
        return numbers;
    }
    for (size_t i = 1; i < found.size(); i++) numbers.push_back(std::stod(found[i]));
    return numbers;
}

TEST_P(ExampleCourse, lesson_1_a_group_and_its_errors) {
    const std::vector<std::string> said = run("01_group");
    for (int rank = 0; rank < size(); rank++) {
        const std::string &text = said[static_cast<size_t>(rank)];
        expect_line(text, "rank " + std::to_string(rank) + " of " + std::to_string(size()) +
                              ": the ranks counted from 1 add up to " + std::to_string(size() * (size() + 1) / 2));
        const std::vector<double> sums =
            numbers_in(text, R"(my four numbers add up to (\S+), their averages over the ranks to (\S+)\n)");
        ASSERT_EQ(sums.size(), 2U);
        EXPECT_EQ(sums[0], 6 + 4 * rank);
        EXPECT_EQ(sums[1], 6 + 2 * (size() - 1));
        EXPECT_NE(text.find("refused: "), std::string::npos) << text;
        const size_t told = text.find("told: ");
        EXPECT_EQ(told != std::string::npos, size() > 1) << text;
        if (size() == 1) continue;
        for (const char *part : {"all_reduce(sum, f64, 1)", "all_reduce(sum, f64, 2)"})
            EXPECT_NE(text.find(part, told), std::string::npos) << part << " is not in: " << text;
    }
}

TEST_P(ExampleCourse, lesson_2_uneven_inputs_and_an_agreed_end) {
    const std::vector<std::string> said = run("02_join");
    for (int rank = 0; rank < size(); rank++) {
        const std::string &text = said[static_cast<size_t>(rank)];
        const std::vector<double> numbers =
            numbers_in(text, R"(: (\d+) rounds of its own, then (\d+) for the others; weight (\S+), bias (\S+)\n)");
        ASSERT_EQ(numbers.size(), 4U);
        EXPECT_EQ(numbers[0], inputs + rank);
        EXPECT_EQ(numbers[1], size() - 1 - rank);
        for (const size_t i : {2U, 3U}) EXPECT_NEAR(numbers[i], -0.01 * (inputs + (size() - 1) / 2.0), 1e-4);
        expect_line(text, "rank " + std::to_string(rank) + ": stopped after 3 rounds, as all agreed");
    }
}

TEST_P(ExampleCourse, lesson_3_a_joinable_of_the_programs_own) {
    // By rank: inputs of all ranks in its own rounds.
    const std::vector<std::vector<int>> counts = {{5}, {10, 11}, {15, 17, 18}};
    const std::vector<std::string> said = run("03_own_joinable");
    const std::vector<int> &wanted = counts[static_cast<size_t>(size() - 1)];
    for (int rank = 0; rank < size(); rank++)
        expect_line(said[static_cast<size_t>(rank)],
                    "rank " + std::to_string(rank) + ": " + std::to_string(wanted[static_cast<size_t>(rank)]) +
                        " inputs counted before joining (own: " + std::to_string(inputs + rank) + "), " +
                        std::to_string(size() - 1 - rank) + " rounds shadowed, " + std::to_string(wanted.back()) +
                        " counted in all");
}

TEST_P(ExampleCourse, lesson_4_uneven_batches_train_as_one_process_does) {
    const std::vector<std::string> said = run("04_ddp_join");
    for (int rank = 0; rank < size(); rank++) {
        const std::string &text = said[static_cast<size_t>(rank)];
        const std::vector<double> together = numbers_in(text, R"(together y = (\S+) x \+ (\S+)\n)"),
                                  alone = numbers_in(text, R"(alone +y = (\S+) x \+ (\S+), a difference of (\S+)\n)");
        ASSERT_EQ(together.size(), 2U);
        ASSERT_EQ(alone.size(), 3U);
        EXPECT_NEAR(together[0], alone[0], 1e-8);
        EXPECT_NEAR(together[1], alone[1], 1e-8);
        EXPECT_LT(alone[2], 1e-12);
        EXPECT_NEAR(together[0], 3, 0.5) << "it has learned something";
        EXPECT_NEAR(together[1], 1, 0.5);
    }
}

} // namespace
