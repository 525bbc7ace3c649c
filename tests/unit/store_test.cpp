// SPDX-License-Identifier: Apache-2.0
#include "base/sha256.hpp"
#include "harness/errors.hpp"
#include "harness/ranks.hpp"
#include "harness/temp_dir.hpp"
#include "io/socket.hpp"
#include "os/ready.hpp"
#include "store/protocol.hpp"
#include "store/store.hpp"
#include <fcntl.h>
#include <filesystem>
#include <fstream>
#include <gtest/gtest.h>
#include <random>
#include <sys/stat.h>
#include <thread>

using namespace ujoin;
using harness::error_of;
namespace fs = std::filesystem;

namespace {

const Deadline now = Deadline::in(0);

enum class Kind { memory, file, tcp, tcp6 };

/// Two handles of one store; of tcp the first is the server.
class StoreKinds : public testing::TestWithParam<Kind> {
  protected:
    std::shared_ptr<Store> open() {
        switch (GetParam()) {
        case Kind::memory:
            return Store::open("memory://" + name_, {});
        case Kind::file:
            return Store::open("file://" + (place_ / "store"), {});
        case Kind::tcp:
        case Kind::tcp6:
            break;
        }
        if (a_) return Store::open(a_->url(), {});
        Store::Options options;
        options.listen = true;
        return Store::open(GetParam() == Kind::tcp ? "tcp://127.0.0.1:0" : "tcp://[::1]:0", options);
    }
    void SetUp() override {
        if (GetParam() == Kind::tcp6 && error_of([] {
                                            io::Address address{"::1", 0};
                                            io::listen_tcp(address);
                                        }).code() != UJOIN_OK)
            GTEST_SKIP() << "this machine has no IPv6";
        a_ = open();
        b_ = open();
    }

    harness::TempDir place_;
    const std::string name_ = harness::unique("store");
    std::shared_ptr<Store> a_;
    std::shared_ptr<Store> b_;
};

} // namespace

TEST(StoreSha256, published_vectors) {
    EXPECT_EQ(hex(Sha256::of("")), "e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855");
    EXPECT_EQ(hex(Sha256::of("abc")), "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad");
    EXPECT_EQ(hex(Sha256::of("abcdbcdecdefdefgefghfghighijhijkijkljklmklmnlmnomnopnopq")),
              "248d6a61d20638b8e5c026930c3e6039a33ce45964ff2167f6ecedd419db06c1");
    EXPECT_EQ(hex(Sha256::of(std::string(1'000'000, 'a'))),
              "cdc76e5c9914fb9281a1c7e284d73e67f1809a48a497200e046d39ccc7112cd0");
}

TEST(StoreSha256, pieces_do_not_matter) {
    std::string text;
    for (int i = 0; i < 1000; i++) text += static_cast<char>(i * 7);
    for (const size_t piece : {1U, 3U, 55U, 56U, 63U, 64U, 65U, 200U}) {
        Sha256 sum;
        for (size_t at = 0; at < text.size(); at += piece) sum.update(std::string_view(text).substr(at, piece));
        EXPECT_EQ(hex(sum.finish()), hex(Sha256::of(text))) << "pieces of " << piece;
    }
}

TEST(StoreSha256, hmac_vectors) { // RFC 4231, cases 1, 2 and 6
    EXPECT_EQ(hex(hmac_sha256(std::string(20, '\x0b'), "Hi There")),
              "b0344c61d8db38535ca8afceaf0bf12b881dc200c9833da726e9376c2e32cff7");
    EXPECT_EQ(hex(hmac_sha256("Jefe", "what do ya want for nothing?")),
              "5bdcc146bf60754e6a042426089575c75a003f089d2739839dec58b964ec3843");
    EXPECT_EQ(hex(hmac_sha256(std::string(131, '\xaa'), "Test Using Larger Than Block-Size Key - Hash Key First")),
              "60e431591ee0b67f0d8a26aacbf5b77f8e0bc6213728c5140546040f0ee37f54");
}

TEST(StoreAddress, is_read_and_written) {
    for (const auto *text : {"host:1", "127.0.0.1:29500", "[::1]:0", "[fe80::1%eth0]:65535"})
        EXPECT_EQ(io::to_text(io::parse_address(text)), text);
    for (const auto *text :
         {"", "host", "host:", ":1", "host:x", "host:65536", "host:-1", "host:1 ", "::1:5", "[::1]", "[::1:5", "[]:1"})
        EXPECT_EQ(error_of([&] { io::parse_address(text); }).code(), UJOIN_E_INVALID) << text;
}

