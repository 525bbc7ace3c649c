// SPDX-License-Identifier: Apache-2.0
// Kills a random rank of the main job at a random moment, among them: before the group is made, while ranks that have joined
// work for the others, and while the model is saved. Every time the job ends soon and says who died, nothing is left, and the
// model is the old one or a whole new one.
#include "harness/example.hpp"
#include <algorithm>
#include <functional>
#include <random>
#include <set>
#include <thread>

using namespace example;

namespace {

constexpr int ranks = 3;
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
constexpr int usual_kills = 8; // a slow build: each of the moments twice
#else
constexpr int usual_kills = 30;
#endif

enum class Moment { before_group, training, exit_loop, saving, count };
const char *const moment_names[] = {"before the group is made", "while it trains", "inside the exit loop",
                                    "during the save"};

/// The entries of /proc/<pid>/<file>, which are separated by zeros.
std::vector<std::string> entries_of(const std::string &pid, const char *file) {
    std::vector<std::string> entries;
    const std::string text = read_file("/proc/" + pid + "/" + file);
    for (size_t at = 0; at < text.size(); at = text.find('\0', at) + 1) {
        entries.emplace_back(text.c_str() + at);
        if (text.find('\0', at) == std::string::npos) break;
    }
    return entries;
}

bool contains(const std::vector<std::string> &list, const std::string &wanted) {
    return std::find(list.begin(), list.end(), wanted) != list.end();
}

/// Processes of this user whose command line has `out` as an argument; with a rank only that rank's trainer.
std::vector<pid_t> processes_of(const fs::path &out, int rank = -1) {
    std::vector<pid_t> found;
    for (const fs::directory_entry &entry : fs::directory_iterator("/proc")) {
        const std::string pid = entry.path().filename();
        if (pid.find_first_not_of("0123456789") != std::string::npos) continue;
        const std::vector<std::string> command = entries_of(pid, "cmdline");
        if (!contains(command, out.string())) continue;
        if (rank >= 0 && (command[0] != trainer() || !contains(entries_of(pid, "environ"), "RANK=" + std::to_string(rank))))
            continue;
        found.push_back(static_cast<pid_t>(std::stol(pid)));
    }
    return found;
}

std::set<std::string> shared_memory() {
    std::set<std::string> names;
    for (const fs::directory_entry &entry : fs::directory_iterator("/dev/shm"))
        // Not what the self-test of the runner makes at the same time.
        if (const std::string name = entry.path().filename();
            name.find("ujoin") != std::string::npos && name.find("selftest") == std::string::npos)
            names.insert(name);
    return names;
}

std::string last_line(const std::string &text) {
    const size_t end = text.find_last_not_of('\n');
    if (end == std::string::npos) return "";
    const size_t begin = text.rfind('\n', end);
    return text.substr(begin == std::string::npos ? 0 : begin + 1, end - (begin == std::string::npos ? 0 : begin + 1) + 1);
}

class ExampleKill : public testing::Test {
  protected:
    ExampleKill() : text_(scratch_ / "words.txt"), out_(scratch_ / "out"), model_(out_ / "model.safetensors") {
        std::ofstream(text_, std::ios::binary) << word_text(20000);
    }

    /// The model that a whole run with this seed makes, and how long that takes.
    std::string whole_run(const char *seed) {
        Job job(job_command(ranks, text_, out_, {"--epochs", "1", "--seed", seed}), scratch_ / "whole");
        const int status = job.wait();
        duration_ = std::chrono::duration_cast<std::chrono::microseconds>(job.age());
        // Status 1: one pass over a short text may not be enough to have learned. The model is saved all the same.
        EXPECT_TRUE(status == 0 || status == 1) << job.all();
        fs::remove_all(out_ / "logs");
        return read_file(model_);
    }

    /// Waits for the moment; false if the job has ended before.
    bool wait_for(Moment moment, int victim, const Job &job) {
        std::uniform_int_distribution<int64_t> anywhere(0, duration_.count()), soon(0, 20000), at_once(0, 4000);
        const auto until =
            [&](const std::function<bool()> &there) { // looks often: nothing tells another process's progress
                while (!job.ended()) {
                    if (there()) return true;
                    std::this_thread::sleep_for(std::chrono::microseconds(200));
                }
                return false;
            };
        const auto said = [&](int rank, const char *text) {
            return until([&] { return read_file(rank_log(out_, rank)).find(text) != std::string::npos; });
        };
        int64_t then = 0;
        if (!until([&] { return !processes_of(out_, victim).empty(); })) return false;
        if (moment == Moment::training) then = anywhere(random_);
        if (moment == Moment::exit_loop) {
            if (!said(0, " epoch 1: no more batches, joining\n")) return false;
            then = soon(random_);
        }
        if (moment == Moment::saving) {
            if (!said(victim, " saving ")) return false;
            then = at_once(random_);
        }
        const Clock::time_point at = Clock::now() + std::chrono::microseconds(then);
        return until([&] { return Clock::now() >= at; });
    }

