// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <string_view>

namespace ujoin {

/// What a worker left about its failure: error.json in PyTorch's schema. Two forms are read, {"message": {"message": text,
/// "extraInfo": {"py_callstack": text, "timestamp": "seconds"}}} and {"message": text, "timestamp": seconds or text}; the
/// first is written, with extraInfo.monotonic_ns added.
struct ErrorRecord {
    bool present = false;     // a file was there and could be read
    std::string message;      // "" if there is none
    std::string callstack;    // "" if there is none
    int64_t time_ns = 0;      // CLOCK_REALTIME; of the file itself if it holds none
    int64_t monotonic_ns = 0; // 0: not known
    std::string note;         // a file is there, but cannot be understood: why
};

ErrorRecord read_error_file(const std::string &path);
/// The same out of memory; `when_ns` is taken where it holds no time.
ErrorRecord parse_error(std::string_view json, int64_t when_ns);

/// The JSON text. `code` 0: none.
std::string make_error(const std::string &message, const std::string &callstack, int32_t code);
/// A reader sees the old file or the whole new one. Throws UJOIN_E_SYSTEM.
void write_whole_file(const std::string &path, std::string_view bytes);

/// The file that this process's failure goes to; "" if none was asked for.
std::string own_error_file();
/// Makes a worker's error file this process's own, with its exit code (negative: a signal) put into it, unless that is 0.
/// What goes wrong is a warning.
void copy_error_file(const std::string &from, int32_t code);

/// "SIGSEGV"; "<N/A>" for a number that has no name.
std::string signal_name(int signal);

/// Leaves a record when this process crashes; see pctx_record_crashes. False: it did so already.
bool record_crashes();

} // namespace ujoin
