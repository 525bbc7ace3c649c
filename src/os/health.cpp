// SPDX-License-Identifier: Apache-2.0
#include "os/health.hpp"
#include <algorithm>
#include <cerrno>
#include <csignal>
#include <cstring>
#include <ctime>
#include <unistd.h>

namespace ujoin::os {
namespace {

constexpr int tries = 16; // of a line that is being written

bool is_gone(int32_t pid) { return pid <= 0 || (kill(pid, 0) != 0 && errno == ESRCH); }

// Each word is stored with release and read with acquire: a reader that has met a new word meets the new version too.
template <size_t N> void store_text(std::atomic<uint64_t> (&words)[N], std::string_view text) {
    char bytes[N * 8] = {};
    text.copy(bytes, sizeof bytes);
    for (size_t i = 0; i < N; i++) {
        uint64_t word = 0;
        std::memcpy(&word, bytes + 8 * i, sizeof word);
        words[i].store(word, std::memory_order_release);
    }
}

template <size_t N> std::string load_text(const std::atomic<uint64_t> (&words)[N]) {
    char bytes[N * 8];
    for (size_t i = 0; i < N; i++) {
        const uint64_t word = words[i].load(std::memory_order_acquire);
        std::memcpy(bytes + 8 * i, &word, sizeof word);
    }
    std::string text(bytes, strnlen(bytes, sizeof bytes));
    for (char &c : text)
        if (c < ' ' || c > '~') c = '?';
    return text;
}

void read_operation(const HealthLine &line, HealthView &view) {
    for (int i = 0; i < tries; i++) {
        view.sequence = line.begun.load(std::memory_order_acquire);
        view.in_operation = line.done.load(std::memory_order_acquire) != view.sequence;
        view.kind = load_text(line.kind);
        view.since_ns = line.since_ns.load(std::memory_order_acquire);
        if (line.begun.load(std::memory_order_relaxed) == view.sequence) return;
    }
}

void read_wait(const HealthLine &line, HealthView &view) {
    for (int i = 0; i < tries; i++) {
        const uint32_t version = line.version.load(std::memory_order_acquire);
        view.waiting = line.waiting.load(std::memory_order_acquire) != 0;
        if (!view.waiting) return;
        view.what = load_text(line.what);
        view.missing.clear();
        for (int32_t r = 0; r < std::min(view.size, HealthLine::most_ranks); r++)
            if (line.missing[r / 64].load(std::memory_order_acquire) >> (r % 64) & 1) view.missing.push_back(r);
        if ((version & 1) == 0 && line.version.load(std::memory_order_relaxed) == version) return;
    }
    view.what.clear(); // it changes faster than it can be read, so nobody waits for long
    view.missing.clear();
    view.waiting = false;
}

HealthView read(const HealthLine &line) {
    HealthView view;
    view.pid = line.pid.load(std::memory_order_relaxed);
    view.rank = line.rank.load(std::memory_order_relaxed);
    view.size = line.size.load(std::memory_order_relaxed);
    view.name = load_text(line.name);
    view.broken = line.broken.load(std::memory_order_relaxed) != 0;
    const uint32_t context = line.context.load(std::memory_order_relaxed);
    view.armed = context != 0;
    view.joined = context == static_cast<uint32_t>(Health::Context::joined);
    view.round = view.armed ? line.round.load(std::memory_order_relaxed) : -1;
    read_operation(line, view);
    read_wait(line, view);
    return view;
}

/// The smaller, the more it is worth being told.
std::pair<int, int64_t> order(const HealthView &view) {
    if (view.waiting) return {0, view.since_ns};
    return view.in_operation ? std::pair{1, view.since_ns} : std::pair{2, int64_t{0}};
}

} // namespace

int64_t Health::coarse_ns() {
    timespec t{};
    clock_gettime(CLOCK_MONOTONIC_COARSE, &t);
    return int64_t{t.tv_sec} * 1'000'000'000 + t.tv_nsec;
}

Health::Health(std::shared_ptr<HealthLine[]> lines, int32_t rank, int32_t size, std::string_view name) {
    if (!lines) return;
    pid_ = getpid();
    for (size_t i = 0; i < health_lines && !line_; i++) {
        int32_t before = lines[i].pid.load(std::memory_order_relaxed);
        if (before != 0 && !is_gone(before)) continue;
        if (lines[i].pid.compare_exchange_strong(before, pid_, std::memory_order_acquire)) line_ = &lines[i];
    }
    if (!line_) return;
    line_->told.store(0, std::memory_order_relaxed);
    line_->begun.store(0, std::memory_order_relaxed);
    line_->done.store(0, std::memory_order_relaxed);
    line_->round.store(0, std::memory_order_relaxed);
    for (std::atomic<uint32_t> *word : {&line_->context, &line_->broken, &line_->version, &line_->waiting})
        word->store(0, std::memory_order_relaxed);
    line_->rank.store(rank, std::memory_order_relaxed);
    line_->size.store(size, std::memory_order_relaxed);
    line_->since_ns.store(coarse_ns(), std::memory_order_relaxed);
    store_text(line_->name, name);
    line_->told.store(1, std::memory_order_release);
    keep_mapped_ = std::move(lines);
}

Health::~Health() {
    if (!line_ || pid_ != getpid()) return;
    line_->told.store(0, std::memory_order_relaxed);
    line_->pid.store(0, std::memory_order_release);
}

void Health::note_begin(const char *kind) {
    for (size_t i = 0; i < 2; i++) {
        uint64_t word = 0;
        std::memcpy(&word, kind + 8 * i, sizeof word);
        line_->kind[i].store(word, std::memory_order_relaxed);
    }
    line_->since_ns.store(coarse_ns(), std::memory_order_relaxed);
    line_->begun.store(++begun_, std::memory_order_release);
}

void Health::wait(std::string_view what, const std::vector<uint64_t> &missing) {
    if (!line_) return;
    uint32_t version = line_->version.load(std::memory_order_relaxed);
    if ((version & 1) != 0) return; // another thread of this rank tells of its wait
    if (!line_->version.compare_exchange_strong(version, version + 1, std::memory_order_acquire)) return;
    store_text(line_->what, what);
    for (size_t i = 0; i < std::size(line_->missing); i++)
        line_->missing[i].store(i < missing.size() ? missing[i] : 0, std::memory_order_release);
    line_->waiting.store(1, std::memory_order_release);
    waited_.store(true, std::memory_order_relaxed);
    line_->version.store(version + 2, std::memory_order_release);
}

std::optional<HealthView> look_at(const HealthLine *lines, bool alive) {
    std::optional<HealthView> best;
    int32_t groups = 0;
    for (size_t i = 0; i < health_lines; i++) {
        const int32_t pid = lines[i].pid.load(std::memory_order_acquire);
        if (pid == 0 || lines[i].told.load(std::memory_order_acquire) == 0 || (alive && is_gone(pid))) continue;
        groups++;
        HealthView view = read(lines[i]);
        if (!best || order(view) < order(*best)) best = std::move(view);
    }
    if (best) best->groups = groups;
    return best;
}

} // namespace ujoin::os
