// SPDX-License-Identifier: Apache-2.0
// What can go wrong with processes: programs that cannot run, workers that will not end, hosts that take their status,
// launchers that are killed.
#include "harness/pctx_kit.hpp"
#include "os/process.hpp"
#include <atomic>
#include <cstring>
#include <set>
#include <sys/wait.h>

using namespace pctx_kit;

namespace {

const ujoin_containment both[] = {UJOIN_CONTAINMENT_GROUP, UJOIN_CONTAINMENT_WARDEN};
const char *name_of(ujoin_containment containment) { return containment == UJOIN_CONTAINMENT_WARDEN ? "warden" : "group"; }

// -------------------------------------------------------------------------------------------------------------- starting

TEST(PctxProcess, P_79_one_that_cannot_be_executed_ends_those_before_it) {
    for (const ujoin_containment containment : both) {
        SCOPED_TRACE(name_of(containment));
        Folder folder;
        const std::string logs = folder.file("logs");
        std::ofstream(folder.file("script")) << "no interpreter\n";
        std::filesystem::permissions(folder.file("script"), std::filesystem::perms::owner_all);
        Job job(4, {"child=plain," + folder.file("pids"), "pid=" + folder.file("pids"), "forever"});
        job.spec.containment = containment;
        job.spec.log_dir = logs.c_str();
        job.spec.redirects = UJOIN_STD_ALL;
        job.spec.first_rank = 8;
        ASSERT_PCTX_OK(job.create());
        const std::string script = folder.file("script");
        ujoin_worker worker{};
        worker.size = sizeof worker;
        worker.program = script.c_str();
        ASSERT_PCTX_OK(pctx_set_worker(job.handle, 2, &worker));
        EXPECT_EQ(pctx_start(job.handle), UJOIN_E_SYSTEM);
        EXPECT_EQ(ujoin_last_errno(), ENOEXEC);
        const std::string text = ujoin_last_error();
        EXPECT_NE(text.find("rank 10: cannot execute \"" + script + "\": "), std::string::npos) << text;
        // Those before it may not even have come to their first line; whoever has is gone.
        EXPECT_TRUE(eventually([&] {
            const std::vector<pid_t> pids = noted_pids(folder.file("pids"));
            return std::none_of(pids.begin(), pids.end(), runs);
        }));
        EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
        EXPECT_EQ(errno, ECHILD);
        EXPECT_FALSE(std::filesystem::exists(logs)); // nothing ran: nothing to read
        EXPECT_EQ(job.result(0).state, UJOIN_WORKER_CREATED);
        EXPECT_EQ(pctx_wait(job.handle, 0), UJOIN_E_STATE);
        EXPECT_EQ(pctx_start(job.handle), UJOIN_E_STATE);
        ASSERT_PCTX_OK(pctx_close(job.handle, 0, 0));
    }
}

TEST(PctxProcess, directory_that_does_not_exist_is_named) {
    Job job(1);
    ASSERT_PCTX_OK(job.create());
    ujoin_worker worker{};
    worker.size = sizeof worker;
    worker.directory = "/no/such/directory";
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, -1, &worker));
    EXPECT_EQ(pctx_start(job.handle), UJOIN_E_SYSTEM);
    EXPECT_EQ(ujoin_last_errno(), ENOENT);
    EXPECT_NE(std::strstr(ujoin_last_error(), "/no/such/directory"), nullptr) << ujoin_last_error();
}

