// SPDX-License-Identifier: Apache-2.0
// Tests that do what no test may do. tests/tools/check_selftest.py runs them and expects each to be caught; nothing else does.
#include "harness/ranks.hpp"
#include <csignal>
#include <cstdlib>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <stdexcept>
#include <string>
#include <sys/mman.h>
#include <unistd.h>

namespace {

void open_and_forget() {
    if (open("/dev/null", O_RDONLY | O_CLOEXEC) < 0) FAIL();
}

/// A process that outlives this one.
template <class Body> void start_orphan(Body body) {
    if (fork() != 0) return;
    setsid();
    for (int fd = 0; fd < 3; fd++) close(fd);
    body();
    _exit(1);
}

} // namespace

TEST(Selftest, good) {}
TEST(Selftest, good_threads) {
    harness::run_threads(3, [](int rank) { EXPECT_LT(rank, 3); });
}
TEST(Selftest, good_processes) {
    harness::run_processes(3, [](int rank) { EXPECT_LT(rank, 3); });
}
TEST(Selftest, good_expected_death) {
    harness::run_processes(2, [](int rank) {
        if (rank == 0) return;
        harness::expect_death(SIGKILL);
        raise(SIGKILL);
    });
}
TEST(Selftest, skips) { GTEST_SKIP() << "for a reason"; }

TEST(Selftest, leaves_descriptor) { open_and_forget(); }
TEST(Selftest, leaves_descriptor_in_rank) {
    harness::run_processes(2, [](int rank) {
        if (rank == 1) open_and_forget();
    });
}
TEST(Selftest, leaves_process) {
    start_orphan([] { pause(); });
}
TEST(Selftest, leaves_process_without_environment) {
    start_orphan([] { execl("/usr/bin/env", "env", "-i", "sleep", "1000", static_cast<char *>(nullptr)); });
}
TEST(Selftest, leaves_file) {
    const char *place = std::getenv("TMPDIR");
    ASSERT_NE(place, nullptr);
    const int fd = open((std::string(place) + "/left").c_str(), O_CREAT | O_WRONLY | O_CLOEXEC, 0600);
    ASSERT_GE(fd, 0);
    close(fd);
}
TEST(Selftest, leaves_shared_memory) {
    const int fd = shm_open(("/" + harness::unique("ujoin-selftest")).c_str(), O_CREAT | O_RDWR, 0600);
    ASSERT_GE(fd, 0);
    close(fd);
}
TEST(Selftest, hangs) { pause(); }
TEST(Selftest, hangs_in_thread) {
    harness::run_threads(3, [](int rank) {
        if (rank == 1) pause();
    });
}
TEST(Selftest, hangs_in_process) {
    harness::run_processes(3, [](int rank) {
        if (rank == 2) pause();
    });
}
TEST(Selftest, fails_in_thread) {
    harness::run_threads(3, [](int rank) { EXPECT_NE(rank, 2); });
}
TEST(Selftest, fails_in_process) {
    harness::run_processes(3, [](int rank) { EXPECT_NE(rank, 2); });
}
TEST(Selftest, throws_in_process) {
    harness::run_processes(2, [](int rank) {
        if (rank == 1) throw std::runtime_error("thrown by a rank");
    });
}
TEST(Selftest, dies_in_process) {
    harness::run_processes(2, [](int rank) {
        if (rank == 1) raise(SIGSEGV);
    });
}
TEST(Selftest, exits_in_process) {
    harness::run_processes(2, [](int rank) {
        if (rank == 1) _exit(0);
    });
}
TEST(Selftest, exits) { std::exit(0); }
TEST(Selftest, crashes) { std::abort(); }
