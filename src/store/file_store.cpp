// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "base/wire.hpp"
#include "io/socket.hpp"
#include "os/interrupt.hpp"
#include "os/ready.hpp"
#include "store/core.hpp"
#include "store/table.hpp"
#include <algorithm>
#include <cerrno>
#include <fcntl.h>
#include <mutex>
#include <poll.h>
#include <sys/file.h>
#include <sys/inotify.h>
#include <sys/stat.h>

namespace ujoin::store {
namespace {

// The file: a header (magic, 8 bytes "committed": where the records end), then one record after the other: key size (2),
// zero (2), value size (4), checksum (8), key, value. The last record of a key counts. A writer first appends its record,
// then moves "committed": one that is killed in between leaves nothing that anybody reads.
constexpr std::string_view magic = "ujoinst1";
constexpr uint64_t header_bytes = 16;
constexpr uint64_t record_bytes = 16;

/// FNV-1a: tells damage from data, no more.
uint64_t checksum(std::string_view a, std::string_view b) {
    uint64_t sum = 0xcbf29ce484222325U;
    for (const std::string_view part : {a, b})
        for (const char c : part) sum = (sum ^ static_cast<uint8_t>(c)) * 0x100000001b3U;
    return sum;
}

std::string record(const std::string &key, const std::string &value) {
    std::string head;
    wire::put_u16(head, static_cast<uint16_t>(key.size()));
    wire::put_u16(head, 0);
    wire::put_u32(head, static_cast<uint32_t>(value.size()));
    const std::string body = key + value;
    std::string out = head;
    wire::put_u64(out, checksum(head, body));
    return out + body;
}

class FileCore final : public Core {
  public:
    FileCore(std::string path, int64_t timeout_ms)
        : path_(std::move(path)), url_("file://" + path_), timeout_ms_(timeout_ms) {
        // A planted link or pipe is refused, and opening does not wait for anything.
        file_.reset(open(path_.c_str(), O_RDWR | O_CREAT | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK, 0600));
        if (!file_) fail_errno(errno, cat("cannot open the file ", path_));
        struct stat info {};
        if (fstat(file_.get(), &info) != 0) fail_errno(errno, cat("cannot look at the file ", path_));
        if (!S_ISREG(info.st_mode)) fail(UJOIN_E_MISMATCH, path_, " is not a regular file");
        if (geteuid() != 0 && info.st_uid != geteuid())
            fail(UJOIN_E_MISMATCH, "the file ", path_, " belongs to user ", info.st_uid, ", this is user ", geteuid());
        const Abort none(false);
        const Locked lock(*this, LOCK_EX, none);
        if (fstat(file_.get(), &info) != 0) fail_errno(errno, cat("cannot look at the file ", path_));
        if (info.st_size == 0) commit(header_bytes);
        refresh();
    }

    const std::string &url() const override { return url_; }
    bool waits_on_descriptors() const override { return true; }

    void set(const std::string &key, const std::string &value, const Abort &abort) override {
        const Locked lock(*this, LOCK_EX, abort);
        refresh();
        append(key, value);
    }
    int64_t add(const std::string &key, int64_t amount, const Abort &abort) override {
        const Locked lock(*this, amount == 0 ? LOCK_SH : LOCK_EX, abort);
        refresh();
        const int64_t value = table_.sum(key, amount);
        if (amount != 0) append(key, std::to_string(value)); // 0 only reads
        return value;
    }
    std::optional<std::string> get(const std::string &key, const Deadline &deadline, const Abort &abort) override {
        const Table::Value value = wait_for(key, deadline, abort);
        return value ? std::optional(*value) : std::nullopt;
    }
    bool await(const std::string &key, const Deadline &deadline, const Abort &abort) override {
        return wait_for(key, deadline, abort) != nullptr;
    }

  private:
    /// This process's threads by the mutex, other processes by the lock on the file, which dies with its holder.
    class Locked {
      public:
        Locked(FileCore &core, int how, const Abort &abort) : lock_(core.mutex_), fd_(core.file_.get()) {
            const Deadline deadline = Deadline::in(core.timeout_ms_);
            for (int pause_ms = 1; flock(fd_, how | LOCK_NB) != 0; pause_ms = std::min(2 * pause_ms, 10)) {
                if (errno != EWOULDBLOCK && errno != EINTR) fail_errno(errno, cat("cannot lock the file ", core.path_));
                if (deadline.passed())
                    fail(UJOIN_E_TIMEOUT, "another process has kept the file ", core.path_, " locked for ",
                         core.timeout_ms_, " ms");
                // flock() has no time limit of its own, and a holder may have been stopped.
                if (os::wait_ready(-1, 0, Deadline::in(pause_ms), abort.fd()) == os::Ready::stopped) abort.check();
                os::check_interrupt();
            }
        }
        ~Locked() { flock(fd_, LOCK_UN); }
        Locked(const Locked &) = delete;
        Locked &operator=(const Locked &) = delete;

      private:
        std::scoped_lock<std::mutex> lock_;
        int fd_;
    };

