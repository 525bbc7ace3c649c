// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "os/fd.hpp"
#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

namespace ujoin {

/// A new file. It has its name only from finish() on, where the file system can do that. Unless keep() or rename_to() is
/// called it is removed again.
class NewFile {
  public:
    /// Throws UJOIN_E_SYSTEM; the file must not exist.
    explicit NewFile(std::string path);
    ~NewFile();
    NewFile(const NewFile &) = delete;
    NewFile &operator=(const NewFile &) = delete;

    void write(const void *data, size_t size);
    /// Closes it, on the disk if `sync`, and gives it its name.
    void finish(bool sync);
    void rename_to(const std::string &path);
    void keep() { kept_ = true; }
    const std::string &path() const { return path_; }
    uint64_t bytes() const { return bytes_; }

  private:
    std::string path_;
    os::Fd fd_;
    uint64_t bytes_ = 0;
    bool kept_ = false;
    bool named_ = true;
};

/// A file that is read. Only regular files: a pipe or a device could block for ever.
class OldFile {
  public:
    explicit OldFile(std::string path);
    uint64_t bytes() const { return bytes_; }
    const std::string &path() const { return path_; }
    /// Reads exactly so many bytes; UJOIN_E_MISMATCH if the file ends before.
    void read(void *data, size_t size);

  private:
    std::string path_;
    os::Fd fd_;
    uint64_t bytes_ = 0;
};

/// 16 hexadecimal digits that nobody can guess.
std::string random_id();
bool is_random_id(std::string_view text);
/// Makes a directory unless it is there.
void make_directory(const std::string &path);
/// Waits until the names in a directory are on the disk.
void sync_directory(const std::string &path);
/// The directory of a path, and the name in it.
std::string directory_of(const std::string &path);
std::string name_of(const std::string &path);
/// Removes the files of a directory whose names are asked for; failures are only logged. Takes no memory: it clears up after
/// a save that failed for want of it.
void remove_files(const std::string &directory, const std::function<bool(std::string_view name)> &wanted) noexcept;

} // namespace ujoin
