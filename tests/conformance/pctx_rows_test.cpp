// SPDX-License-Identifier: Apache-2.0
// Rows of the process launcher in the form they have in C. Workers are programs here: rows about function workers (return
// values, pickling, start methods) and about Python's redirection of its own streams have no object in the C API.
#include "harness/pctx_kit.hpp"
#include <algorithm>
#include <cstring>
#include <set>

using namespace pctx_kit;

namespace {

std::vector<ujoin_std> parsed(const char *text, size_t nprocs) {
    std::vector<ujoin_std> values(nprocs, -1);
    EXPECT_EQ(pctx_parse_std(text, values.data(), nprocs), UJOIN_OK) << text << ": " << ujoin_last_error();
    return values;
}

using Stds = std::vector<ujoin_std>;

TEST(PctxRows, P_01_failed_only_if_a_worker_failed) {
    Job good(2);
    ASSERT_PCTX_OK(good.create_and_start());
    EXPECT_EQ(pctx_wait(good.handle, -1), UJOIN_OK);
    EXPECT_EQ(pctx_failed(good.handle), 0);
    EXPECT_EQ(pctx_first_failure(good.handle), -1);
    EXPECT_STREQ(pctx_report(good.handle), "");
    Job bad(2, {"1:exit=7"});
    ASSERT_PCTX_OK(bad.create_and_start());
    EXPECT_EQ(pctx_wait(bad.handle, -1), UJOIN_E_CHILD_FAILED);
    EXPECT_NE(std::strstr(ujoin_last_error(), "rank 1"), nullptr) << ujoin_last_error();
    int32_t rank = -1;
    EXPECT_EQ(ujoin_last_missing(&rank, 1), 1U);
    EXPECT_EQ(rank, 1);
    EXPECT_EQ(pctx_failed(bad.handle), 1);
    EXPECT_EQ(pctx_first_failure(bad.handle), 1);
}

TEST(PctxRows, P_02_one_digit_is_for_all) {
    EXPECT_EQ(parsed("0", 1), Stds{UJOIN_STD_NONE});
    EXPECT_EQ(parsed("1", 1), Stds{UJOIN_STD_OUT});
    EXPECT_EQ(parsed("2", 1), Stds{UJOIN_STD_ERR});
    EXPECT_EQ(parsed("3", 1), Stds{UJOIN_STD_ALL});
}

TEST(PctxRows, P_03_P_75_ranks_are_named) {
    EXPECT_EQ(parsed("0:1", 1), Stds{UJOIN_STD_OUT});
    EXPECT_EQ(parsed("0:1,1:1", 2), (Stds{UJOIN_STD_OUT, UJOIN_STD_OUT}));
    EXPECT_EQ(parsed("12:3", 13)[12], UJOIN_STD_ALL); // P-75: more than one digit
}

TEST(PctxRows, P_04_anything_else_is_refused) {
    for (const char *text :
         {"0:1,", "11", "0:1,1", "1,0:1", "", "4", "-1", "0:4", ":1", "0:", "0;1", "a", "0:1 ", "9999999999:1"}) {
        ujoin_std values[2] = {};
        EXPECT_EQ(pctx_parse_std(text, values, 2), UJOIN_E_INVALID) << text;
    }
}

TEST(PctxRows, P_05_one_value_per_rank) {
    EXPECT_EQ(parsed("1", 2), (Stds{UJOIN_STD_OUT, UJOIN_STD_OUT}));
    EXPECT_EQ(parsed("1:1", 2), (Stds{UJOIN_STD_NONE, UJOIN_STD_OUT}));
    EXPECT_EQ(parsed("0:2,1:1", 2), (Stds{UJOIN_STD_ERR, UJOIN_STD_OUT}));
    EXPECT_EQ(parsed("0:2,5:1", 2), (Stds{UJOIN_STD_ERR, UJOIN_STD_NONE})); // past nprocs: dropped
}

TEST(PctxRows, P_07_log_directory_that_is_a_file) {
    Folder folder;
    std::ofstream(folder.file("logs")) << "a file";
    const std::string logs = folder.file("logs");
    Job job(1);
    job.spec.log_dir = logs.c_str();
    job.spec.redirects = UJOIN_STD_ALL;
    EXPECT_EQ(job.create_and_start(), UJOIN_E_SYSTEM);
    EXPECT_EQ(ujoin_last_errno(), ENOTDIR) << ujoin_last_error();
    EXPECT_EQ(read_file(logs), "a file");
}

/// Arguments and variables are given by rank here, so a set for a rank that does not exist is what can go wrong.
TEST(PctxRows, P_09_settings_for_a_rank_that_does_not_exist) {
    Job job(1);
    ASSERT_PCTX_OK(job.create());
    EXPECT_EQ(pctx_set_env(job.handle, 1, "A", "1"), UJOIN_E_INVALID);
    ujoin_worker worker{};
    worker.size = sizeof worker;
    EXPECT_EQ(pctx_set_worker(job.handle, 1, &worker), UJOIN_E_INVALID);
    EXPECT_NE(std::strstr(ujoin_last_error(), "expected 0 to 0"), nullptr) << ujoin_last_error();
}

TEST(PctxRows, P_11_P_62_wait_that_runs_out_then_the_result) {
    Folder folder;
    const std::string go = "await=" + folder.file("go");
    Job job(2, {go});
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 0), UJOIN_PENDING);
    const auto start = Clock::now();
    EXPECT_EQ(pctx_wait(job.handle, 100), UJOIN_PENDING);
    EXPECT_GE(ms_since(start), 100);
    EXPECT_LT(ms_since(start), at_most(100));
    EXPECT_EQ(job.result(0).state, UJOIN_WORKER_RUNNING);
    EXPECT_EQ(job.result(0).exit_code, -1);
    std::ofstream(folder.file("go")) << "";
    EXPECT_EQ(pctx_wait(job.handle, -1), UJOIN_OK);
    EXPECT_EQ(job.result(1).state, UJOIN_WORKER_EXITED);
    EXPECT_EQ(job.result(1).exit_code, 0);
    EXPECT_GE(job.result(1).end_ns, job.result(1).start_ns);
}

