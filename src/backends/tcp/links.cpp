// SPDX-License-Identifier: Apache-2.0
#include "backends/tcp/links.hpp"
#include "base/deadline.hpp"
#include "base/error.hpp"
#include "comm/contribution.hpp"
#include "comm/watch.hpp"
#include "os/thread.hpp"
#include <algorithm>
#include <cerrno>
#include <cstring>
#include <new>
#include <optional>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <sys/uio.h>

namespace ujoin {
namespace {

// What travels on a link: frames, each a head and a body of the kind's fixed size; a piece of a staging buffer follows the
// body of `data`. Both ends are builds of one version on machines of one byte order: the meeting has compared that.
enum Kind : uint32_t { kind_data = 1, kind_slot, kind_bank, kind_fate, kind_mail, kind_taken };

struct FrameHead {
    uint32_t kind;
    uint32_t bytes; ///< behind the body; 0 but for data
};
struct DataBody {
    uint64_t step;
    uint64_t offset;
};
struct SlotBody {
    uint64_t step;
    uint64_t fingerprint;
    double weight;
    uint32_t flags;
    uint32_t digest;
    char data[Slot::inline_bytes];
};
struct BankBody {
    uint64_t head;
    uint64_t total;
    uint64_t stop_at;
    uint64_t rounds;
    uint32_t digest;
    uint32_t index;
    uint8_t ring[ring_size];
};
struct FateBody {
    uint32_t fate;
    uint32_t reason_length;
    int32_t code;
    int32_t cause;
    char reason[sizeof FateLine::reason];
};
struct MailBody {
    uint64_t posted;
    uint64_t before;
    uint64_t count;
    uint64_t dtype;
};
struct TakenBody {
    uint64_t taken;
};

size_t body_bytes(uint32_t kind) {
    switch (kind) {
    case kind_data:
        return sizeof(DataBody);
    case kind_slot:
        return sizeof(SlotBody);
    case kind_bank:
        return sizeof(BankBody);
    case kind_fate:
        return sizeof(FateBody);
    case kind_mail:
        return sizeof(MailBody);
    case kind_taken:
        return sizeof(TakenBody);
    default:
        return 0;
    }
}

constexpr size_t receive_buffer = size_t{64} << 10;
constexpr int reads_per_turn = 16;    // then other links have theirs
constexpr int64_t farewell_ms = 2000; // for peers that do not take what was said last
constexpr size_t most_frames = 3;     // of one call
constexpr size_t most_body = sizeof(FateBody);

template <class Body> Body read_body(const char *from) {
    Body body;
    std::memcpy(&body, from, sizeof body);
    return body;
}

void announce_all(Bank (&banks)[2]) {
    for (Bank &bank : banks) os::announce(bank.event);
}

} // namespace

/// Bytes on their way: a head and a body of its own, and a piece of memory that stays as it is.
struct Links::Frame {
    char text[sizeof(FrameHead) + most_body];
    size_t text_bytes = 0;
    const char *piece = nullptr;
    size_t piece_bytes = 0;

    template <class Body> static Frame make(Kind kind, const Body &body) {
        static_assert(sizeof body <= most_body);
        Frame frame;
        const FrameHead head{kind, 0};
        std::memcpy(frame.text, &head, sizeof head);
        std::memcpy(frame.text + sizeof head, &body, sizeof body);
        frame.text_bytes = sizeof head + sizeof body;
        return frame;
    }
    static Frame data(uint64_t step, const Piece &of, const char *staging) {
        Frame frame = make(kind_data, DataBody{step, of.offset});
        const FrameHead head{kind_data, static_cast<uint32_t>(of.bytes)};
        std::memcpy(frame.text, &head, sizeof head);
        frame.piece = staging + of.offset;
        frame.piece_bytes = of.bytes;
        return frame;
    }