    [[noreturn]] void damaged(uint64_t at, const char *how) const {
        fail(UJOIN_E_MISMATCH, "the file ", path_, " is not a store of this version or is damaged (byte ", at, ": ", how,
             "); remove it and start the job anew");
    }

    std::string read_at(uint64_t at, size_t size) const {
        std::string bytes(size, '\0');
        size_t done = 0;
        while (done < size) {
            const ssize_t n = pread(file_.get(), bytes.data() + done, size - done, static_cast<off_t>(at + done));
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) fail_errno(errno, cat("cannot read the file ", path_));
            if (n == 0) damaged(at + done, "it ends here");
            done += static_cast<size_t>(n);
        }
        return bytes;
    }

    void write_at(uint64_t at, std::string_view bytes) const {
        while (!bytes.empty()) {
            const ssize_t n = pwrite(file_.get(), bytes.data(), bytes.size(), static_cast<off_t>(at));
            if (n < 0 && errno == EINTR) continue;
            if (n < 0) fail_errno(errno, cat("cannot write the file ", path_));
            bytes.remove_prefix(static_cast<size_t>(n));
            at += static_cast<uint64_t>(n);
        }
    }

    void commit(uint64_t end) const {
        std::string header(magic);
        wire::put_u64(header, end);
        write_at(0, header);
    }

    /// Reads what others have written since the last time.
    void refresh() {
        struct stat info {};
        if (fstat(file_.get(), &info) != 0) fail_errno(errno, cat("cannot look at the file ", path_));
        if (info.st_nlink == 0) fail(UJOIN_E_MISMATCH, "the file ", path_, " was removed while it was in use");
        const std::string header = read_at(0, header_bytes);
        if (header.compare(0, magic.size(), magic) != 0) damaged(0, "wrong first bytes");
        const uint64_t committed = wire::Reader(std::string_view(header).substr(magic.size())).u64();
        if (committed < offset_ || committed > static_cast<uint64_t>(info.st_size)) damaged(magic.size(), "wrong size");
        while (offset_ < committed) {
            const uint64_t left = committed - offset_;
            if (left < record_bytes) damaged(offset_, "a record is cut short");
            const std::string head = read_at(offset_, record_bytes);
            wire::Reader fields(head);
            const size_t key_size = fields.u16();
            const bool zero = fields.u16() == 0;
            const size_t value_size = fields.u32();
            const uint64_t sum = fields.u64();
            if (!zero || key_size == 0 || key_size > Store::max_key || value_size > Store::max_value)
                damaged(offset_, "a record has impossible sizes");
            if (left - record_bytes < key_size + value_size) damaged(offset_, "a record is cut short");
            const std::string body = read_at(offset_ + record_bytes, key_size + value_size);
            if (checksum(std::string_view(head).substr(0, 8), body) != sum)
                damaged(offset_, "a record has a wrong checksum");
            table_.set(body.substr(0, key_size), body.substr(key_size));
            offset_ += record_bytes + body.size();
        }
    }

    void append(const std::string &key, const std::string &value) {
        const std::string bytes = record(key, value);
        write_at(offset_, bytes);
        commit(offset_ + bytes.size());
        table_.set(key, value);
        offset_ += bytes.size();
    }

    Table::Value wait_for(const std::string &key, const Deadline &deadline, const Abort &abort) {
        os::Fd changes;
        for (bool watching = false;; watching = true) {
            {
                const Locked lock(*this, LOCK_SH, abort);
                refresh();
                if (const Table::Value value = table_.find(key)) return value;
            }
            if (deadline.passed()) return nullptr;
            if (!watching) { // and look once more: it may have come in between
                changes.reset(inotify_init1(IN_CLOEXEC | IN_NONBLOCK));
                if (changes && inotify_add_watch(changes.get(), path_.c_str(), IN_MODIFY | IN_ATTRIB | IN_DELETE_SELF) < 0)
                    changes.reset();
                continue;
            }
            // Without inotify (its instances are few), and for changes that another host makes on a shared disk, a look now
            // and then must do.
            const int64_t pause_ms = changes ? os::slice_ns / 1'000'000 : 10;
            const Deadline next = Deadline::in(deadline.left_ms(static_cast<int>(pause_ms)));
            if (os::wait_ready(changes.get(), POLLIN, next, abort.fd()) == os::Ready::stopped) abort.check();
            char events[4096];
            while (changes && read(changes.get(), events, sizeof events) > 0) {
            }
            os::check_interrupt();
        }
    }

    const std::string path_;
    const std::string url_;
    const int64_t timeout_ms_;
    os::Fd file_;
    std::mutex mutex_;
    Table table_;
    uint64_t offset_ = header_bytes; // up to here it is in the table
};

} // namespace

std::shared_ptr<Core> open_file(const std::string &path, const Store::Options &options) {
    if (path.empty() || path.front() != '/') fail_invalid("\"", path, "\" is not an absolute path; expected file:///path");
    return std::make_shared<FileCore>(path, options.timeout_ms);
}

} // namespace ujoin::store