TEST(PctxRows, P_14_close_leaves_no_process) {
    Job job(3, {"forever"});
    ASSERT_PCTX_OK(job.create_and_start());
    std::vector<pid_t> pids;
    for (int r = 0; r < 3; r++) pids.push_back(job.result(r).pid);
    for (const pid_t pid : pids) EXPECT_TRUE(runs(pid));
    ASSERT_PCTX_OK(pctx_close(job.handle, 0, 5000));
    for (const pid_t pid : pids) EXPECT_FALSE(exists(pid));
    for (int r = 0; r < 3; r++) {
        EXPECT_EQ(job.result(r).state, UJOIN_WORKER_SIGNALED);
        EXPECT_EQ(job.result(r).signal, SIGTERM);
        EXPECT_EQ(job.result(r).stopped, 1);
        EXPECT_EQ(job.result(r).failed, 0);
    }
    EXPECT_EQ(pctx_wait(job.handle, -1), UJOIN_OK); // nobody failed by itself
    ASSERT_PCTX_OK(pctx_close(job.handle, 0, 0));
}

TEST(PctxRows, P_27_program_that_does_not_exist) {
    Job job(2);
    job.spec.program = "ujoin-no-such-program";
    EXPECT_EQ(job.create_and_start(), UJOIN_E_SYSTEM);
    EXPECT_EQ(ujoin_last_errno(), ENOENT);
    EXPECT_NE(std::strstr(ujoin_last_error(), "ujoin-no-such-program"), nullptr);
}