TEST(PctxProcess, a_worker_begins_with_nothing_of_the_host) {
    for (const ujoin_containment containment : both) {
        SCOPED_TRACE(name_of(containment));
        Folder folder;
        const std::string logs = folder.file("logs");
        const int leaky = dup(0); // a descriptor of the host without close-on-exec
        struct sigaction ignore {};
        struct sigaction old_usr1 {};
        struct sigaction old_pipe {};
        ignore.sa_handler = SIG_IGN;
        sigaction(SIGPIPE, &ignore, &old_pipe);
        struct sigaction handle {};
        handle.sa_handler = [](int) {};
        sigaction(SIGUSR1, &handle, &old_usr1);
        Job job(1, {"fds", "signals", "session", "stdin"});
        job.spec.containment = containment;
        job.spec.log_dir = logs.c_str();
        job.spec.redirects = UJOIN_STD_ALL;
        ASSERT_PCTX_OK(job.create());
        // In a sanitizer build the worker's own runtime would catch these.
        for (const char *options : {"ASAN_OPTIONS", "TSAN_OPTIONS"})
            ASSERT_PCTX_OK(pctx_set_env(job.handle, -1, options, "handle_segv=0:handle_sigbus=0:handle_sigfpe=0"));
        ASSERT_PCTX_OK(pctx_start(job.handle));
        EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
        sigaction(SIGPIPE, &old_pipe, nullptr);
        sigaction(SIGUSR1, &old_usr1, nullptr);
        close(leaky);
        const std::vector<std::string> lines = split_lines(read_file(job.result(0).stdout_path));
        const std::string none = ":\t0000000000000000";
        EXPECT_EQ(lines, (std::vector<std::string>{"fd 0", "fd 1", "fd 2", "SigPnd" + none, "SigBlk" + none,
                                                   "SigIgn" + none, "SigCgt" + none, "session 1", "stdin 0"}));
    }
}

TEST(PctxProcess, a_worker_has_the_signal_mask_of_the_starting_thread) {
    Folder folder;
    const std::string logs = folder.file("logs");
    Job job(1, {"signals"});
    job.spec.log_dir = logs.c_str();
    job.spec.redirects = UJOIN_STD_ALL;
    ASSERT_PCTX_OK(job.create());
    sigset_t set;
    sigset_t old;
    sigemptyset(&set);
    sigaddset(&set, SIGUSR2); // 12
    pthread_sigmask(SIG_BLOCK, &set, &old);
    ASSERT_PCTX_OK(pctx_start(job.handle));
    pthread_sigmask(SIG_SETMASK, &old, nullptr);
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    EXPECT_NE(read_file(job.result(0).stdout_path).find("SigBlk:\t0000000000000800\n"), std::string::npos);
}

TEST(PctxProcess, arguments_directory_and_local_rank) {
    Folder folder;
    const std::string logs = folder.file("logs");
    Job job(2, {"out=${local_rank} of ${rank}\\n", "cwd"});
    job.spec.log_dir = logs.c_str();
    job.spec.redirects = UJOIN_STD_ALL;
    job.spec.first_rank = 4;
    ASSERT_PCTX_OK(job.create());
    ujoin_worker worker{};
    worker.size = sizeof worker;
    const std::string directory = folder.path.string();
    worker.directory = directory.c_str();
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, -1, &worker));
    ASSERT_PCTX_OK(pctx_start(job.handle));
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    EXPECT_EQ(read_file(job.result(1).stdout_path), "1 of ${rank}\n" + directory + "\n");
    EXPECT_EQ(job.result(1).rank, 1);
    EXPECT_EQ(job.result(1).stdout_path,
              logs + "/" + std::filesystem::read_symlink(logs + "/latest").string() + "/5/stdout.log");
}

// ------------------------------------------------------------------------------------------------------------------ ends

/// A killed process closes what it had before it has ended: whoever notices may be faster to fail.
TEST(PctxProcess, ERRORS_01_who_was_on_its_way_out_is_the_cause) {
    Folder folder;
    const std::string grown = folder.file("grown");
    const std::string go = folder.file("go");
    Job job(2, {"0:grow=512", "0:touch=" + grown, "0:forever", "1:await=" + go, "1:exit=3"});
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(grown); }, 20'000));
    const pid_t pid = job.result(0).pid;
    ASSERT_EQ(kill(pid, SIGKILL), 0);
    ASSERT_TRUE(eventually([&] { return ujoin::os::is_ending(pid); }));
    std::ofstream(go) << "";
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    EXPECT_EQ(pctx_first_failure(job.handle), 0);
    EXPECT_EQ(job.result(0).failed, 1);
    EXPECT_EQ(job.result(0).stopped, 0);
}