    size_t bytes() const { return text_bytes + piece_bytes; }
    /// What is left of it after `sent` bytes.
    size_t fill(iovec *list, size_t sent) const {
        size_t n = 0;
        if (sent < text_bytes) list[n++] = {const_cast<char *>(text) + sent, text_bytes - sent};
        const size_t of_piece = sent > text_bytes ? sent - text_bytes : 0;
        if (of_piece < piece_bytes) list[n++] = {const_cast<char *>(piece) + of_piece, piece_bytes - of_piece};
        return n;
    }
};

struct Links::Link {
    int32_t rank = 0;
    std::string host;
    std::mutex mutex; ///< guards what follows, up to the blank line; the thread alone closes the socket
    os::Fd socket;
    std::unique_ptr<os::NotForChildren> not_for_children;
    std::deque<Frame> queue;
    size_t sent = 0;   ///< bytes of the first
    bool deaf = false; ///< the peer takes nothing more
    bool said_all = false;

    // the thread's own
    RankArea *copy = nullptr;
    void *memory = nullptr;
    std::vector<char> buffer;
    size_t begin = 0; ///< of what is in the buffer
    size_t end = 0;
    char *piece = nullptr; ///< where the rest of a data frame goes
    size_t piece_left = 0;

    Link() = default;
    ~Link() { ::operator delete (memory, std::align_val_t{4096}); }
    Link(const Link &) = delete;
    Link &operator=(const Link &) = delete;
};

Links::Links(RankArea *own, int32_t ranks, size_t chunk, std::vector<LinkTo> links)
    : own_(own), chunk_(chunk), by_rank_(static_cast<size_t>(ranks)), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
    if (!wake_) fail_errno(errno, "cannot make an event descriptor for the links of a group");
    for (LinkTo &to : links) {
        auto link = std::make_unique<Link>();
        link->rank = to.rank;
        link->host = to.host;
        link->socket = std::move(to.socket);
        link->not_for_children = std::make_unique<os::NotForChildren>(link->socket.get());
        link->memory = ::operator new (RankArea::bytes(chunk), std::align_val_t{4096});
        link->copy = new (link->memory) RankArea;
        link->copy->fate.pid = to.pid;
        link->buffer.resize(receive_buffer);
        by_rank_[static_cast<size_t>(to.rank)] = link.get();
        links_.push_back(std::move(link));
    }
}

Links::~Links() { stop(); }

RankArea *Links::copy_of(int32_t rank) const { return by_rank_[static_cast<size_t>(rank)]->copy; }

void Links::start(Watch &watch) {
    watch_ = &watch;
    thread_ = os::start_thread("ujoin-links", [this] { run(); });
}

void Links::stop() noexcept {
    if (!thread_.joinable()) return;
    stopping_.store(true, std::memory_order_release);
    wake();
    thread_.join();
}

void Links::wake() const noexcept {
    const uint64_t one = 1;
    (void)!write(wake_.get(), &one, sizeof one); // can only fail when it is readable already
}

// ---------------------------------------------------------------------------------------------------------- showing

void Links::show_slot(int32_t to, uint64_t step, const Pieces &pieces) {
    const Slot &own = own_->slots[step & 1];
    Frame frames[most_frames];
    size_t count = 0;
    for (const Piece &piece : pieces)
        if (piece.bytes != 0) frames[count++] = Frame::data(step, piece, staging(own_, step));
    SlotBody body{step, own.fingerprint, own.weight, own.flags, own.digest, {}};
    std::memcpy(body.data, own.data, sizeof body.data);
    frames[count++] = Frame::make(kind_slot, body);
    send(*by_rank_[static_cast<size_t>(to)], frames, count);
}

/// The head is read first, and written last: who sees it sees what it releases.
void Links::show_bank(uint64_t context) {
    const std::scoped_lock lock(bank_mutex_);
    const Bank &own = own_->banks[context & 1];
    BankBody body{};
    body.head = own.head.load(std::memory_order_acquire);
    body.total = own.total.load(std::memory_order_relaxed);
    body.stop_at = own.stop_at.load(std::memory_order_relaxed);
    body.rounds = own.rounds.load(std::memory_order_relaxed);
    body.digest = own.digest.load(std::memory_order_relaxed);
    body.index = static_cast<uint32_t>(context & 1);
    for (size_t i = 0; i < ring_size; i++) body.ring[i] = own.ring[i].load(std::memory_order_relaxed);
    Frame frame = Frame::make(kind_bank, body);
    for (const auto &link : links_) send(*link, &frame, 1);
}

