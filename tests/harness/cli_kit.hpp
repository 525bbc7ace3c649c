// SPDX-License-Identifier: Apache-2.0
// What the tests of ujoin-run share: a folder, a job of the helper cli_worker in it, what the workers left there.
#pragma once
#include "harness/launch.hpp"
#include "harness/process.hpp"
#include "harness/ranks.hpp"
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <memory>
#include <set>
#include <sstream>
#include <string>
#include <vector>

namespace cli_kit {

namespace fs = std::filesystem;
using harness::Launch;

using Args = std::vector<std::string>;

inline std::vector<std::string> lines_of(const std::string &text) {
    std::vector<std::string> lines;
    std::istringstream in(text);
    for (std::string line; std::getline(in, line);) lines.push_back(line);
    return lines;
}

/// A test starts jobs of the worker `cli_worker`, which leaves files in dir_.
class Cli : public testing::Test {
  protected:
    Cli() : dir_(fs::temp_directory_path() / harness::unique("ujoin-cli-test")) { fs::create_directory(dir_); }
    ~Cli() override { fs::remove_all(dir_); }

    /// ujoin-run with these arguments; none of our own variables is set but those given.
    std::unique_ptr<Launch> run(const Args &args, const Launch::Variables &variables = {}) const {
        Args argv = {harness::built("bin/ujoin-run")};
        argv.insert(argv.end(), args.begin(), args.end());
        Launch::Variables all = {{"CLI_DIR", dir_.string()}, {"RANK", ""},        {"WORLD_SIZE", ""},
                                 {"OMP_NUM_THREADS", ""},    {"PYTHON_EXEC", ""}, {"PET_NPROC_PER_NODE", ""},
                                 {"TMPDIR", dir_.string()}};
        all.insert(all.end(), variables.begin(), variables.end());
        return std::make_unique<Launch>(argv, all);
    }
    std::string file(const std::string &name) const { return (dir_ / name).string(); }
    std::string read(const std::string &name) const {
        std::ifstream in(dir_ / name, std::ios::binary);
        return {std::istreambuf_iterator<char>(in), {}};
    }
    bool there(const std::string &name) const { return fs::exists(dir_ / name); }
    std::vector<std::string> environment(int rank) const { return lines_of(read("env." + std::to_string(rank))); }
    /// The ranks that left a file `what`.
    std::set<int> ranks(const std::string &what) const {
        std::set<int> found;
        for (const auto &entry : fs::directory_iterator(dir_)) {
            const std::string name = entry.path().filename().string();
            if (name.rfind(what + ".", 0) == 0) found.insert(std::stoi(name.substr(what.size() + 1)));
        }
        return found;
    }
    pid_t pid(int rank) const { return std::stoi(read("pid." + std::to_string(rank))); }
    /// Workers of the command `signals`, once they have their handlers.
    bool wait_for_workers(int count) const {
        return harness::eventually([&] { return static_cast<int>(ranks("ready").size()) == count; });
    }
    bool wait_for_signal(int rank, int signal) const {
        return harness::eventually([&] {
            const auto lines = lines_of(read("signals." + std::to_string(rank)));
            return std::any_of(lines.begin(), lines.end(), [&](const auto &line) { return std::stoi(line) == signal; });
        });
    }

    const fs::path dir_;
    const std::string worker_ = harness::built("tests/bin/cli_worker");
};

inline bool has(const std::vector<std::string> &list, const std::string &item) {
    return std::find(list.begin(), list.end(), item) != list.end();
}

using harness::state_of;
/// The process is gone, or a zombie that nobody has reaped.
inline bool gone(pid_t pid) {
    const char state = state_of(pid);
    return state == 0 || state == 'Z';
}

inline std::string last_line(const std::string &text) {
    const auto lines = lines_of(text);
    return lines.empty() ? "" : lines.back();
}

} // namespace cli_kit
