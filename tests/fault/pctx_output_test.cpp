// SPDX-License-Identifier: Apache-2.0
// Output under strain: grandchildren that hold pipes, lines of many workers, consoles that are slow, blocked or gone.
#include "harness/pctx_kit.hpp"
#include <cstring>
#include <map>
#include <sys/resource.h>

using namespace pctx_kit;

namespace {

TEST(PctxOutput, LOGGING_01_P_49_P_50_tee_of_many_workers_loses_no_line) {
    constexpr int workers = 32;
    constexpr int count = 1000;
    Folder folder;
    const std::string logs = folder.file("logs");
    Capture console(folder);
    Job job(workers, {"lines=" + std::to_string(count)});
    job.spec.log_dir = logs.c_str();
    job.spec.name = "writer";
    job.spec.tee = UJOIN_STD_OUT;
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    console.end();
    std::map<int, int> next; // of each worker: its lines come in order
    for (const std::string &line : split_lines(console.out())) {
        int header = -1;
        int rank = -2;
        int number = -1;
        ASSERT_EQ(std::sscanf(line.c_str(), "[writer%d]: %d line %d", &header, &rank, &number), 3) << line;
        ASSERT_EQ(header, rank);
        ASSERT_EQ(number, next[rank]++);
    }
    for (int r = 0; r < workers; r++) {
        EXPECT_EQ(next[r], count);
        EXPECT_EQ(split_lines(read_file(job.result(r).stdout_path)).size(), static_cast<size_t>(count));
        EXPECT_EQ(job.result(r).stdout_bytes, std::filesystem::file_size(job.result(r).stdout_path));
    }
}

TEST(PctxOutput, LOGGING_01_nothing_is_lost_when_a_worker_fails) {
    Folder folder;
    Capture console(folder);
    Job job(2, {"0:lines=500", "0:exit=3", "1:await=" + folder.file("never")});
    job.spec.log_dir = "/dev/null";
    job.spec.tee = UJOIN_STD_ALL;
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    console.end();
    const std::vector<std::string> lines = split_lines(console.out());
    ASSERT_EQ(lines.size(), 500U);
    EXPECT_EQ(lines.back(), "[worker0]: 0 line 499");
}

TEST(PctxOutput, LOGGING_02_one_prefix_per_line_none_inside) {
    Folder folder;
    const std::string logs = folder.file("logs");
    std::vector<std::string> commands;
    for (int i = 0; i < 50; i++) {
        commands.insert(commands.end(), {"0:out=AB", "0:sleep=2", "0:out=CD\\n"});
    }
    commands.insert(commands.end(), {"0:out=END", "1:lines=5000", "2:longline=200000"});
    Capture console(folder);
    Job job(3, commands);
    job.spec.log_dir = logs.c_str();
    job.spec.tee = UJOIN_STD_ALL;
    job.spec.prefix = "<${role_name}/${rank}/${local_rank}> ";
    job.spec.first_rank = 10;
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    console.end();
    std::map<std::string, int> seen;
    size_t longest = 0;
    for (const std::string &line : split_lines(console.out())) {
        ASSERT_EQ(line.find("<worker/1"), 0U) << line.substr(0, 100);
        ASSERT_EQ(line.find('<', 1), std::string::npos) << line.substr(0, 100);
        const std::string text = line.substr(line.find("> ") + 2);
        if (text.find('x') != std::string::npos) longest += text.size();
        seen[text.substr(0, 4)]++;
    }
    EXPECT_EQ(seen["ABCD"], 50);
    EXPECT_EQ(seen["END"], 1);
    EXPECT_EQ(seen["xxxx"], 4); // 200,000 = 3 parts of 64 KiB and a rest
    EXPECT_EQ(longest, 200'000U);
    EXPECT_EQ(read_file(job.result(2).stdout_path), std::string(200'000, 'x') + "\n");
    EXPECT_EQ(read_file(job.result(0).stdout_path).substr(0, 10), "ABCD\nABCD\n");
}

TEST(PctxOutput, unfinished_line_is_shown_before_it_ends) {
    Folder folder;
    Capture console(folder);
    Job job(2, {"0:out=prompt> ", "0:await=" + folder.file("go"), "0:out=answer\\n", "1:await=" + folder.file("go1"),
                "1:out=x\\n", "1:touch=" + folder.file("said")});
    job.spec.log_dir = "/dev/null";
    job.spec.tee = UJOIN_STD_OUT;
    job.spec.partial_line_ms = 20;
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_TRUE(eventually([&] { return console.out() == "[worker0]: prompt> "; }));
    std::ofstream(folder.file("go1")) << ""; // the other writes: the open line is ended first
    EXPECT_TRUE(eventually([&] { return console.out() == "[worker0]: prompt> \n[worker1]: x\n"; })) << console.out();
    std::ofstream(folder.file("go")) << "";
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    console.end();
    EXPECT_EQ(console.out(), "[worker0]: prompt> \n[worker1]: x\n[worker0]: answer\n");
}

TEST(PctxOutput, grandchild_that_holds_the_pipe_cannot_hang_the_end) {
    for (const ujoin_containment containment : {UJOIN_CONTAINMENT_GROUP, UJOIN_CONTAINMENT_WARDEN}) {
        for (const char *kind : {"plain", "setsid"}) {
            SCOPED_TRACE(std::string(kind) + (containment == UJOIN_CONTAINMENT_WARDEN ? ", warden" : ", group"));
            Folder folder;
            Capture console(folder);
            Job job(1, {"child=" + std::string(kind) + "," + folder.file("pids"), "out=done\\n"});
            job.spec.containment = containment;
            job.spec.log_dir = "/dev/null";
            job.spec.tee = UJOIN_STD_OUT;
            job.spec.drain_ms = 200;
            const auto start = Clock::now(); // the worker may be through before pctx_start has returned
            ASSERT_PCTX_OK(job.create_and_start());
            EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
            EXPECT_GE(ms_since(start), 200); // it might have written more
            EXPECT_LT(ms_since(start), at_most(200));
            console.end();
            EXPECT_EQ(console.out(), "[worker0]: done\n");
            const bool escaped = containment == UJOIN_CONTAINMENT_GROUP && std::strcmp(kind, "setsid") == 0;
            for (const pid_t pid : noted_pids(folder.file("pids"))) {
                EXPECT_EQ(runs(pid), escaped); // out of the session: only the warden holds it
                kill(pid, SIGKILL);
            }
        }
    }
}

TEST(PctxOutput, blocked_console_holds_the_workers_back_and_close_is_bounded) {
    Folder folder;
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    std::fflush(nullptr);
    const int saved = fcntl(1, F_DUPFD_CLOEXEC, 3);
    dup2(ends[1], 1);
    close(ends[1]);
    std::string console;
    {
        Job job(1, {"lines=300000"}); // some 5 MB: more than the pipe and the queue hold
        job.spec.log_dir = "/dev/null";
        job.spec.tee = UJOIN_STD_OUT;
        job.spec.drain_ms = 100;
        EXPECT_EQ(job.create_and_start(), UJOIN_OK) << ujoin_last_error();
        EXPECT_EQ(pctx_wait(job.handle, 300), UJOIN_PENDING);
        EXPECT_EQ(job.result(0).state, UJOIN_WORKER_RUNNING);
        EXPECT_LT(job.result(0).stdout_bytes, 4U << 20);
        const auto start = Clock::now();
        EXPECT_EQ(pctx_close(job.handle, 0, 1000), UJOIN_PENDING); // the process is gone, its output is not out
        EXPECT_LT(ms_since(start), at_most(1000 + 100 + 1000));
        EXPECT_EQ(job.result(0).state, UJOIN_WORKER_SIGNALED);
        std::thread reader([&] { // now somebody reads
            char buffer[65536];
            for (ssize_t got = 0; (got = read(ends[0], buffer, sizeof buffer)) > 0;)
                console.append(buffer, static_cast<size_t>(got));
        });
        EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
        dup2(saved, 1);
        reader.join();
        EXPECT_GE(console.size(), job.result(0).stdout_bytes); // all that was taken, with prefixes
    }
    close(saved);
    close(ends[0]);
}

TEST(PctxOutput, console_that_is_gone_does_not_hold_anything) {
    Folder folder;
    const std::string logs = folder.file("logs");
    int ends[2];
    ASSERT_EQ(pipe2(ends, O_CLOEXEC), 0);
    std::fflush(nullptr);
    const int saved = fcntl(1, F_DUPFD_CLOEXEC, 3);
    dup2(ends[1], 1);
    close(ends[1]);
    close(ends[0]);
    Job job(1, {"lines=200000"});
    job.spec.log_dir = logs.c_str();
    job.spec.tee = UJOIN_STD_OUT;
    const ujoin_status started = job.create_and_start();
    const ujoin_status waited = pctx_wait(job.handle, 60'000);
    dup2(saved, 1);
    close(saved);
    EXPECT_EQ(started, UJOIN_OK);
    EXPECT_EQ(waited, UJOIN_OK);
    EXPECT_EQ(split_lines(read_file(job.result(0).stdout_path)).size(), 200'000U);
}

TEST(PctxOutput, temporary_log_directory_and_error_file) {
    Folder folder;
    setenv("TMPDIR", folder.path.c_str(), 1);
    Job job(1, {"getenv=TORCHELASTIC_ERROR_FILE"});
    job.spec.redirects = UJOIN_STD_OUT;
    job.spec.run_id = "my-run";
    job.spec.restart_count = 3;
    const ujoin_status started = job.create_and_start();
    unsetenv("TMPDIR");
    ASSERT_EQ(started, UJOIN_OK) << ujoin_last_error();
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    const std::string path = job.result(0).stdout_path;
    EXPECT_EQ(path.find(folder.file("ujoin_")), 0U) << path;
    const std::string tail = "/my-run/attempt_3/0/stdout.log";
    ASSERT_GT(path.size(), tail.size());
    EXPECT_EQ(path.substr(path.size() - tail.size()), tail);
    EXPECT_EQ(read_file(path), "TORCHELASTIC_ERROR_FILE=" + path.substr(0, path.size() - 10) + "error.json\n");
}

namespace {

/// How often a thread has given up the processor by itself.
long voluntary_switches(const std::filesystem::path &task) {
    for (const std::string &line : split_lines(read_file(task.string() + "/status")))
        if (line.find("voluntary_ctxt_switches:") == 0) return std::stol(line.substr(24));
    return 0;
}

std::map<std::string, long> switches_of_library() {
    std::map<std::string, long> found;
    for (const auto &task : harness::library_threads()) found[task.filename().string()] = voluntary_switches(task);
    return found;
}

} // namespace

TEST(PctxOutput, waiting_for_silent_workers_wakes_nobody) {
    const auto switches = [] { // of this thread and the library's
        long sum = voluntary_switches("/proc/self/task/" + std::to_string(getpid()));
        for (const auto &[task, count] : switches_of_library()) sum += count;
        return sum;
    };
    Job job(8, {"forever"});
    job.spec.log_dir = "/dev/null";
    job.spec.tee = UJOIN_STD_ALL;
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 200), UJOIN_PENDING);
    const long before = switches();
    EXPECT_EQ(pctx_wait(job.handle, 1500), UJOIN_PENDING);
    EXPECT_LE(switches() - before, 5); // the wait itself; with a tick every 100 ms it would be 15 and more
}

namespace {

int64_t resident_bytes() {
    std::ifstream file("/proc/self/statm");
    int64_t total = 0;
    int64_t resident = 0;
    file >> total >> resident;
    return resident * sysconf(_SC_PAGESIZE);
}

} // namespace

TEST(PctxOutput, many_silent_workers_cost_three_threads_no_wake_up_and_little_memory) {
    constexpr int workers = 256;
    constexpr int64_t stream_bytes = 64 << 10; // of the launcher's own memory
    {
        Job warm(2, {"exit=0"}); // what a first job leaves behind
        warm.spec.log_dir = "/dev/null";
        warm.spec.tee = UJOIN_STD_ALL;
        ASSERT_PCTX_OK(warm.create_and_start());
        ASSERT_EQ(pctx_wait(warm.handle, 60'000), UJOIN_OK);
    }
    Folder folder;
    const std::string logs = folder.file("logs");
    const int64_t before = resident_bytes();
    Job job(workers, {"forever"});
    job.spec.log_dir = logs.c_str();
    job.spec.tee = UJOIN_STD_ALL;
    job.spec.grace_ms = UJOIN_NOW;
    ASSERT_PCTX_OK(job.create_and_start());
    std::map<std::string, long> at_first;
    ASSERT_TRUE(eventually([&] { // they may still be at the start
        at_first = switches_of_library();
        EXPECT_EQ(pctx_wait(job.handle, 200), UJOIN_PENDING);
        return switches_of_library() == at_first;
    }));
    EXPECT_LE((resident_bytes() - before) / (2 * workers), stream_bytes);
    EXPECT_LE(at_first.size(), 3U) << "beside the caller's";
    EXPECT_EQ(pctx_wait(job.handle, 3000), UJOIN_PENDING);
    EXPECT_EQ(switches_of_library(), at_first) << "nobody has woken up";
    EXPECT_EQ(pctx_close(job.handle, SIGKILL, 0), UJOIN_OK);
}

} // namespace
