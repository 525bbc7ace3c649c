// SPDX-License-Identifier: Apache-2.0
// Insides of process contexts: texts, the environment, lines of the console, log files, starting one program.
#include "base/error.hpp"
#include "harness/pctx_kit.hpp"
#include "os/process.hpp"
#include "os/program.hpp"
#include "os/spawn.hpp"
#include "pctx/console_lines.hpp"
#include "pctx/result.hpp"
#include "pctx/spec.hpp"
#include "pctx/stdio_plan.hpp"
#include <sys/stat.h>
#include <sys/wait.h>

using namespace ujoin;

namespace {

ujoin_status code_of(const std::function<void()> &body) {
    try {
        body();
    } catch (const Error &error) {
        return error.code();
    }
    return UJOIN_OK;
}

// --------------------------------------------------------------------------------------------------------------- texts

TEST(PctxSpec, substitute_replaces_known_names_only) {
    const std::vector<std::pair<const char *, std::string>> values = {{"rank", "7"}, {"local_rank", "3"}};
    EXPECT_EQ(substitute("a${rank}b${local_rank}", values), "a7b3");
    EXPECT_EQ(substitute("${other} ${rank ${} $rank", values), "${other} ${rank ${} $rank");
    EXPECT_EQ(substitute("${${rank}}", values), "${7}");
    EXPECT_EQ(substitute("", values), "");
}

TEST(PctxSpec, environment_applies_changes_in_order) {
    const std::vector<std::string> base = {"A=1", "B=2", "AB=3"};
    const std::vector<EnvChange> changes = {
        {1, "A", "x"}, {-1, "B", std::nullopt}, {0, "C", "="}, {-1, "A", "all"}, {2, "A", "two"}};
    EXPECT_EQ(find_variable(make_environment(base, changes, 0), "A"), "all");
    EXPECT_EQ(find_variable(make_environment(base, changes, 0), "C"), "=");
    EXPECT_EQ(find_variable(make_environment(base, changes, 1), "A"), "all"); // the later change, though it is for all
    EXPECT_EQ(find_variable(make_environment(base, changes, 2), "A"), "two");
    EXPECT_EQ(find_variable(make_environment(base, changes, 2), "B"), std::nullopt);
    EXPECT_EQ(find_variable(make_environment(base, changes, 2), "AB"), "3");
    EXPECT_EQ(make_environment(base, changes, 1).size(), 2U);
}

TEST(PctxSpec, std_text_names_the_place_of_an_error) {
    EXPECT_EQ(parse_std("10:1,12:3", 13)[12], UJOIN_STD_ALL);
    try {
        parse_std("0:1,7", 2);
        FAIL();
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), UJOIN_E_INVALID);
        EXPECT_NE(error.text().find("character 6"), std::string::npos) << error.text();
    }
}

// ------------------------------------------------------------------------------------------------------- console lines

struct Merged {
    ConsoleState console;
    LineMerger first{console, 1, "<a>"};
    LineMerger second{console, 1, "<b>"};
    std::string out;
    std::string other;
};

TEST(PctxLines, whole_lines_get_one_prefix_each) {
    Merged m;
    m.first.feed("one\ntwo\nthr", m.out, m.other);
    EXPECT_EQ(m.out, "<a>one\n<a>two\n");
    m.first.feed("ee\n\n", m.out, m.other);
    EXPECT_EQ(m.out, "<a>one\n<a>two\n<a>three\n<a>\n");
    EXPECT_FALSE(m.first.has_partial());
}

TEST(PctxLines, shown_part_goes_on_without_a_second_prefix) {
    Merged m;
    m.first.feed("AB", m.out, m.other);
    m.first.show_partial(m.out, m.other);
    EXPECT_EQ(m.out, "<a>AB");
    m.first.feed("CD\nEF\n", m.out, m.other);
    EXPECT_EQ(m.out, "<a>ABCD\n<a>EF\n");
}

TEST(PctxLines, another_stream_ends_a_shown_part) {
    Merged m;
    m.first.feed("AB", m.out, m.other);
    m.first.show_partial(m.out, m.other);
    m.second.feed("x\n", m.out, m.other);
    EXPECT_EQ(m.out, "<a>AB\n<b>x\n");
    m.first.feed("CD\n", m.out, m.other);
    EXPECT_EQ(m.out, "<a>AB\n<b>x\n<a>CD\n");
}

