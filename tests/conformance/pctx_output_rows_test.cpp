// SPDX-License-Identifier: Apache-2.0
// Rows of the process launcher: failures of programs, filters, prefixes, settings of workers.
#include "base/error.hpp"
#include "harness/launch.hpp"
#include "harness/pctx_kit.hpp"
#include "pctx/limits.hpp"
#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <nlohmann/json.hpp>
#include <sched.h>
#include <set>
#include <sys/wait.h>

using namespace pctx_kit;

namespace {

ujoin_worker a_worker() {
    ujoin_worker worker{};
    worker.size = sizeof worker;
    return worker;
}

TEST(PctxRows, P_10_ranks_without_a_program_are_named) {
    Job job(10);
    job.spec.program = nullptr;
    ASSERT_PCTX_OK(job.create());
    ujoin_worker worker = a_worker();
    const std::string program = helper();
    worker.program = program.c_str();
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, 3, &worker));
    EXPECT_EQ(pctx_start(job.handle), UJOIN_E_INVALID);
    EXPECT_NE(std::strstr(ujoin_last_error(), "ranks 0 to 9"), nullptr) << ujoin_last_error();
    EXPECT_NE(std::strstr(ujoin_last_error(), "0, 1, 2, 4, 5, 6, 7, 8, 9"), nullptr) << ujoin_last_error();
    EXPECT_EQ(pctx_wait(job.handle, 0), UJOIN_E_STATE) << "nothing was started";
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, -1, &worker));
    ASSERT_PCTX_OK(pctx_start(job.handle)); // what was refused can be mended
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    EXPECT_EQ(pctx_start(job.handle), UJOIN_E_STATE);
}

TEST(PctxRows, P_12_a_thread_that_is_not_the_first) {
    std::thread([] {
        Folder folder;
        Job job(2, {"await=" + folder.file("go"), "0:exit=0"});
        ASSERT_PCTX_OK(job.create_and_start());
        EXPECT_EQ(pctx_wait(job.handle, 20), UJOIN_PENDING);
        EXPECT_EQ(job.result(1).state, UJOIN_WORKER_RUNNING);
        std::ofstream(folder.file("go")) << "";
        EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
        for (int r = 0; r < 2; r++) EXPECT_EQ(job.result(r).state, UJOIN_WORKER_EXITED);
    }).join();
}

/// A log directory may hold other things; what an earlier start of the same name left is not overwritten (SECURITY-03).
TEST(PctxRows, P_20_not_P_08_P_67_SECURITY_03_log_directory_that_is_not_empty) {
    Folder folder;
    const std::string logs = folder.file("logs");
    std::filesystem::create_directory(logs);
    std::ofstream(logs + "/mine") << "kept";
    for (int i = 0; i < 2; i++) {
        Job job(1, {"out=hello\\n"});
        job.spec.log_dir = logs.c_str();
        job.spec.run_id = "run_id";
        job.spec.restart_count = 3;
        job.spec.redirects = UJOIN_STD_ALL;
        const ujoin_status status = job.create_and_start();
        if (i == 0) {
            ASSERT_EQ(status, UJOIN_OK) << ujoin_last_error();
            EXPECT_EQ(pctx_wait(job.handle, -1), UJOIN_OK);
            EXPECT_EQ(job.result(0).stdout_path, logs + "/run_id/attempt_3/0/stdout.log");
        } else {
            EXPECT_EQ(status, UJOIN_E_SYSTEM);
            EXPECT_EQ(ujoin_last_errno(), EEXIST);
        }
        EXPECT_EQ(read_file(logs + "/run_id/attempt_3/0/stdout.log"), "hello\n");
    }
    EXPECT_EQ(read_file(logs + "/mine"), "kept");
}