TEST(StoreProtocol, requests_come_back_as_they_were) {
    using store::protocol::Message;
    const std::string amount(8, '\1');
    for (const store::protocol::Request &request :
         {store::protocol::Request{Message::set, 0, "key", "value"},
          {Message::set, 0, "k", ""},
          {Message::add, 0, "n", amount},
          {Message::get, store::protocol::at_once, std::string(Store::max_key, 'k'), ""},
          {Message::await, 0, "a", ""},
          {Message::cancel, 0, "", ""}}) {
        const store::protocol::Request back = store::protocol::decode(store::protocol::encode(request));
        EXPECT_EQ(back.kind, request.kind);
        EXPECT_EQ(back.flags, request.flags);
        EXPECT_EQ(back.key, request.key);
        EXPECT_EQ(back.value, request.value);
    }
}

TEST(StoreProtocol, anything_else_is_a_mismatch) {
    using store::protocol::Message;
    const std::string good = store::protocol::encode({Message::get, 0, "key", ""});
    std::vector<std::string> bad = {"",
                                    "\x01",
                                    "\x06",
                                    good + "x",
                                    store::protocol::encode({Message::set, 1, "key", ""}),
                                    store::protocol::encode({Message::set, 0, "", "v"}),
                                    store::protocol::encode({Message::add, 0, "n", "7"}),
                                    store::protocol::encode({Message::cancel, 0, "key", ""}),
                                    store::protocol::encode({Message::done, 0, "key", ""}),
                                    store::protocol::encode({Message::get, 0, std::string(Store::max_key + 1, 'k'), ""})};
    for (size_t size = 1; size < good.size(); size++) bad.push_back(good.substr(0, size));
    for (const std::string &message : bad)
        EXPECT_EQ(error_of([&] { store::protocol::decode(message); }).code(), UJOIN_E_MISMATCH)
            << testing::PrintToString(message);
}

TEST_P(StoreKinds, set_overwrites_and_the_other_handle_sees_it) {
    const std::string bytes("a\0b\xff", 4);
    EXPECT_EQ(b_->get("key", now), std::nullopt);
    a_->set("key", "first");
    EXPECT_EQ(b_->get("key", now), "first");
    b_->set("key", bytes);
    EXPECT_EQ(a_->get("key", now), bytes);
    a_->set("key", "");
    EXPECT_EQ(b_->get("key", now), "");
}

TEST_P(StoreKinds, largest_key_and_value) {
    std::string value(Store::max_value, 'v');
    value.back() = 'w';
    const std::string key(Store::max_key, 'k');
    a_->set(key, value);
    EXPECT_TRUE(b_->get(key, now) == value);
    EXPECT_EQ(error_of([&] { a_->set(key + "k", ""); }).code(), UJOIN_E_INVALID);
    EXPECT_EQ(error_of([&] { a_->set("", ""); }).code(), UJOIN_E_INVALID);
    EXPECT_EQ(error_of([&] { a_->set("key", value + "v"); }).code(), UJOIN_E_INVALID);
    EXPECT_EQ(error_of([&] { Store::with_prefix(a_, "p")->set(key, ""); }).code(), UJOIN_E_INVALID);
    EXPECT_TRUE(b_->get(key, now) == value);
}

TEST_P(StoreKinds, add_counts_and_zero_only_reads) {
    EXPECT_EQ(a_->add("n", 0), 0);
    EXPECT_EQ(b_->get("n", now), std::nullopt) << "reading made the key";
    EXPECT_EQ(a_->add("n", 5), 5);
    EXPECT_EQ(b_->add("n", -7), -2);
    EXPECT_EQ(a_->add("n", 0), -2);
    EXPECT_EQ(b_->get("n", now), "-2");
    a_->set("n", "40");
    EXPECT_EQ(b_->add("n", 2), 42);
    for (const auto *text : {"", "x", "1x", " 1", "1.5", "99999999999999999999"}) {
        a_->set("text", text);
        EXPECT_EQ(error_of([&] { b_->add("text", 1); }).code(), UJOIN_E_MISMATCH) << text;
        EXPECT_EQ(a_->get("text", now), text);
    }
    a_->set("n", "9223372036854775807");
    EXPECT_EQ(error_of([&] { b_->add("n", 1); }).code(), UJOIN_E_INVALID);
    EXPECT_EQ(b_->add("n", -1), 9223372036854775806);
}

