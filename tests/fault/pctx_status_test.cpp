// SPDX-License-Identifier: Apache-2.0
// The status line of a terminal.
#include "harness/launch.hpp"
#include "harness/pctx_kit.hpp"
#include <mutex>
#include <pty.h>
#include <regex>
#include <sys/wait.h>

using namespace pctx_kit;

namespace {

/// A terminal: what is written to it, read by a thread.
class Terminal {
  public:
    Terminal() {
        winsize size{};
        size.ws_col = 100;
        size.ws_row = 20;
        EXPECT_EQ(openpty(&master_, &slave_, nullptr, nullptr, &size), 0);
        fcntl(master_, F_SETFD, FD_CLOEXEC);
        fcntl(slave_, F_SETFD, FD_CLOEXEC);
        reader_ = std::thread([this] {
            char buffer[4096];
            for (ssize_t got = 0; (got = read(master_, buffer, sizeof buffer)) > 0;) {
                const std::scoped_lock lock(mutex_);
                text_.append(buffer, static_cast<size_t>(got));
            }
        });
    }
    ~Terminal() { end(); }
    Terminal(const Terminal &) = delete;
    Terminal &operator=(const Terminal &) = delete;

    int fd() const { return slave_; }
    std::string text() {
        const std::scoped_lock lock(mutex_);
        return text_;
    }
    bool shows(const std::string &pattern) {
        const std::regex expected(pattern);
        return harness::eventually([&] { return std::regex_search(text(), expected); });
    }
    /// Nobody writes any more: everything was read.
    void end() {
        if (slave_ >= 0) close(slave_);
        slave_ = -1;
        if (reader_.joinable()) reader_.join();
        if (master_ >= 0) close(master_);
        master_ = -1;
    }
    /// The lines as a person sees them once all was written.
    std::vector<std::string> screen() {
        std::vector<std::string> lines{""};
        const std::string all = text();
        for (size_t i = 0; i < all.size(); i++) {
            if (all.compare(i, 4, "\r\033[K") == 0) {
                lines.back().clear();
                i += 3;
            } else if (all[i] == '\n') {
                lines.emplace_back();
            } else if (all[i] != '\r') {
                lines.back() += all[i];
            }
        }
        return lines;
    }

  private:
    int master_ = -1;
    int slave_ = -1;
    std::thread reader_;
    std::mutex mutex_;
    std::string text_;
};

/// While it lives, descriptors of this process are others.
class Replaced {
  public:
    Replaced(int out, int err) {
        std::fflush(nullptr);
        const int given[2] = {out, err};
        for (int i = 0; i < 2; i++) {
            saved_[i] = fcntl(i + 1, F_DUPFD_CLOEXEC, 3);
            dup2(given[i], i + 1);
        }
    }
    ~Replaced() {
        for (int i = 0; i < 2; i++) {
            dup2(saved_[i], i + 1);
            close(saved_[i]);
        }
    }
    Replaced(const Replaced &) = delete;
    Replaced &operator=(const Replaced &) = delete;

  private:
    int saved_[2];
};

} // namespace

TEST(PctxStatus, it_is_the_last_line_and_never_within_another) {
    Folder folder;
    Terminal terminal;
    bool seen = false;
    bool again = false;
    {
        const Replaced replaced(terminal.fd(), terminal.fd());
        Job job(2,
                {"out=hello\\n", "await=" + folder.file("go"), "out=half", "await=" + folder.file("end"), "out= bye\\n"});
        job.spec.log_dir = "/dev/null";
        job.spec.tee = UJOIN_STD_ALL;
        job.spec.no_colour = 1;
        job.spec.partial_line_ms = 20;
        job.spec.restart_count = 1;
        job.spec.status_line = 1;
        EXPECT_EQ(job.create_and_start(), UJOIN_OK) << ujoin_last_error();
        seen = terminal.shows("\r\033\\[Kworker: 2 of 2 ranks up, 1 restart, ") && terminal.shows(" silent for [1-9]");
        std::ofstream(folder.file("go")) << "";
        again = terminal.shows("half");
        std::ofstream(folder.file("end")) << "";
        EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK) << ujoin_last_error();
    }
    terminal.end();
    EXPECT_TRUE(seen && again) << terminal.text();
    const std::vector<std::string> lines = terminal.screen();
    EXPECT_EQ(lines.back(), "") << "it is gone at the end";
    int whole = 0;
    for (const std::string &line : lines) {
        EXPECT_EQ(line.find("ranks up"), std::string::npos) << line;
        EXPECT_TRUE(line.empty() || line.rfind("[worker", 0) == 0) << line;
        if (line == "[worker0]: hello" || line == "[worker1]: hello") whole++;
    }
    EXPECT_EQ(whole, 2) << terminal.text();
}