TEST(PctxRows, P_23_P_25_not_P_24_exit_138_and_a_sibling_that_is_stopped) {
    Folder folder;
    const std::string logs = folder.file("logs");
    Job job(2, {"0:await=" + folder.file("ready"), "0:err=exit 138 from 0\\n", "0:exit=138",
                "1:touch=" + folder.file("ready"), "1:forever"});
    job.spec.log_dir = logs.c_str();
    ASSERT_PCTX_OK(job.create());
    ujoin_worker worker = a_worker();
    worker.redirects = UJOIN_STD_ALL;
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, 0, &worker));
    ASSERT_PCTX_OK(pctx_start(job.handle));
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    const ujoin_worker_result first = job.result(0);
    EXPECT_EQ(first.exit_code, 138);
    EXPECT_EQ(first.signal, 0);
    EXPECT_STREQ(first.error_path, "");
    EXPECT_EQ(read_file(first.stderr_path), "exit 138 from 0\n");
    EXPECT_EQ(read_file(first.stdout_path), "");
    const ujoin_worker_result second = job.result(1);
    EXPECT_STREQ(second.stdout_path, "");
    EXPECT_STREQ(second.stderr_path, "");
    EXPECT_EQ(second.signal, SIGTERM);
    EXPECT_NE(std::strstr(second.message, "Signal 15 (SIGTERM) received by PID"), nullptr) << second.message;
    const std::string report = pctx_report(job.handle);
    EXPECT_NE(report.find("  exitcode  : -15 (pid: "), std::string::npos) << report;
    EXPECT_LT(report.find("  exitcode  : -15"), report.find("Root Cause")) << report;
    EXPECT_GT(report.find("  exitcode  : 138"), report.find("Root Cause")) << report;
}

TEST(PctxRows, P_26_E_32_a_program_that_fails_without_a_record) {
    Folder folder;
    Job job(2, {"1:await=" + folder.file("go"), "1:exit=1"});
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_STREQ(pctx_report(job.handle), "") << "nobody has failed";
    EXPECT_TRUE(nlohmann::json::parse(pctx_report_json(job.handle))["first_failure"].is_null());
    std::ofstream(folder.file("go")) << "";
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    EXPECT_EQ(job.result(1).exit_code, 1);
    EXPECT_STREQ(job.result(1).error_path, "");
    EXPECT_EQ(job.result(0).failed, 0);
    for (int r = 0; r < 2; r++) EXPECT_FALSE(exists(job.result(r).pid));
    const auto json = nlohmann::json::parse(pctx_report_json(job.handle));
    EXPECT_EQ(json["first_failure"], 1);
    EXPECT_EQ(json["workers"][1]["exit_code"], 1);
    EXPECT_EQ(json["workers"][1]["state"], "exited");
    EXPECT_TRUE(json["workers"][1]["failed"]);
    EXPECT_FALSE(json["workers"][0]["failed"]);
    EXPECT_TRUE(json["workers"][0]["signal"].is_null() || json["workers"][0]["signal"] == "SIGTERM");
}

TEST(PctxRows, P_32_P_52_filtered_lines_of_programs) {
    Folder folder;
    const std::string logs = folder.file("logs");
    Capture console(folder);
    std::vector<std::string> commands;
    for (int i = 0; i < 20; i++) commands.push_back("out=this line contains " + std::to_string(i) + "\\n");
    Job job(3, commands);
    const char *filters[] = {"contains 2\n", "contains 12\n"};
    job.spec.log_dir = logs.c_str();
    job.spec.tee = UJOIN_STD_OUT;
    job.spec.prefix = "[rank${rank}]:";
    job.spec.stdout_filters = filters;
    job.spec.stdout_filter_count = 2;
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    console.end();
    const std::string attempt = std::filesystem::path(job.result(0).stdout_path).parent_path().parent_path();
    const std::vector<std::string> lines = split_lines(read_file(attempt + "/filtered_stdout.log"));
    std::multiset<std::string> expected;
    for (int r = 0; r < 3; r++)
        for (const char *number : {"2", "12"})
            expected.insert("[rank" + std::to_string(r) + "]:this line contains " + number);
    EXPECT_EQ(std::multiset<std::string>(lines.begin(), lines.end()), expected);
    EXPECT_EQ(split_lines(console.out()).size(), 60U) << "the console has all";
}

TEST(PctxRows, P_39_a_launcher_that_is_ended_by_each_signal_takes_its_programs_along) {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        Folder folder;
        const std::string pids = folder.file("pids");
        Job job(2, {"pid=" + pids, "forever"});
        ASSERT_PCTX_OK(job.create_and_start());
        ASSERT_TRUE(eventually([&] { return noted_pids(pids).size() == 2; }, 5000));
        ASSERT_PCTX_OK(pctx_close(job.handle, signal, 5000)); // what its owner does with the signal that it got
        for (int r = 0; r < 2; r++) EXPECT_EQ(job.result(r).signal, signal);
        for (const pid_t pid : noted_pids(pids)) EXPECT_FALSE(runs(pid));
    }
}