TEST(PctxProcess, ERRORS_01_a_worker_whose_first_thread_has_ended_is_not_on_its_way_out) {
    Folder folder;
    const std::string go = folder.file("go");
    Job job(2, {"0:leaderless", "1:await=" + go, "1:exit=3"});
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_TRUE(eventually([&] { return state_of(job.result(0).pid) == 'Z'; }));
    EXPECT_FALSE(ujoin::os::is_ending(job.result(0).pid));
    std::ofstream(go) << "";
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    EXPECT_EQ(pctx_first_failure(job.handle), 1);
    EXPECT_EQ(job.result(0).failed, 0);
    EXPECT_EQ(job.result(0).stopped, 1);
}

TEST(PctxProcess, P_36_ERRORS_01_first_failure_is_the_cause_and_the_others_are_victims) {
    for (const ujoin_containment containment : both) {
        SCOPED_TRACE(name_of(containment));
        Folder folder;
        const std::string logs = folder.file("logs");
        Job job(4, {"2:await=" + folder.file("go"), "2:err=token id out of range\\n", "2:die=11", "forever"});
        job.spec.containment = containment;
        job.spec.name = "trainer";
        job.spec.log_dir = logs.c_str();
        job.spec.redirects = UJOIN_STD_ALL;
        ASSERT_PCTX_OK(job.create_and_start());
        std::ofstream(folder.file("go")) << "";
        EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
        EXPECT_EQ(pctx_first_failure(job.handle), 2);
        EXPECT_EQ(job.result(2).signal, SIGSEGV);
        EXPECT_EQ(job.result(2).exit_code, -1);
        EXPECT_EQ(job.result(2).failed, 1);
        EXPECT_EQ(job.result(2).containment, containment);
        EXPECT_GT(job.result(2).peak_bytes, 0U);
        for (const int r : {0, 1, 3}) {
            EXPECT_EQ(job.result(r).failed, 0);
            EXPECT_EQ(job.result(r).stopped, 1);
            EXPECT_EQ(job.result(r).signal, SIGTERM);
        }
        const std::string report = pctx_report(job.handle);
        const size_t root = report.find("Root Cause (first observed failure):\n[0]:\n");
        ASSERT_NE(root, std::string::npos) << report;
        EXPECT_NE(report.find("trainer FAILED\n"), std::string::npos) << report;
        EXPECT_NE(report.find("  rank      : 2 (local_rank: 2)\n  exitcode  : -11 (pid: ", root), std::string::npos)
            << report;
        EXPECT_NE(report.find("  end       : died of SIGSEGV, ", root), std::string::npos) << report;
        EXPECT_NE(report.find("  token id out of range\n", root), std::string::npos) << report;
        for (const int r : {0, 1, 3}) {
            const size_t at = report.find("  rank      : " + std::to_string(r) + " (local_rank");
            ASSERT_LT(at, root) << report;
            EXPECT_LT(report.find("stopped by the launcher", at), report.find("  traceback", at)) << report;
            EXPECT_EQ(job.result(r).message, "Signal 15 (SIGTERM) received by PID " + std::to_string(job.result(r).pid));
        }
    }
}