TEST_P(StoreKinds, add_is_atomic) {
    constexpr int threads = 4;
    constexpr int times = 50;
    harness::run_threads(threads, [&](int rank) {
        const std::shared_ptr<Store> own = rank % 2 ? open() : a_;
        for (int i = 0; i < times; i++) own->add("n", 1);
    });
    EXPECT_EQ(b_->add("n", 0), threads * times);
}

TEST_P(StoreKinds, get_waits_for_the_key) {
    harness::run_threads(2, [&](int rank) {
        if (rank == 0) {
            a_->set("ready", "1");
            EXPECT_EQ(a_->get("answer", Deadline::never()), "value");
        } else {
            EXPECT_EQ(b_->get("ready", Deadline::never()), "1");
            b_->set("answer", "value");
        }
    });
}

TEST_P(StoreKinds, a_get_that_waits_holds_up_no_set_on_the_same_handle) {
    harness::run_threads(4, [&](int rank) {
        if (rank == 0) {
            while (a_->add("waiting", 0) < 3) std::this_thread::yield();
            a_->set("key", "value");
        } else {
            a_->add("waiting", 1);
            EXPECT_EQ(a_->get("key", Deadline::never()), "value");
        }
    });
}

TEST_P(StoreKinds, a_wait_that_runs_out_takes_its_time_and_leaves_the_store_whole) {
    const int64_t begin = now_ms();
    EXPECT_EQ(a_->get("never", Deadline::in(150)), std::nullopt);
    EXPECT_GE(now_ms() - begin, 150);
    a_->set("here", "1");
    EXPECT_EQ(a_->wait({"here", "never", "no"}, Deadline::in(50)), (std::vector<std::string>{"never", "no"}));
    b_->set("never", "came");
    EXPECT_EQ(a_->get("never", now), "came");
    EXPECT_TRUE(a_->wait({"here", "never"}, now).empty());
    EXPECT_TRUE(a_->wait({}, now).empty());
}

TEST_P(StoreKinds, wait_ends_when_all_are_there) {
    harness::run_threads(2, [&](int rank) {
        if (rank == 0) {
            EXPECT_TRUE(a_->wait({"x", "y", "z"}, Deadline::never()).empty());
            EXPECT_EQ(a_->get("last", now), "1");
        } else {
            b_->set("last", "1");
            for (const auto *key : {"z", "x", "y"}) b_->set(key, "");
        }
    });
}

TEST_P(StoreKinds, prefix_is_a_view) {
    const auto view = Store::with_prefix(a_, "job/");
    view->set("key", "value");
    EXPECT_EQ(b_->get("job/key", now), "value");
    EXPECT_EQ(b_->get("key", now), std::nullopt);
    EXPECT_EQ(Store::with_prefix(view, "sub/")->add("n", 3), 3);
    EXPECT_EQ(a_->get("job/sub/n", now), "3");
    EXPECT_EQ(view->wait({"key", "no"}, now), std::vector<std::string>{"no"})
        << "missing keys are named as they were given";
    EXPECT_EQ(view->url(), a_->url());
    EXPECT_EQ(error_of([&] { Store::with_prefix(a_, std::string(Store::max_key, 'p')); }).code(), UJOIN_E_INVALID);
}

TEST_P(StoreKinds, a_prefix_keeps_the_store_alive) {
    const auto view = Store::with_prefix(a_, "p/");
    a_.reset();
    view->set("key", "value");
    EXPECT_EQ(b_->get("p/key", now), "value");
}

TEST_P(StoreKinds, abort_ends_the_waits_of_its_handle_alone) {
    const auto view = Store::with_prefix(a_, "v/");
    harness::run_threads(4, [&](int rank) {
        const auto wait = [&](Store &store) {
            b_->add("waiting", 1);
            return error_of([&] { store.get("never", Deadline::never()); }).code();
        };
        if (rank == 0) {
            while (b_->add("waiting", 0) < 3) std::this_thread::yield();
            a_->abort();
            view->set("never", "1"); // the view still works, and its wait was not ended
            b_->set("never", "1");
        } else if (rank == 1) {
            EXPECT_EQ(wait(*a_), UJOIN_E_ABORTED);
        } else if (rank == 2) {
            EXPECT_EQ(wait(*view), UJOIN_OK);
        } else {
            EXPECT_EQ(wait(*b_), UJOIN_OK);
        }
    });
    EXPECT_EQ(error_of([&] { a_->get("never", Deadline::never()); }).code(), UJOIN_E_ABORTED) << "now and later";
    EXPECT_EQ(error_of([&] { a_->wait({"never"}, now); }).code(), UJOIN_E_ABORTED);
}