    /// One job, one kill. False if the job was through before the kill could reach it.
    bool strike(Moment moment, int victim) {
        Job job(job_command(ranks, text_, out_, {"--epochs", "1", "--seed", "2"}), scratch_ / "job");
        if (!wait_for(moment, victim, job)) return false;
        const std::vector<pid_t> pids = processes_of(out_, victim);
        if (pids.size() != 1 || kill(pids[0], SIGKILL) != 0) return false;
        const Clock::time_point killed = Clock::now();
        const auto bound = std::chrono::milliseconds(static_cast<int64_t>(2000 * std::max(1.0, harness::slack())));
        EXPECT_TRUE(job.ended_within(bound)) << "the job still runs " << bound.count() << " ms after the kill";
        const auto took = Clock::now() - killed;
        const int status = job.wait();
        if (status == 0 || status == 1) { // it had done its work already and was about to end
            EXPECT_TRUE(read_file(model_) == new_) << "status " << status << ", but the work was not done\n" << job.all();
            return false;
        }
        EXPECT_LE(took, bound);
        EXPECT_EQ(status, 137) << job.all();
        EXPECT_NE(last_line(job.err()).find("rank " + std::to_string(victim)), std::string::npos) << job.all();
        return true;
    }

    void expect_nothing_left(const std::set<std::string> &shared_before) {
        EXPECT_TRUE(processes_of(out_).empty()) << "processes left";
        for (const std::string &name : shared_memory())
            EXPECT_TRUE(shared_before.count(name)) << "/dev/shm/" << name << " left";
        for (const fs::directory_entry &entry : fs::directory_iterator(out_)) {
            const std::string name = entry.path().filename();
            EXPECT_TRUE(name == "model.safetensors" || name == "loss.svg" || name == "logs") << name << " left in --out";
        }
        const std::string model = read_file(model_);
        EXPECT_TRUE(model == old_ || model == new_)
            << "the model is neither the old nor the new one (" << model.size() << " bytes)";
        const std::string curve = read_file(out_ / "loss.svg");
        EXPECT_NE(curve.find("</svg>\n"), std::string::npos) << "half a loss curve";
    }

    Scratch scratch_;
    fs::path text_, out_, model_;
    std::string old_, new_;
    std::chrono::microseconds duration_{0};
    std::mt19937_64 random_;
};

TEST_F(ExampleKill, ends_the_job_and_leaves_nothing_behind) {
    const char *given = getenv("UJOIN_TEST_SEED");
    const uint64_t seed = given ? std::stoull(given) : std::random_device{}();
    const int times = getenv("UJOIN_TEST_LONG") ? 300 : usual_kills;
    std::printf("seed %llu (UJOIN_TEST_SEED repeats it)\n", static_cast<unsigned long long>(seed));
    random_.seed(seed);

    new_ = whole_run("2");
    old_ = whole_run("1");
    ASSERT_FALSE(old_.empty());
    ASSERT_NE(old_, new_);
    int done[static_cast<int>(Moment::count)] = {}, late = 0;
    for (int strikes = 0; strikes < times && !HasFailure();) {
        const int moment = strikes % static_cast<int>(Moment::count), victim = static_cast<int>(random_() % ranks);
        SCOPED_TRACE(std::string("kill ") + std::to_string(strikes + 1) + ", rank " + std::to_string(victim) + ", " +
                     moment_names[moment]);
        const std::set<std::string> shared_before = shared_memory();
        const bool hit = strike(static_cast<Moment>(moment), victim);
        expect_nothing_left(shared_before);
        std::ofstream(model_, std::ios::binary | std::ios::trunc) << old_;
        fs::remove_all(out_ / "logs");
        strikes += hit;
        done[moment] += hit;
        late += !hit;
        ASSERT_LE(late, 2 * times) << "the kills come too late, again and again";
    }
    for (int moment = 0; moment < static_cast<int>(Moment::count); moment++)
        std::printf("%d times %s\n", done[moment], moment_names[moment]);
    std::printf("%d jobs were through before the kill\n", late);
}

} // namespace
