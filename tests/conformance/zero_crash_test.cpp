// SPDX-License-Identifier: Apache-2.0
// A save that ends between any two system calls: the process is traced, and what a crash at that moment would leave is copied
// and loaded.
#include "harness/ddp_kit.hpp"
#include "harness/temp_dir.hpp"
#include "harness/zero_kit.hpp"
#include <algorithm>
#include <csignal>
#include <filesystem>
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <sys/ptrace.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace harness;

namespace {

ujoin_save_options parts(int32_t bits, bool sync) {
    ujoin_save_options options{};
    options.size = sizeof options;
    options.parts = bits;
    options.no_sync = sync ? 0 : 1;
    return options;
}

/// Parameters and momentum that all have the value `number`.
void save_number(const std::string &path, int32_t bits, float number, bool sync, const std::function<void()> &before_it) {
    const ddp_kit::GroupPtr group = ddp_kit::alone();
    Tensors x({3000, 10}, number, number);
    const Optimizer optimizer(group.get(), UJOIN_OPTIMIZER_SGD, x, {{"lr", 0}, {"momentum", 1}});
    optimizer.step();
    const ujoin_save_options how = parts(bits, sync);
    before_it();
    ok(zero_save(optimizer.get(), path.c_str(), &how));
}

/// The number that a save has, the same everywhere in it.
float number_in(const std::string &path, int32_t bits) {
    const ddp_kit::GroupPtr group = ddp_kit::alone();
    Tensors x({3000, 10}, -1);
    const Optimizer optimizer(group.get(), UJOIN_OPTIMIZER_SGD, x, {});
    const ujoin_save_options how = parts(bits, false);
    ok(zero_load(optimizer.get(), path.c_str(), &how, nullptr));
    for (const std::vector<float> &data : x.data)
        EXPECT_EQ(static_cast<size_t>(std::count(data.begin(), data.end(), x.data[0][0])), data.size());
    if ((bits & UJOIN_SAVE_STATE) != 0)
        for (const auto &[key, values] : listed(state_everywhere(group.get(), optimizer).state))
            if (key.find("momentum_buffer") != std::string::npos) {
                EXPECT_EQ(std::count(values.begin(), values.end(), static_cast<double>(x.data[0][0])), values.size())
                    << key;
            }
    return x.data[0][0];
}

/// A system call of a traced child that has just returned.
struct Call {
    uint64_t number = 0;
    uint64_t args[6] = {};
    int64_t result = 0;
};

/// Runs `body` in a child, which says with raise(SIGSTOP) from where on it counts, and stands still after each system call.
void trace(const std::function<void()> &body, const std::function<void(pid_t, const Call &)> &after_call) {
    const pid_t child = ::fork();
    ASSERT_GE(child, 0);
    if (child == 0) {
        ::ptrace(PTRACE_TRACEME, 0, nullptr, nullptr);
        try {
            body();
        } catch (const std::exception &error) {
            std::fprintf(stderr, "%s\n", error.what());
            ::_exit(1);
        }
        ::_exit(0);
    }
    int status = 0;
    ASSERT_EQ(::waitpid(child, &status, 0), child);
    ASSERT_TRUE(WIFSTOPPED(status)) << status;
    ASSERT_EQ(::ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL), 0);
    Call call;
    while (WIFSTOPPED(status)) {
        __ptrace_syscall_info info{};
        if (WSTOPSIG(status) == (SIGTRAP | 0x80) &&
            ::ptrace(PTRACE_GET_SYSCALL_INFO, child, reinterpret_cast<void *>(sizeof info), &info) > 0) {
            if (info.op == PTRACE_SYSCALL_INFO_ENTRY) {
                call.number = info.entry.nr;
                std::copy_n(info.entry.args, 6, call.args);
            } else {
                call.result = info.exit.rval;
                after_call(child, call);
            }
        }
        ASSERT_EQ(::ptrace(PTRACE_SYSCALL, child, nullptr, nullptr), 0);
        ASSERT_EQ(::waitpid(child, &status, 0), child);
    }
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status;
}

