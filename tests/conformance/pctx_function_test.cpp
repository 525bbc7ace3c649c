// SPDX-License-Identifier: Apache-2.0
// Rows of the process launcher about workers that are functions of the program: this one is executed again, or forked.
#include "harness/pctx_kit.hpp"
#include "harness/worker_functions.h"
#include "pctx/function_worker.hpp"
#include <cstring>
#include <stdexcept>
#include <sys/wait.h>
#include <thread>

using namespace pctx_kit;

extern "C" int worker_entry(int *exit_code) {
    register_test_functions();
    pctx_register(
        "uncaught", // where nobody can catch it
        [](void *, const ujoin_worker_args *) -> ujoin_status {
            struct rlimit none {};
            setrlimit(RLIMIT_CORE, &none);
            signal(SIGABRT, SIG_DFL);
            std::thread([] { throw std::runtime_error("out of data"); }).join();
            return UJOIN_OK;
        },
        nullptr, nullptr);
    pctx_register(
        "throw", [](void *, const ujoin_worker_args *) -> ujoin_status { throw std::range_error("too far"); }, nullptr,
        nullptr);
    return pctx_worker_main(exit_code);
}

namespace {

class FunctionJob : public Job {
  public:
    FunctionJob(int nprocs, const char *function, std::vector<const char *> args = {})
        : Job(nprocs), list_(std::move(args)) {
        spec.program = nullptr;
        spec.function = function;
        spec.args = list_.data() ? list_.data() : &none_;
        spec.arg_count = list_.size();
    }

  private:
    std::vector<const char *> list_;
    const char *none_ = nullptr;
};

std::string value_of(const ujoin_worker_result &result) {
    return result.value ? std::string(static_cast<const char *>(result.value), result.value_size) : std::string();
}

class PctxFunctions : public testing::TestWithParam<ujoin_start_method> {
  protected:
    void SetUp() override {
#if defined(__SANITIZE_THREAD__)
        if (GetParam() == UJOIN_START_FORK)
            GTEST_SKIP() << "ThreadSanitizer dies of a thread that is made after the fork of a process with threads";
#endif
    }
    void prepare(Job &job) const { job.spec.start_method = GetParam(); }
};

std::string method_name(const testing::TestParamInfo<ujoin_start_method> &info) {
    return std::vector<std::string>{"", "spawn", "fork", "forkserver"}[static_cast<size_t>(info.param)];
}

INSTANTIATE_TEST_SUITE_P(All, PctxFunctions, testing::Values(UJOIN_START_SPAWN, UJOIN_START_FORK, UJOIN_START_FORKSERVER),
                         method_name);

TEST_P(PctxFunctions, P_11_P_12_P_40_wait_on_another_thread) {
    Folder folder;
    const std::string pids = folder.file("pids");
    FunctionJob job(2, "sleep_on", {pids.c_str()});
    prepare(job);
    std::thread([&] { // not the first one
        ASSERT_PCTX_OK(job.create_and_start());
        EXPECT_EQ(pctx_wait(job.handle, 100), UJOIN_PENDING);
        ASSERT_TRUE(eventually([&] { return noted_pids(pids).size() == 2; }, 5000));
        for (const pid_t pid : noted_pids(pids)) kill(pid, SIGKILL);
        EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    })
        .join();
}

TEST_P(PctxFunctions, P_13_P_40_close_leaves_no_process) {
    Folder folder;
    const std::string pids = folder.file("pids");
    FunctionJob job(2, "sleep_on", {pids.c_str()});
    prepare(job);
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_TRUE(eventually([&] { return noted_pids(pids).size() == 2; }, 5000));
    for (int r = 0; r < 2; r++) EXPECT_EQ(job.result(r).state, UJOIN_WORKER_RUNNING);
    ASSERT_PCTX_OK(pctx_close(job.handle, 0, 5000));
    for (const pid_t pid : noted_pids(pids)) EXPECT_FALSE(exists(pid));
    EXPECT_EQ(job.result(1).signal, SIGTERM);
    EXPECT_EQ(job.result(1).containment,
              GetParam() == UJOIN_START_FORKSERVER ? UJOIN_CONTAINMENT_WARDEN : UJOIN_CONTAINMENT_GROUP);
}

TEST_P(PctxFunctions, P_15_P_40_an_array_comes_back_and_so_does_the_input) {
    FunctionJob job(2, "mirror");
    prepare(job);
    ASSERT_PCTX_OK(job.create());
    std::vector<float> array(100 * 100);
    for (size_t i = 0; i < array.size(); i++) array[i] = static_cast<float>(i) / 3;
    ujoin_worker worker{};
    worker.size = sizeof worker;
    worker.input = array.data();
    worker.input_size = array.size() * sizeof(float);
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, 0, &worker));
    ASSERT_PCTX_OK(pctx_start(job.handle));
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK) << pctx_report(job.handle);
    const ujoin_worker_result result = job.result(0);
    ASSERT_EQ(result.value_size, array.size() * sizeof(float));
    EXPECT_EQ(std::memcmp(result.value, array.data(), result.value_size), 0);
    EXPECT_EQ(job.result(1).value, nullptr);
    EXPECT_FALSE(exists(result.pid));
}