TEST(PctxProcess, ERRORS_01_who_records_a_failure_later_is_listed_as_such) {
    Folder folder;
    const std::string logs = folder.file("logs");
    const std::string up = folder.file("up");
    // Rank 2 is the cause; 0 and 1 notice that it has gone, and fail too; 3 does nothing.
    Job job(4, {"0:ignoreterm", "1:ignoreterm", "pid=" + up, "2:await=" + folder.file("go"), "2:record=the cause",
                "2:exit=7", "0:await=" + folder.file("gone"), "0:record=lost rank 2", "0:exit=1",
                "1:await=" + folder.file("gone"), "1:record=lost rank 2", "1:exit=1", "forever"});
    job.spec.log_dir = logs.c_str();
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_TRUE(eventually([&] { return noted_pids(up).size() == 4; }));
    std::ofstream(folder.file("go")) << "";
    ASSERT_TRUE(eventually([&] { return job.result(3).state == UJOIN_WORKER_SIGNALED; })); // the job is being ended
    std::ofstream(folder.file("gone")) << "";
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    EXPECT_EQ(pctx_first_failure(job.handle), 2);
    EXPECT_EQ(job.result(2).exit_code, 7);
    EXPECT_STREQ(job.result(2).message, "the cause");
    for (const int r : {0, 1}) {
        EXPECT_EQ(job.result(r).failed, 1);
        EXPECT_EQ(job.result(r).stopped, 0);
        EXPECT_EQ(job.result(r).exit_code, 1);
    }
    EXPECT_EQ(job.result(3).stopped, 1);
    EXPECT_EQ(job.result(3).signal, SIGTERM);
    const std::string report = pctx_report(job.handle);
    const size_t root = report.find("Root Cause");
    EXPECT_GT(report.find("exitcode  : 7"), root) << report;
    EXPECT_GT(report.find("the cause"), root) << report;
    EXPECT_LT(report.find("exited with code 1, "), root) << report;
    EXPECT_LT(report.find("a later failure"), root) << report;
    EXPECT_LT(report.find("stopped by the launcher"), root) << report;
    EXPECT_NE(report.find("host      : "), std::string::npos) << report;
}

TEST(PctxProcess, worker_that_ignores_the_polite_signal_is_killed_after_the_grace) {
    for (const ujoin_containment containment : both) {
        SCOPED_TRACE(name_of(containment));
        Folder folder;
        Job job(
            2, {"0:ignoreterm", "0:touch=" + folder.file("ready"), "0:forever", "await=" + folder.file("ready"), "exit=3"});
        job.spec.containment = containment;
        job.spec.grace_ms = 300;
        const auto start = Clock::now();
        ASSERT_PCTX_OK(job.create_and_start());
        EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
        EXPECT_GE(ms_since(start), 300);
        EXPECT_LT(ms_since(start), at_most(300));
        EXPECT_EQ(job.result(0).signal, SIGKILL);
        EXPECT_EQ(job.result(0).stopped, 1);
        EXPECT_EQ(pctx_first_failure(job.handle), 1);
    }
}

