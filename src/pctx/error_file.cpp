// SPDX-License-Identifier: Apache-2.0
#include "pctx/error_file.hpp"
#include "base/deadline.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "base/json.hpp"
#include "base/log.hpp"
#include "base/random.hpp"
#include "os/fd.hpp"
#include "os/process.hpp"
#include <cerrno>
#include <charconv>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <fcntl.h>
#include <optional>
#include <sys/stat.h>

namespace ujoin {
namespace {

constexpr off_t largest_file = 16 << 20;
constexpr JsonLimits limits{64, 1 << 20, true};
constexpr int64_t second_ns = 1'000'000'000;

/// A regular file's bytes; false: there is none, or it is too large.
bool read_bytes(const std::string &path, std::string &out, int64_t &modified_ns) {
    const os::Fd file(open(path.c_str(), O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC));
    struct stat info {};
    if (!file || fstat(file.get(), &info) != 0 || !S_ISREG(info.st_mode) || info.st_size > largest_file) return false;
    modified_ns = int64_t{info.st_mtim.tv_sec} * second_ns + info.st_mtim.tv_nsec;
    out.resize(static_cast<size_t>(info.st_size));
    size_t at = 0;
    while (at < out.size()) {
        const ssize_t got = read(file.get(), out.data() + at, out.size() - at);
        if (got <= 0) break;
        at += static_cast<size_t>(got);
    }
    out.resize(at);
    return true;
}

/// A whole number, also as text; 0 if it is none.
int64_t whole_number(const Json &object, const char *name) {
    const Json *found = object.find(name);
    if (!found) return 0;
    if (const auto *negative = found->as<int64_t>()) return *negative;
    if (const auto *number = found->as<uint64_t>()) return static_cast<int64_t>(*number);
    const auto *text = found->as<std::string>();
    if (!text) return 0;
    int64_t value = 0;
    const auto [stop, code] = std::from_chars(text->data(), text->data() + text->size(), value);
    return code == std::errc{} && stop == text->data() + text->size() ? value : 0;
}

std::string text_of(const Json &object, const char *name) {
    const Json *found = object.find(name);
    const auto *text = found ? found->as<std::string>() : nullptr;
    return text ? *text : std::string();
}

/// Nothing, and why, if it is not what a worker should leave.
std::optional<Json> parse(std::string_view bytes, std::string &why) {
    try {
        return parse_json(bytes, limits);
    } catch (const Error &error) {
        why = error.text();
        return std::nullopt;
    }
}

int64_t seconds_or(int64_t seconds, int64_t otherwise_ns) {
    return seconds > 0 && seconds < INT64_MAX / second_ns ? seconds * second_ns : otherwise_ns;
}

void warn_of_old_file(const std::string &path) {
    std::string old;
    int64_t modified = 0;
    if (!read_bytes(path, old, modified)) return;
    std::string why;
    const bool readable = parse(old, why).has_value();
    log_warning("the error file ", path, " is replaced; it ", readable ? cat("held ", old) : std::string("was no JSON"));
}

/// Puts the code into the structured form; the flat one has no place for it.
std::string with_code(const std::string &bytes, int32_t code, const std::string &from) {
    std::string why;
    std::optional<Json> file = parse(bytes, why);
    auto *all = file ? file->as<Json::Object>() : nullptr;
    const auto at = all ? all->find("message") : Json::Object::iterator();
    auto *message = all && at != all->end() ? at->second.as<Json::Object>() : nullptr;
    if (!message) {
        log_warning("the error file ", from, " has no structured message; it is copied without the exit code ", code);
        return bytes;
    }
    (*message)["errorCode"] = code;
    if (code < 0) (*message)["signalName"] = signal_name(-code);
    return file->dump();
}

} // namespace

ErrorRecord parse_error(std::string_view bytes, int64_t when_ns) {
    ErrorRecord record;
    std::string why;
    const std::optional<Json> file = parse(bytes, why);
    if (!file) {
        record.note = cat("it cannot be read, or was not written to its end: ", why);
        return record;
    }
    const Json *message = file->find("message");
    if (!message) {
        record.note = "it has no \"message\"";
        return record;
    }
    record.present = true;
    record.time_ns = when_ns;
    if (const auto *text = message->as<std::string>()) {
        record.message = *text;
        record.time_ns = seconds_or(whole_number(*file, "timestamp"), when_ns);
    } else if (message->as<Json::Object>()) {
        record.message = text_of(*message, "message");
        if (const Json *extra = message->find("extraInfo"); extra && extra->as<Json::Object>()) {
            record.callstack = text_of(*extra, "py_callstack");
            record.time_ns = seconds_or(whole_number(*extra, "timestamp"), when_ns);
            record.monotonic_ns = whole_number(*extra, "monotonic_ns");
        }
    }
    return record;
}

ErrorRecord read_error_file(const std::string &path) {
    std::string bytes;
    int64_t modified = 0;
    if (path.empty() || !read_bytes(path, bytes, modified)) return {};
    return parse_error(bytes, modified);
}

std::string make_error(const std::string &message, const std::string &callstack, int32_t code) {
    Json::Object inner = {{"message", message}};
    inner["extraInfo"] = Json::Object{{"py_callstack", callstack},
                                      {"timestamp", std::to_string(os::realtime_ns() / second_ns)},
                                      {"monotonic_ns", now_ns()}};
    if (code != 0) inner["errorCode"] = code;
    return Json(Json::Object{{"message", std::move(inner)}}).dump(Json::Broken::replaced);
}

void write_whole_file(const std::string &path, std::string_view bytes) {
    const std::string fresh = cat(path, ".", random_hex(6));
    os::Fd file(open(fresh.c_str(), O_WRONLY | O_CREAT | O_EXCL | O_NOFOLLOW | O_CLOEXEC, 0600));
    if (!file) fail_errno(errno, cat("cannot write \"", path, "\""));
    for (std::string_view rest = bytes; !rest.empty();) {
        const ssize_t done = write(file.get(), rest.data(), rest.size());
        if (done >= 0) {
            rest.remove_prefix(static_cast<size_t>(done));
        } else if (errno != EINTR) {
            const int error = errno;
            unlink(fresh.c_str());
            fail_errno(error, cat("cannot write \"", path, "\""));
        }
    }
    file.reset();
    if (std::rename(fresh.c_str(), path.c_str()) == 0) return;
    const int error = errno;
    unlink(fresh.c_str());
    fail_errno(error, cat("cannot write \"", path, "\""));
}

std::string own_error_file() { return env::text(env::Var::error_file).value_or(""); }

void copy_error_file(const std::string &from, int32_t code) {
    std::string bytes;
    int64_t modified = 0;
    const std::string own = own_error_file();
    if (own.empty() || from.empty() || own == from || !read_bytes(from, bytes, modified)) return;
    try {
        warn_of_old_file(own);
        write_whole_file(own, code == 0 ? bytes : with_code(bytes, code, from));
    } catch (const Error &error) {
        log_warning(error.text());
    }
}

std::string signal_name(int signal) {
    const char *name = signal > 0 ? sigabbrev_np(signal) : nullptr;
    return name ? cat("SIG", name) : std::string("<N/A>");
}

} // namespace ujoin
