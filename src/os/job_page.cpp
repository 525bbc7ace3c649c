// SPDX-License-Identifier: Apache-2.0
#include "os/job_page.hpp"
#include "base/env.hpp"
#include "base/error.hpp"
#include "base/random.hpp"
#include "os/shared_memory.hpp"
#include <atomic>
#include <cerrno>
#include <charconv>
#include <cstring>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

namespace ujoin::os {

/// Zero bytes but for the id are a valid start. Only grows at its end: launcher and worker may have different versions. The
/// lines of the workers follow on the next page.
struct JobWords {
    std::atomic<uint64_t> id{0};
    std::atomic<uint32_t> stop{0};
};

namespace {

constexpr size_t page_bytes = 4096;
constexpr size_t worker_bytes = health_lines * sizeof(HealthLine);

size_t bytes_for(size_t workers) {
    return page_bytes + (workers * worker_bytes + page_bytes - 1) / page_bytes * page_bytes;
}

std::shared_ptr<JobWords> map_words(const Fd &memory, size_t bytes) {
    return std::static_pointer_cast<JobWords>(map_shared_memory(memory, bytes));
}

HealthLine *lines_of(const std::shared_ptr<JobWords> &words, size_t worker) {
    return reinterpret_cast<HealthLine *>(reinterpret_cast<char *>(words.get()) + page_bytes + worker * worker_bytes);
}

struct Address {
    uint64_t pid = 0;
    uint64_t fd = 0;
    uint64_t id = 0;
    uint64_t worker = 0;
};

Address parse(const std::string &text) {
    Address result;
    const char *at = text.data();
    const char *const end = at + text.size();
    const auto take = [&](uint64_t &value, int base, char after) {
        const auto [stop, code] = std::from_chars(at, end, value, base);
        const bool good = code == std::errc{} && (after == '\0' ? stop == end : stop != end && *stop == after);
        at = good && stop != end ? stop + 1 : stop;
        return good;
    };
    if (!take(result.pid, 10, ':') || !take(result.fd, 10, ':') || !take(result.id, 16, ':') ||
        !take(result.worker, 10, '\0'))
        fail_invalid("environment variable ", env::name(env::Var::job), " is \"", text,
                     "\", which no launcher writes; unset it");
    return result;
}

} // namespace

JobPage::JobPage(size_t workers)
    : memory_(create_shared_memory(bytes_for(workers))), words_(map_words(memory_, bytes_for(workers))), workers_(workers) {
    const std::string bytes = random_bytes(sizeof(uint64_t));
    uint64_t id = 0;
    std::memcpy(&id, bytes.data(), sizeof id);
    words_->id.store(id, std::memory_order_relaxed);
}

JobPage::~JobPage() = default;

std::string JobPage::address(size_t worker) const {
    char id[17];
    *std::to_chars(id, id + 16, words_->id.load(std::memory_order_relaxed), 16).ptr = '\0';
    return cat(getpid(), ":", memory_.get(), ":", static_cast<const char *>(id), ":", worker);
}

void JobPage::ask_stop() { words_->stop.store(1, std::memory_order_relaxed); }

std::optional<HealthView> JobPage::health(size_t worker, bool alive) const {
    if (worker >= workers_) return std::nullopt;
    return look_at(lines_of(words_, worker), alive);
}

LauncherPage LauncherPage::find() {
    LauncherPage page;
    const std::optional<std::string> text = env::text(env::Var::job);
    if (!text) return page;
    const Address address = parse(*text);
    const Fd memory(
        open(cat("/proc/", address.pid, "/fd/", address.fd).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    struct stat facts {};
    if (!memory || fstat(memory.get(), &facts) != 0 || facts.st_size < static_cast<off_t>(page_bytes)) return page;
    const auto bytes = static_cast<size_t>(facts.st_size);
    try {
        const std::shared_ptr<JobWords> words = map_words(memory, bytes);
        if (words->id.load(std::memory_order_relaxed) != address.id) return page;
        page.words_ = words;
        page.bytes_ = bytes;
        page.worker_ = address.worker;
    } catch (const Error &) {
        return page; // another process has the number, and this is some file of its own
    }
    return page;
}

bool LauncherPage::asks_stop() const { return words_ && words_->stop.load(std::memory_order_relaxed) != 0; }

std::shared_ptr<HealthLine[]> LauncherPage::health_lines() const {
    if (!words_ || worker_ >= (bytes_ - page_bytes) / worker_bytes) return nullptr;
    return {words_, lines_of(words_, worker_)};
}

} // namespace ujoin::os
