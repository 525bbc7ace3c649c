// SPDX-License-Identifier: Apache-2.0
// What the tests of the main job share: where its programs are, a text that can be learned, a job as a child process.
#pragma once
#include "harness/ranks.hpp"
#include <chrono>
#include <csignal>
#include <cstdint>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <iterator>
#include <poll.h>
#include <spawn.h>
#include <string>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern char **environ;

namespace example {

namespace fs = std::filesystem;
using Clock = std::chrono::steady_clock;

/// The build folder of this test program (it lies in tests/bin).
inline fs::path build_folder() { return fs::read_symlink("/proc/self/exe").parent_path().parent_path().parent_path(); }
inline fs::path launcher() { return build_folder() / "bin" / "ujoin-run"; }
inline fs::path trainer() { return build_folder() / "examples" / "train_text"; }

inline std::string read_file(const fs::path &path) {
    std::ifstream file(path, std::ios::binary);
    try {
        return {std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
    } catch (const std::ios_base::failure &) { // of a process that has just ended
        return {};
    }
}

/// The folder that was built: __FILE__ need not be an absolute path.
inline fs::path source_folder() {
    static const std::string key = "CMAKE_HOME_DIRECTORY:INTERNAL=";
    const std::string cache = "\n" + read_file(build_folder() / "CMakeCache.txt");
    const size_t at = cache.find("\n" + key);
    if (at == std::string::npos) return {};
    const size_t begin = at + 1 + key.size();
    return cache.substr(begin, cache.find('\n', begin) - begin);
}

/// The word text of examples/train_text.md, section 8.
inline std::string word_text(size_t length) {
    static const char *const words[] = {"the",   "join", "of",  "many", "ranks", "is",   "even", "when",
                                        "their", "work", "was", "not",  "and",   "each", "one",  "waits"};
    uint64_t state = 7;
    std::string text;
    for (int count = 1; text.size() < length; count++) {
        uint64_t z = state += 0x9E3779B97F4A7C15u;
        z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9u;
        z = (z ^ (z >> 27)) * 0x94D049BB133111EBu;
        text += words[(z ^ (z >> 31)) >> 60];
        text += count % 12 ? " " : ".\n";
    }
    return text.substr(0, length);
}

/// A folder that is gone at the end.
class Scratch {
  public:
    Scratch() : path_(fs::temp_directory_path() / harness::unique("ujoin-example")) { fs::create_directory(path_); }
    Scratch(const Scratch &) = delete;
    Scratch &operator=(const Scratch &) = delete;
    ~Scratch() { fs::remove_all(path_); }
    fs::path operator/(const std::string &name) const { return path_ / name; }
    const fs::path &path() const { return path_; }

  private:
    fs::path path_;
};

/// A command whose output goes to files; killed, with all that it started, if the test ends before it.
class Job {
  public:
    Job(const std::vector<std::string> &command, fs::path stem)
        : out_(stem.string() + ".out"), err_(stem.string() + ".err"), began_(Clock::now()) {
        std::vector<char *> arguments;
        for (const std::string &argument : command) arguments.push_back(const_cast<char *>(argument.c_str()));
        arguments.push_back(nullptr);
        posix_spawn_file_actions_t actions;
        posix_spawn_file_actions_init(&actions);
        posix_spawn_file_actions_addopen(&actions, 0, "/dev/null", O_RDONLY, 0);
        posix_spawn_file_actions_addopen(&actions, 1, out_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
        posix_spawn_file_actions_addopen(&actions, 2, err_.c_str(), O_CREAT | O_TRUNC | O_WRONLY, 0600);
        const int error = posix_spawn(&pid_, arguments[0], &actions, nullptr, arguments.data(), environ);
        posix_spawn_file_actions_destroy(&actions);
        if (error != 0) {
            ADD_FAILURE() << command[0] << " cannot be started: " << std::generic_category().message(error);
            pid_ = -1;
        }
    }
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;
    ~Job() {
        if (pid_ < 0) return;
        kill(pid_, SIGTERM);
        if (!ended_within(std::chrono::seconds(10))) kill(pid_, SIGKILL);
        wait();
    }

    /// Whether it has ended (it is not reaped by this).
    bool ended_within(std::chrono::milliseconds time) const {
        if (pid_ < 0) return true;
        const int fd = static_cast<int>(syscall(SYS_pidfd_open, pid_, 0));
        pollfd wanted{fd, POLLIN, 0};
        const bool ended = fd >= 0 && poll(&wanted, 1, static_cast<int>(time.count())) == 1;
        if (fd >= 0) close(fd);
        return ended;
    }
    bool ended() const { return ended_within(std::chrono::milliseconds(0)); }

    /// Its exit status as a shell has it.
    int wait() {
        if (pid_ < 0) return status_;
        int status = 0;
        while (waitpid(pid_, &status, 0) < 0 && errno == EINTR) {
        }
        pid_ = -1;
        return status_ = WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
    }

    Clock::duration age() const { return Clock::now() - began_; }
    std::string out() const { return read_file(out_); }
    std::string err() const { return read_file(err_); }
    std::string all() const { return "stdout:\n" + out() + "stderr:\n" + err(); }

  private:
    fs::path out_, err_;
    Clock::time_point began_;
    pid_t pid_ = -1;
    int status_ = -1;
};

/// A job of `ranks` trainers that write their output into `out`/logs/latest/<rank>; what the last one says is also shown.
inline std::vector<std::string> job_command(int ranks, const fs::path &text, const fs::path &out,
                                            const std::vector<std::string> &more) {
    std::vector<std::string> command = {launcher().string(),
                                        "--standalone",
                                        "--nproc-per-node",
                                        std::to_string(ranks),
                                        "--log-dir",
                                        (out / "logs").string(),
                                        "--redirects",
                                        "3",
                                        "--tee",
                                        std::to_string(ranks - 1) + ":3",
                                        trainer().string(),
                                        "--text",
                                        text.string(),
                                        "--out",
                                        out.string()};
    command.insert(command.end(), more.begin(), more.end());
    return command;
}

inline fs::path rank_log(const fs::path &out, int rank) {
    return out / "logs" / "latest" / std::to_string(rank) / "stdout.log";
}

} // namespace example
