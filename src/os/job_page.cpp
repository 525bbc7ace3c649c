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
#include <unistd.h>

namespace ujoin::os {

/// Zero bytes but for the id are a valid start. Only grows at its end: launcher and worker may have different versions.
struct JobWords {
    std::atomic<uint64_t> id{0};
    std::atomic<uint32_t> stop{0};
};

namespace {

constexpr size_t page_bytes = 4096;

std::shared_ptr<JobWords> map_words(const Fd &memory) {
    return std::static_pointer_cast<JobWords>(map_shared_memory(memory, page_bytes));
}

struct Address {
    uint64_t pid = 0;
    uint64_t fd = 0;
    uint64_t id = 0;
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
    if (!take(result.pid, 10, ':') || !take(result.fd, 10, ':') || !take(result.id, 16, '\0'))
        fail_invalid("environment variable ", env::name(env::Var::job), " is \"", text,
                     "\", which no launcher writes; unset it");
    return result;
}

} // namespace

JobPage::JobPage() : memory_(create_shared_memory(page_bytes)), words_(map_words(memory_)) {
    const std::string bytes = random_bytes(sizeof(uint64_t));
    uint64_t id = 0;
    std::memcpy(&id, bytes.data(), sizeof id);
    words_->id.store(id, std::memory_order_relaxed);
}

JobPage::~JobPage() = default;

std::string JobPage::address() const {
    char id[17];
    *std::to_chars(id, id + 16, words_->id.load(std::memory_order_relaxed), 16).ptr = '\0';
    return cat(getpid(), ":", memory_.get(), ":", static_cast<const char *>(id));
}

void JobPage::ask_stop() { words_->stop.store(1, std::memory_order_relaxed); }

LauncherPage LauncherPage::find() {
    LauncherPage page;
    const std::optional<std::string> text = env::text(env::Var::job);
    if (!text) return page;
    const Address address = parse(*text);
    const Fd memory(
        open(cat("/proc/", address.pid, "/fd/", address.fd).c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK | O_NOCTTY));
    if (!memory) return page;
    try {
        const std::shared_ptr<JobWords> words = map_words(memory);
        if (words->id.load(std::memory_order_relaxed) == address.id) page.words_ = words;
    } catch (const Error &) {
        return page; // another process has the number, and this is some file of its own
    }
    return page;
}

bool LauncherPage::asks_stop() const { return words_ && words_->stop.load(std::memory_order_relaxed) != 0; }

} // namespace ujoin::os