TEST(PctxRows, P_29_redirects_of_programs) {
    for (const ujoin_std redirects : {UJOIN_STD_NONE, UJOIN_STD_OUT, UJOIN_STD_ERR, UJOIN_STD_ALL}) {
        Folder folder;
        const std::string logs = folder.file("logs");
        Capture console(folder);
        Job job(2, {"0:out=hello stdout from 0\\n", "0:err=hello stderr from 0\\n", "1:out=hello stdout from 1\\n",
                    "1:err=hello stderr from 1\\n"});
        job.spec.log_dir = logs.c_str();
        job.spec.redirects = redirects;
        ASSERT_PCTX_OK(job.create_and_start());
        EXPECT_EQ(pctx_wait(job.handle, -1), UJOIN_OK);
        console.end();
        EXPECT_EQ(pctx_failed(job.handle), 0);
        for (int r = 0; r < 2; r++) {
            const ujoin_worker_result result = job.result(r);
            const std::string out = "hello stdout from " + std::to_string(r) + "\n";
            const std::string err = "hello stderr from " + std::to_string(r) + "\n";
            if (redirects & UJOIN_STD_OUT) {
                EXPECT_EQ(read_file(result.stdout_path), out);
                EXPECT_EQ(result.stdout_bytes, out.size());
                EXPECT_GT(result.last_output_ns, 0);
            } else {
                EXPECT_STREQ(result.stdout_path, "");
                EXPECT_NE(console.out().find(out), std::string::npos); // as it was written: no prefix
            }
            if (redirects & UJOIN_STD_ERR) {
                EXPECT_EQ(read_file(result.stderr_path), err);
            } else {
                EXPECT_STREQ(result.stderr_path, "");
                EXPECT_NE(console.err().find(err), std::string::npos);
            }
            EXPECT_EQ(console.out().find("["), std::string::npos);
        }
    }
}

TEST(PctxRows, P_30_redirect_and_tee_of_programs) {
    Folder folder;
    const std::string logs = folder.file("logs");
    Capture console(folder);
    Job job(2, {"out=world stdout\\n", "err=world stderr\\n"});
    job.spec.log_dir = logs.c_str();
    job.spec.name = "trainer";
    ASSERT_PCTX_OK(job.create());
    ujoin_worker first{};
    first.size = sizeof first;
    first.redirects = UJOIN_STD_ERR;
    first.tee = UJOIN_STD_OUT;
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, 0, &first));
    ujoin_worker second{};
    second.size = sizeof second;
    second.redirects = UJOIN_STD_NONE | UJOIN_STD_SET;
    second.tee = UJOIN_STD_ERR;
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, 1, &second));
    ASSERT_PCTX_OK(pctx_start(job.handle));
    EXPECT_EQ(pctx_wait(job.handle, -1), UJOIN_OK);
    console.end();
    EXPECT_EQ(read_file(job.result(0).stdout_path), "world stdout\n");
    EXPECT_EQ(read_file(job.result(0).stderr_path), "world stderr\n");
    EXPECT_EQ(read_file(job.result(1).stderr_path), "world stderr\n");
    EXPECT_STREQ(job.result(1).stdout_path, "");
    const std::vector<std::string> out = split_lines(console.out());
    EXPECT_EQ(std::set<std::string>(out.begin(), out.end()),
              (std::set<std::string>{"[trainer0]: world stdout", "world stdout"}));
    EXPECT_EQ(console.err(), "[trainer1]: world stderr\n");
}

TEST(PctxRows, P_61_start_twice) {
    Job job(1);
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_start(job.handle), UJOIN_E_STATE);
    EXPECT_EQ(pctx_wait(job.handle, -1), UJOIN_OK);
    EXPECT_EQ(pctx_start(job.handle), UJOIN_E_STATE);
}

TEST(PctxRows, P_63_worker_that_ignores_the_polite_signal) {
    Folder folder;
    Job job(1, {"ignoreterm", "touch=" + folder.file("ready"), "forever"});
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.file("ready")); }));
    const auto start = Clock::now();
    ASSERT_PCTX_OK(pctx_close(job.handle, 0, 1000));
    EXPECT_GE(ms_since(start), 1000);
    EXPECT_LT(ms_since(start), at_most(1000));
    EXPECT_EQ(job.result(0).state, UJOIN_WORKER_SIGNALED);
    EXPECT_EQ(job.result(0).signal, SIGKILL);
    EXPECT_EQ(job.result(0).stopped, 1);
}

