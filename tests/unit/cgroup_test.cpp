// SPDX-License-Identifier: Apache-2.0
// Control groups: where a process is found to be, and killing without cgroup.kill.
#include "harness/temp_dir.hpp"
#include "os/cgroup.hpp"
#include <atomic>
#include <csignal>
#include <cstdlib>
#include <fstream>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

using namespace ujoin;

namespace {

std::atomic<bool> g_without_kill{false};

} // namespace

extern "C" bool ujoin_test_without_cgroup_kill() { return g_without_kill; }

namespace {

/// Files as /proc/self has them.
class ProcFolder {
  public:
    ProcFolder(const std::string &cgroup, const std::string &mounts) {
        harness::write_file(dir_ / "cgroup", cgroup);
        harness::write_file(dir_ / "mountinfo", mounts);
    }
    std::string own() {
        why_.clear();
        return os::own_cgroup(dir_.path(), why_);
    }
    const std::string &why() const { return why_; }

  private:
    harness::TempDir dir_;
    std::string why_;
};

TEST(PctxCgroup, is_found_by_its_path_and_the_mount) {
    const std::string usual = "29 24 0:26 / /sys/fs/cgroup rw,nosuid shared:4 - cgroup2 cgroup2 rw,nsdelegate\n";
    EXPECT_EQ(ProcFolder("0::/user.slice/a b\n", usual).own(), "/sys/fs/cgroup/user.slice/a b");
    EXPECT_EQ(ProcFolder("0::/\n", usual).own(), "/sys/fs/cgroup");
    // beside version 1, under another name, with a space in it
    EXPECT_EQ(ProcFolder("4:memory:/x\n0::/y\n", "30 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n"
                                                 "31 24 0:28 / /mnt/with\\040space rw - cgroup2 none rw\n")
                  .own(),
              "/mnt/with space/y");
    // a container that sees a part of the hierarchy
    const std::string part = "29 24 0:26 /docker/1 /sys/fs/cgroup rw - cgroup2 cgroup2 rw\n";
    EXPECT_EQ(ProcFolder("0::/docker/1\n", part).own(), "/sys/fs/cgroup");
    EXPECT_EQ(ProcFolder("0::/docker/1/job\n", part).own(), "/sys/fs/cgroup/job");
    ProcFolder other("0::/docker/12\n", part);
    EXPECT_EQ(other.own(), "");
    EXPECT_EQ(other.why(), "this process's cgroup \"/docker/12\" is outside of what the mounted cgroup2 shows");
}

TEST(PctxCgroup, what_is_missing_is_named) {
    ProcFolder none("0::/x\n", "30 24 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n");
    EXPECT_EQ(none.own(), "");
    EXPECT_EQ(none.why(), "no cgroup2 file system is mounted");
    ProcFolder old("4:memory:/x\n", "");
    EXPECT_EQ(old.own(), "");
    EXPECT_EQ(old.why(), "this system does not use cgroup version 2");
}

/// Processes in it and in one below, by both ways of killing.
TEST(PctxCgroup, kills_all_below_also_without_cgroup_kill) {
    std::string why;
    const std::string parent = os::own_cgroup("/proc/self", why);
    if (geteuid() != 0 || parent.empty() || access(parent.c_str(), W_OK) != 0)
        GTEST_SKIP() << "needs root and a cgroup2 file system that can be written";
    for (const bool hidden : {false, true}) {
        g_without_kill = hidden;
        const std::string path = parent + "/ujoin-test-" + std::to_string(getpid());
        os::Cgroup group;
        ASSERT_EQ(group.make(path), 0);
        ASSERT_EQ(mkdir((path + "/below").c_str(), 0700), 0);
        pid_t pids[2];
        for (int i = 0; i < 2; i++) {
            pids[i] = fork();
            if (pids[i] == 0) {
                for (;;) pause();
            }
            std::ofstream(path + (i == 0 ? "" : "/below") + "/cgroup.procs") << pids[i];
        }
        EXPECT_FALSE(group.remove()) << "two live in it";
        struct stat info {};
        EXPECT_EQ(stat(path.c_str(), &info), 0);
        group.kill_all();
        for (const pid_t pid : pids) {
            int status = 0;
            ASSERT_EQ(waitpid(pid, &status, 0), pid);
            EXPECT_EQ(WTERMSIG(status), SIGKILL);
        }
        EXPECT_TRUE(group.remove());
        EXPECT_FALSE(group);
        EXPECT_NE(stat(path.c_str(), &info), 0);
        EXPECT_EQ(group.make(parent + "/no/such"), ENOENT);
    }
}

} // namespace