TEST(PctxStatus, there_is_none_where_a_worker_writes_to_the_terminal_itself_or_where_none_is) {
    Folder folder;
    const int file = open(folder.file("out").c_str(), O_RDWR | O_CREAT | O_CLOEXEC, 0600);
    ASSERT_GE(file, 0);
    struct Case {
        bool terminal_err;
        ujoin_std tee;
    };
    for (const Case &now : {Case{true, UJOIN_STD_NONE}, Case{true, UJOIN_STD_OUT}, Case{false, UJOIN_STD_ALL}}) {
        Terminal terminal;
        {
            const Replaced replaced(terminal.fd(), now.terminal_err ? terminal.fd() : file);
            Job job(1, {"out=hello\\n", "sleep=1200"});
            job.spec.log_dir = "/dev/null";
            job.spec.tee = now.tee;
            job.spec.status_line = 1;
            EXPECT_EQ(job.create_and_start(), UJOIN_OK) << ujoin_last_error();
            EXPECT_EQ(pctx_wait(job.handle, 60'000), UJOIN_OK);
        }
        terminal.end();
        EXPECT_EQ(terminal.text().find("ranks up"), std::string::npos) << terminal.text();
    }
    EXPECT_EQ(read_file(folder.file("out")), "");
    close(file);
}

TEST(PctxStatus, ujoin_run_shows_it_by_default_and_its_own_lines_go_over_it) {
    for (const bool off : {false, true}) {
        Folder folder;
        Terminal terminal;
        std::vector<std::string> argv{harness::built("bin/ujoin-run"),
                                      "--standalone",
                                      "--nproc-per-node",
                                      "2",
                                      "--role",
                                      "job",
                                      "-t",
                                      "3",
                                      "--log-dir",
                                      folder.file("logs")};
        if (off) argv.insert(argv.end(), {"--status-line", "off"});
        argv.insert(argv.end(), {"sh", "-c", "echo up; exec sleep 1000"});
        std::vector<char *> pointers;
        for (std::string &arg : argv) pointers.push_back(arg.data());
        pointers.push_back(nullptr);
        const pid_t pid = fork();
        if (pid == 0) {
            dup2(terminal.fd(), 1);
            dup2(terminal.fd(), 2);
            setenv("TERM", "xterm", 1);
            setenv("NO_COLOR", "1", 1);
            execv(pointers[0], pointers.data());
            _exit(99);
        }
        EXPECT_TRUE(terminal.shows("\\[job0]: up") && terminal.shows("\\[job1]: up")) << terminal.text();
        if (!off) {
            EXPECT_TRUE(terminal.shows("\r\033\\[Kjob: 2 of 2 ranks up, 0 restarts, ")) << terminal.text();
        }
        kill(pid, SIGQUIT);
        EXPECT_TRUE(terminal.shows("ujoin-run: rank 1 \\(pid ")) << terminal.text();
        kill(pid, SIGTERM);
        int status = 0;
        EXPECT_EQ(waitpid(pid, &status, 0), pid);
        EXPECT_EQ(WEXITSTATUS(status), 128 + SIGTERM);
        terminal.end();
        EXPECT_EQ(terminal.text().find("ranks up") == std::string::npos, off) << terminal.text();
        int own = 0;
        for (const std::string &line : terminal.screen()) {
            EXPECT_EQ(line.find("ranks up"), std::string::npos) << line;
            if (line.rfind("ujoin-run: rank ", 0) == 0) own++;
        }
        EXPECT_EQ(own, 2) << terminal.text();
    }
}