TEST(PctxProcess, LAUNCHER_05_grace_is_honoured) {
    Folder folder;
    const auto close_with = [&](const std::string &done, const char *before, int64_t grace) {
        const std::string ready = "touch=" + folder.file(done + "-ready");
        const bool stops = std::strcmp(before, "stopself") == 0;
        Job job(1, {"onterm=" + folder.file(done), stops ? ready : before, stops ? before : ready, "forever"});
        EXPECT_EQ(job.create_and_start(), UJOIN_OK);
        EXPECT_TRUE(eventually([&] { return std::filesystem::exists(folder.file(done + "-ready")); }));
        if (stops) {
            EXPECT_TRUE(eventually([&] { return state_of(job.result(0).pid) == 'T'; }));
        }
        const auto start = Clock::now();
        EXPECT_EQ(pctx_close(job.handle, 0, grace), UJOIN_OK) << ujoin_last_error();
        const int64_t took = ms_since(start);
        return std::pair(job.result(0), took);
    };
    const auto [polite, polite_ms] = close_with("a", "sleep=0", 60'000);
    EXPECT_EQ(polite.exit_code, 0); // its handler ran
    EXPECT_EQ(polite.stopped, 1);
    EXPECT_TRUE(std::filesystem::exists(folder.file("a")));
    EXPECT_LT(polite_ms, at_most(1000));
    const auto [late, late_ms] = close_with("b", "slowterm", 300); // its handler takes three seconds
    EXPECT_EQ(late.signal, SIGKILL);
    EXPECT_GE(late_ms, 300);
    EXPECT_LT(late_ms, at_most(300));
    EXPECT_FALSE(std::filesystem::exists(folder.file("b")));
    const auto [stopped, stopped_ms] = close_with("c", "stopself", 200); // a stopped process takes SIGKILL only
    EXPECT_EQ(stopped.signal, SIGKILL);
    EXPECT_GE(stopped_ms, 200);
    EXPECT_FALSE(std::filesystem::exists(folder.file("c")));
    const auto [now, now_ms] = close_with("d", "sleep=0", 0);
    EXPECT_EQ(now.stopped, 1);
    EXPECT_LT(now_ms, at_most(0));
}

TEST(PctxProcess, LAUNCHER_01_grandchildren_are_gone_after_close_and_after_a_kill) {
    for (const ujoin_containment containment : both) {
        for (const bool kill_one : {false, true}) {
            SCOPED_TRACE(std::string(name_of(containment)) + (kill_one ? ", one killed" : ", closed"));
            Folder folder;
            const std::string pids = folder.file("pids");
            Job job(4, {"child=plain," + pids, "child=group," + pids, "forever"});
            job.spec.containment = containment;
            ASSERT_PCTX_OK(job.create_and_start());
            ASSERT_TRUE(eventually([&] { return noted_pids(pids).size() == 8; }));
            if (kill_one) {
                kill(job.result(1).pid, SIGKILL);
                EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
                EXPECT_EQ(pctx_first_failure(job.handle), 1);
            } else {
                ASSERT_PCTX_OK(pctx_close(job.handle, SIGTERM, 3000));
            }
            for (const pid_t pid : noted_pids(pids)) EXPECT_FALSE(runs(pid));
        }
    }
}

TEST(PctxProcess, grandchildren_have_the_grace_though_their_worker_is_gone) {
    Folder folder;
    const std::string commands =
        "'" + helper() + "' onterm=" + folder.file("saved") + " touch=" + folder.file("ready") + " forever; :";
    const char *args[] = {"-c", commands.c_str()}; // the shell dies of the signal at once, its child works on
    Job job(1);
    job.spec.program = "sh";
    job.spec.args = args;
    job.spec.arg_count = 2;
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.file("ready")); }));
    ASSERT_PCTX_OK(pctx_close(job.handle, 0, 60'000));
    EXPECT_TRUE(std::filesystem::exists(folder.file("saved")));
}

TEST(PctxProcess, warden_ends_even_what_has_left_the_session) {
    Folder folder;
    const std::string pids = folder.file("pids");
    Job job(2, {"child=setsid," + pids, "child=daemon," + pids, "forever"});
    job.spec.containment = UJOIN_CONTAINMENT_WARDEN;
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_TRUE(eventually([&] { return noted_pids(pids).size() == 4; }));
    ASSERT_PCTX_OK(pctx_close(job.handle, 0, 5000));
    for (const pid_t pid : noted_pids(pids)) EXPECT_FALSE(exists(pid));
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1); // nor is the warden left
}

TEST(PctxProcess, warden_that_is_killed_takes_its_workers_with_it) {
    Job job(2, {"forever"});
    job.spec.containment = UJOIN_CONTAINMENT_WARDEN;
    ASSERT_PCTX_OK(job.create_and_start());
    std::ifstream stat("/proc/" + std::to_string(job.result(0).pid) + "/stat");
    std::string text;
    std::getline(stat, text);
    pid_t parent = 0;
    ASSERT_EQ(std::sscanf(text.c_str() + text.rfind(')') + 1, " %*c %d", &parent), 1);
    kill(parent, SIGKILL);
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    for (int r = 0; r < 2; r++) EXPECT_FALSE(runs(job.result(r).pid));
}

TEST(PctxProcess, warden_that_ends_at_once_is_an_error) {
    Folder folder;
    std::ofstream(folder.file("ujoin-warden")) << "#!/bin/sh\nexit 3\n";
    std::filesystem::permissions(folder.file("ujoin-warden"), std::filesystem::perms::owner_all);
    setenv("UJOIN_LIBEXEC_DIR", folder.path.c_str(), 1);
    Job job(1, {"forever"});
    job.spec.containment = UJOIN_CONTAINMENT_WARDEN;
    const ujoin_status status = job.create_and_start();
    unsetenv("UJOIN_LIBEXEC_DIR");
    EXPECT_EQ(status, UJOIN_E_SYSTEM);
    EXPECT_NE(std::strstr(ujoin_last_error(), "the warden ended"), nullptr) << ujoin_last_error();
}

