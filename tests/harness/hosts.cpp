// SPDX-License-Identifier: Apache-2.0
#include "harness/hosts.hpp"
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <sched.h>
#include <sys/wait.h>
#include <unistd.h>

namespace harness {
namespace {

std::string path_of(int fd) { return "/proc/" + std::to_string(getpid()) + "/fd/" + std::to_string(fd); }

int open_own() { return open("/proc/thread-self/ns/net", O_RDONLY | O_CLOEXEC); }

/// A new network namespace; -1 and errno. The calling thread stays where it is.
int make_namespace() {
    const int own = open_own();
    if (own < 0) return -1;
    int made = -1;
    if (unshare(CLONE_NEWNET) == 0) {
        made = open_own();
        if (setns(own, CLONE_NEWNET) != 0) std::abort(); // it must not go on elsewhere
    }
    const int error = errno;
    close(own);
    errno = error;
    return made;
}

} // namespace

Hosts::Hosts(int count) {
    for (int i = 0; i <= count; i++) {
        const int made = make_namespace();
        if (made < 0) {
            why_not_ = std::string("no network namespaces can be made: ") + std::strerror(errno);
            return;
        }
        namespaces_.push_back(made);
    }
    run(count, "ip link add switch type bridge && ip link set switch up");
    for (int h = 0; h < count; h++) {
        const std::string port = "port" + std::to_string(h);
        run(count, "ip link add " + port + " type veth peer name wire netns " +
                       path_of(namespaces_[static_cast<size_t>(h)]) + " && ip link set " + port +
                       " master switch && ip link set " + port + " up");
        run(h, "ip link set lo up && ip addr add " + address(h) + "/24 dev wire && ip link set wire up");
    }
}

Hosts::~Hosts() {
    for (const int fd : namespaces_) close(fd);
}

void Hosts::run(int where, const std::string &command) {
    if (!why_not_.empty()) return;
    const pid_t pid = fork();
    if (pid == 0) {
        if (setns(namespaces_[static_cast<size_t>(where)], CLONE_NEWNET) != 0) _exit(126);
        execl("/bin/sh", "sh", "-c", ("PATH=$PATH:/usr/sbin:/sbin; " + command + " >/dev/null 2>&1").c_str(), nullptr);
        _exit(127);
    }
    int status = 0;
    while (pid > 0 && waitpid(pid, &status, 0) < 0 && errno == EINTR) {
    }
    if (pid < 0 || status != 0) why_not_ = "\"" + command + "\" fails here";
}

void Hosts::enter(int host) const {
    if (setns(namespaces_[static_cast<size_t>(host)], CLONE_NEWNET) != 0) FAIL() << "setns: " << std::strerror(errno);
}

std::vector<std::string> Hosts::prefix(int host) const {
    return {"/usr/bin/env", "nsenter", "--net=" + path_of(namespaces_[static_cast<size_t>(host)])};
}

void Hosts::cut(int host) const {
    const int own = open_own();
    enter(static_cast<int>(namespaces_.size()) - 1);
    const std::string command = "PATH=$PATH:/usr/sbin:/sbin; ip link set port" + std::to_string(host) + " down";
    EXPECT_EQ(std::system(command.c_str()), 0); // NOLINT(concurrency-mt-unsafe): nobody else waits for it
    EXPECT_EQ(setns(own, CLONE_NEWNET), 0);
    close(own);
}

} // namespace harness