void Links::show_fate() noexcept {
    const FateLine &own = own_->fate;
    FateBody body{};
    body.fate = own.fate.load(std::memory_order_acquire);
    body.reason_length = own.reason_length.load(std::memory_order_acquire);
    body.code = own.code;
    body.cause = own.cause;
    std::memcpy(body.reason, own.reason, std::min<size_t>(body.reason_length, sizeof body.reason));
    Frame frame = Frame::make(kind_fate, body);
    for (const auto &link : links_) {
        try {
            send(*link, &frame, 1);
        } catch (const std::bad_alloc &) {
            const std::scoped_lock lock(link->mutex);
            link->deaf = true;
            if (link->socket) shutdown(link->socket.get(), SHUT_RDWR);
        }
    }
}

void Links::show_mail(int32_t to, uint64_t step, Piece piece, uint64_t before) {
    const Mail &own = own_->mail;
    Frame frames[2];
    size_t count = 0;
    if (piece.bytes != 0) frames[count++] = Frame::data(step, piece, staging(own_, step));
    frames[count++] = Frame::make(kind_mail, MailBody{own.posted.load(std::memory_order_relaxed), before, own.count,
                                                      static_cast<uint64_t>(own.dtype)});
    send(*by_rank_[static_cast<size_t>(to)], frames, count);
}

void Links::show_taken(int32_t of, uint64_t taken) {
    Frame frame = Frame::make(kind_taken, TakenBody{taken});
    send(*by_rank_[static_cast<size_t>(of)], &frame, 1);
}