/// A copy of library and launcher in a place of their own, where no helper lies beside them.
TEST(PctxProcess, missing_warden_is_an_error_that_lists_the_places) {
    Folder folder;
    const std::filesystem::path programs = std::filesystem::path(helper()).parent_path();
    std::filesystem::create_directories(folder.path / "a/b");
    std::filesystem::copy(programs / "pctx_launcher", folder.path / "a/b/launcher");
    std::filesystem::copy(programs / "../../lib/libujoin.so.0", folder.path / "a/b/libujoin.so.0");
    const std::string logs = folder.file("logs");
    const std::string program = folder.file("a/b/launcher");
    const char *args[] = {"warden", "1", "/bin/true"};
    Job job(1);
    job.spec.program = program.c_str();
    job.spec.args = args;
    job.spec.arg_count = 3;
    job.spec.log_dir = logs.c_str();
    job.spec.redirects = UJOIN_STD_ERR;
    ASSERT_PCTX_OK(job.create());
    ASSERT_PCTX_OK(pctx_set_env(job.handle, 0, "LD_LIBRARY_PATH", folder.file("a/b").c_str()));
    ASSERT_PCTX_OK(pctx_set_env(job.handle, 0, "UJOIN_LIBEXEC_DIR", "/no/such/place"));
    ASSERT_PCTX_OK(pctx_start(job.handle));
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    const std::string text = read_file(job.result(0).stderr_path);
    for (const char *place : {"UJOIN_E_SYSTEM", "ujoin-warden was not found", "/no/such/place/ujoin-warden",
                              "/a/b/../libexec/ujoin/", "/a/b/../../libexec/ujoin/", "UJOIN_LIBEXEC_DIR"})
        EXPECT_NE(text.find(place), std::string::npos) << place << " in: " << text;
}

// ------------------------------------------------------------------------------------------------------ the launcher dies

/// Starts pctx_launcher, waits until its workers run and have written `count` pids, kills it and waits for it.
std::vector<pid_t> kill_launcher(const char *containment, const std::vector<std::string> &commands, const std::string &pids,
                                 size_t count) {
    std::vector<std::string> texts = {helper("pctx_launcher"), containment, "2", helper()};
    texts.insert(texts.end(), commands.begin(), commands.end());
    std::vector<char *> argv;
    for (std::string &text : texts) argv.push_back(text.data());
    argv.push_back(nullptr);
    const pid_t launcher = vfork();
    if (launcher == 0) {
        execv(argv[0], argv.data());
        _exit(127);
    }
    EXPECT_TRUE(eventually([&] { return noted_pids(pids).size() == count; }, 5000));
    kill(launcher, SIGKILL);
    waitpid(launcher, nullptr, 0);
    return noted_pids(pids);
}

/// And leaves nothing, also when the test fails.
void expect_gone(pid_t pid) {
    EXPECT_TRUE(eventually([&] { return !runs(pid); }, 1000)) << pid;
    kill(pid, SIGKILL);
}

TEST(PctxProcess, P_70_workers_go_with_a_launcher_that_is_killed) {
    Folder folder;
    const std::string pids = folder.file("pids");
    for (const pid_t pid : kill_launcher("group", {"pid=" + pids, "forever"}, pids, 2)) expect_gone(pid);
}

TEST(PctxProcess, P_70_warden_ends_the_whole_tree_of_a_launcher_that_is_killed) {
    Folder folder;
    const std::string pids = folder.file("pids");
    const std::vector<std::string> commands = {"ignoreterm",
                                               "child=plain," + pids,
                                               "child=group," + pids,
                                               "child=setsid," + pids,
                                               "child=daemon," + pids,
                                               "pid=" + pids,
                                               "forever"};
    for (const pid_t pid : kill_launcher("warden", commands, pids, 10)) expect_gone(pid);
}