TEST_P(PctxFunctions, P_16_P_40_functions_that_return_nothing) {
    FunctionJob job(2, "nothing");
    prepare(job);
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK) << pctx_report(job.handle);
    for (int r = 0; r < 2; r++) {
        EXPECT_EQ(job.result(r).value, nullptr);
        EXPECT_EQ(job.result(r).value_size, 0U);
        EXPECT_EQ(job.result(r).exit_code, 0);
    }
    EXPECT_EQ(pctx_failed(job.handle), 0);
}

TEST_P(PctxFunctions, P_17_P_40_four_ranks_return_ten_megabytes_each) {
    FunctionJob job(4, "fill", {"10000000"});
    prepare(job);
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK) << pctx_report(job.handle);
    for (int r = 0; r < 4; r++) {
        const std::string value = value_of(job.result(r));
        ASSERT_EQ(value.size(), 10'000'000U);
        EXPECT_EQ(value.find_first_not_of(static_cast<char>(r)), std::string::npos);
    }
}

TEST_P(PctxFunctions, P_18_P_20_not_P_19_P_06_P_40_a_function_that_fails) {
    Folder folder;
    const std::string logs = folder.file("not/there/yet"); // P-06: made
    FunctionJob job(2, "fail", {"0"});
    prepare(job);
    job.spec.log_dir = logs.c_str();
    job.spec.run_id = "run_id";
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    EXPECT_EQ(pctx_first_failure(job.handle), 0);
    const ujoin_worker_result failed = job.result(0);
    EXPECT_EQ(failed.failed, 1);
    EXPECT_EQ(failed.exit_code, 1);
    EXPECT_EQ(failed.signal, 0);
    EXPECT_STREQ(failed.message, "ValueError: a bad batch");
    EXPECT_EQ(failed.value, nullptr);
    const std::string path = failed.error_path;
    EXPECT_EQ(path.find(logs + "/run_id"), 0U) << path;
    EXPECT_EQ(path.substr(path.size() - 22), "attempt_0/0/error.json") << path;
    EXPECT_NE(read_file(path).find("ValueError: a bad batch"), std::string::npos);
    EXPECT_EQ(failed.failed_ns % 1'000'000'000, 0) << "the file has whole seconds";
    EXPECT_LT(std::llabs(failed.failed_ns - failed.end_ns), 60'000'000'000);
    EXPECT_EQ(job.result(1).failed, 0);
    EXPECT_EQ(job.result(1).value, nullptr);
    for (int r = 0; r < 2; r++) EXPECT_FALSE(exists(job.result(r).pid));
    const std::string report = pctx_report(job.handle);
    EXPECT_NE(report.find("  exitcode  : 1 (pid: " + std::to_string(failed.pid) + ")"), std::string::npos) << report;
}

TEST_P(PctxFunctions, a_failure_that_the_function_has_recorded_itself_keeps_its_traceback) {
    for (const bool logs : {true, false}) {
        Folder folder;
        const std::string directory = folder.file("logs");
        for (const char *text : {"step 4: ValueError: a bad batch", "another failure"}) {
            FunctionJob job(1, "recorded", {text});
            prepare(job);
            job.spec.run_id = text[0] == 's' ? "same" : "other";
            if (logs) job.spec.log_dir = directory.c_str();
            ASSERT_PCTX_OK(job.create_and_start());
            EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
            const bool same = text[0] == 's';
            EXPECT_STREQ(job.result(0).message, same ? "ValueError: a bad batch" : text) << logs;
            EXPECT_EQ(std::string(job.result(0).traceback).find("at line 7") != std::string::npos, same) << logs;
        }
    }
}

TEST_P(PctxFunctions, P_18_P_40_a_failure_without_a_log_directory_has_its_text_too) {
    FunctionJob job(1, "fail", {"0"});
    prepare(job);
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    EXPECT_STREQ(job.result(0).message, "ValueError: a bad batch");
    EXPECT_STREQ(job.result(0).error_path, "");
}

TEST_P(PctxFunctions, P_28_P_40_redirects_of_functions) {
    for (const ujoin_std redirects : {UJOIN_STD_NONE, UJOIN_STD_OUT, UJOIN_STD_ERR, UJOIN_STD_ALL}) {
        Folder folder;
        const std::string logs = folder.file("logs");
        Capture console(folder);
        FunctionJob job(2, "echo", {"hello"});
        prepare(job);
        job.spec.log_dir = logs.c_str();
        job.spec.redirects = redirects;
        ASSERT_PCTX_OK(job.create_and_start());
        ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK) << pctx_report(job.handle);
        console.end();
        for (int r = 0; r < 2; r++) {
            const ujoin_worker_result result = job.result(r);
            const std::string rank = std::to_string(r);
            EXPECT_EQ(value_of(result), "hello_" + rank);
            EXPECT_EQ(*result.stdout_path != 0, (redirects & UJOIN_STD_OUT) != 0);
            EXPECT_EQ(*result.stderr_path != 0, (redirects & UJOIN_STD_ERR) != 0);
            const std::string out = redirects & UJOIN_STD_OUT ? read_file(result.stdout_path) : console.out();
            const std::string err = redirects & UJOIN_STD_ERR ? read_file(result.stderr_path) : console.err();
            EXPECT_NE(out.find("hello stdout from " + rank + "\n"), std::string::npos) << out;
            EXPECT_NE(err.find("hello stderr from " + rank + "\n"), std::string::npos) << err;
        }
    }
}

TEST_P(PctxFunctions, P_31_P_33_P_40_redirect_tee_and_filters_of_functions) {
    Folder folder;
    const std::string logs = folder.file("logs");
    Capture console(folder);
    FunctionJob job(2, "echo", {"helloA,helloB", "worldA,worldB"});
    prepare(job);
    const char *out_filter[] = {"helloA"};
    const char *err_filters[] = {"worldA", "B"};
    job.spec.name = "trainer";
    job.spec.log_dir = logs.c_str();
    job.spec.prefix = "[${role_name}${rank}]:";
    job.spec.stdout_filters = out_filter;
    job.spec.stdout_filter_count = 1;
    job.spec.stderr_filters = err_filters;
    job.spec.stderr_filter_count = 2;
    ASSERT_PCTX_OK(job.create());
    ujoin_worker worker{};
    worker.size = sizeof worker;
    worker.redirects = UJOIN_STD_ERR;
    worker.tee = UJOIN_STD_OUT;
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, 0, &worker));
    worker.redirects = UJOIN_STD_SET;
    worker.tee = UJOIN_STD_ERR;
    ASSERT_PCTX_OK(pctx_set_worker(job.handle, 1, &worker));
    ASSERT_PCTX_OK(pctx_start(job.handle));
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK) << pctx_report(job.handle);
    console.end();
    EXPECT_EQ(read_file(job.result(0).stdout_path), "helloA stdout from 0\nhelloB stdout from 0\n");
    EXPECT_EQ(read_file(job.result(0).stderr_path), "helloA stderr from 0\nhelloB stderr from 0\n");
    EXPECT_EQ(read_file(job.result(1).stderr_path), "worldA stderr from 1\nworldB stderr from 1\n");
    EXPECT_STREQ(job.result(1).stdout_path, "");
    const std::string attempt = std::filesystem::path(job.result(0).stdout_path).parent_path().parent_path();
    EXPECT_EQ(read_file(attempt + "/filtered_stdout.log"), "[trainer0]:helloA stdout from 0\n");
    const std::string errors = read_file(attempt + "/filtered_stderr.log");
    EXPECT_EQ(errors, "[trainer1]:worldA stderr from 1\n[trainer1]:worldB stderr from 1\n") << "rank 0's is not shown";
}

