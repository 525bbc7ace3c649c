// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ujoin.h"
#include "zero/files.hpp"
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <vector>

namespace ujoin {

/// A tensor in a safetensors file: 8 bytes length of the header, the header (JSON), the data.
struct FileTensor {
    std::string name;
    ujoin_dtype dtype = 0;
    std::vector<int64_t> shape;
    size_t offset = 0; ///< from the begin of the data
    size_t bytes = 0;
    const void *data = nullptr; ///< to be written
};

/// Where the data of a tensor go that is read, or a part of them. None: they are only looked at.
struct ReadTarget {
    ReadTarget() = default;
    ReadTarget(void *whole) : data(whole) {} // NOLINT(google-explicit-constructor): most tensors are read as a whole
    ReadTarget(void *to, size_t begin, size_t size) : data(to), skip(begin), bytes(size) {}
    void *data = nullptr;
    size_t skip = 0;         ///< bytes of the tensor that are left out first
    size_t bytes = SIZE_MAX; ///< how many are taken then; at most all that are left
};

/// Writes a file; tensors with large elements come first, so that all are aligned. Adds to the metadata a checksum over
/// names, types, shapes and data, and returns it.
std::string write_safetensors(NewFile &file, std::vector<FileTensor> tensors, std::map<std::string, std::string> metadata);

/// Reads a file that anybody may have written: every field is checked before it is used. UJOIN_E_MISMATCH names file and
/// field; no more memory is taken than a small multiple of the file's size.
class SafetensorsReader {
  public:
    explicit SafetensorsReader(const std::string &path);

    /// In the order of their data.
    const std::vector<FileTensor> &tensors() const { return tensors_; }
    const std::string &path() const { return file_.path(); }
    uint64_t bytes() const { return file_.bytes(); }
    /// Of the metadata; "" if there is none.
    std::string metadata(const std::string &key) const;
    /// Reads all data, once: `place(i)` gives the memory for tensors()[i]. Compares the checksum, if the file has one.
    void read(const std::function<ReadTarget(size_t index)> &place);

  private:
    OldFile file_;
    std::vector<FileTensor> tensors_;
    std::map<std::string, std::string> metadata_;
};

inline constexpr const char *checksum_key = "ujoin.checksum";

} // namespace ujoin
