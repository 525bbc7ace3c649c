// SPDX-License-Identifier: Apache-2.0
#include "io/console.hpp"
#include "base/error.hpp"
#include "base/log.hpp"
#include "os/thread.hpp"
#include <cerrno>
#include <condition_variable>
#include <deque>
#include <mutex>
#include <poll.h>
#include <sys/ioctl.h>
#include <unistd.h>

namespace ujoin::io {
namespace {

constexpr size_t full_at = 1 << 20;
constexpr size_t room_at = full_at / 2;
constexpr const char *erase_line = "\r\033[K";

/// All of it; false when the descriptor takes nothing more (its reader is gone, it is closed).
bool write_all(int fd, const std::string &bytes) {
    for (size_t at = 0; at < bytes.size();) {
        const ssize_t done = write(fd, bytes.data() + at, bytes.size() - at);
        if (done >= 0) {
            at += static_cast<size_t>(done);
        } else if (errno == EAGAIN) { // the host made it non-blocking
            pollfd item{fd, POLLOUT, 0};
            poll(&item, 1, -1);
        } else if (errno != EINTR) {
            return false;
        }
    }
    return true;
}

/// As much of a text as fits a line of the terminal.
std::string fitting(const std::string &text) {
    winsize size{};
    const size_t columns = ioctl(2, TIOCGWINSZ, &size) == 0 && size.ws_col > 0 ? size.ws_col : 80;
    return text.substr(0, columns - 1);
}

void warn(int fd, int error) noexcept {
    try {
        log_warning("descriptor ", fd, " takes no more output of workers: ", errno_text(error));
    } catch (const std::bad_alloc &) { // it says no more then
    }
}

} // namespace

struct Console::State {
    std::mutex mutex;
    std::condition_variable changed;
    std::deque<std::pair<int, std::string>> queue;
    size_t queued = 0; // bytes, with those being written
    bool was_full = false;
    bool awaited = false; // somebody asked whether it is idle
    bool stop = false;
    bool ended = false;
    bool dead[3] = {}; // descriptors that take nothing more
    std::function<void()> eased;

    std::string status; // what the last line should be
    bool redraw = false;
    const bool out_is_terminal = isatty(1) == 1;
    // the thread's own
    bool drawn = false;      // the last line is there
    bool line_begins = true; // on the terminal
};

Console::Console(std::function<void()> eased) : state_(std::make_shared<State>()) {
    state_->eased = std::move(eased);
    os::start_thread("ujoin-console", [state = state_] { run(state); }).detach();
}

Console::~Console() {
    std::unique_lock lock(state_->mutex);
    state_->stop = true;
    state_->eased = nullptr;
    state_->changed.notify_all();
    if (state_->queued == 0) state_->changed.wait(lock, [&] { return state_->ended; });
}

bool Console::push(int fd, std::string bytes) {
    std::scoped_lock lock(state_->mutex);
    if (!state_->dead[fd]) {
        state_->queued += bytes.size();
        state_->queue.emplace_back(fd, std::move(bytes));
        state_->changed.notify_all();
    }
    state_->was_full = state_->was_full || state_->queued >= full_at; // until `eased`: somebody may wait for it
    return !state_->was_full;
}

bool Console::full() const {
    std::scoped_lock lock(state_->mutex);
    return state_->was_full;
}

bool Console::idle() {
    std::scoped_lock lock(state_->mutex);
    state_->awaited = state_->queued != 0;
    return !state_->awaited;
}

void Console::set_status(std::string text) {
    std::scoped_lock lock(state_->mutex);
    if (text.empty() && state_->status.empty()) return;
    state_->status = std::move(text);
    state_->redraw = true;
    state_->changed.notify_all();
}

/// Bytes of a worker, after the last line is taken away; false when the descriptor takes no more.
bool Console::put(State &state, int fd, const std::string &bytes) {
    const bool on_terminal = fd == 2 || state.out_is_terminal;
    if (on_terminal && state.drawn) {
        write_all(2, erase_line);
        state.drawn = false;
    }
    if (on_terminal && !bytes.empty()) state.line_begins = bytes.back() == '\n';
    return write_all(fd, bytes);
}

void Console::draw(State &state, const std::string &text) {
    if (!state.line_begins || (text.empty() && !state.drawn)) return;
    state.drawn = write_all(2, erase_line + fitting(text)) && !text.empty();
}

void Console::run(const std::shared_ptr<State> &state) {
    std::unique_lock lock(state->mutex);
    for (;;) {
        state->changed.wait(lock, [&] { return state->stop || !state->queue.empty() || state->redraw; });
        if (state->stop) break;
        if (state->queue.empty()) {
            state->redraw = false;
            try {
                const std::string text = state->status;
                lock.unlock();
                draw(*state, text);
            } catch (const std::bad_alloc &) { // it is drawn again when it changes
            }
            if (!lock.owns_lock()) lock.lock();
            continue;
        }
        const auto [fd, bytes] = std::move(state->queue.front());
        state->queue.pop_front();
        if (!state->dead[fd]) {
            lock.unlock();
            const bool taken = put(*state, fd, bytes);
            if (!taken) warn(fd, errno);
            lock.lock();
            state->dead[fd] = !taken;
        }
        state->queued -= bytes.size();
        state->redraw = !state->status.empty();
        const bool eased = (state->was_full && state->queued <= room_at) || (state->awaited && state->queued == 0);
        if (!eased) continue;
        state->was_full = false;
        if (state->queued == 0) state->awaited = false;
        if (state->eased) state->eased(); // under the lock: the owner cannot go away meanwhile
    }
    if (state->drawn) write_all(2, erase_line);
    state->ended = true;
    state->changed.notify_all();
}

} // namespace ujoin::io