/// The same with a launcher that gets the signal itself.
TEST(PctxRows, P_39_a_launcher_program_that_gets_each_signal_takes_its_programs_along) {
    for (const int signal : {SIGTERM, SIGINT, SIGHUP, SIGQUIT}) {
        Folder folder;
        const std::string pids = folder.file("pids");
        harness::Launch launcher({harness::built("bin/ujoin-run"), "--nproc-per-node=2",
                                  "--signals-to-handle=SIGTERM,SIGINT,SIGHUP,SIGQUIT", helper(), "pid=" + pids, "forever"},
                                 {{"TMPDIR", folder.path.string()}});
        ASSERT_TRUE(eventually([&] { return noted_pids(pids).size() == 2; }, 5000));
        launcher.signal(signal);
        EXPECT_EQ(launcher.wait(), 128 + signal);
        for (const pid_t pid : noted_pids(pids)) EXPECT_FALSE(runs(pid));
    }
}

TEST(PctxRows, P_21_waiting_lasts_until_the_last_program_has_ended) {
    Folder folder;
    Job job(3, {"0:exit=0", "1:await=" + folder.file("one"), "2:await=" + folder.file("two")});
    ASSERT_PCTX_OK(job.create_and_start());
    for (int r = 0; r < 2; r++) {
        ASSERT_TRUE(eventually([&] { return job.result(r).state == UJOIN_WORKER_EXITED; }));
        EXPECT_EQ(pctx_wait(job.handle, 20), UJOIN_PENDING) << "rank " << r << " alone has ended";
        EXPECT_EQ(job.result(2).state, UJOIN_WORKER_RUNNING);
        std::ofstream(folder.file(r == 0 ? "one" : "two")) << "";
    }
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    for (int r = 0; r < 3; r++) {
        EXPECT_EQ(job.result(r).state, UJOIN_WORKER_EXITED);
        EXPECT_FALSE(exists(job.result(r).pid));
    }
}

struct Lines {
    std::mutex mutex;
    std::vector<std::string> lines;
};

TEST(PctxRows, P_47_P_48_the_end_of_a_worker_is_logged_with_its_ranks) {
    Lines log;
    ASSERT_PCTX_OK(ujoin_set_log_sink(
        UJOIN_LOG_INFO,
        [](void *data, ujoin_log_level, const char *text) {
            auto *lines = static_cast<Lines *>(data);
            std::scoped_lock lock(lines->mutex);
            lines->lines.emplace_back(text);
        },
        &log, nullptr));
    Job job(2, {"1:exit=3"});
    job.spec.first_rank = 8;
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    EXPECT_EQ(job.result(1).rank, 1) << "results go by the local rank";
    EXPECT_NE(std::strstr(pctx_report(job.handle), "rank      : 9 (local_rank: 1)"), nullptr);
    pctx_destroy(job.handle);
    job.handle = nullptr;
    ujoin_set_log_sink(0, nullptr, nullptr, nullptr);
    const auto is_it = [](const std::string &line) {
        return line.find("worker closed: rank 9 (pid ") == 0 &&
               line.find("exited with code 3, local rank 1") != std::string::npos;
    };
    EXPECT_TRUE(std::any_of(log.lines.begin(), log.lines.end(), is_it));
}

TEST(PctxRows, P_51_prefixes_by_rank) {
    Folder folder;
    Capture console(folder);
    Job job(3, {"lines=5"});
    job.spec.log_dir = "/dev/null";
    job.spec.first_rank = 4;
    job.spec.tee = UJOIN_STD_OUT;
    job.spec.prefix = "[worker${rank}][${local_rank}]:";
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    console.end();
    std::set<std::string> headers;
    for (const std::string &line : split_lines(console.out())) headers.insert(line.substr(0, line.find(':')));
    EXPECT_EQ(headers, (std::set<std::string>{"[worker4][0]", "[worker5][1]", "[worker6][2]"}));
}

TEST(PctxRows, P_53_no_stream_at_all) {
    Job job(2, {"closeout"});
    job.spec.tee = UJOIN_STD_NONE;
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
}