/// What the socket takes at once goes at once; the thread sees to the rest.
void Links::send(Link &link, Frame *frames, size_t count) {
    const std::scoped_lock lock(link.mutex);
    if (!link.socket || link.deaf) return;
    size_t first = 0;
    size_t sent = 0;
    if (link.queue.empty()) {
        iovec list[2 * most_frames];
        size_t n = 0;
        for (size_t i = 0; i < count; i++) n += frames[i].fill(list + n, 0);
        msghdr message{};
        message.msg_iov = list;
        message.msg_iovlen = n;
        const ssize_t done = sendmsg(link.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (done < 0 && errno != EAGAIN && errno != EINTR) {
            link.deaf = true; // why, the thread finds out
            return;
        }
        for (sent = done < 0 ? 0 : static_cast<size_t>(done); first < count && sent >= frames[first].bytes(); first++)
            sent -= frames[first].bytes();
        if (first == count) return;
        link.sent = sent;
    }
    const size_t before = link.queue.size();
    try {
        for (; first < count; first++) link.queue.push_back(frames[first]);
    } catch (const std::bad_alloc &) { // half of it has gone, maybe: nothing may follow that
        link.queue.resize(before);
        link.deaf = true;
        shutdown(link.socket.get(), SHUT_RDWR);
        throw;
    }
    if (before == 0) wake();
}

/// The mutex is held. Whether all has gone.
bool Links::write_queue(Link &link) {
    while (!link.queue.empty() && !link.deaf) {
        iovec list[2];
        msghdr message{};
        message.msg_iov = list;
        message.msg_iovlen = link.queue.front().fill(list, link.sent);
        const ssize_t done = sendmsg(link.socket.get(), &message, MSG_DONTWAIT | MSG_NOSIGNAL);
        if (done < 0 && errno == EINTR) continue;
        if (done < 0 && errno == EAGAIN) return false;
        if (done < 0) {
            link.deaf = true;
            break;
        }
        link.sent += static_cast<size_t>(done);
        if (link.sent < link.queue.front().bytes()) continue;
        link.queue.pop_front();
        link.sent = 0;
    }
    if (link.deaf) link.queue.clear();
    return true;
}

// ---------------------------------------------------------------------------------------------------------- reading

void Links::run() noexcept {
    std::vector<pollfd> polled(links_.size() + 1);
    std::optional<Deadline> farewell;
    for (;;) {
        const bool stopping = stopping_.load(std::memory_order_acquire);
        if (stopping && !farewell) farewell = Deadline::in(farewell_ms);
        bool open = false;
        for (size_t i = 0; i < links_.size(); i++) {
            Link &link = *links_[i];
            const std::scoped_lock lock(link.mutex);
            const bool all_sent = !link.socket || write_queue(link);
            if (stopping && all_sent && link.socket && !link.said_all) {
                link.said_all = true;
                shutdown(link.socket.get(), SHUT_WR);
            }
            open = open || link.socket;
            polled[i] = {link.socket.get(), static_cast<short>(all_sent ? POLLIN : POLLIN | POLLOUT), 0};
        }
        if (stopping && (!open || farewell->passed())) break;
        polled.back() = {wake_.get(), POLLIN, 0};
        const int wait_ms = farewell ? static_cast<int>(farewell->left_ms(farewell_ms)) + 1 : -1;
        if (poll(polled.data(), polled.size(), wait_ms) <= 0) continue;
        uint64_t count = 0;
        if (polled.back().revents) (void)!read(wake_.get(), &count, sizeof count);
        for (size_t i = 0; i < links_.size(); i++)
            if (polled[i].revents) serve(*links_[i], polled[i].revents);
    }
    for (const auto &link : links_) close(*link);
}

void Links::serve(Link &link, short events) noexcept {
    if (!(events & (POLLIN | POLLHUP | POLLERR))) return;
    try {
        for (int i = 0; i < reads_per_turn; i++)
            if (!read_some(link)) return;
    } catch (const Error &error) {
        lose(link, error.text());
    } catch (const std::bad_alloc &) {
        lose(link, "");
    }
}

/// False: nothing more has come yet, or ever will.
bool Links::read_some(Link &link) {
    char *const to = link.piece_left != 0 ? link.piece : link.buffer.data() + link.end;
    const size_t room = link.piece_left != 0 ? link.piece_left : link.buffer.size() - link.end;
    const ssize_t got = recv(link.socket.get(), to, room, MSG_DONTWAIT);
    if (got < 0 && errno == EINTR) return true;
    if (got < 0 && errno == EAGAIN) return false;
    if (got <= 0) {
        const bool silent = got < 0 && errno != ECONNRESET && errno != EPIPE;
        lose(link, silent ? cat("on ", link.host, " cannot be reached any more (", errno_text(errno), ")") : std::string());
        return false;
    }
    if (link.piece_left != 0) {
        link.piece += got;
        link.piece_left -= static_cast<size_t>(got);
        return true;
    }
    link.end += static_cast<size_t>(got);
    return take_frames(link);
}

bool Links::take_frames(Link &link) {
    for (;;) {
        const size_t there = link.end - link.begin;
        const char *at = link.buffer.data() + link.begin;
        FrameHead head{};
        if (there < sizeof head) break;
        std::memcpy(&head, at, sizeof head);
        const size_t body = body_bytes(head.kind);
        if (body == 0 || (head.bytes != 0) != (head.kind == kind_data) || head.bytes > chunk_)
            fail(UJOIN_E_MISMATCH, "on ", link.host, " sent what is no message of a group");
        if (there < sizeof head + body) break;
        apply(link, head.kind, at + sizeof head);
        link.begin += sizeof head + body;
        if (head.kind != kind_data) continue;
        const auto where = read_body<DataBody>(at + sizeof head);
        if (where.offset > chunk_ - head.bytes) fail(UJOIN_E_MISMATCH, "on ", link.host, " sent a piece that has no place");
        const size_t here = std::min<size_t>(head.bytes, link.end - link.begin);
        link.piece = staging(link.copy, where.step) + where.offset;
        std::memcpy(link.piece, link.buffer.data() + link.begin, here);
        link.begin += here;
        link.piece += here;
        link.piece_left = head.bytes - here;
        if (link.piece_left != 0) break;
    }
    std::memmove(link.buffer.data(), link.buffer.data() + link.begin, link.end - link.begin);
    link.end -= link.begin;
    link.begin = 0;
    return true;
}

void Links::apply(Link &link, uint32_t kind, const char *text) {
    RankArea &copy = *link.copy;
    switch (kind) {
    case kind_slot: {
        const auto body = read_body<SlotBody>(text);
        Slot &slot = copy.slots[body.step & 1];
        slot.fingerprint = body.fingerprint;
        slot.weight = body.weight;
        slot.flags = body.flags;
        slot.digest = body.digest;
        std::memcpy(slot.data, body.data, sizeof slot.data);
        slot.arrived.store(body.step, std::memory_order_release);
        os::announce(slot.event);
        if (body.flags & flag_program)
            announce_all(copy.banks); // joined ranks look for it while they watch this rank's bank
        break;
    }
    case kind_bank: {
        const auto body = read_body<BankBody>(text);
        Bank &bank = copy.banks[body.index & 1];
        bank.total.store(body.total, std::memory_order_relaxed);
        bank.stop_at.store(body.stop_at, std::memory_order_relaxed);
        bank.rounds.store(body.rounds, std::memory_order_relaxed);
        bank.digest.store(body.digest, std::memory_order_relaxed);
        for (size_t i = 0; i < ring_size; i++) bank.ring[i].store(body.ring[i], std::memory_order_release);
        bank.head.store(body.head, std::memory_order_release);
        os::announce(bank.event);
        break;
    }
    case kind_fate: {
        const auto body = read_body<FateBody>(text);
        FateLine &fate = copy.fate;
        if (fate.fate.load(std::memory_order_acquire) != 0) break;
        fate.code = body.code;
        fate.cause = body.cause;
        std::memcpy(fate.reason, body.reason, sizeof fate.reason);
        fate.reason_length.store(std::min<uint32_t>(body.reason_length, sizeof fate.reason), std::memory_order_release);
        uint32_t none = 0;
        fate.fate.compare_exchange_strong(none, body.fate, std::memory_order_seq_cst);
        watch_->alarm();
        break;
    }
    case kind_mail: {
        const auto body = read_body<MailBody>(text);
        Mail &mail = copy.mail;
        if (body.posted >> Mail::rank_bits ==
            body.before + 1) { // the first piece: nobody reads what was said of another message
            mail.taken.store(body.before, std::memory_order_release);
            mail.count = body.count;
            mail.dtype = static_cast<ujoin_dtype>(body.dtype);
        }
        mail.posted.store(body.posted, std::memory_order_release);
        os::announce(own_->mail.event);
        break;
    }
    case kind_taken:
        own_->mail.taken.store(read_body<TakenBody>(text).taken, std::memory_order_release);
        os::announce(own_->mail.event);
        break;
    default:
        break;
    }
}

/// Nothing more comes from there. A rank that has said how it ends is not lost.
void Links::lose(Link &link, const std::string &why) noexcept {
    FateLine &fate = link.copy->fate;
    if (fate.fate.load(std::memory_order_acquire) == 0 && !stopping_.load(std::memory_order_acquire)) {
        const size_t length = std::min(why.size(), sizeof fate.reason);
        std::memcpy(fate.reason, why.data(), length);
        fate.reason_length.store(static_cast<uint32_t>(length), std::memory_order_release);
        watch_->lose(link.rank);
    }
    close(link);
}

void Links::close(Link &link) noexcept {
    const std::scoped_lock lock(link.mutex);
    link.queue.clear();
    link.not_for_children.reset();
    link.socket.reset();
}

} // namespace ujoin
