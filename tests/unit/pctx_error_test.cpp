// SPDX-License-Identifier: Apache-2.0
// Error files and the report of a failure: rows E-..
#include "base/error.hpp"
#include "harness/pctx_kit.hpp"
#include "pctx/error_file.hpp"
#include "pctx/result.hpp"
#include <algorithm>
#include <atomic>
#include <ctime>
#include <nlohmann/json.hpp>
#include <sys/stat.h>
#include <thread>

using namespace ujoin;
using nlohmann::json;

namespace {

constexpr int64_t second = 1'000'000'000;

/// One worker, or several, that ended; each may have an error file.
struct Failed {
    pctx_kit::Folder folder;
    JobPlan plan;
    std::vector<WorkerRecord> records;

    explicit Failed(size_t count = 1) : records(count) {
        plan.job.name = "trainer";
        plan.files.workers.resize(count);
        for (size_t i = 0; i < count; i++) {
            records[i].pid = 997 + static_cast<int>(i);
            records[i].state = UJOIN_WORKER_EXITED;
            records[i].exit.code = 1;
            records[i].failed = true;
            records[i].start_ns = second;
            records[i].end_ns = 95 * second;
            plan.files.workers[i].error_file = folder.file("error." + std::to_string(i));
        }
    }
    void died(size_t i, int signal) {
        records[i].state = UJOIN_WORKER_SIGNALED;
        records[i].exit.signal = signal;
        records[i].exit.code = -1;
    }
    void file(size_t i, const std::string &content) const {
        std::ofstream(plan.files.workers[i].error_file, std::ios::binary) << content;
    }
    Explanation why(size_t i = 0) const { return explain(plan, records[i], i, nullptr); }
    std::string report(size_t first = 0) const {
        std::vector<Explanation> whys;
        for (size_t i = 0; i < records.size(); i++) whys.push_back(why(i));
        return make_report(plan, records, first, whys);
    }
};

/// While it lives, failures of this process go to a file.
struct OwnFile {
    pctx_kit::Folder folder;
    std::string path = folder.file("own.json");
    OwnFile() { setenv("TORCHELASTIC_ERROR_FILE", path.c_str(), 1); }
    ~OwnFile() { unsetenv("TORCHELASTIC_ERROR_FILE"); }
    OwnFile(const OwnFile &) = delete;
    OwnFile &operator=(const OwnFile &) = delete;
    json read() const { return json::parse(pctx_kit::read_file(path)); }
    bool there() const { return std::filesystem::exists(path); }
    std::string other(const std::string &content) const {
        std::ofstream(folder.file("child.json"), std::ios::binary) << content;
        return folder.file("child.json");
    }
};

/// Log lines while it lives.
struct Warnings {
    std::vector<std::string> lines;
    Warnings() {
        ujoin_set_log_sink(
            UJOIN_LOG_WARNING,
            [](void *data, ujoin_log_level, const char *text) { static_cast<Warnings *>(data)->lines.emplace_back(text); },
            this, nullptr);
    }
    ~Warnings() { ujoin_set_log_sink(0, nullptr, nullptr, nullptr); }
    Warnings(const Warnings &) = delete;
    Warnings &operator=(const Warnings &) = delete;
};

ujoin_status good(void *) { return UJOIN_OK; }
ujoin_status bad(void *) { return ujoin_set_last_error(UJOIN_E_INVALID, "ValueError: wrong shape"); }
ujoin_status throws(void *) { throw std::runtime_error("out of data"); }

std::string structured(const std::string &message) {
    return json{{"message", {{"message", message}, {"extraInfo", {{"py_callstack", "File a.py"}, {"timestamp", "77"}}}}}}
        .dump();
}

} // namespace

TEST(PctxError, E_40_not_E_01_file_that_cannot_be_understood_is_said_and_does_not_hide_the_failure) {
    for (const char *content : {"", R"({"mess)", "[]", R"({"unknown_key": 1})", "\x80\xff"}) {
        Failed t;
        t.records[0].exit.code = 3;
        t.file(0, content);
        EXPECT_EQ(t.why().error_path, "") << content;
        EXPECT_NE(t.why().message.find("cannot be used"), std::string::npos) << t.why().message;
        EXPECT_NE(t.report().find("  exitcode  : 3 (pid: 997)"), std::string::npos);
        EXPECT_EQ(pctx_kit::read_file(t.plan.files.workers[0].error_file), content) << "kept for who looks at it";
    }
}