TEST(PctxRows, P_56_a_stream_that_does_not_exist) {
    for (const ujoin_std value : {4, 8, -1}) {
        Job job(1);
        job.spec.redirects = value;
        EXPECT_EQ(job.create(), UJOIN_E_INVALID);
        EXPECT_NE(std::strstr(ujoin_last_error(), "spec.redirects"), nullptr) << ujoin_last_error();
    }
}

TEST(PctxRows, P_60_half_a_million_lines) {
    Folder folder;
    const std::string logs = folder.file("logs");
    Capture console(folder);
    Job job(1, {"burst=500000"});
    job.spec.log_dir = logs.c_str();
    job.spec.tee = UJOIN_STD_OUT;
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, -1), UJOIN_OK);
    console.end();
    const std::string text = read_file(job.result(0).stdout_path);
    std::string all;
    std::string all_shown;
    for (int i = 0; i < 500'000; i++) {
        const std::string line = "0 line " + std::to_string(i) + "\n";
        all += line;
        all_shown += "[worker0]: " + line;
    }
    EXPECT_TRUE(text == all) << text.size() << " bytes of " << all.size();
    EXPECT_TRUE(console.out() == all_shown) << console.out().size() << " bytes of " << all_shown.size();
}

TEST(PctxRows, P_65_only_chosen_ranks_on_the_console) {
    Folder folder;
    const std::string logs = folder.file("logs");
    Capture console(folder);
    Job job(2, {"out=out\\n", "err=err\\n"});
    const int32_t chosen[] = {0};
    job.spec.log_dir = logs.c_str();
    job.spec.tee = UJOIN_STD_OUT;
    job.spec.console_ranks = chosen;
    job.spec.console_rank_count = 1;
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    console.end();
    EXPECT_EQ(console.out(), "[worker0]: out\n");
    EXPECT_EQ(console.err(), "err\n") << "the other's goes nowhere, since no file has it";
    for (int r = 0; r < 2; r++) EXPECT_EQ(read_file(job.result(r).stdout_path), "out\n");
}

TEST(PctxRows, E_38_the_earlier_of_two_near_failures_is_the_cause) {
    for (int i = 0; i < 10; i++) {
        Folder folder;
        const std::string logs = folder.file("logs");
        // Rank 1 records and ends; rank 0 does 5 ms later. This process sees both ends only afterwards, in any order.
        Job job(2, {"1:record=first", "1:touch=" + folder.file("done"), "0:await=" + folder.file("done"), "0:sleep=5",
                    "0:record=second", "exit=1"});
        job.spec.log_dir = logs.c_str();
        ASSERT_PCTX_OK(job.create_and_start());
        EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
        ASSERT_EQ(pctx_first_failure(job.handle), 1);
        EXPECT_STREQ(job.result(1).message, "first");
    }
}

struct Told {
    std::vector<std::string> lines[2][3]; // by rank and stream
    std::atomic<int> destroyed{0};        // on any thread
};

ujoin_status take_output(void *data, int32_t rank, ujoin_std stream, const char *text, size_t size) {
    static_cast<Told *>(data)->lines[rank][stream].emplace_back(text, size);
    return UJOIN_OK;
}

TEST(PctxOptions, output_goes_to_the_programs_callback) {
    Folder folder;
    Told told;
    {
        Capture console(folder);
        Job job(2, {"out=a\\nb\\n\\nhalf", "err=oops\\n"});
        job.spec.output = take_output;
        job.spec.user_data = &told;
        job.spec.destroy = [](void *data) { static_cast<Told *>(data)->destroyed++; };
        ASSERT_PCTX_OK(job.create_and_start());
        ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
        console.end();
        EXPECT_EQ(console.out() + console.err(), "") << "it has them instead";
        EXPECT_EQ(told.destroyed, 0);
    }
    EXPECT_TRUE(eventually([&] { return told.destroyed == 1; }));
    for (const auto &streams : told.lines) {
        EXPECT_EQ(streams[UJOIN_STD_OUT], (std::vector<std::string>{"a\n", "b\n", "\n", "half"}));
        EXPECT_EQ(streams[UJOIN_STD_ERR], std::vector<std::string>{"oops\n"});
    }
}

