// SPDX-License-Identifier: Apache-2.0
#include "zero/files.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include <algorithm>
#include <cerrno>
#include <cstdio>
#include <dirent.h>
#include <fcntl.h>
#include <memory>
#include <sys/stat.h>
#include <unistd.h>

namespace ujoin {
namespace {

constexpr size_t largest_transfer = size_t{1} << 30;

std::string quoted(const std::string &path) { return cat('"', path, '"'); }

/// By which a file that has no name can be given one.
std::string own_name(int fd) { return cat("/proc/self/fd/", fd); }

} // namespace

NewFile::NewFile(std::string path) : path_(std::move(path)) {
    // Without a name until it is whole: a process that is killed leaves nothing behind.
    struct stat info {};
    if (::lstat(path_.c_str(), &info) != 0)
        fd_.reset(::open(directory_of(path_).c_str(), O_TMPFILE | O_WRONLY | O_CLOEXEC, 0666));
    if (fd_ && ::access(own_name(fd_.get()).c_str(), F_OK) == 0) {
        named_ = false;
        return;
    }
    fd_.reset(::open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC, 0666));
    if (!fd_) {
        kept_ = true; // not ours
        fail_errno(errno, cat("cannot create ", quoted(path_)));
    }
}

NewFile::~NewFile() {
    if (!kept_ && named_) ::unlink(path_.c_str());
}

void NewFile::write(const void *data, size_t size) {
    const auto *at = static_cast<const char *>(data);
    while (size > 0) {
        const ssize_t done = ::write(fd_.get(), at, std::min(size, largest_transfer));
        if (done < 0) {
            if (errno == EINTR) continue;
            fail_errno(errno, cat("cannot write ", quoted(path_)));
        }
        at += done;
        size -= static_cast<size_t>(done);
        bytes_ += static_cast<uint64_t>(done);
    }
}

void NewFile::finish(bool sync) {
    if (sync && ::fsync(fd_.get()) != 0) fail_errno(errno, cat("cannot bring ", quoted(path_), " to the disk"));
    if (!named_) {
        if (::linkat(AT_FDCWD, own_name(fd_.get()).c_str(), AT_FDCWD, path_.c_str(), AT_SYMLINK_FOLLOW) != 0)
            fail_errno(errno, cat("cannot create ", quoted(path_)));
        named_ = true;
    }
    if (::close(fd_.release()) != 0 && errno != EINTR) fail_errno(errno, cat("cannot close ", quoted(path_)));
}

void NewFile::rename_to(const std::string &path) {
    if (::rename(path_.c_str(), path.c_str()) != 0)
        fail_errno(errno, cat("cannot rename ", quoted(path_), " to ", quoted(path)));
    kept_ = true;
}

OldFile::OldFile(std::string path) : path_(std::move(path)) {
    fd_.reset(::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!fd_) fail_errno(errno, cat("cannot open ", quoted(path_)));
    struct stat info {};
    if (::fstat(fd_.get(), &info) != 0) fail_errno(errno, cat("cannot examine ", quoted(path_)));
    if (S_ISDIR(info.st_mode)) fail_errno(EISDIR, cat("cannot read ", quoted(path_)));
    if (!S_ISREG(info.st_mode)) fail(UJOIN_E_MISMATCH, quoted(path_), " is no regular file");
    bytes_ = static_cast<uint64_t>(info.st_size);
}

void OldFile::read(void *data, size_t size) {
    auto *at = static_cast<char *>(data);
    while (size > 0) {
        const ssize_t done = ::read(fd_.get(), at, std::min(size, largest_transfer));
        if (done < 0) {
            if (errno == EINTR) continue;
            fail_errno(errno, cat("cannot read ", quoted(path_)));
        }
        if (done == 0) fail(UJOIN_E_MISMATCH, quoted(path_), " became shorter while it was read");
        at += done;
        size -= static_cast<size_t>(done);
    }
}

std::string random_id() { return random_hex(8); }

bool is_random_id(std::string_view text) {
    const auto hex = [](char c) { return (c >= '0' && c <= '9') || (c >= 'a' && c <= 'f'); };
    return text.size() == 16 && std::all_of(text.begin(), text.end(), hex);
}

void make_directory(const std::string &path) {
    if (::mkdir(path.c_str(), 0777) == 0) return;
    const int error = errno;
    struct stat info {};
    if (error != EEXIST || ::stat(path.c_str(), &info) != 0)
        fail_errno(error, cat("cannot make the directory ", quoted(path)));
    if (!S_ISDIR(info.st_mode)) fail_errno(ENOTDIR, quoted(path));
}

void sync_directory(const std::string &path) {
    const os::Fd fd(::open(path.c_str(), O_RDONLY | O_DIRECTORY | O_CLOEXEC));
    if (!fd) fail_errno(errno, cat("cannot open ", quoted(path)));
    // Some file systems know no fsync of a directory (EINVAL): their renames are ordered by themselves.
    if (::fsync(fd.get()) != 0 && errno != EINVAL) fail_errno(errno, cat("cannot bring ", quoted(path), " to the disk"));
}

std::string directory_of(const std::string &path) {
    const size_t slash = path.rfind('/');
    if (slash == std::string::npos) return ".";
    return slash == 0 ? "/" : path.substr(0, slash);
}

std::string name_of(const std::string &path) {
    const size_t slash = path.rfind('/');
    return slash == std::string::npos ? path : path.substr(slash + 1);
}

void remove_files(const std::string &directory, const std::function<bool(std::string_view name)> &wanted) noexcept {
    const std::unique_ptr<DIR, int (*)(DIR *)> list(::opendir(directory.c_str()), ::closedir);
    const auto warn = [&](const char *what, int error) {
        try {
            log_warning("cannot remove ", what, " in ", quoted(directory), ": ", errno_text(error));
        } catch (const std::bad_alloc &) { // a warning is never worth a failure
        }
    };
    if (!list) return warn("old files", errno);
    while (const dirent *entry = ::readdir(list.get()))
        if (wanted(entry->d_name) && ::unlinkat(::dirfd(list.get()), entry->d_name, 0) != 0 && errno != ENOENT)
            warn(entry->d_name, errno);
}

} // namespace ujoin
