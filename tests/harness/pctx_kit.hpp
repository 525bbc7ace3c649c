// SPDX-License-Identifier: Apache-2.0
// What the tests of process contexts share: a folder that goes away, a job of the helper pctx_worker, what a process wrote.
#pragma once
#include "harness/process.hpp"
#include "harness/ranks.hpp"
#include "ujoin.h"
#include <cerrno>
#include <chrono>
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <functional>
#include <gtest/gtest.h>
#include <iterator>
#include <memory>
#include <poll.h>
#include <sstream>
#include <string>
#include <thread>
#include <unistd.h>
#include <vector>

namespace pctx_kit {

using Clock = std::chrono::steady_clock;

inline int64_t ms_since(Clock::time_point start) {
    return std::chrono::duration_cast<std::chrono::milliseconds>(Clock::now() - start).count();
}
/// Upper bound of a wait that the contract promises to be `ms`.
inline int64_t at_most(int64_t ms) {
    return static_cast<int64_t>(static_cast<double>(std::max<int64_t>(5 * ms, 2000)) * harness::slack());
}

struct Folder {
    std::filesystem::path path = std::filesystem::temp_directory_path() / harness::unique("ujoin-pctx");
    Folder() { std::filesystem::create_directory(path); }
    ~Folder() {
        std::error_code ignored;
        std::filesystem::remove_all(path, ignored);
    }
    Folder(const Folder &) = delete;
    Folder &operator=(const Folder &) = delete;
    std::string file(const std::string &name) const { return (path / name).string(); }
};

inline std::string read_file(const std::string &path) {
    std::ifstream file(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
}

inline std::vector<std::string> split_lines(const std::string &text) {
    std::vector<std::string> lines;
    std::istringstream stream(text);
    for (std::string line; std::getline(stream, line);) lines.push_back(line);
    return lines;
}

/// The helper program, beside this one.
inline std::string helper(const char *name = "pctx_worker") {
    return (std::filesystem::read_symlink("/proc/self/exe").parent_path() / name).string();
}

/// Waits until `done`; false when it took too long.
inline bool eventually(const std::function<bool()> &done, int64_t ms = 2000) {
    const auto start = Clock::now();
    while (!done()) {
        if (ms_since(start) > static_cast<int64_t>(static_cast<double>(ms) * harness::slack() * 5)) return false;
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    return true;
}

using harness::state_of;
/// A process that is there and is not a zombie.
inline bool runs(pid_t pid) {
    const char state = state_of(pid);
    return state != 0 && state != 'Z' && state != 'X';
}
/// A process, or its zombie, is there.
inline bool exists(pid_t pid) { return kill(pid, 0) == 0 || errno != ESRCH; }

/// Numbers that helpers have written into a file.
inline std::vector<pid_t> noted_pids(const std::string &path) {
    std::vector<pid_t> pids;
    for (const std::string &line : split_lines(read_file(path))) pids.push_back(std::stoi(line));
    return pids;
}

/// A job, by default of pctx_worker; RANK is set for each worker.
class Job {
  public:
    explicit Job(int nprocs, std::vector<std::string> commands = {}) : commands_(std::move(commands)) {
        spec.size = sizeof spec;
        spec.nprocs = nprocs;
        program_ = helper();
        spec.program = program_.c_str();
    }
    ~Job() { pctx_destroy(handle); }
    Job(const Job &) = delete;
    Job &operator=(const Job &) = delete;

    ujoin_status create() {
        pointers_.clear();
        for (const std::string &command : commands_) pointers_.push_back(command.c_str());
        if (!spec.args) {
            spec.args = pointers_.data();
            spec.arg_count = pointers_.size();
        }
        const ujoin_status status = pctx_create(&spec, &handle);
        for (int32_t r = 0; status == UJOIN_OK && r < spec.nprocs; r++)
            pctx_set_env(handle, r, "RANK", std::to_string(r).c_str());
        return status;
    }
    ujoin_status create_and_start() {
        const ujoin_status status = create();
        return status == UJOIN_OK ? pctx_start(handle) : status;
    }
    ujoin_worker_result result(int32_t rank) const {
        ujoin_worker_result out{};
        out.size = sizeof out;
        EXPECT_EQ(pctx_get_result(handle, rank, &out), UJOIN_OK) << ujoin_last_error();
        return out;
    }
    void set_commands(int32_t rank, const std::vector<std::string> &commands) {
        std::vector<const char *> args;
        for (const std::string &command : commands) args.push_back(command.c_str());
        ujoin_worker worker{};
        worker.size = sizeof worker;
        worker.args = args.data();
        worker.arg_count = args.size();
        EXPECT_EQ(pctx_set_worker(handle, rank, &worker), UJOIN_OK) << ujoin_last_error();
    }

    ujoin_pctx_spec spec{};
    ujoin_pctx *handle = nullptr;

  private:
    std::string program_;
    std::vector<std::string> commands_;
    std::vector<const char *> pointers_;
};

/// While it lives, descriptors 1 and 2 of this process go to files.
class Capture {
  public:
    explicit Capture(const Folder &folder) : paths_{folder.file("console.out"), folder.file("console.err")} {
        std::fflush(nullptr);
        for (int i = 0; i < 2; i++) {
            saved_[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 3);
            const int file = open(paths_[i].c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_APPEND | O_CLOEXEC, 0600);
            dup2(file, i + 1);
            close(file);
        }
    }
    ~Capture() { end(); }
    Capture(const Capture &) = delete;
    Capture &operator=(const Capture &) = delete;

    void end() {
        std::fflush(nullptr);
        for (int i = 0; i < 2 && saved_[i] >= 0; i++) {
            dup2(saved_[i], i + 1);
            close(saved_[i]);
            saved_[i] = -1;
        }
    }
    std::string out() const { return read_file(paths_[0]); }
    std::string err() const { return read_file(paths_[1]); }

  private:
    std::string paths_[2];
    int saved_[2] = {-1, -1};
};

} // namespace pctx_kit

#define ASSERT_PCTX_OK(call)                                                                                               \
    do {                                                                                                                   \
        const ujoin_status status_ = (call);                                                                               \
        ASSERT_EQ(status_, UJOIN_OK) << #call << ": " << ujoin_status_name(status_) << ": " << ujoin_last_error();         \
    } while (0)