TEST(PctxOptions, a_callback_that_fails_ends_the_wait_and_a_bad_spec_gives_it_back) {
    int destroyed = 0;
    Job job(1, {"out=a\\n", "forever"});
    job.spec.output = [](void *, int32_t, ujoin_std, const char *, size_t) {
        return ujoin_set_last_error(UJOIN_E_CALLBACK, "no more room");
    };
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CALLBACK);
    EXPECT_NE(std::strstr(ujoin_last_error(), "no more room"), nullptr) << ujoin_last_error();
    ASSERT_PCTX_OK(pctx_close(job.handle, 0, 1000));
    Job bad(0);
    bad.spec.output = job.spec.output;
    bad.spec.user_data = &destroyed;
    bad.spec.destroy = [](void *data) { ++*static_cast<int *>(data); };
    EXPECT_EQ(bad.create(), UJOIN_E_INVALID);
    EXPECT_EQ(destroyed, 1);
}

TEST(PctxOptions, stdin_of_each_kind) {
    Folder folder;
    Capture console(folder);
    std::ofstream(folder.file("in")) << "from the file";
    Job job(3, {"cat"});
    job.spec.log_dir = "/dev/null";
    job.spec.tee = UJOIN_STD_OUT;
    ASSERT_PCTX_OK(job.create());
    const std::string large(200'000, 'x');
    const std::string path = folder.file("in");
    ujoin_worker worker = a_worker();
    worker.stdin_from = UJOIN_STDIN_BYTES;
    worker.stdin_data = "from\0memory";
    worker.stdin_size = 11;
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, 0, &worker));
    worker = a_worker();
    worker.stdin_from = UJOIN_STDIN_FILE;
    worker.stdin_path = path.c_str();
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, 1, &worker));
    ASSERT_PCTX_OK(pctx_start(job.handle));
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    console.end();
    const auto lines = split_lines(console.out());
    const std::set<std::string> shown(lines.begin(), lines.end());
    EXPECT_EQ(shown, (std::set<std::string>{"[worker0]: " + std::string("from\0memory", 11), "[worker1]: from the file"}));
    Job two(2);
    ASSERT_PCTX_OK(two.create());
    worker = a_worker();
    worker.stdin_from = UJOIN_STDIN_INHERIT;
    ASSERT_PCTX_OK(pctx_set_worker(two.handle, -1, &worker));
    EXPECT_EQ(pctx_start(two.handle), UJOIN_E_INVALID);
    EXPECT_NE(std::strstr(ujoin_last_error(), "ranks 0, 1"), nullptr) << ujoin_last_error();
    Job missing(1);
    ASSERT_PCTX_OK(missing.create());
    worker.stdin_from = UJOIN_STDIN_FILE;
    worker.stdin_path = "/no/such/file";
    ASSERT_PCTX_OK(pctx_set_worker(missing.handle, 0, &worker));
    EXPECT_EQ(pctx_start(missing.handle), UJOIN_E_SYSTEM);
    EXPECT_EQ(ujoin_last_errno(), ENOENT);
}

TEST(PctxOptions, umask_limits_and_processors) {
    for (const ujoin_containment containment : {UJOIN_CONTAINMENT_GROUP, UJOIN_CONTAINMENT_WARDEN}) {
        Folder folder;
        Capture console(folder);
        Job job(1, {"settings"});
        job.spec.log_dir = "/dev/null";
        job.spec.tee = UJOIN_STD_OUT;
        job.spec.containment = containment;
        job.spec.binding = UJOIN_BINDING_LIST;
        ASSERT_PCTX_OK(job.create());
        cpu_set_t set;
        sched_getaffinity(0, sizeof set, &set);
        int32_t last = 0;
        for (int32_t cpu = 0; cpu < CPU_SETSIZE; cpu++)
            if (CPU_ISSET(cpu, &set)) last = cpu;
        const ujoin_hyper limits[] = {{"nofile", 64}, {"core", 0}};
        ujoin_worker worker = a_worker();
        worker.cpus = &last;
        worker.cpu_count = 1;
        worker.limits = limits;
        worker.limit_count = 2;
        worker.umask_set = 1;
        worker.umask = 027;
        ASSERT_PCTX_OK(pctx_set_worker(job.handle, 0, &worker));
        ASSERT_PCTX_OK(pctx_start(job.handle));
        ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
        console.end();
        EXPECT_EQ(console.out(), "[worker0]: umask 027 nofile 64 core 0 cpus " + std::to_string(last) + "\n");
    }
}