TEST(PctxLines, bare_end_after_an_interruption_makes_no_empty_line) {
    Merged m;
    m.first.feed("AB", m.out, m.other);
    m.first.show_partial(m.out, m.other);
    m.second.feed("x\n", m.out, m.other);
    m.first.feed("\nnext\n", m.out, m.other);
    EXPECT_EQ(m.out, "<a>AB\n<b>x\n<a>next\n");
}

TEST(PctxLines, the_other_descriptor_of_one_terminal_is_ended_first) {
    ConsoleState console;
    console.same = true;
    LineMerger out_stream{console, 1, "<o>"};
    LineMerger err_stream{console, 2, "<e>"};
    std::string out;
    std::string err;
    out_stream.feed("half", out, err);
    out_stream.show_partial(out, err);
    std::string ends;
    std::string text;
    err_stream.feed("oops\n", text, ends);
    EXPECT_EQ(ends, "\n");
    EXPECT_EQ(text, "<e>oops\n");
}

TEST(PctxLines, long_lines_come_in_parts) {
    Merged m;
    const std::string line(2 * LineMerger::max_line + 10, 'x');
    m.first.feed(line.substr(0, 100), m.out, m.other);
    m.first.feed(line.substr(100) + "\nnext\n", m.out, m.other);
    const std::vector<std::string> lines = pctx_kit::split_lines(m.out);
    ASSERT_EQ(lines.size(), 4U);
    EXPECT_EQ(lines[0], "<a>" + std::string(LineMerger::max_line, 'x'));
    EXPECT_EQ(lines[1], lines[0]);
    EXPECT_EQ(lines[2], "<a>" + std::string(10, 'x'));
    EXPECT_EQ(lines[3], "<a>next");
}

TEST(PctxLines, progress_that_overwrites_itself) {
    Merged m;
    m.first.feed("10%\r20%\r30%", m.out, m.other);
    m.first.show_partial(m.out, m.other);
    EXPECT_EQ(m.out, "<a>30%") << "what was overwritten before anybody saw it is left out";
    m.first.feed("\r40%", m.out, m.other);
    m.first.show_partial(m.out, m.other);
    EXPECT_EQ(m.out, "<a>30%\r<a>40%");
    m.first.feed("\r100%\nnext\r\n", m.out, m.other);
    EXPECT_EQ(m.out, "<a>30%\r<a>40%\r<a>100%\n<a>next\r\n");
    m.out.clear();
    m.first.feed("50%\r", m.out, m.other); // the return at the end of what is shown
    m.first.show_partial(m.out, m.other);
    m.first.feed("60%\r", m.out, m.other);
    m.first.show_partial(m.out, m.other);
    m.first.feed("\n", m.out, m.other);
    EXPECT_EQ(m.out, "<a>50%\r\r<a>60%\r\n");
}

TEST(PctxLines, time_in_the_prefix_is_that_of_each_line) {
    ConsoleState console;
    LineMerger lines(console, 1, "[${time}] ");
    std::string out;
    std::string other;
    lines.feed("a\n", out, other);
    int h = 0, m = 0, s = 0, ms = 0;
    EXPECT_EQ(std::sscanf(out.c_str(), "[%2d:%2d:%2d.%3d] a", &h, &m, &s, &ms), 4) << out;
}

TEST(PctxLines, line_of_just_the_longest_length_stays_whole) {
    Merged m;
    m.first.feed(std::string(LineMerger::max_line, 'y'), m.out, m.other);
    EXPECT_EQ(m.out, "");
    m.first.feed("\n", m.out, m.other);
    EXPECT_EQ(m.out, "<a>" + std::string(LineMerger::max_line, 'y') + "\n");
}

TEST(PctxLines, any_bytes_pass_and_the_last_line_gets_an_end) {
    Merged m;
    const std::string bytes("\0\xff\x1b[1m\r", 7);
    m.first.feed(bytes, m.out, m.other);
    m.first.finish(m.out, m.other);
    EXPECT_EQ(m.out, "<a>" + bytes + "\n");
    m.first.finish(m.out, m.other);
    EXPECT_EQ(m.out, "<a>" + bytes + "\n");
}

// ----------------------------------------------------------------------------------------------------------- log files

struct LogJob {
    pctx_kit::Folder folder;
    JobSpec job;
    std::vector<WorkerSpec> workers{2};
    LogJob() {
        job.name = "t";
        job.log_dir = folder.file("logs");
        job.run_id = "run";
        job.nprocs = 2;
        job.redirects = UJOIN_STD_ALL;
    }
};

mode_t mode_of(const std::string &path) {
    struct stat info {};
    return lstat(path.c_str(), &info) == 0 ? info.st_mode & 07777 : 0;
}