TEST_P(PctxFunctions, P_35_P_40_a_function_that_crashes) {
    FunctionJob job(2, "end", {"0", "-11"});
    prepare(job);
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    EXPECT_EQ(pctx_first_failure(job.handle), 0);
    EXPECT_EQ(job.result(0).signal, SIGSEGV);
    EXPECT_EQ(job.result(0).value, nullptr);
    EXPECT_STREQ(job.result(0).error_path, "");
    EXPECT_NE(std::strstr(pctx_report(job.handle), "  error_file: <N/A>\n"), nullptr) << pctx_report(job.handle);
}

TEST_P(PctxFunctions, P_37_E_06_P_40_a_function_that_exits_with_138) {
    Folder folder;
    const std::string logs = folder.file("logs");
    FunctionJob job(2, "end", {"0", "138"});
    prepare(job);
    job.spec.log_dir = logs.c_str();
    job.spec.redirects = UJOIN_STD_ALL;
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    const ujoin_worker_result result = job.result(0);
    EXPECT_EQ(result.exit_code, 138);
    EXPECT_EQ(result.signal, 0);
    EXPECT_STREQ(result.error_path, "");
    EXPECT_EQ(std::string(result.message).find("To enable traceback"), 0U) << result.message;
    EXPECT_EQ(result.failed_ns, result.end_ns);
    EXPECT_NE(read_file(result.stderr_path).find("exit 138 from 0\n"), std::string::npos);
    EXPECT_NE(std::strstr(result.traceback, "exit 138 from 0"), nullptr) << result.traceback;
}

