// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cerrno>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <set>
#include <string>
#include <system_error>

namespace harness {

/// A directory that is gone with this object.
class TempDir {
  public:
    TempDir() {
        std::string path = (std::filesystem::temp_directory_path() / "ujoin-test-XXXXXX").string();
        if (!::mkdtemp(path.data())) throw std::system_error(errno, std::generic_category(), path);
        path_ = path;
    }
    ~TempDir() {
        std::error_code ignored;
        std::filesystem::remove_all(path_, ignored);
    }
    TempDir(const TempDir &) = delete;
    TempDir &operator=(const TempDir &) = delete;
    const std::string &path() const { return path_; }
    std::string operator/(const std::string &name) const { return path_ + "/" + name; }

  private:
    std::string path_;
};

inline std::string read_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    return {std::istreambuf_iterator<char>(in), std::istreambuf_iterator<char>()};
}
inline void write_file(const std::string &path, const std::string &content) {
    std::ofstream out(path, std::ios::binary | std::ios::trunc);
    out << content;
}
inline std::set<std::string> names_in(const std::string &directory) {
    std::set<std::string> names;
    for (const auto &entry : std::filesystem::directory_iterator(directory)) names.insert(entry.path().filename().string());
    return names;
}

} // namespace harness