/// Names, sizes and identities: what a crash leaves.
std::map<std::string, std::pair<uint64_t, uint64_t>> contents(const std::string &directory) {
    std::map<std::string, std::pair<uint64_t, uint64_t>> all;
    for (const auto &entry : std::filesystem::recursive_directory_iterator(directory)) {
        struct stat info {};
        if (::lstat(entry.path().c_str(), &info) == 0)
            all[entry.path().string()] = {info.st_ino, S_ISREG(info.st_mode) ? static_cast<uint64_t>(info.st_size) : 0};
    }
    return all;
}

class ZeroCrash : public testing::TestWithParam<int32_t> {
  protected:
    bool in_directory_ = (GetParam() & UJOIN_SAVE_STATE) != 0;
    TempDir dir_;
    std::string path_ = dir_ / "save";
};
INSTANTIATE_TEST_SUITE_P(Parts, ZeroCrash, testing::Values(UJOIN_SAVE_PARAMETERS, UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS),
                         [](const auto &of) { return (of.param & UJOIN_SAVE_STATE) != 0 ? "directory" : "file"; });

TEST_P(ZeroCrash, between_any_two_system_calls_there_is_a_whole_save) {
    save_number(path_, GetParam(), 1, false, [] {});
    const TempDir copies;
    std::vector<float> seen;
    auto before = contents(dir_.path());
    const auto look = [&](pid_t, const Call &) {
        auto now = contents(dir_.path());
        if (now == before) return;
        before = std::move(now);
        const std::string copy = copies / std::to_string(seen.size());
        std::filesystem::copy(dir_.path(), copy, std::filesystem::copy_options::recursive);
        seen.push_back(number_in(copy + "/save", GetParam()));
        // And training goes on from there: the next save clears up.
        save_number(copy + "/save", GetParam(), 3, false, [] {});
        EXPECT_EQ(number_in(copy + "/save", GetParam()), 3);
        EXPECT_EQ(names_in(in_directory_ ? copy + "/save" : copy).size(), in_directory_ ? 3U : 1U);
    };
    trace([&] { save_number(path_, GetParam(), 2, false, [] { ::raise(SIGSTOP); }); }, look);
    ASSERT_GE(seen.size(), in_directory_ ? 5U : 2U); // files appear, the name changes over, old ones go
    EXPECT_EQ(seen.front(), 1);
    EXPECT_EQ(seen.back(), 2);
    EXPECT_TRUE(std::is_sorted(seen.begin(), seen.end()));
}

/// Where a descriptor of a process leads.
std::string target_of(pid_t child, uint64_t descriptor) {
    std::error_code ignored;
    const std::filesystem::path link = "/proc/" + std::to_string(child) + "/fd/" + std::to_string(descriptor);
    return std::filesystem::read_symlink(link, ignored).string();
}

/// A crash of the machine may lose what was not brought to the disk, in any order.
TEST_P(ZeroCrash, whatever_a_name_leads_to_is_on_the_disk_before_it) {
    save_number(path_, GetParam(), 1, false, [] {});
    const std::string place = in_directory_ ? path_ : dir_.path();
    std::string
        order; // w: files written, d: a file on the disk, D: the directory, r: the rename, u: an old file is removed
    const auto note = [&](pid_t child, const Call &call) {
        if (call.result < 0) return;
        if (call.number == SYS_write && target_of(child, call.args[0]).rfind(dir_.path(), 0) == 0) order += 'w';
        if (call.number == SYS_fsync || call.number == SYS_fdatasync)
            order += std::filesystem::is_directory(target_of(child, call.args[0])) ? 'D' : 'd';
#ifdef SYS_rename
        if (call.number == SYS_rename) order += 'r';
#endif
        if (call.number == SYS_renameat || call.number == SYS_renameat2) order += 'r';
#ifdef SYS_unlink
        if (call.number == SYS_unlink) order += 'u';
#endif
        if (call.number == SYS_unlinkat) order += 'u';
    };
    trace([&] { save_number(path_, GetParam(), 2, true, [] { ::raise(SIGSTOP); }); }, note);
    order.erase(std::unique(order.begin(), order.end()), order.end());
    // State, parameters, index; then their names; then the change-over, on the disk before anything old is removed.
    EXPECT_EQ(order, in_directory_ ? "wdwdwdDrDu" : "wdrD");
    EXPECT_EQ(number_in(path_, GetParam()), 2);
}

} // namespace