TEST(PctxRows, P_64_one_grace_for_all_workers) {
    Folder folder;
    Job job(4, {"ignoreterm", "pid=" + folder.file("pids"), "forever"});
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_TRUE(eventually([&] { return noted_pids(folder.file("pids")).size() == 4; }));
    const auto start = Clock::now();
    ASSERT_PCTX_OK(pctx_close(job.handle, 0, 2000));
    EXPECT_GE(ms_since(start), 2000);
    EXPECT_LT(ms_since(start), 4 * 2000);
    for (int r = 0; r < 4; r++) EXPECT_EQ(job.result(r).signal, SIGKILL);
}

TEST(PctxRows, P_66_null_device_means_no_files) {
    Folder folder;
    Capture console(folder);
    Job job(1, {"err=gone\\n", "getenv=TORCHELASTIC_ERROR_FILE"});
    job.spec.log_dir = "/dev/null";
    job.spec.redirects = UJOIN_STD_ERR;
    job.spec.tee = UJOIN_STD_OUT;
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, -1), UJOIN_OK);
    console.end();
    EXPECT_EQ(console.out(), "[worker0]: TORCHELASTIC_ERROR_FILE=\n");
    EXPECT_EQ(console.err(), "");
    EXPECT_STREQ(job.result(0).stdout_path, "");
    EXPECT_EQ(job.result(0).stdout_bytes, std::strlen("TORCHELASTIC_ERROR_FILE=\n"));
}

TEST(PctxRows, P_68_variables_of_a_worker_go_over_what_it_inherits) {
    Folder folder;
    const std::string logs = folder.file("logs");
    setenv("UJOIN_TEST_A", "1", 1);
    setenv("UJOIN_TEST_B", "kept", 1);
    Job job(2, {"getenv=UJOIN_TEST_A", "getenv=UJOIN_TEST_B"});
    job.spec.log_dir = logs.c_str();
    job.spec.redirects = UJOIN_STD_ALL;
    ASSERT_PCTX_OK(job.create());
    ASSERT_PCTX_OK(pctx_set_env(job.handle, 0, "UJOIN_TEST_A", "2"));
    ASSERT_PCTX_OK(pctx_set_env(job.handle, 1, "UJOIN_TEST_B", nullptr));
    ASSERT_PCTX_OK(pctx_start(job.handle));
    EXPECT_EQ(pctx_wait(job.handle, -1), UJOIN_OK);
    unsetenv("UJOIN_TEST_A");
    unsetenv("UJOIN_TEST_B");
    EXPECT_EQ(read_file(job.result(0).stdout_path), "UJOIN_TEST_A=2\nUJOIN_TEST_B=kept\n");
    EXPECT_EQ(read_file(job.result(1).stdout_path), "UJOIN_TEST_A=1\nUJOIN_TEST_B=(unset)\n");
}

TEST(PctxRows, P_71_grandchild_does_not_outlive_the_job) {
    Folder folder;
    const std::string pids = folder.file("pids");
    Job job(2, {"0:child=plain," + pids, "0:child=group," + pids, "0:exit=0", "await=" + folder.file("never")});
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_TRUE(eventually([&] { return job.result(0).state == UJOIN_WORKER_EXITED; }));
    ASSERT_EQ(noted_pids(pids).size(), 2U);
    for (const pid_t pid : noted_pids(pids)) EXPECT_TRUE(runs(pid));
    ASSERT_PCTX_OK(pctx_close(job.handle, 0, 1000));
    for (const pid_t pid : noted_pids(pids)) EXPECT_FALSE(runs(pid));
}

TEST(PctxRows, P_72_wait_returns_with_the_last_end) {
    Job job(1, {"sleep=50"});
    ASSERT_PCTX_OK(job.create_and_start());
    const auto start = Clock::now();
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    EXPECT_LT(ms_since(start), at_most(50));
}

