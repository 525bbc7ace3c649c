// SPDX-License-Identifier: Apache-2.0
// Connections between ranks of different hosts: who is let in, and what becomes of a link on which nonsense comes.
#include "backends/tcp/introduction.hpp"
#include "backends/tcp/links.hpp"
#include "base/deadline.hpp"
#include "comm/watch.hpp"
#include "harness/ranks.hpp"
#include "io/socket.hpp"
#include <cstring>
#include <gtest/gtest.h>
#include <new>
#include <sys/socket.h>
#include <thread>

using namespace ujoin;

namespace {

Deadline patience() { return Deadline::in(static_cast<int64_t>(10'000 * harness::slack())); }

// -------------------------------------------------------------------------------------------------------- who comes in

struct Door {
    io::Address address{"127.0.0.1", 0};
    os::Fd listener = io::listen_tcp(address);

    os::Fd knock() const {
        int error = 0;
        return io::connect_tcp(address, patience(), -1, error);
    }
};

std::vector<Introduction> two_ranks(const Door &first, const std::string &secret) {
    std::vector<Introduction> all(2);
    all[0].address = io::to_text(first.address);
    all[0].secret = secret;
    all[0].host = all[1].host = "here";
    return all;
}

TEST(LinksMeet, strangers_are_sent_away_and_the_rank_is_let_in) {
    const Door door;
    const os::Fd silent = door.knock();
    const os::Fd rude = door.knock();
    int error = 0;
    io::send_all(rude.get(), std::string(4096, 'x'), patience(), -1, error);
    std::thread forger([&] { // knows all but the secret, and does not care who answers
        const os::Fd socket = door.knock();
        std::string hello = "ujlinks1";
        hello += std::string("\1\0\0\0\0\0\0\0", 8) + std::string(16, 'n');
        int wrong = 0;
        io::send_all(socket.get(), hello, patience(), -1, wrong);
        std::string answer(48, '\0');
        EXPECT_EQ(io::receive_all(socket.get(), answer.data(), answer.size(), patience(), -1, wrong), io::Moved::all);
        io::send_all(socket.get(), std::string(32, '\0'), patience(), -1, wrong);
        EXPECT_EQ(io::receive_all(socket.get(), answer.data(), 1, patience(), -1, wrong), io::Moved::broken);
    });
    std::string text_of_liar;
    std::thread liar([&] {
        try {
            connect_to({0}, two_ranks(door, "another secret"), 1, os::Fd(), patience());
        } catch (const Error &failed) {
            text_of_liar = failed.text();
        }
    });
    std::vector<LinkTo> links;
    std::thread rank_0([&] { links = connect_to({1}, two_ranks(door, "the secret"), 0, door.listener, patience()); });
    liar.join();
    forger.join();
    EXPECT_NE(text_of_liar.find("does not belong to this group"), std::string::npos) << text_of_liar;
    const std::vector<LinkTo> mine = connect_to({0}, two_ranks(door, "the secret"), 1, os::Fd(), patience());
    rank_0.join();
    ASSERT_EQ(links.size(), 1U);
    EXPECT_EQ(links[0].rank, 1);
    ASSERT_EQ(mine.size(), 1U);
    EXPECT_EQ(send(mine[0].socket.get(), "a", 1, 0), 1);
    char byte = 0;
    EXPECT_EQ(io::receive_all(links[0].socket.get(), &byte, 1, patience(), -1, error), io::Moved::all);
    EXPECT_EQ(byte, 'a') << "the two ends belong together";
}

TEST(LinksMeet, a_rank_that_does_not_come_is_named) {
    const Door door;
    try {
        connect_to({1}, two_ranks(door, "the secret"), 0, door.listener, Deadline::in(50));
        ADD_FAILURE() << "nobody came";
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), UJOIN_E_TIMEOUT);
        EXPECT_EQ(error.ranks(), std::vector<int32_t>{1});
        EXPECT_NE(error.text().find("UJOIN_IFNAME"), std::string::npos) << error.text();
    }
}

TEST(LinksMeet, introductions_come_back_and_damaged_ones_are_refused) {
    Introduction is;
    is.backend = "auto";
    is.size = 7;
    is.pid = 12;
    is.place = "a place";
    is.host = "a host";
    is.address = "[::1]:7";
    is.secret = std::string("\0\1", 2);
    const std::string text = is.encode();
    const Introduction back = Introduction::decode(text);
    EXPECT_EQ(back.backend, is.backend);
    EXPECT_EQ(back.size, 7);
    EXPECT_EQ(back.address, is.address);
    EXPECT_EQ(back.secret, is.secret);
    for (size_t length = 0; length < text.size(); length++)
        EXPECT_THROW(Introduction::decode(text.substr(0, length)), Error);
    EXPECT_THROW(Introduction::decode(text + "x"), Error);

    Introduction other = is;
    other.size = 8;
    EXPECT_THROW(compare({is, other}), Error);
    other = is;
    other.backend = "tcp";
    EXPECT_THROW(compare({is, other}), Error);
    other = is;
    other.error = Error(UJOIN_E_NO_MEMORY, "no room here");
    try {
        compare({is, Introduction::decode(other.encode())});
        ADD_FAILURE() << "rank 1 cannot go on";
    } catch (const Error &error) {
        EXPECT_EQ(error.code(), UJOIN_E_NO_MEMORY);
        EXPECT_EQ(error.text(), "rank 1: no room here");
    }
}

TEST(LinksMeet, addresses) {
    for (const char *host : {"127.0.0.1", "127.1.2.3", "localhost", "::1"}) EXPECT_TRUE(io::is_loopback(host)) << host;
    for (const char *host : {"10.0.0.1", "localhost.example", "::2", "128.0.0.1"})
        EXPECT_FALSE(io::is_loopback(host)) << host;
    EXPECT_EQ(io::own_address_towards({"127.0.0.1", 1}), "127.0.0.1");
    EXPECT_EQ(io::address_of_interface("lo"), "127.0.0.1");
    EXPECT_THROW(io::address_of_interface("no-such-one"), Error);
}

// ------------------------------------------------------------------------------------------------------- what comes in

constexpr size_t chunk = 4096;

/// Rank 0's end of a link to rank 1; the other end is the test's.
struct End {
    void *memory = ::operator new (RankArea::bytes(chunk), std::align_val_t{4096});
    RankArea *own = new (memory) RankArea;
    os::Fd other;
    std::unique_ptr<Links> links;
    std::unique_ptr<Watch> watch;

    End() {
        int ends[2];
        if (socketpair(AF_UNIX, SOCK_STREAM | SOCK_CLOEXEC | SOCK_NONBLOCK, 0, ends) != 0) std::abort();
        other.reset(ends[1]);
        std::vector<LinkTo> to(1);
        to[0] = {1, os::Fd(ends[0]), 4711, "far away"};
        links = std::make_unique<Links>(own, 2, chunk, std::move(to));
        std::vector<os::EventCount *> events{&own->slots[0].event, &copy().slots[0].event};
        watch =
            std::make_unique<Watch>(0, std::vector<FateLine *>{&own->fate, &copy().fate}, std::vector<os::Fd>(), events, 0);
        links->start(*watch);
    }
    ~End() {
        other.reset();
        links->stop();
        links.reset();
        ::operator delete (memory, std::align_val_t{4096});
    }
    End(const End &) = delete;
    End &operator=(const End &) = delete;

    RankArea &copy() const { return *links->copy_of(1); }
    void say(const std::string &bytes) const {
        int error = 0;
        io::send_all(other.get(), bytes, patience(), -1, error);
    }
    /// How a wait for rank 1 ends.
    std::string failure() {
        try {
            watch->wait(
                1, copy().slots[0].event, [&](int32_t rank) { return rank == 0; }, patience(), false,
                [] { return std::string("a sign"); });
        } catch (const Error &error) {
            EXPECT_EQ(error.code(), UJOIN_E_PEER_LOST) << error.text();
            EXPECT_EQ(error.ranks(), std::vector<int32_t>{1});
            return error.text();
        }
        return "no failure";
    }
};

std::string frame(uint32_t kind, uint32_t bytes, const std::string &body) {
    std::string text(8, '\0');
    std::memcpy(text.data(), &kind, 4);
    std::memcpy(text.data() + 4, &bytes, 4);
    return text + body;
}
std::string data_body(uint64_t step, uint64_t offset) {
    std::string text(16, '\0');
    std::memcpy(text.data(), &step, 8);
    std::memcpy(text.data() + 8, &offset, 8);
    return text;
}

TEST(Links, what_is_no_message_ends_the_link) {
    const std::vector<std::string> bad = {
        std::string(64, '\0'),                        // no kind
        frame(99, 0, std::string(64, 'x')),           // no such one
        frame(2, 5, std::string(64, 'x')),            // a piece behind what has none
        frame(1, 0, data_body(1, 0)),                 // none behind what has one
        frame(1, chunk + 1, data_body(1, 0)),         // too large
        frame(1, 64, data_body(1, chunk - 63)),       // beyond the end
        frame(1, 64, data_body(1, ~uint64_t{0} - 8)), // far beyond
    };
    for (size_t i = 0; i < bad.size(); i++) {
        End end;
        end.say(bad[i]);
        const std::string text = end.failure();
        EXPECT_NE(text.find("rank 1 (pid 4711) on far away sent"), std::string::npos) << i << ": " << text;
    }
}

TEST(Links, the_end_of_a_process_is_the_end_of_its_link) {
    End end;
    end.say(frame(1, 64, data_body(1, 0)) + "half of it");
    end.other.reset();
    EXPECT_EQ(end.failure(), "rank 1 (pid 4711) died while rank 0 was waiting for a sign");
}

TEST(Links, pieces_and_words_arrive_in_order_however_they_are_cut) {
    End end;
    std::string piece(1000, '\0');
    for (size_t i = 0; i < piece.size(); i++) piece[i] = static_cast<char>(i * 7);
    std::string slot(56, '\0');
    const uint64_t step = 2;
    const uint64_t print = 0x1234;
    std::memcpy(slot.data(), &step, 8);
    std::memcpy(slot.data() + 8, &print, 8);
    const std::string all = frame(1, 1000, data_body(2, 64)) + piece + frame(2, 0, slot);
    for (const char byte : all) end.say(std::string(1, byte));
    const int64_t limit = now_ms() + static_cast<int64_t>(10'000 * harness::slack());
    while (end.copy().slots[0].arrived.load(std::memory_order_acquire) != 2 && now_ms() < limit) std::this_thread::yield();
    ASSERT_EQ(end.copy().slots[0].arrived.load(std::memory_order_acquire), 2U);
    EXPECT_EQ(end.copy().slots[0].fingerprint, print);
    EXPECT_EQ(std::memcmp(end.copy().staging(2, chunk) + 64, piece.data(), piece.size()), 0) << "there before the word is";
}

} // namespace
