// SPDX-License-Identifier: Apache-2.0
#include "harness/launch.hpp"
#include "harness/ranks.hpp"
#include <chrono>
#include <csignal>
#include <cstring>
#include <fcntl.h>
#include <filesystem>
#include <map>
#include <stdexcept>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <thread>
#include <unistd.h>

namespace harness {
namespace {

std::string text_of(int fd) {
    struct stat info {};
    fstat(fd, &info);
    std::string text(static_cast<size_t>(info.st_size), '\0');
    const ssize_t n = pread(fd, text.data(), text.size(), 0);
    text.resize(n > 0 ? static_cast<size_t>(n) : 0);
    return text;
}

} // namespace

std::string built(const std::string &path) {
    const auto here = std::filesystem::read_symlink("/proc/self/exe").parent_path(); // <build>/tests/bin
    return (here.parent_path().parent_path() / path).string();
}

bool eventually(const std::function<bool()> &done) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::milliseconds(static_cast<int64_t>(30'000 * slack()));
    for (;;) {
        if (done()) return true;
        if (std::chrono::steady_clock::now() >= end) return done();
        std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
}

Launch::Launch(const std::vector<std::string> &argv, const Variables &variables) {
    out_ = memfd_create("out", MFD_CLOEXEC);
    err_ = memfd_create("err", MFD_CLOEXEC);
    fcntl(out_, F_SETFL, O_APPEND); // several processes write
    fcntl(err_, F_SETFL, O_APPEND);
    std::map<std::string, std::string> merged; // the last one counts
    for (char **entry = environ; *entry; entry++)
        if (const char *sign = std::strchr(*entry, '='))
            merged[std::string(*entry, static_cast<size_t>(sign - *entry))] = sign + 1;
    for (const auto &[name, value] : variables) merged[name] = value;
    std::vector<std::string> strings;
    for (const auto &[name, value] : merged)
        if (!value.empty()) strings.push_back(name + "=" + value);
    std::vector<char *> environment;
    for (std::string &entry : strings) environment.push_back(entry.data());
    environment.push_back(nullptr);
    std::vector<char *> args;
    for (const std::string &arg : argv) args.push_back(const_cast<char *>(arg.c_str()));
    args.push_back(nullptr);
    pid_ = fork();
    if (pid_ < 0) throw std::runtime_error("cannot fork");
    if (pid_ > 0) return;
    dup2(out_, 1);
    dup2(err_, 2);
    for (const int number : {SIGHUP, SIGINT, SIGQUIT, SIGTERM})
        ::signal(number, SIG_DFL); // whoever runs the tests may ignore them
    execve(args[0], args.data(), environment.data());
    _exit(127);
}

Launch::~Launch() {
    if (ended_ < 0) {
        kill(pid_, SIGKILL);
        waitpid(pid_, nullptr, 0);
    }
    close(out_);
    close(err_);
}

void Launch::signal(int signal) const { kill(pid_, signal); }

int Launch::wait() {
    if (ended_ >= 0) return ended_;
    int status = 0;
    if (!eventually([&] { return waitpid(pid_, &status, WNOHANG) == pid_; })) return -1;
    ended_ = WIFEXITED(status) ? WEXITSTATUS(status) : 1000 + WTERMSIG(status);
    return ended_;
}

bool Launch::wait_until_stopped() {
    int status = 0;
    return eventually([&] { return waitpid(pid_, &status, WNOHANG | WUNTRACED) == pid_; }) && WIFSTOPPED(status);
}

std::string Launch::out() const { return text_of(out_); }
std::string Launch::err() const { return text_of(err_); }

} // namespace harness