TEST(PctxError, E_02_E_03_flat_form_with_a_time_as_number_or_text) {
    for (const char *time : {"10", "\"10\""}) {
        Failed t;
        t.file(0, std::string(R"({"message": "flat text", "timestamp": )") + time + "}");
        EXPECT_EQ(t.why().message, "flat text");
        EXPECT_EQ(t.why().failed_ns, 10 * second);
    }
}

TEST(PctxError, E_04_recorded_error_with_exit_1) {
    Failed t;
    t.file(0, structured("RuntimeError: x"));
    EXPECT_EQ(t.why().message, "RuntimeError: x");
    EXPECT_EQ(t.why().traceback, "File a.py");
    EXPECT_EQ(t.why().error_path, t.plan.files.workers[0].error_file);
    EXPECT_EQ(t.why().failed_ns, 77 * second);
    EXPECT_EQ(python_code(t.records[0]), 1);
    EXPECT_NE(t.report().find("error_file: " + t.plan.files.workers[0].error_file + "\n"), std::string::npos);
}

TEST(PctxError, E_05_P_22_E_15_crash_without_a_file) {
    Failed t;
    t.died(0, SIGSEGV);
    EXPECT_EQ(t.why().message, "Signal 11 (SIGSEGV) received by PID 997");
    EXPECT_EQ(t.why().error_path, "");
    EXPECT_NE(t.report().find("  exitcode  : -11 (pid: 997)"), std::string::npos) << t.report();
    EXPECT_NE(t.report().find("(SIGSEGV)"), std::string::npos);
    t.died(0, SIGHUP);
    EXPECT_EQ(t.why().message, "Signal 1 (SIGHUP) received by PID 997");
    t.died(0, SIGKILL);
    EXPECT_NE(t.why().message.find("out of memory"), std::string::npos) << "the usual cause: " << t.why().message;
}

TEST(PctxError, E_07_all_failures_are_in_the_report_the_root_last) {
    Failed t(3);
    t.file(0, structured("first"));
    t.file(1, structured("second"));
    t.records[2].exit.code = 138;
    const std::string report = t.report(0);
    const size_t root = report.find("Root Cause (first observed failure):\n[0]:");
    ASSERT_NE(root, std::string::npos) << report;
    EXPECT_LT(report.find("[1]:"), root);
    EXPECT_LT(report.find("[2]:"), root);
    EXPECT_LT(report.find("exitcode  : 138"), root);
    EXPECT_GT(report.find("rank      : 0 (local_rank: 0)"), root);
}