TEST(PctxRows, P_73_last_line_of_a_worker_that_ends_at_once) {
    Folder folder;
    Capture console(folder);
    for (int i = 0; i < 50; i++) {
        Job job(1, {"out=last " + std::to_string(i) + "\\n"});
        job.spec.log_dir = "/dev/null";
        job.spec.tee = UJOIN_STD_OUT;
        ASSERT_PCTX_OK(job.create_and_start());
        ASSERT_EQ(pctx_wait(job.handle, -1), UJOIN_OK);
        const std::vector<std::string> lines = split_lines(console.out());
        ASSERT_EQ(lines.size(), static_cast<size_t>(i) + 1);
        ASSERT_EQ(lines.back(), "[worker0]: last " + std::to_string(i));
    }
}

TEST(PctxRows, P_74_line_in_two_halves_gets_one_prefix) {
    Folder folder;
    Capture console(folder);
    Job job(1, {"out=half ", "sleep=60", "out=line\\n", "out=end"});
    job.spec.log_dir = "/dev/null";
    job.spec.tee = UJOIN_STD_OUT;
    job.spec.partial_line_ms = 20;
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, -1), UJOIN_OK);
    console.end();
    EXPECT_EQ(console.out(), "[worker0]: half line\n[worker0]: end\n");
}

TEST(PctxRows, P_76_waiting_again_gives_the_same) {
    Job job(3, {"1:exit=3", "forever"});
    ASSERT_PCTX_OK(job.create_and_start());
    for (int i = 0; i < 2; i++) {
        EXPECT_EQ(pctx_wait(job.handle, -1), UJOIN_E_CHILD_FAILED);
        EXPECT_EQ(pctx_first_failure(job.handle), 1);
        EXPECT_EQ(job.result(0).stopped, 1);
        EXPECT_EQ(job.result(2).failed, 0);
    }
}

std::vector<struct sigaction> handlers() {
    std::vector<struct sigaction> all(65);
    for (int s = 1; s < 65; s++) sigaction(s, nullptr, &all[static_cast<size_t>(s)]);
    return all;
}

/// The library installs none, on whichever thread it starts workers: not four, none that raises, nothing to warn of.
TEST(PctxRows, P_78_LAUNCHER_06_not_P_41_P_42_P_46_handlers_of_this_process_stay) {
    static volatile sig_atomic_t seen[65];
    struct sigaction own {};
    own.sa_handler = [](int signal) { seen[signal] = seen[signal] + 1; };
    for (const int signal : {SIGTERM, SIGINT, SIGCHLD, SIGPIPE}) sigaction(signal, &own, nullptr);
    const auto before = handlers();
    const auto expect_same = [&](const char *when) {
        const auto now = handlers();
        for (size_t s = 1; s < 65; s++) EXPECT_EQ(now[s].sa_handler, before[s].sa_handler) << "signal " << s << " " << when;
    };
    const auto start_and_close = [&] {
        Job job(2, {"forever"});
        ASSERT_PCTX_OK(job.create_and_start());
        expect_same("while they run");
        ASSERT_PCTX_OK(pctx_close(job.handle, 0, 1000));
    };
    start_and_close();
    expect_same("after the first thread");
    std::thread(start_and_close).join();
    expect_same("after another thread");
    std::thread one(start_and_close);
    std::thread two(start_and_close);
    one.join();
    two.join();
    expect_same("after two at once");
    raise(SIGTERM);
    EXPECT_EQ(seen[SIGTERM], 1) << "it is this process's own still";
}

TEST(PctxRows, P_80_any_bytes_pass) {
    Folder folder;
    const std::string logs = folder.file("logs");
    Capture console(folder);
    Job job(1, {"out=a\\0b\\xff\\xfe\\n"});
    job.spec.log_dir = logs.c_str();
    job.spec.tee = UJOIN_STD_OUT;
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, -1), UJOIN_OK);
    console.end();
    const std::string bytes("a\0b\xff\xfe\n", 6);
    EXPECT_EQ(read_file(job.result(0).stdout_path), bytes);
    EXPECT_EQ(console.out(), "[worker0]: " + bytes);
}

} // namespace
