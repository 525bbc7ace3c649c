// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include <cstdint>
#include <string>
#include <string_view>

namespace ujoin {

/// A log file that the launcher writes: whole until it is full. When the disk takes no more it is an unbroken beginning of
/// the stream, and the rest is left out.
class LogFile {
  public:
    LogFile() = default;
    /// `rotate_bytes` 0: one file. Else a file of that size becomes <path>.1, the old .1 becomes .2, and so on up to `keep`.
    LogFile(os::Fd file, std::string path, uint64_t rotate_bytes, int32_t keep)
        : file_(std::move(file)), path_(std::move(path)), rotate_bytes_(rotate_bytes), keep_(keep) {}

    explicit operator bool() const { return static_cast<bool>(file_); }
    const std::string &path() const { return path_; }
    /// False: it takes no more; errno says why, and nothing is written from then on.
    bool write(std::string_view bytes);

  private:
    bool write_all(std::string_view bytes);
    bool rotate();

    os::Fd file_;
    std::string path_;
    uint64_t rotate_bytes_ = 0;
    int32_t keep_ = 0;
    uint64_t size_ = 0;
};

} // namespace ujoin
