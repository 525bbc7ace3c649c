// SPDX-License-Identifier: Apache-2.0
#include "pctx/log_file.hpp"
#include "base/text.hpp"
#include <cerrno>
#include <cstdio>
#include <fcntl.h>

namespace ujoin {

bool LogFile::write(std::string_view bytes) {
    while (file_ && rotate_bytes_ > 0 && size_ + bytes.size() > rotate_bytes_) { // whole lines stay together where they can
        const size_t room = size_ < rotate_bytes_ ? static_cast<size_t>(rotate_bytes_ - size_) : 0;
        size_t part = 0;
        if (room > 0)
            if (const size_t end = bytes.rfind('\n', room - 1); end != std::string_view::npos) part = end + 1;
        if (part == 0 && size_ == 0) part = room; // one line longer than a file
        if (!write_all(bytes.substr(0, part)) || !rotate()) break;
        bytes.remove_prefix(part);
    }
    return file_ && write_all(bytes);
}

bool LogFile::write_all(std::string_view bytes) {
    while (!bytes.empty()) {
        const ssize_t done = ::write(file_.get(), bytes.data(), bytes.size());
        if (done >= 0) {
            size_ += static_cast<uint64_t>(done);
            bytes.remove_prefix(static_cast<size_t>(done));
        } else if (errno != EINTR) {
            const int error = errno;
            file_.reset();
            errno = error;
            return false;
        }
    }
    return true;
}

bool LogFile::rotate() {
    const auto numbered = [&](int32_t number) { return number == 0 ? path_ : cat(path_, ".", number); };
    if (keep_ == 0) unlink(path_.c_str());
    for (int32_t number = keep_; number > 0; number--) std::rename(numbered(number - 1).c_str(), numbered(number).c_str());
    file_.reset(open(path_.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_APPEND | O_CLOEXEC, 0600));
    size_ = 0;
    return static_cast<bool>(file_);
}

} // namespace ujoin