TEST(PctxProcess, LAUNCHER_03_end_of_the_starting_thread_does_not_end_workers) {
    Folder folder;
    Job job(3, {"await=" + folder.file("go")});
    ujoin_status started = UJOIN_E_INTERNAL;
    std::thread([&] { started = job.create_and_start(); }).join();
    ASSERT_EQ(started, UJOIN_OK) << ujoin_last_error();
    EXPECT_EQ(pctx_wait(job.handle, 50), UJOIN_PENDING);
    std::ofstream(folder.file("go")) << "";
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
}

// ------------------------------------------------------------------------------------------------ hosts that take statuses

/// The exact status where the kernel keeps it in the pidfd (6.15), else that it is unknown; never a wrong one.
void expect_exit_5_or_unknown(const Job &job, int32_t rank) {
    const ujoin_worker_result result = job.result(rank);
    EXPECT_EQ(result.failed, 1);
    if (result.state == UJOIN_WORKER_UNKNOWN) {
        EXPECT_EQ(result.exit_code, -1);
    } else {
        EXPECT_EQ(result.state, UJOIN_WORKER_EXITED);
        EXPECT_EQ(result.exit_code, 5);
    }
}

TEST(PctxProcess, host_that_ignores_sigchld) {
    for (const ujoin_containment containment : both) {
        SCOPED_TRACE(name_of(containment));
        struct sigaction ignore {};
        struct sigaction old {};
        ignore.sa_handler = SIG_IGN;
        sigaction(SIGCHLD, &ignore, &old);
        Job job(2, {"0:exit=5", "forever"});
        job.spec.containment = containment;
        ASSERT_PCTX_OK(job.create_and_start());
        EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
        sigaction(SIGCHLD, &old, nullptr);
        expect_exit_5_or_unknown(job, 0);
        EXPECT_EQ(job.result(1).stopped, 1);
    }
}

TEST(PctxProcess, host_that_reaps_every_child) {
    for (const ujoin_containment containment : both) {
        SCOPED_TRACE(name_of(containment));
        std::atomic<bool> stop{false};
        std::thread reaper([&] {
            while (!stop)
                if (waitpid(-1, nullptr, 0) < 0) std::this_thread::yield();
        });
        {
            Job job(3, {"0:exit=5", "sleep=5", "2:forever"});
            job.spec.containment = containment;
            EXPECT_EQ(job.create_and_start(), UJOIN_OK) << ujoin_last_error();
            EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
            EXPECT_EQ(pctx_first_failure(job.handle), 0);
            expect_exit_5_or_unknown(job, 0);
            EXPECT_FALSE(runs(job.result(2).pid));
        }
        stop = true;
        reaper.join();
    }
}

// ------------------------------------------------------------------------------------------------------------ abort, many