TEST(PctxError, E_08_E_20_record_of_a_failure_and_of_an_exception) {
    OwnFile own;
    EXPECT_EQ(pctx_record(bad, nullptr), UJOIN_E_INVALID);
    EXPECT_NE(std::string(ujoin_last_error()).find("ValueError: wrong shape"), std::string::npos);
    EXPECT_EQ(own.read()["message"]["message"], "ValueError: wrong shape");
    EXPECT_TRUE(own.read()["message"]["extraInfo"]["py_callstack"].is_string());
    const std::string time = own.read()["message"]["extraInfo"]["timestamp"];
    EXPECT_LE(std::llabs(std::stoll(time) - std::time(nullptr)), 60);
    EXPECT_EQ(pctx_record(throws, nullptr), UJOIN_E_CALLBACK);
    EXPECT_EQ(own.read()["message"]["message"], "std::runtime_error: out of data");
    EXPECT_NE(std::string(ujoin_last_error()).find("std::runtime_error: out of data"), std::string::npos);
    struct stat info {};
    ASSERT_EQ(stat(own.path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
    EXPECT_EQ(std::distance(std::filesystem::directory_iterator(own.folder.path), {}), 1) << "no other file is left";
}

TEST(PctxError, E_11_E_24_recording_without_a_place) {
    unsetenv("TORCHELASTIC_ERROR_FILE");
    EXPECT_EQ(pctx_record(bad, nullptr), UJOIN_E_INVALID);
    EXPECT_EQ(pctx_record_error("text", nullptr, 0), UJOIN_OK);
    setenv("TORCHELASTIC_ERROR_FILE", "", 1);
    EXPECT_EQ(pctx_record_error("text", nullptr, 0), UJOIN_OK);
    unsetenv("TORCHELASTIC_ERROR_FILE");
}

TEST(PctxError, E_12_E_23_a_good_function_leaves_no_file) {
    OwnFile own;
    EXPECT_EQ(pctx_record(good, nullptr), UJOIN_OK);
    EXPECT_FALSE(own.there());
}

TEST(PctxError, E_25_E_26_E_27_copies) {
    OwnFile own;
    const std::string source = own.other("{\"message\":  \"as it is\" }\n");
    copy_error_file(source, 0);
    EXPECT_EQ(pctx_kit::read_file(own.path), "{\"message\":  \"as it is\" }\n");
    copy_error_file(own.other(structured("newer")), 0);
    EXPECT_EQ(own.read()["message"]["message"], "newer");
    unsetenv("TORCHELASTIC_ERROR_FILE");
    copy_error_file(source, 1); // E-26: no place, no error
}

TEST(PctxError, E_29_E_30_a_file_that_has_no_place_for_the_code) {
    for (const char *content : {R"({"message": "flat"})", R"({"other": 1})"}) {
        OwnFile own;
        Warnings warnings;
        copy_error_file(own.other(content), 1);
        EXPECT_EQ(pctx_kit::read_file(own.path), content);
        ASSERT_EQ(warnings.lines.size(), 1U);
        EXPECT_NE(warnings.lines[0].find("without the exit code 1"), std::string::npos) << warnings.lines[0];
    }
}

TEST(PctxError, E_31_an_older_file_that_cannot_be_read_is_replaced) {
    OwnFile own;
    std::ofstream(own.path) << "no JSON";
    Warnings warnings;
    copy_error_file(own.other(structured("x")), 0);
    EXPECT_EQ(own.read()["message"]["message"], "x");
    ASSERT_EQ(warnings.lines.size(), 1U);
    EXPECT_NE(warnings.lines[0].find("was no JSON"), std::string::npos) << warnings.lines[0];
}

TEST(PctxError, E_13_E_44_code_and_signal_of_the_child_are_added) {
    OwnFile own;
    copy_error_file(own.other(structured("x")), 1);
    json expected = json::parse(structured("x"));
    expected["message"]["errorCode"] = 1;
    EXPECT_EQ(own.read(), expected);
    copy_error_file(own.other(structured("x")), -11);
    EXPECT_EQ(own.read()["message"]["errorCode"], -11);
    EXPECT_EQ(own.read()["message"]["signalName"], "SIGSEGV");
}

TEST(PctxError, E_28_times_never_go_back) {
    OwnFile own;
    int64_t last = 0;
    int64_t last_monotonic = 0;
    for (int i = 0; i < 3; i++) {
        pctx_record_error("again", nullptr, 0);
        const json extra = own.read()["message"]["extraInfo"];
        EXPECT_GE(std::stoll(extra["timestamp"].get<std::string>()), last);
        EXPECT_GT(extra["monotonic_ns"].get<int64_t>(), last_monotonic);
        last = std::stoll(extra["timestamp"].get<std::string>());
        last_monotonic = extra["monotonic_ns"];
    }
}

TEST(PctxError, E_33_signal_without_a_name) {
    EXPECT_EQ(signal_name(200), "<N/A>");
    EXPECT_EQ(signal_name(0), "<N/A>");
    EXPECT_EQ(signal_name(SIGTERM), "SIGTERM");
    Failed t;
    t.died(0, 64);
    EXPECT_NE(t.report().find("Signal 64 (<N/A>)"), std::string::npos) << t.report();
}

TEST(PctxError, E_34_one_failure_alone) {
    EXPECT_NE(Failed().report().find("Failures:\n  <NO_OTHER_FAILURES>\n---"), std::string::npos) << Failed().report();
}

TEST(PctxError, E_35_messages_without_a_stack) {
    Failed t;
    t.file(0, R"({"message": {"message": "ValueError: deep\nsecond", "extraInfo": {}}})");
    EXPECT_NE(t.report().find("  traceback : ValueError: deep\n  second\n"), std::string::npos) << t.report();
    t.file(0, R"({"message": {"extraInfo": {}}})");
    EXPECT_NE(t.report().find("  traceback : <N/A>\n"), std::string::npos) << t.report();
    t.file(0, "{\"message\": \"line \\u001b[31m\\nnext\"}");
    EXPECT_NE(t.report().find("  traceback : line ?[31m\n  next\n"), std::string::npos)
        << "nothing for the terminal: " << t.report();
}

TEST(PctxError, E_36_width_of_the_rules) {
    Failed t;
    t.plan.job.name = std::string(100, 'n');
    const auto lines = pctx_kit::split_lines(t.report());
    EXPECT_EQ(lines.front(), std::string(60, '='));
    EXPECT_EQ(lines[1], std::string(100, 'n') + " FAILED");
    EXPECT_EQ(lines[2], std::string(60, '-'));
    EXPECT_EQ(lines.back(), std::string(60, '='));
}

TEST(PctxError, E_39_not_E_37_flat_file_without_a_time_has_its_own) {
    Failed t;
    t.file(0, R"({"message": "flat"})");
    const timespec times[2] = {{55, 0}, {55, 0}};
    ASSERT_EQ(utimensat(AT_FDCWD, t.plan.files.workers[0].error_file.c_str(), times, 0), 0);
    EXPECT_EQ(t.why().failed_ns, 55 * second);
}

TEST(PctxError, E_41_a_reader_sees_nothing_or_the_whole) {
    OwnFile own;
    std::atomic<bool> stop{false};
    std::atomic<int> seen{0};
    std::atomic<int> torn{0};
    std::thread reader([&] {
        while (!stop) {
            const ErrorRecord record = read_error_file(own.path);
            seen += record.present;
            torn += !record.note.empty();
        }
    });
    const std::string large(200'000, 'x');
    for (int i = 0; i < 30 || seen < 3; i++) pctx_record_error(large.c_str(), nullptr, 0);
    stop = true;
    reader.join();
    EXPECT_EQ(torn, 0);
}

TEST(PctxError, E_43_a_place_for_errors_that_is_gone) {
    OwnFile own;
    setenv("TORCHELASTIC_ERROR_FILE", own.folder.file("gone/error.json").c_str(), 1);
    Warnings warnings;
    EXPECT_EQ(pctx_record(bad, nullptr), UJOIN_E_INVALID) << "its own error counts";
    EXPECT_NE(std::string(ujoin_last_error()).find("wrong shape"), std::string::npos);
    ASSERT_EQ(warnings.lines.size(), 1U);
    EXPECT_NE(warnings.lines[0].find("gone/error.json"), std::string::npos) << warnings.lines[0];
    EXPECT_FALSE(std::filesystem::exists(own.folder.file("gone")));
}

TEST(PctxError, last_lines_of_stderr_where_there_is_no_file) {
    Failed t;
    t.plan.files.workers[0].streams[1].path = t.folder.file("err");
    std::ofstream(t.folder.file("err")) << "early\n" << std::string(20, '\n') << "batch 1187: token\x1b id\nlast\n\n";
    EXPECT_NE(t.report().find("  batch 1187: token? id\n  last\n"), std::string::npos) << t.report();
    EXPECT_EQ(t.report().find("early"), std::string::npos);
    t.file(0, structured("said"));
    EXPECT_EQ(t.report().find("batch 1187"), std::string::npos) << "its own words are enough";
}

TEST(PctxError, E_16_not_E_42_a_crash_message_with_more_is_shown_and_kept) {
    Failed t;
    t.died(0, SIGABRT);
    t.file(0, R"({"message": "Signal 6 (SIGABRT): assertion a > b"})");
    EXPECT_NE(t.report().find("assertion a > b"), std::string::npos) << t.report();
    EXPECT_NE(t.report().find("died of SIGABRT"), std::string::npos) << t.report();
    EXPECT_EQ(pctx_kit::read_file(t.plan.files.workers[0].error_file),
              R"({"message": "Signal 6 (SIGABRT): assertion a > b"})");
}

TEST(PctxError, E_18_crash_records_are_switched_on_once) {
    struct sigaction before[2]{};
    struct sigaction after {};
    sigaction(SIGFPE, nullptr, &before[0]);
    ASSERT_EQ(pctx_record_crashes(), UJOIN_OK);
    sigaction(SIGFPE, nullptr, &before[1]);
    static bool repeated = false; // --gtest_repeat: it is for the whole process
    EXPECT_EQ(before[0].sa_sigaction == before[1].sa_sigaction, repeated);
    repeated = true;
    ASSERT_EQ(pctx_record_crashes(), UJOIN_OK);
    sigaction(SIGFPE, nullptr, &after);
    EXPECT_EQ(before[1].sa_sigaction, after.sa_sigaction);
}