INSTANTIATE_TEST_SUITE_P(All, StoreKinds, testing::Values(Kind::memory, Kind::file, Kind::tcp, Kind::tcp6),
                         [](const auto &test) {
                             switch (test.param) {
                             case Kind::memory:
                                 return "memory";
                             case Kind::file:
                                 return "file";
                             case Kind::tcp:
                                 return "tcp";
                             case Kind::tcp6:
                                 return "tcp6";
                             }
                             return "?";
                         });

TEST(StoreMemory, lives_while_a_handle_does) {
    const std::string url = "memory://" + harness::unique("gone");
    auto store = Store::open(url, {});
    store->set("key", "value");
    EXPECT_EQ(store->url(), "");
    EXPECT_EQ(Store::open(url + "x", {})->get("key", now), std::nullopt) << "another name is another store";
    EXPECT_EQ(Store::open(url, {})->get("key", now), "value");
    store.reset();
    EXPECT_EQ(Store::open(url, {})->get("key", now), std::nullopt);
}

TEST(StoreOpen, bad_urls) {
    for (const auto *url : {"", "nothing", "memory://", "file://relative", "file://", "tcp://", "tcp://host", "tcp://[::1",
                            "tcp://127.0.0.1:0", "http://host:1", "Memory://a"}) {
        EXPECT_EQ(error_of([&] { Store::open(url, {}); }).code(), UJOIN_E_INVALID) << url;
    }
    Store::Options listen;
    listen.listen = true;
    EXPECT_EQ(error_of([&] { Store::open("memory://x", listen); }).code(), UJOIN_E_INVALID);
}

TEST(StoreFile, is_private_and_keeps_its_content) {
    const harness::TempDir place;
    const std::string path = (place / "store");
    Store::open("file://" + path, {})->set("key", "value");
    struct stat info {};
    ASSERT_EQ(stat(path.c_str(), &info), 0);
    EXPECT_EQ(info.st_mode & 0777U, 0600U);
    const auto store = Store::open("file://" + path, {});
    EXPECT_EQ(store->get("key", now), "value");
    EXPECT_EQ(store->url(), "file://" + path);
}

TEST(StoreFile, what_cannot_be_opened_says_why) {
    const harness::TempDir place;
    EXPECT_EQ(error_of([&] { Store::open("file://" + (place / "no/such/dir"), {}); }).system_errno(), ENOENT);
    EXPECT_EQ(error_of([&] { Store::open("file://" + (place / ""), {}); }).system_errno(), EISDIR);
    ASSERT_EQ(symlink("/dev/null", (place / "link").c_str()), 0);
    EXPECT_EQ(error_of([&] { Store::open("file://" + (place / "link"), {}); }).system_errno(), ELOOP);
    ASSERT_EQ(mkfifo((place / "pipe").c_str(), 0600), 0);
    EXPECT_EQ(error_of([&] { Store::open("file://" + (place / "pipe"), {}); }).code(), UJOIN_E_MISMATCH);
}

TEST(StoreFile, a_removed_file_ends_a_wait) {
    const harness::TempDir place;
    const auto store = Store::open("file://" + (place / "store"), {});
    std::thread remover([&] {
        const auto other = Store::open(store->url(), {});
        other->get("go", Deadline::never());
        fs::remove((place / "store"));
    });
    store->set("go", "");
    EXPECT_EQ(error_of([&] { store->get("never", Deadline::never()); }).code(), UJOIN_E_MISMATCH);
    remover.join();
}

TEST(StoreFile, a_writer_that_was_killed_halfway_is_not_seen) {
    const harness::TempDir place;
    const auto store = Store::open("file://" + (place / "store"), {});
    store->set("key", "value");
    std::ofstream((place / "store"), std::ios::app) << "half of a record";
    EXPECT_EQ(Store::open(store->url(), {})->get("key", now), "value");
    store->set("key", "next");
    EXPECT_EQ(Store::open(store->url(), {})->get("key", now), "next");
}