TEST(PctxLogs, layout_and_permissions_do_not_depend_on_the_umask) {
    for (const mode_t mask : {mode_t{0}, mode_t{0777}}) {
        LogJob t;
        const mode_t old = umask(mask);
        StdioPlan plan;
        const ujoin_status status = code_of([&] { plan = StdioPlan::open(t.job, t.workers); });
        plan.publish();
        umask(old);
        ASSERT_EQ(status, UJOIN_OK);
        const std::string logs = t.folder.file("logs");
        EXPECT_EQ(plan.workers[1].streams[0].path, logs + "/run/attempt_0/1/stdout.log");
        EXPECT_EQ(plan.workers[0].error_file, logs + "/run/attempt_0/0/error.json");
        EXPECT_EQ(mode_of(logs), 0700U);
        EXPECT_EQ(mode_of(logs + "/run/attempt_0/1"), 0700U);
        EXPECT_EQ(mode_of(logs + "/run/attempt_0/1/stderr.log"), 0600U);
        EXPECT_EQ(std::filesystem::read_symlink(logs + "/latest"), "run/attempt_0");
    }
}

TEST(PctxLogs, an_earlier_start_is_not_overwritten) {
    LogJob t;
    StdioPlan first = StdioPlan::open(t.job, t.workers);
    first.publish();
    std::ofstream(first.workers[0].streams[0].path) << "kept";
    EXPECT_EQ(code_of([&] { StdioPlan::open(t.job, t.workers); }), UJOIN_E_SYSTEM);
    EXPECT_EQ(pctx_kit::read_file(first.workers[0].streams[0].path), "kept");
    t.job.restart_count = 1; // the next attempt of the same run
    EXPECT_EQ(code_of([&] { StdioPlan::open(t.job, t.workers).publish(); }), UJOIN_OK);
    EXPECT_EQ(std::filesystem::read_symlink(t.folder.file("logs/latest")), "run/attempt_1");
    t.job.first_rank = 2; // another host of the same attempt
    EXPECT_EQ(code_of([&] { StdioPlan::open(t.job, t.workers).publish(); }), UJOIN_OK);
    EXPECT_TRUE(std::filesystem::exists(t.folder.file("logs/run/attempt_1/3/stdout.log")));
}

TEST(PctxLogs, planted_links_are_not_followed) {
    LogJob t;
    std::filesystem::create_directory(t.folder.file("logs"));
    std::filesystem::create_directory(t.folder.file("elsewhere"));
    std::filesystem::create_directory_symlink(t.folder.file("elsewhere"), t.folder.file("logs/run"));
    EXPECT_EQ(code_of([&] { StdioPlan::open(t.job, t.workers); }), UJOIN_E_SYSTEM);
    EXPECT_TRUE(std::filesystem::is_empty(t.folder.file("elsewhere")));
    std::filesystem::create_directory(t.folder.file("logs/latest")); // no link: left alone
    t.job.run_id = "other";
    StdioPlan plan = StdioPlan::open(t.job, t.workers);
    plan.publish();
    EXPECT_TRUE(std::filesystem::is_directory(std::filesystem::symlink_status(t.folder.file("logs/latest"))));
}

TEST(PctxLogs, undo_leaves_nothing) {
    LogJob t;
    StdioPlan plan = StdioPlan::open(t.job, t.workers);
    plan.undo();
    EXPECT_FALSE(std::filesystem::exists(t.folder.file("logs")));
}

TEST(PctxLogs, no_directory_unless_a_file_is_needed) {
    LogJob t;
    t.job.log_dir = std::nullopt;
    t.job.redirects = UJOIN_STD_NONE;
    EXPECT_EQ(StdioPlan::open(t.job, t.workers).directory, "");
    t.job.log_dir = "/dev/null";
    t.job.redirects = UJOIN_STD_OUT;
    t.job.tee = UJOIN_STD_ERR;
    const StdioPlan plan = StdioPlan::open(t.job, t.workers);
    EXPECT_EQ(plan.workers[0].streams[0].kind, StreamKind::discard);
    EXPECT_EQ(plan.workers[0].streams[1].kind, StreamKind::pipe);
    EXPECT_FALSE(plan.workers[0].streams[1].file);
}

// --------------------------------------------------------------------------------------------------------------- spawn