TEST(PctxOptions, limits_that_do_not_exist_are_named_with_those_that_do) {
    Job job(1);
    ASSERT_PCTX_OK(job.create());
    for (const ujoin_hyper limit : {ujoin_hyper{"no_such", 1}, ujoin_hyper{"nofile", -1}, ujoin_hyper{"nofile", NAN}}) {
        ujoin_worker worker = a_worker();
        worker.limits = &limit;
        worker.limit_count = 1;
        EXPECT_EQ(pctx_set_worker(job.handle, 0, &worker), UJOIN_E_INVALID);
        EXPECT_NE(std::strstr(ujoin_last_error(), limit.name), nullptr) << ujoin_last_error();
    }
    const int32_t cpu = 100'000;
    ujoin_worker worker = a_worker();
    worker.cpus = &cpu;
    worker.cpu_count = 1;
    Job far(1);
    far.spec.binding = UJOIN_BINDING_LIST;
    ASSERT_PCTX_OK(far.create());
    EXPECT_EQ(pctx_start(far.handle), UJOIN_E_INVALID) << "a list is needed";
    Job farther(1);
    farther.spec.binding = UJOIN_BINDING_LIST;
    ASSERT_PCTX_OK(farther.create());
    ASSERT_PCTX_OK(pctx_set_worker(farther.handle, 0, &worker));
    EXPECT_EQ(pctx_start(farther.handle), UJOIN_E_INVALID);
    EXPECT_NE(std::strstr(ujoin_last_error(), "100000"), nullptr) << ujoin_last_error();
}

TEST(PctxOptions, placement_over_memory_nodes) {
    ujoin::Topology machine;
    machine.nodes = {{0, {0, 1, 2, 3}}, {1, {4, 5, 6, 7}}};
    using Cpus = std::vector<int32_t>;
    const auto spread = [&](size_t i, size_t n) { return ujoin::place_worker(machine, UJOIN_BINDING_SPREAD, i, n); };
    const auto compact = [&](size_t i, size_t n) { return ujoin::place_worker(machine, UJOIN_BINDING_COMPACT, i, n); };
    EXPECT_EQ(spread(0, 2), (Cpus{0, 1, 2, 3}));
    EXPECT_EQ(spread(1, 2), (Cpus{4, 5, 6, 7}));
    EXPECT_EQ(spread(2, 3), (Cpus{2, 3})) << "ranks 0 and 2 share node 0";
    EXPECT_EQ(spread(1, 3), (Cpus{4, 5, 6, 7}));
    EXPECT_EQ(compact(0, 4), (Cpus{0, 1}));
    EXPECT_EQ(compact(3, 4), (Cpus{6, 7}));
    EXPECT_EQ(compact(9, 16), Cpus{1}) << "more workers than processors: in turn";
    EXPECT_EQ(ujoin::nodes_of(machine, {3, 4}), (Cpus{0, 1}));
    EXPECT_EQ(ujoin::parse_cpu_list("0-2,5"), (Cpus{0, 1, 2, 5}));
    EXPECT_FALSE(ujoin::Topology::read("/no/such/place").nodes.at(0).cpus.empty()) << "one node with all that may be used";
}

TEST(PctxOptions, log_files_are_rotated_and_no_line_is_lost) {
    Folder folder;
    const std::string logs = folder.file("logs");
    Job job(1, {"lines=2000"});
    job.spec.log_dir = logs.c_str();
    job.spec.redirects = UJOIN_STD_OUT;
    job.spec.rotate_bytes = 8192;
    job.spec.rotate_keep = 5;
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    const std::string path = job.result(0).stdout_path;
    std::string all;
    for (const char *end : {".5", ".4", ".3", ".2", ".1", ""}) {
        const std::string part = read_file(path + end);
        EXPECT_LE(part.size(), 8192U);
        all += part;
    }
    const auto lines = split_lines(all);
    ASSERT_EQ(lines.size(), 2000U);
    for (int i = 0; i < 2000; i++) ASSERT_EQ(lines[static_cast<size_t>(i)], "0 line " + std::to_string(i));
    EXPECT_FALSE(std::filesystem::exists(path + ".6"));
}

} // namespace