/// Whatever is in the file: an error that names it, or a store; no crash, no wait, no giant allocation.
TEST(StoreFile, damage_is_a_mismatch) {
    const harness::TempDir place;
    const std::string path = (place / "store");
    {
        const auto store = Store::open("file://" + path, {});
        for (int i = 0; i < 20; i++) store->set(cat("key", i % 7), std::string(static_cast<size_t>(i), 'v'));
    }
    std::ifstream in(path, std::ios::binary);
    const std::string whole((std::istreambuf_iterator<char>(in)), {});
    const auto try_bytes = [&](const std::string &bytes) {
        fs::remove(path); // overwriting it would wait for the disk
        std::ofstream(path, std::ios::binary) << bytes;
        return error_of([&] { Store::open("file://" + path, {}); });
    };
    for (size_t size = 1; size < whole.size(); size++) {
        const Error error = try_bytes(whole.substr(0, size));
        ASSERT_EQ(error.code(), UJOIN_E_MISMATCH) << size;
        ASSERT_NE(error.text().find(path), std::string::npos) << error.text();
    }
    std::mt19937 random(7); // NOLINT(cert-msc32-c,cert-msc51-cpp): the same changes each time
    for (int i = 0; i < 3000; i++) {
        std::string changed = whole;
        const size_t at = random() % changed.size();
        changed[at] = static_cast<char>(changed[at] ^ (1 + random() % 255));
        const Error error = try_bytes(changed);
        ASSERT_EQ(error.code(), UJOIN_E_MISMATCH) << "byte " << at << ": " << error.text();
    }
    ASSERT_EQ(try_bytes(whole).code(), UJOIN_OK);
    ASSERT_EQ(try_bytes("").code(), UJOIN_OK) << "an empty file is a new store";
}

TEST(StoreTcp, a_taken_port_is_a_system_error) {
    Store::Options listen;
    listen.listen = true;
    const auto first = Store::open("tcp://127.0.0.1:0", listen);
    EXPECT_EQ(first->url().substr(0, 16), "tcp://127.0.0.1:");
    EXPECT_NE(first->url(), "tcp://127.0.0.1:0");
    const Error error = error_of([&] { Store::open(first->url(), listen); });
    EXPECT_EQ(error.code(), UJOIN_E_SYSTEM);
    EXPECT_EQ(error.system_errno(), EADDRINUSE);
    EXPECT_NE(error.text().find(first->url().substr(6)), std::string::npos) << error.text();
}

TEST(StoreTcp, no_such_host_is_a_system_error) {
    const Error error = error_of([] { Store::open("tcp://no-such-host.invalid:1", {}); });
    EXPECT_EQ(error.code(), UJOIN_E_SYSTEM);
    EXPECT_NE(error.text().find("no-such-host.invalid"), std::string::npos) << error.text();
}

TEST(StoreTcp, listens_on_the_given_address_only) {
    Store::Options listen;
    listen.listen = true;
    const auto server = Store::open("tcp://127.0.0.1:0", listen);
    io::Address other = io::parse_address(server->url().substr(6));
    other.host = "127.0.0.2";
    int error_number = 0;
    EXPECT_FALSE(io::connect_tcp(other, Deadline::in(1000), -1, error_number));
    EXPECT_EQ(error_number, ECONNREFUSED);
}

TEST(StoreTcp, waits_for_a_server_that_comes_later) {
    io::Address address{"127.0.0.1", 0};
    { const os::Fd taken = io::listen_tcp(address); } // a port that is free now
    const std::string url = "tcp://" + io::to_text(address);
    Store::Options options;
    options.timeout_ms = 200;
    const int64_t begin = now_ms();
    const Error error = error_of([&] { Store::open(url, options); });
    EXPECT_EQ(error.code(), UJOIN_E_TIMEOUT);
    EXPECT_GE(now_ms() - begin, 200);
    EXPECT_EQ(error.system_errno(), ECONNREFUSED);
    EXPECT_NE(error.text().find(url), std::string::npos) << error.text();
    harness::run_threads(2, [&](int rank) {
        Store::Options mine;
        mine.listen = rank == 0;
        if (rank == 0)
            std::this_thread::sleep_for(std::chrono::milliseconds(50)); // the client shall come first; either order passes
        const auto store = Store::open(url, mine);
        store->set(cat("rank", rank), "");
        EXPECT_TRUE(store->wait({"rank0", "rank1"}, Deadline::never()).empty());
        store->add("out", 1);
        while (rank == 0 && store->add("out", 0) < 2) std::this_thread::yield();
    });
}
