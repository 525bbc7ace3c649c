// SPDX-License-Identifier: Apache-2.0
#include "harness/ranks.hpp"
#include "harness/descriptors.hpp"
#include <atomic>
#include <cerrno>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <latch>
#include <memory>
#include <mutex>
#include <poll.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>
#include <vector>

// There only in a build with the address sanitizer; a child ends by _exit, which skips the check at exit.
extern "C" int __lsan_do_recoverable_leak_check() __attribute__((weak));

namespace harness {
namespace {

using Clock = std::chrono::steady_clock;

Clock::time_point test_deadline() {
    return Clock::now() + std::chrono::milliseconds(static_cast<int64_t>(60'000 * slack()));
}

std::string rank_list(const std::vector<int> &ranks) {
    std::string text;
    for (int rank : ranks) text += (text.empty() ? "" : ", ") + std::to_string(rank);
    return text;
}

/// Runs the body of one rank; whatever it throws becomes a failure. `start`: where ranks that are threads wait for each
/// other. Without it the lock in ScopedTrace would order one rank's body before another's, and hide races.
void run_body(int rank, const std::function<void(int)> &body, std::latch *start = nullptr) {
    const testing::ScopedTrace trace(__FILE__, __LINE__, "rank " + std::to_string(rank));
    if (start) start->arrive_and_wait();
    try {
        body(rank);
    } catch (const std::exception &error) {
        ADD_FAILURE() << "rank " << rank << " threw: " << error.what();
    } catch (...) {
        ADD_FAILURE() << "rank " << rank << " threw something that is no std::exception";
    }
}

// ---------------------------------------------------------------------------------------------------------- threads

struct Finish {
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<bool> done;
    int left = 0;
    std::latch start;
    explicit Finish(int size) : done(static_cast<size_t>(size)), left(size), start(size) {}
};

// ---------------------------------------------------------------------------------------------------------- processes

/// What a child tells its parent through the pipe: one letter, the length, the text.
enum Message : char { failure = 'F', skip = 'S', death = 'D', finished = 'E' };

int child_pipe = -1; ///< in a child: where to report

void send_message(Message kind, const std::string &text) {
    std::string data(1, kind);
    const auto size = static_cast<uint32_t>(text.size());
    data.append(reinterpret_cast<const char *>(&size), sizeof size);
    data += text;
    static std::mutex mutex; // failures may come from several threads of the child
    const std::lock_guard lock(mutex);
    for (size_t at = 0; at < data.size();) {
        const ssize_t written = write(child_pipe, data.data() + at, data.size() - at);
        if (written > 0)
            at += static_cast<size_t>(written);
        else if (errno != EINTR)
            return;
    }
}

class ChildListener : public testing::EmptyTestEventListener {
    void OnTestPartResult(const testing::TestPartResult &result) override {
        if (result.passed()) return;
        std::string where = result.file_name() ? result.file_name() : "unknown file";
        where += ":" + std::to_string(result.line_number()) + "\n" + result.message();
        send_message(result.skipped() ? skip : failure, where);
    }
};

[[noreturn]] void child_main(int rank, pid_t parent, const std::function<void(int)> &body) {
    prctl(PR_SET_PDEATHSIG, SIGKILL);
    if (getppid() != parent) _exit(1);
    auto &listeners = testing::UnitTest::GetInstance()->listeners();
    delete listeners.Release(listeners.default_result_printer());
    listeners.Append(new ChildListener);
    const Descriptors before = open_descriptors();
    run_body(rank, body);
    if (const std::string left = leaked_descriptors(before); !left.empty()) {
        send_message(failure, "descriptors left open:\n" + left);
    }
    if (__lsan_do_recoverable_leak_check && __lsan_do_recoverable_leak_check()) {
        send_message(failure, "memory was leaked (the report is on the standard error)");
    }
    std::fflush(nullptr);
    send_message(finished, "");
    _exit(0);
}

struct Child {
    int rank = 0;
    pid_t pid = -1;
    int pidfd = -1;
    int pipe = -1;
    std::string received;
    int expected_signal = 0;
    bool said_finished = false;
};

/// Reads what has come; false at the end of the pipe.
bool read_messages(Child &child) {
    char data[4096];
    const ssize_t size = read(child.pipe, data, sizeof data);
    if (size < 0 && errno == EINTR) return true;
    if (size <= 0) return false;
    child.received.append(data, static_cast<size_t>(size));
    for (;;) {
        uint32_t length = 0;
        if (child.received.size() < 1 + sizeof length) return true;
        std::memcpy(&length, child.received.data() + 1, sizeof length);
        if (child.received.size() < 1 + sizeof length + length) return true;
        const char kind = child.received[0];
        const std::string text = child.received.substr(1 + sizeof length, length);
        child.received.erase(0, 1 + sizeof length + length);
        if (kind == failure) ADD_FAILURE() << "in the process of rank " << child.rank << ": " << text;
        if (kind == death) child.expected_signal = std::atoi(text.c_str());
        if (kind == finished) child.said_finished = true;
        if (kind == skip) [text] { GTEST_SKIP() << text; }();
    }
}

void check_exit(const Child &child, int status) {
    if (WIFSIGNALED(status)) {
        if (WTERMSIG(status) == child.expected_signal) return;
        ADD_FAILURE() << "the process of rank " << child.rank << " was killed by signal " << WTERMSIG(status) << " ("
                      << strsignal(WTERMSIG(status)) << ")";
    } else if (child.expected_signal) {
        ADD_FAILURE() << "rank " << child.rank << " was expected to die by signal " << child.expected_signal
                      << " but ended with exit code " << WEXITSTATUS(status);
    } else if (!child.said_finished || WEXITSTATUS(status) != 0) {
        ADD_FAILURE() << "the process of rank " << child.rank << " ended by itself with exit code " << WEXITSTATUS(status)
                      << " before its body returned";
    }
}

/// Reads what is left and reaps.
void finish_child(Child &child) {
    int status = 0;
    pid_t done = 0;
    while ((done = waitpid(child.pid, &status, 0)) < 0 && errno == EINTR) {
    }
    // A grandchild may hold the pipe: take what is there, do not wait for its end.
    pollfd ready{child.pipe, POLLIN, 0};
    while (child.pipe >= 0 && poll(&ready, 1, 0) > 0 && read_messages(child)) {
    }
    if (done == child.pid)
        check_exit(child, status);
    else
        ADD_FAILURE() << "somebody else took the exit status of rank " << child.rank;
    close(child.pipe);
    close(child.pidfd);
    child.pid = -1;
}

void kill_all(std::vector<Child> &children) {
    for (Child &child : children) {
        if (child.pid < 0) continue;
        kill(child.pid, SIGKILL);
        child.expected_signal = SIGKILL;
        finish_child(child);
    }
}

bool start_child(std::vector<Child> &children, int rank, const std::function<void(int)> &body) {
    int ends[2];
    if (pipe2(ends, O_CLOEXEC) != 0) {
        ADD_FAILURE() << "pipe2: " << std::strerror(errno);
        return false;
    }
    const pid_t parent = getpid();
    const pid_t pid = fork();
    if (pid == 0) {
        close(ends[0]);
        child_pipe = ends[1];
        for (const Child &other : children) {
            close(other.pipe);
            close(other.pidfd);
        }
        child_main(rank, parent, body);
    }
    close(ends[1]);
    Child child;
    child.rank = rank;
    child.pid = pid;
    child.pipe = ends[0];
    if (pid < 0) {
        ADD_FAILURE() << "fork: " << std::strerror(errno);
        close(ends[0]);
        return false;
    }
    child.pidfd = static_cast<int>(syscall(SYS_pidfd_open, pid, 0));
    children.push_back(std::move(child));
    return true;
}

/// One wait for something to happen; false when the deadline has passed.
bool serve_children(std::vector<Child> &children, Clock::time_point deadline) {
    std::vector<pollfd> waits;
    std::vector<Child *> owners;
    for (Child &child : children) {
        if (child.pid < 0) continue;
        waits.push_back({child.pidfd, POLLIN, 0});
        waits.push_back({child.pipe, POLLIN, 0});
        owners.push_back(&child);
    }
    const auto left = std::chrono::duration_cast<std::chrono::milliseconds>(deadline - Clock::now()).count();
    if (left <= 0) return false;
    if (poll(waits.data(), waits.size(), static_cast<int>(left)) <= 0) return true;
    for (size_t i = 0; i < owners.size(); i++) {
        Child &child = *owners[i];
        if (waits[2 * i].revents) {
            finish_child(child);
        } else if (waits[2 * i + 1].revents && !read_messages(child)) {
            close(child.pipe);
            child.pipe = -1; // poll ignores it from now on
        }
    }
    return true;
}

} // namespace

double slack() {
    const char *text = std::getenv("UJOIN_TEST_SLACK");
    const double value = text ? std::atof(text) : 1;
    return value > 0 ? value : 1;
}

std::string unique(const std::string &stem) {
    static std::atomic<int> count{0};
    const auto time = Clock::now().time_since_epoch().count();
    return stem + "-" + std::to_string(getpid()) + "-" + std::to_string(time) + "-" + std::to_string(count++);
}

void expect_death(int signal) { send_message(death, std::to_string(signal)); }

void run_threads(int size, const std::function<void(int rank)> &body) {
    const auto finish = std::make_shared<Finish>(size);
    std::vector<std::thread> threads;
    threads.reserve(static_cast<size_t>(size));
    for (int rank = 0; rank < size; rank++) {
        threads.emplace_back([rank, &body, finish] {
            run_body(rank, body, &finish->start);
            const std::lock_guard lock(finish->mutex);
            finish->done[static_cast<size_t>(rank)] = true;
            finish->left--;
            finish->changed.notify_all();
        });
    }
    {
        std::unique_lock lock(finish->mutex);
        if (!finish->changed.wait_until(lock, test_deadline(), [&] { return finish->left == 0; })) {
            std::vector<int> hung;
            for (int rank = 0; rank < size; rank++) {
                if (!finish->done[static_cast<size_t>(rank)]) hung.push_back(rank);
            }
            std::fprintf(stderr, "\nrun_threads: deadline passed, of %d ranks these hang: %s\n", size,
                         rank_list(hung).c_str());
            std::fflush(nullptr);
            std::abort();
        }
    }
    for (std::thread &thread : threads) thread.join();
}

void run_processes(int size, const std::function<void(int rank)> &body) {
    const auto deadline = test_deadline();
    std::fflush(nullptr); // else every child would write what is still buffered
    std::vector<Child> children;
    for (int rank = 0; rank < size; rank++) {
        if (!start_child(children, rank, body)) return kill_all(children);
    }
    for (;;) {
        std::vector<int> running;
        for (const Child &child : children) {
            if (child.pid >= 0) running.push_back(child.rank);
        }
        if (running.empty()) return;
        if (!serve_children(children, deadline)) {
            ADD_FAILURE() << "run_processes: deadline passed, of " << size << " ranks these hang: " << rank_list(running);
            return kill_all(children);
        }
    }
}

} // namespace harness