TEST(PctxSpawn, program_is_found_as_a_shell_would) {
    pctx_kit::Folder folder;
    int error = 0;
    EXPECT_EQ(os::find_program("sh", "/nowhere:/bin:/usr/bin", "", error), "/bin/sh");
    EXPECT_EQ(error, 0);
    EXPECT_EQ(os::find_program("./x/y", "/bin", "", error), "./x/y");
    EXPECT_EQ(os::find_program("ujoin-no-such-program", "/bin", "", error), "");
    EXPECT_EQ(error, ENOENT);
    std::ofstream(folder.file("data")) << "not executable";
    std::filesystem::create_directory(folder.file("sh")); // a directory of that name is passed over
    EXPECT_EQ(os::find_program("sh", folder.path.string() + ":/bin", "", error), "/bin/sh");
    EXPECT_EQ(os::find_program("data", folder.path.string(), "", error), "");
    EXPECT_EQ(error, EACCES);
}

struct Strings {
    std::vector<std::string> texts;
    std::vector<char *> list;
    explicit Strings(std::vector<std::string> t) : texts(std::move(t)) {
        for (std::string &text : texts) list.push_back(text.data());
        list.push_back(nullptr);
    }
};

TEST(PctxSpawn, errno_of_each_step_is_exact_and_the_child_is_gone) {
    pctx_kit::Folder folder;
    std::ofstream(folder.file("script")) << "no interpreter line\n";
    std::filesystem::permissions(folder.file("script"), std::filesystem::perms::owner_all);
    Strings argv({"x"});
    Strings envp({});
    const int fds[] = {0, 1, 2};
    os::SpawnRequest request;
    request.argv = argv.list.data();
    request.envp = envp.list.data();
    request.fds = fds;
    request.fd_count = 3;
    const auto attempt = [&](const std::string &program, const std::string &directory, int error, os::SpawnStep step) {
        request.program = program.c_str();
        request.directory = directory.empty() ? nullptr : directory.c_str();
        const os::SpawnResult result = os::spawn(request);
        EXPECT_EQ(result.error, error) << program;
        EXPECT_EQ(result.step, step) << program;
        EXPECT_EQ(result.pidfd, -1);
    };
    attempt("/no/such/program", "", ENOENT, os::SpawnStep::exec);
    attempt(folder.path.string(), "", EACCES, os::SpawnStep::exec);
    attempt(folder.file("script"), "", ENOEXEC, os::SpawnStep::exec);
    attempt("/bin/true", "/no/such/directory", ENOENT, os::SpawnStep::directory);
    EXPECT_EQ(waitpid(-1, nullptr, WNOHANG), -1);
    EXPECT_EQ(errno, ECHILD);
}

TEST(PctxSpawn, descriptors_may_be_permuted) {
    pctx_kit::Folder folder;
    const int in = open("/dev/null", O_RDONLY | O_CLOEXEC);
    const int a = open(folder.file("a").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const int b = open(folder.file("b").c_str(), O_WRONLY | O_CREAT | O_CLOEXEC, 0600);
    const int saved[2] = {fcntl(1, F_DUPFD_CLOEXEC, 3), fcntl(2, F_DUPFD_CLOEXEC, 3)};
    dup2(a, 1);
    dup2(b, 2);
    const std::string program = pctx_kit::helper();
    Strings argv({"w", "out=to out", "err=to err"});
    Strings envp({});
    const int fds[] = {in, 2, 1}; // swapped, and each a target of the other
    os::SpawnRequest request;
    request.program = program.c_str();
    request.argv = argv.list.data();
    request.envp = envp.list.data();
    request.fds = fds;
    request.fd_count = 3;
    const os::SpawnResult result = os::spawn(request);
    for (int i = 0; i < 2; i++) {
        dup2(saved[i], i + 1);
        close(saved[i]);
    }
    close(in);
    close(a);
    close(b);
    ASSERT_EQ(result.error, 0);
    ASSERT_TRUE(os::wait_pidfd(result.pidfd, 10'000));
    os::ExitInfo info;
    EXPECT_EQ(os::peek_exit(result.pidfd, info), os::ExitState::ended);
    EXPECT_EQ(info.code, 0);
    EXPECT_EQ(os::peek_exit(result.pidfd, info), os::ExitState::ended); // a look does not reap
    os::reap(result.pidfd);
    EXPECT_EQ(os::peek_exit(result.pidfd, info), os::ExitState::taken);
    close(result.pidfd);
    EXPECT_EQ(pctx_kit::read_file(folder.file("b")), "to out");
    EXPECT_EQ(pctx_kit::read_file(folder.file("a")), "to err");
}

} // namespace