TEST(PctxProcess, abort_wakes_a_waiter_and_kills) {
    for (const ujoin_containment containment : both) {
        SCOPED_TRACE(name_of(containment));
        Job job(2, {"ignoreterm", "forever"});
        job.spec.containment = containment;
        ASSERT_PCTX_OK(job.create_and_start());
        ujoin_status waited = UJOIN_OK;
        std::thread waiter([&] { waited = pctx_wait(job.handle, 60'000); });
        pctx_abort(job.handle);
        waiter.join();
        EXPECT_EQ(waited, UJOIN_E_ABORTED);
        ASSERT_PCTX_OK(pctx_close(job.handle, 0, 0));
        for (int r = 0; r < 2; r++) {
            EXPECT_EQ(job.result(r).signal, SIGKILL);
            EXPECT_FALSE(exists(job.result(r).pid));
        }
        EXPECT_EQ(pctx_wait(job.handle, 0), UJOIN_E_ABORTED);
    }
}

TEST(PctxProcess, abort_before_the_start_prevents_it) {
    Job job(1);
    ASSERT_PCTX_OK(job.create());
    pctx_abort(job.handle);
    EXPECT_EQ(pctx_start(job.handle), UJOIN_E_ABORTED);
    EXPECT_EQ(pctx_wait(job.handle, 0), UJOIN_E_ABORTED);
}

TEST(PctxProcess, destroy_ends_workers_in_the_background) {
    for (const ujoin_containment containment : both) {
        SCOPED_TRACE(name_of(containment));
        Folder folder;
        std::vector<pid_t> pids;
        {
            Job job(2, {"ignoreterm", "touch=" + folder.file("ready"), "forever"});
            job.spec.containment = containment;
            job.spec.grace_ms = 200;
            ASSERT_PCTX_OK(job.create_and_start());
            ASSERT_TRUE(eventually([&] { return std::filesystem::exists(folder.file("ready")); }));
            for (int r = 0; r < 2; r++) pids.push_back(job.result(r).pid);
            pctx_destroy(job.handle);
            job.handle = nullptr;
        }
        for (const pid_t pid : pids) EXPECT_TRUE(eventually([&] { return !exists(pid); }));
    }
}

TEST(PctxProcess, contexts_at_the_same_time_do_not_meet) {
    std::vector<std::thread> threads;
    for (int t = 0; t < 4; t++) {
        threads.emplace_back([t] {
            for (int i = 0; i < 5; i++) {
                Job job(3, {"1:exit=" + std::to_string(10 + t), "forever"});
                job.spec.containment = both[t % 2];
                EXPECT_EQ(job.create_and_start(), UJOIN_OK) << ujoin_last_error();
                EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
                EXPECT_EQ(pctx_first_failure(job.handle), 1);
                EXPECT_EQ(job.result(1).exit_code, 10 + t);
            }
        });
    }
    for (std::thread &thread : threads) thread.join();
}

TEST(PctxProcess, sixty_four_workers) {
    for (const ujoin_containment containment : both) {
        SCOPED_TRACE(name_of(containment));
        Job job(64, {"40:exit=9", "forever"});
        job.spec.containment = containment;
        ASSERT_PCTX_OK(job.create_and_start());
        EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
        EXPECT_EQ(pctx_first_failure(job.handle), 40);
        for (int r = 0; r < 64; r++) {
            EXPECT_EQ(job.result(r).stopped, r == 40 ? 0 : 1);
            EXPECT_FALSE(exists(job.result(r).pid));
        }
    }
}

TEST(PctxProcess, LAUNCHER_06_signals_go_to_the_workers_asked_for) {
    Folder folder;
    Job job(3, {"onterm=" + folder.file("done${local_rank}"), "pid=" + folder.file("pids"), "forever"});
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_TRUE(eventually([&] { return noted_pids(folder.file("pids")).size() == 3; }));
    ASSERT_PCTX_OK(pctx_signal(job.handle, 1, SIGTERM));
    ASSERT_TRUE(eventually([&] { return job.result(1).state == UJOIN_WORKER_EXITED; }));
    EXPECT_EQ(pctx_signal(job.handle, 1, SIGTERM), UJOIN_E_STATE);
    EXPECT_EQ(job.result(0).state, UJOIN_WORKER_RUNNING);
    ASSERT_PCTX_OK(pctx_signal(job.handle, -1, SIGTERM));
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK); // their handlers exit with 0
    for (const char *name : {"done0", "done1", "done2"}) EXPECT_TRUE(std::filesystem::exists(folder.file(name)));
}

TEST(PctxProcess, interrupt_check_ends_a_wait_and_leaves_the_workers) {
    Job job(1, {"forever"});
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_PCTX_OK(ujoin_set_interrupt_check([](void *) { return ujoin_set_last_error(UJOIN_E_CALLBACK, "enough"); },
                                             nullptr, nullptr));
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CALLBACK);
    ASSERT_PCTX_OK(ujoin_set_interrupt_check(nullptr, nullptr, nullptr));
    EXPECT_EQ(job.result(0).state, UJOIN_WORKER_RUNNING);
    EXPECT_EQ(pctx_wait(job.handle, 0), UJOIN_PENDING);
}

} // namespace
