// SPDX-License-Identifier: Apache-2.0
// A record of a crash, written inside the signal handler: only what is safe there.
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "pctx/error_file.hpp"
#include <atomic>
#include <cerrno>
#include <csignal>
#include <cstdio>
#include <cstring>
#include <execinfo.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

namespace ujoin {
namespace {

constexpr int crashes[] = {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT};
constexpr const char *names[] = {"SIGSEGV", "SIGBUS", "SIGFPE", "SIGILL", "SIGABRT"};
constexpr size_t crash_count = sizeof crashes / sizeof *crashes;
constexpr size_t stack_bytes = 1 << 16;
constexpr int most_frames = 64;

char g_path[4096];
char g_fresh[4096 + 16];
struct sigaction g_before[crash_count];
std::atomic<bool> g_installed{false};
std::atomic<bool> g_crashed{false};

/// A buffered writer of JSON text without memory of its own.
class Writer {
  public:
    explicit Writer(int fd) : fd_(fd) {}
    ~Writer() { flush(); }
    Writer(const Writer &) = delete;
    Writer &operator=(const Writer &) = delete;

    void raw(const char *text) {
        while (*text) put(*text++);
    }
    void escaped(char c) {
        const auto byte = static_cast<unsigned char>(c);
        if (c == '"' || c == '\\') put('\\');
        if (c == '\n') {
            raw("\\n");
        } else if (byte < ' ' || byte > '~') {
            put('?');
        } else {
            put(c);
        }
    }
    void number(uint64_t value, unsigned base) {
        char digits[24];
        int count = 0;
        do {
            digits[count++] = "0123456789abcdef"[value % base];
            value /= base;
        } while (value != 0);
        while (count > 0) put(digits[--count]);
    }

  private:
    void put(char c) {
        if (used_ == sizeof buffer_) flush();
        buffer_[used_++] = c;
    }
    void flush() {
        for (size_t at = 0; at < used_;) {
            const ssize_t done = write(fd_, buffer_ + at, used_ - at);
            if (done <= 0) break;
            at += static_cast<size_t>(done);
        }
        used_ = 0;
    }
    int fd_;
    size_t used_ = 0;
    char buffer_[1024];
};

void write_frames(Writer &out) {
    void *frames[most_frames];
    const int count = backtrace(frames, most_frames);
    const int symbols = memfd_create("ujoin-crash", MFD_CLOEXEC); // the function writes to a descriptor only
    if (symbols < 0) return;
    backtrace_symbols_fd(frames, count, symbols);
    char part[512];
    off_t at = 0;
    for (;;) {
        const ssize_t got = pread(symbols, part, sizeof part, at);
        if (got <= 0) break;
        for (ssize_t i = 0; i < got; i++) out.escaped(part[i]);
        at += got;
    }
    close(symbols);
}

void write_record(int fd, size_t which, const siginfo_t &info) {
    timespec real{};
    timespec monotonic{};
    clock_gettime(CLOCK_REALTIME, &real);
    clock_gettime(CLOCK_MONOTONIC, &monotonic);
    const bool fault = info.si_code > 0 && crashes[which] != SIGABRT; // the kernel tells the address
    const auto address = reinterpret_cast<uintptr_t>(info.si_addr);
    Writer out(fd);
    out.raw(R"({"message":{"message":"Signal )");
    out.number(static_cast<uint64_t>(crashes[which]), 10);
    out.raw(" (");
    out.raw(names[which]);
    out.raw(") received by PID ");
    out.number(static_cast<uint64_t>(getpid()), 10);
    if (fault) {
        out.raw(", at address 0x");
        out.number(address, 16);
    }
    out.raw(R"(","extraInfo":{"signal":")");
    out.raw(names[which]);
    if (fault) {
        out.raw(R"(","address":"0x)");
        out.number(address, 16);
    }
    out.raw(R"(","timestamp":")");
    out.number(static_cast<uint64_t>(real.tv_sec), 10);
    out.raw(R"(","monotonic_ns":)");
    out.number(static_cast<uint64_t>(monotonic.tv_sec) * 1'000'000'000 + static_cast<uint64_t>(monotonic.tv_nsec), 10);
    out.raw(R"(,"py_callstack":")");
    write_frames(out);
    out.raw(R"("}}})");
}

extern "C" void on_crash(int signal, siginfo_t *info, void *) {
    const int kept = errno;
    size_t which = 0;
    while (which + 1 < crash_count && crashes[which] != signal) which++;
    for (size_t i = 0; i < crash_count; i++)
        sigaction(crashes[i], &g_before[i], nullptr); // also a crash in here goes there
    if (!g_crashed.exchange(true) && g_path[0]) {
        const int fd = open(g_fresh, O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, 0600);
        if (fd >= 0) {
            write_record(fd, which, *info);
            close(fd);
            std::rename(g_fresh, g_path);
        }
    }
    if (info->si_code <= 0) raise(signal); // it was sent; a fault comes again by itself when this returns
    errno = kept;
}

} // namespace

bool record_crashes() {
    if (g_installed.exchange(true)) return false;
    const std::string path = own_error_file();
    if (path.size() < sizeof g_path) {
        std::memcpy(g_path, path.c_str(), path.size() + 1);
        std::snprintf(g_fresh, sizeof g_fresh, "%s.crash", g_path);
    }
    void *frames[1];
    backtrace(frames, 1); // loads what it needs now
    void *stack = mmap(nullptr, stack_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_STACK, -1, 0);
    stack_t old{};
    if (stack != MAP_FAILED && sigaltstack(nullptr, &old) == 0 && (old.ss_flags & SS_DISABLE)) { // overflows of this thread
        stack_t alternate{};
        alternate.ss_sp = stack;
        alternate.ss_size = stack_bytes;
        sigaltstack(&alternate, nullptr);
    }
    for (size_t i = 0; i < crash_count; i++) {
        struct sigaction action {};
        action.sa_sigaction = on_crash;
        action.sa_flags = SA_SIGINFO | SA_ONSTACK;
        sigemptyset(&action.sa_mask);
        if (sigaction(crashes[i], &action, &g_before[i]) != 0) fail_errno(errno, "cannot set a handler for crashes");
    }
    return true;
}

} // namespace ujoin
