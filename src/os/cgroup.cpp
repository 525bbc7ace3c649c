// SPDX-License-Identifier: Apache-2.0
#include "os/cgroup.hpp"
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <dirent.h>
#include <fcntl.h>
#include <fstream>
#include <functional>
#include <sstream>
#include <sys/stat.h>

namespace ujoin::os {
namespace {

/// "0::/user.slice/x": where version 2 has this process; "" if it is not in use.
std::string path_in_hierarchy(const std::string &proc) {
    std::ifstream file(proc + "/cgroup");
    for (std::string line; std::getline(file, line);)
        if (line.compare(0, 3, "0::") == 0) return line.substr(3);
    return {};
}

/// Of mountinfo: spaces and the like are written as \040.
std::string unescape(const std::string &text) {
    std::string out;
    for (size_t i = 0; i < text.size(); i++) {
        if (text[i] == '\\' && i + 3 < text.size()) {
            out += static_cast<char>(std::strtol(text.substr(i + 1, 3).c_str(), nullptr, 8));
            i += 3;
        } else {
            out += text[i];
        }
    }
    return out;
}

struct Mount {
    std::string root; // what of the hierarchy it shows
    std::string at;
};

/// The mounts of version 2, the newest last: it may lie over another.
std::string find_mount(const std::string &proc, const std::string &path, bool &any) {
    std::ifstream file(proc + "/mountinfo");
    std::string found;
    for (std::string line; std::getline(file, line);) {
        const size_t dash = line.find(" - ");
        if (dash == std::string::npos || line.compare(dash + 3, 8, "cgroup2 ") != 0) continue;
        any = true;
        std::istringstream fields(line);
        std::string skipped;
        Mount mount;
        fields >> skipped >> skipped >> skipped >> mount.root >> mount.at;
        const std::string root = mount.root == "/" ? "" : unescape(mount.root);
        if (path.compare(0, root.size(), root) != 0) continue;
        const std::string rest = path.substr(root.size());
        if (!rest.empty() && rest[0] != '/') continue;
        found = unescape(mount.at) + (rest == "/" ? "" : rest);
    }
    return found;
}

void write_file(int directory, const char *name, const char *text) {
    const Fd file(openat(directory, name, O_WRONLY | O_CLOEXEC));
    if (!file || write(file.get(), text, std::strlen(text)) < 0) return; // whoever is left is seen by remove()
}

/// Calls `visit` with the name of each directory below.
void each_child(int directory, const std::function<void(const char *)> &visit) {
    const int copy = openat(directory, ".", O_RDONLY | O_DIRECTORY | O_CLOEXEC);
    DIR *list = copy < 0 ? nullptr : fdopendir(copy);
    if (!list) return;
    while (const dirent *entry = readdir(list)) // NOLINT(concurrency-mt-unsafe): the stream is this function's own
        if (entry->d_type == DT_DIR && entry->d_name[0] != '.') visit(entry->d_name);
    closedir(list);
}

/// For kernels before 5.14, which have no cgroup.kill. Frozen processes cannot fork meanwhile, and die of SIGKILL all the same.
void kill_each(int directory) {
    const Fd file(openat(directory, "cgroup.procs", O_RDONLY | O_CLOEXEC));
    std::string text;
    char buffer[4096];
    for (ssize_t got = 0; file && (got = read(file.get(), buffer, sizeof buffer)) > 0;)
        text.append(buffer, static_cast<size_t>(got));
    std::istringstream numbers(text);
    for (pid_t pid = 0; numbers >> pid;)
        if (pid > 0) kill(pid, SIGKILL); // 0: of another process namespace
    each_child(directory, [&](const char *name) {
        const Fd child(openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (child) kill_each(child.get());
    });
}

void remove_below(int directory) {
    each_child(directory, [&](const char *name) {
        const Fd child(openat(directory, name, O_RDONLY | O_DIRECTORY | O_CLOEXEC));
        if (child) remove_below(child.get());
        unlinkat(directory, name, AT_REMOVEDIR);
    });
}

} // namespace

std::string own_cgroup(const std::string &proc, std::string &why) {
    const std::string path = path_in_hierarchy(proc);
    if (path.empty()) {
        why = "this system does not use cgroup version 2";
        return {};
    }
    bool any = false;
    std::string found = find_mount(proc, path, any);
    if (found.empty())
        why = any ? "this process's cgroup \"" + path + "\" is outside of what the mounted cgroup2 shows"
                  : "no cgroup2 file system is mounted";
    return found;
}

int Cgroup::make(const std::string &path) {
    if (mkdir(path.c_str(), 0755) != 0) return errno;
    const int error = open(path);
    if (error != 0) rmdir(path.c_str());
    return error;
}

int Cgroup::open(const std::string &path) {
    Fd directory(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!directory) return errno;
    Fd procs(openat(directory.get(), "cgroup.procs", O_WRONLY | O_CLOEXEC));
    if (!procs) return errno;
    path_ = path;
    directory_ = std::move(directory);
    procs_ = std::move(procs);
    return 0;
}

void Cgroup::kill_all() const {
    if (!directory_) return;
    const bool hidden = ujoin_test_without_cgroup_kill && ujoin_test_without_cgroup_kill();
    if (!hidden && faccessat(directory_.get(), "cgroup.kill", F_OK, 0) == 0)
        return write_file(directory_.get(), "cgroup.kill", "1");
    write_file(directory_.get(), "cgroup.freeze", "1");
    kill_each(directory_.get());
}

bool Cgroup::remove() {
    if (!directory_) return true;
    remove_below(directory_.get());
    if (rmdir(path_.c_str()) != 0 && errno != ENOENT) return false;
    *this = Cgroup();
    return true;
}

} // namespace ujoin::os