TEST_P(PctxFunctions, P_77_ERRORS_02_P_40_exit_0_without_a_value_is_a_failure) {
    FunctionJob job(2, "end", {"1", "0"});
    prepare(job);
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    EXPECT_EQ(pctx_first_failure(job.handle), 1);
    EXPECT_EQ(job.result(1).state, UJOIN_WORKER_NO_VALUE);
    EXPECT_EQ(job.result(1).exit_code, 0);
    EXPECT_NE(std::strstr(job.result(1).message, "no return value"), nullptr) << job.result(1).message;
}

TEST_P(PctxFunctions, E_42_P_40_a_crash_leaves_a_record) {
    Folder folder;
    const std::string logs = folder.file("logs");
    FunctionJob job(1, "crash");
    prepare(job);
    job.spec.log_dir = logs.c_str();
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    const ujoin_worker_result result = job.result(0);
    EXPECT_EQ(result.signal, SIGSEGV);
    const std::string record = read_file(result.error_path);
    EXPECT_NE(record.find(R"("signal":"SIGSEGV","address":"0x10")"), std::string::npos) << record;
    EXPECT_NE(std::string(result.message).find("Signal 11 (SIGSEGV) received by PID " + std::to_string(result.pid)),
              std::string::npos)
        << result.message;
    EXPECT_NE(std::strstr(result.traceback, "conformance_gtest"), nullptr) << result.traceback;
    const std::string report = pctx_report(job.handle);
    EXPECT_NE(report.find("at address 0x10"), std::string::npos) << report;
}

TEST_P(PctxFunctions, P_21_waiting_lasts_until_the_last_has_ended) {
    FunctionJob job(3, "fill", {"1000"});
    prepare(job);
    ASSERT_PCTX_OK(job.create_and_start());
    ASSERT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
    for (int r = 0; r < 3; r++) {
        EXPECT_FALSE(exists(job.result(r).pid));
        EXPECT_EQ(job.result(r).value_size, 1000U);
    }
}

TEST_P(PctxFunctions, LOGGING_04_P_57_P_58_P_59_everything_written_inside_is_captured) {
    for (const bool aborts : {false, true}) {
        Folder folder;
        const std::string logs = folder.file("logs");
        Capture console(folder);
        std::printf("before\n"); // not flushed: a copy of this process must not write it
        FunctionJob job(1, "writers", aborts ? std::vector<const char *>{"abort"} : std::vector<const char *>{});
        prepare(job);
        job.spec.log_dir = logs.c_str();
        job.spec.redirects = UJOIN_STD_ALL;
        ASSERT_PCTX_OK(job.create_and_start());
        std::printf("after\n");
        EXPECT_EQ(pctx_wait(job.handle, 60'000), aborts ? UJOIN_E_CHILD_FAILED : UJOIN_OK);
        console.end();
        EXPECT_EQ(read_file(job.result(0).stdout_path), "raw\nstdio\nchild\nlast\n");
        EXPECT_EQ(read_file(job.result(0).stderr_path), "");
        EXPECT_EQ(console.out(), "before\nafter\n");
        if (aborts) {
            EXPECT_EQ(job.result(0).signal, SIGABRT);
        }
    }
}

TEST_P(PctxFunctions, P_38_P_40_a_launcher_that_is_terminated_takes_its_functions_along) {
    Folder folder;
    const std::string pids = folder.file("pids");
    std::vector<std::string> texts = {helper("pctx_functions"), std::to_string(GetParam()), "2", pids};
    std::vector<char *> argv;
    for (std::string &text : texts) argv.push_back(text.data());
    argv.push_back(nullptr);
    const pid_t launcher = vfork();
    if (launcher == 0) {
        execv(argv[0], argv.data());
        _exit(127);
    }
    EXPECT_TRUE(eventually([&] { return noted_pids(pids).size() == 2; }, 5000));
    kill(launcher, SIGTERM);
    int status = 0;
    waitpid(launcher, &status, 0);
    if (!WIFSIGNALED(status)) { // else it had not come to its sigwait: its death ends them as well
        EXPECT_EQ(WEXITSTATUS(status), 0);
    }
    for (const pid_t pid : noted_pids(pids)) {
        EXPECT_TRUE(eventually([&] { return !runs(pid); }, 1000)) << pid;
        kill(pid, SIGKILL);
    }
}

TEST_P(PctxFunctions, ERRORS_02_every_way_to_end_leaves_a_usable_record) {
    struct Way {
        std::vector<const char *> args;
        int code;
        const char *says;
    };
    for (const Way &way : std::vector<Way>{{{"0", "-11"}, -11, "Signal 11 (SIGSEGV)"},
                                           {{"0", "-9"}, -9, "out of memory"},
                                           {{"0", "-6"}, -6, "Signal 6 (SIGABRT)"},
                                           {{"0", "1"}, 1, "To enable traceback"},
                                           {{"0", "0"}, 0, "no return value"},
                                           {{}, -6, "Signal 6 (SIGABRT)"}}) {
        Folder folder;
        const std::string logs = folder.file("logs");
        FunctionJob job(1, way.args.empty() ? "uncaught" : "end", way.args);
        prepare(job);
        job.spec.log_dir = logs.c_str();
        job.spec.redirects = UJOIN_STD_ERR;
        ASSERT_PCTX_OK(job.create_and_start());
        EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
        const ujoin_worker_result result = job.result(0);
        EXPECT_EQ(result.signal != 0 ? -result.signal : result.exit_code, way.code);
        EXPECT_NE(std::strstr(result.message, way.says), nullptr) << result.message;
        EXPECT_NE(std::strstr(result.traceback, way.args.empty() ? "out of data" : "from 0"), nullptr) << result.traceback;
        EXPECT_GT(result.failed_ns, 0);
        const std::string report = pctx_report(job.handle);
        for (const char *label : {"  rank      : 0", "  host      : ", "  time      : ", "(pid: "})
            EXPECT_NE(report.find(label), std::string::npos) << report;
    }
}

TEST_P(PctxFunctions, an_exception_that_a_function_throws_is_its_failure) {
    FunctionJob job(1, "throw");
    prepare(job);
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    EXPECT_EQ(job.result(0).exit_code, 1);
    EXPECT_STREQ(job.result(0).message, "std::range_error: too far");
}

/// The launcher's side of the two shared files, by hand, for each redirection of the worker's streams.
TEST(PctxFunctionWorker, P_34_a_worker_started_by_hand) {
    for (int files = 0; files < 4; files++) {
        Folder folder;
        ujoin::FunctionCall call;
        call.function = "echo";
        call.args = {"hello"};
        call.nprocs = 1;
        const ujoin::os::Fd asked = ujoin::pack_call(call);
        const ujoin::os::Fd answer = ujoin::make_answer();
        const int out = open(folder.file("out").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        const int err = open(folder.file("err").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
        const int null = open("/dev/null", O_RDWR | O_CLOEXEC);
        const pid_t pid = fork();
        if (pid == 0) {
            dup2(files & 1 ? out : null, 1);
            dup2(files & 2 ? err : null, 2);
            const int high_call = fcntl(asked.get(), F_DUPFD, 100);
            const int high_answer = fcntl(answer.get(), F_DUPFD, 100);
            dup2(high_call, 5);
            dup2(high_answer, 3);
            setenv("UJOIN_WORKER", "function:5:3", 1);
            execl("/proc/self/exe", "worker", nullptr);
            _exit(127);
        }
        int status = 0;
        waitpid(pid, &status, 0);
        close(out);
        close(err);
        close(null);
        EXPECT_EQ(status, 0);
        const ujoin::Answer left(answer.get());
        ASSERT_EQ(left.state(), ujoin::AnswerState::returned);
        EXPECT_EQ(std::string(static_cast<const char *>(left.data()), left.size()), "hello_0");
        EXPECT_EQ(read_file(folder.file("out")), files & 1 ? "hello stdout from 0\n" : "");
        EXPECT_EQ(read_file(folder.file("err")), files & 2 ? "hello stderr from 0\n" : "");
    }
}

TEST(PctxFunctionWorker, names_that_cannot_be_registered) {
    int destroyed = 0;
    const auto count = [](void *data) { ++*static_cast<int *>(data); };
    EXPECT_EQ(pctx_register("echo", worker_echo, &destroyed, count), UJOIN_E_INVALID);
    EXPECT_EQ(pctx_register("a:b", worker_echo, &destroyed, count), UJOIN_E_INVALID);
    EXPECT_EQ(pctx_register("", worker_echo, &destroyed, count), UJOIN_E_INVALID);
    EXPECT_EQ(pctx_register("x", nullptr, &destroyed, count), UJOIN_E_INVALID);
    EXPECT_EQ(destroyed, 4);
    EXPECT_EQ(pctx_return("", 0), UJOIN_E_STATE) << "no worker";
}

TEST(PctxFunctionWorker, a_function_that_is_not_registered_is_named) {
    Folder folder;
    const std::string logs = folder.file("logs");
    FunctionJob job(1, "no_such_function");
    job.spec.log_dir = logs.c_str();
    job.spec.redirects = UJOIN_STD_ALL;
    ASSERT_PCTX_OK(job.create_and_start());
    EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_E_CHILD_FAILED);
    EXPECT_NE(std::strstr(job.result(0).message, "no_such_function"), nullptr) << job.result(0).message;
    EXPECT_NE(std::strstr(job.result(0).message, "mirror"), nullptr) << "the known ones: " << job.result(0).message;
}

TEST(PctxFunctionWorker, a_worker_that_has_not_passed_worker_main_starts_nobody) {
    setenv("UJOIN_WORKER", "function:3:4", 1);
    Job job(1);
    ASSERT_PCTX_OK(job.create());
    EXPECT_EQ(pctx_start(job.handle), UJOIN_E_STATE);
    EXPECT_NE(std::strstr(ujoin_last_error(), "pctx_worker_main"), nullptr) << ujoin_last_error();
    unsetenv("UJOIN_WORKER");
}

TEST(PctxFunctionWorker, fork_under_the_warden_is_refused) {
    FunctionJob job(1, "nothing");
    job.spec.start_method = UJOIN_START_FORK;
    job.spec.containment = UJOIN_CONTAINMENT_WARDEN;
    ASSERT_PCTX_OK(job.create());
    EXPECT_EQ(pctx_start(job.handle), UJOIN_E_UNSUPPORTED);
}

} // namespace
