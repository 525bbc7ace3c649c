// SPDX-License-Identifier: Apache-2.0
#include "fault/short_memory.hpp"
#include "harness/errors.hpp"
#include "harness/ranks.hpp"
#include "io/socket.hpp"
#include "os/ready.hpp"
#include "store/protocol.hpp"
#include "store/store.hpp"
#include <csignal>
#include <fcntl.h>
#include <gtest/gtest.h>
#include <mutex>
#include <poll.h>
#include <random>
#include <sys/socket.h>
#include <thread>

using namespace ujoin;
using harness::error_of;
using store::protocol::Message;

namespace {

const Deadline now = Deadline::in(0);

std::shared_ptr<Store> serve(const std::string &secret = "") {
    Store::Options options;
    options.listen = true;
    options.secret = secret;
    return Store::open("tcp://127.0.0.1:0", options);
}

std::shared_ptr<Store> join(const std::string &url, const std::string &secret) {
    Store::Options options;
    options.secret = secret;
    options.timeout_ms = 20'000;
    return Store::open(url, options);
}

/// A client that may say anything.
class Stranger {
  public:
    explicit Stranger(const std::string &url) {
        int error_number = 0;
        fd_ = io::connect_tcp(io::parse_address(url.substr(6)), Deadline::in(20'000), -1, error_number);
        if (!fd_) fail_errno(error_number, "connect");
    }
    int fd() const { return fd_.get(); }
    void say(std::string_view bytes) {
        int error_number = 0;
        io::send_all(fd_.get(), bytes, Deadline::in(20'000), -1, error_number); // it may have been dropped already
    }
    void message(std::string_view message) {
        std::string frame;
        wire::put_u32(frame, static_cast<uint32_t>(message.size()));
        say(frame.append(message));
    }
    /// The next message; "" when the server has dropped this client.
    std::string hear() {
        int error_number = 0;
        std::string length(4, '\0');
        const Deadline deadline = Deadline::in(20'000);
        if (io::receive_all(fd_.get(), length.data(), 4, deadline, -1, error_number) != io::Moved::all) return "";
        std::string text(wire::Reader(length).u32(), '\0');
        if (io::receive_all(fd_.get(), text.data(), text.size(), deadline, -1, error_number) != io::Moved::all) return "";
        return text;
    }
    bool dropped() { return hear().empty(); }
    /// Through the beginning, without a secret.
    void greet() {
        message(cat(static_cast<char>(Message::hello), store::protocol::magic, '\0',
                    std::string(store::protocol::nonce_bytes, 'n')));
        EXPECT_EQ(hear().size(), 1 + 8 + 1 + store::protocol::nonce_bytes);
        message(std::string(1, static_cast<char>(Message::proof)) + std::string(32, '\0'));
        EXPECT_EQ(hear().size(), 33U);
    }

  private:
    os::Fd fd_;
};

/// Passes bytes on between one client and a server, and keeps them.
class Proxy {
  public:
    explicit Proxy(const std::string &url)
        : target_(io::parse_address(url.substr(6))), listener_(io::listen_tcp(address_)) {
        thread_ = std::thread([this] { run(); });
    }
    ~Proxy() { join(); }
    Proxy(const Proxy &) = delete;
    Proxy &operator=(const Proxy &) = delete;
    std::string url() const { return "tcp://" + io::to_text(address_); }
    void join() {
        if (thread_.joinable()) thread_.join();
    }
    const std::string &heard() const { return heard_; }

  private:
    void run() {
        const Deadline deadline = Deadline::in(20'000);
        if (os::wait_ready(listener_.get(), POLLIN, deadline, -1) != os::Ready::yes) return;
        const os::Fd client(accept4(listener_.get(), nullptr, nullptr, SOCK_CLOEXEC));
        int error_number = 0;
        const os::Fd server = io::connect_tcp(target_, deadline, -1, error_number);
        while (!deadline.passed()) {
            pollfd fds[2] = {{client.get(), POLLIN, 0}, {server.get(), POLLIN, 0}};
            poll(fds, 2, 1000);
            for (int i = 0; i < 2; i++) {
                if (fds[i].revents == 0) continue;
                char bytes[65536];
                const ssize_t n = read(fds[i].fd, bytes, sizeof bytes);
                if (n <= 0) return;
                heard_.append(bytes, static_cast<size_t>(n));
                io::send_all(fds[1 - i].fd, {bytes, static_cast<size_t>(n)}, deadline, -1, error_number);
            }
        }
    }

    io::Address address_{"127.0.0.1", 0};
    io::Address target_;
    os::Fd listener_;
    std::string heard_;
    std::thread thread_;
};

/// A server without memory drops the client that asked, and serves the next one.
TEST(StoreFault, ERRORS_04_memory_runs_out_on_its_thread) {
    const auto server = serve("a secret that is longer than a string holds");
    t_spared = true;
    ShortageOfOthers &memory = g_shortage_of_others;
    const auto use = [&] {
        const std::shared_ptr<Store> client = join(server->url(), "a secret that is longer than a string holds");
        client->set("a key that is longer than a string holds", "value");
        return client->get("a key that is longer than a string holds", Deadline::in(20'000)).value_or("");
    };
    for (int64_t at = 0;; at++) {
        memory.came = false;
        memory.only_once = true;
        memory.left = at;
        try {
            EXPECT_EQ(use(), "value");
        } catch (const Error &error) {
            EXPECT_NE(error.code(), UJOIN_E_TIMEOUT) << error.text();
        }
        memory.left = -1;
        EXPECT_EQ(use(), "value");
        ASSERT_FALSE(HasFailure()) << "allocation " << at;
        if (memory.came) continue;
        EXPECT_GT(at, 10);
        break;
    }
}

} // namespace

TEST(StoreFault, a_killed_server_ends_its_clients_waits) {
    int url_pipe[2];
    ASSERT_EQ(pipe2(url_pipe, O_CLOEXEC), 0);
    harness::run_processes(2, [&](int rank) {
        char url[128] = {};
        if (rank == 0) {
            harness::expect_death(SIGKILL);
            const auto store = serve();
            ASSERT_GT(write(url_pipe[1], store->url().c_str(), store->url().size()), 0);
            store->get("waiting", Deadline::never());
            raise(SIGKILL);
        }
        ASSERT_GT(read(url_pipe[0], url, sizeof url - 1), 0);
        const auto store = join(url, "");
        std::thread setter([&] { store->set("waiting", ""); });
        const Error error = error_of([&] { store->get("never", Deadline::never()); });
        setter.join();
        EXPECT_EQ(error.code(), UJOIN_E_PEER_LOST) << error.text();
        EXPECT_NE(error.text().find(url), std::string::npos) << error.text();
        EXPECT_EQ(error_of([&] { store->set("key", ""); }).code(), UJOIN_E_PEER_LOST) << "a lost store stays lost";
    });
    close(url_pipe[0]);
    close(url_pipe[1]);
}

TEST(StoreFault, a_stopped_server_does_not_outwait_a_deadline) {
    int url_pipe[2];
    ASSERT_EQ(pipe2(url_pipe, O_CLOEXEC), 0);
    harness::run_processes(2, [&](int rank) {
        char url[128] = {};
        if (rank == 0) {
            const auto store = serve();
            store->set("pid", std::to_string(getpid()));
            ASSERT_GT(write(url_pipe[1], store->url().c_str(), store->url().size()), 0);
            EXPECT_EQ(store->get("done", Deadline::never()), "1");
            return;
        }
        ASSERT_GT(read(url_pipe[0], url, sizeof url - 1), 0);
        const auto store = join(url, "");
        const pid_t server = std::stoi(store->get("pid", now).value());
        ASSERT_EQ(kill(server, SIGSTOP), 0);
        const int64_t begin = now_ms();
        EXPECT_EQ(store->get("never", Deadline::in(200)), std::nullopt);
        EXPECT_GE(now_ms() - begin, 200);
        EXPECT_LT(now_ms() - begin, 5 * 1200 * harness::slack());
        ASSERT_EQ(kill(server, SIGCONT), 0);
        store->set("done", "1");
    });
    close(url_pipe[0]);
    close(url_pipe[1]);
}

TEST(StoreFault, a_destroyed_server_ends_its_clients_waits) {
    auto server = serve();
    const auto client = join(server->url(), "");
    std::thread destroyer([&] {
        server->get("waiting", Deadline::never());
        server.reset();
    });
    client->set("waiting", "");
    const Error error = error_of([&] { client->get("never", Deadline::never()); });
    EXPECT_EQ(error.code(), UJOIN_E_PEER_LOST) << error.text();
    destroyer.join();
}

TEST(StoreFault, garbage_drops_its_sender_and_disturbs_nobody) {
    const auto server = serve();
    const auto client = join(server->url(), "");
    std::thread waiter([&] { EXPECT_EQ(client->get("key", Deadline::never()), "value"); });
    std::string huge;
    wire::put_u32(huge, 0xffffffffU);
    for (const std::string &bytes :
         {std::string("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), std::string(4, '\0'), huge, std::string(100'000, '\xff')}) {
        Stranger stranger(server->url());
        stranger.say(bytes);
        EXPECT_TRUE(stranger.dropped());
    }
    for (const auto *text :
         {"", "\x02", "\x01short", "\x06\x00\x01\x00k"}) { // an answer, a short hello, a set before the beginning
        Stranger stranger(server->url());
        stranger.message(text);
        EXPECT_TRUE(stranger.dropped()) << testing::PrintToString(text);
    }
    Stranger busy(server->url());
    busy.greet();
    busy.message(store::protocol::encode({Message::get, 0, "never", ""}));
    busy.message(store::protocol::encode({Message::get, 0, "never", ""}));
    EXPECT_TRUE(busy.dropped()) << "a request while another one waits";
    server->set("key", "value");
    waiter.join();
}

TEST(StoreFault, half_messages_hold_up_nobody) {
    const auto server = serve();
    std::vector<std::unique_ptr<Stranger>> slow;
    for (int i = 0; i < 20; i++) {
        slow.push_back(std::make_unique<Stranger>(server->url()));
        if (i % 2) slow.back()->greet();
        slow.back()->say(std::string("\x10\0\0", 3)); // a part of a length, and nothing more
    }
    const auto client = join(server->url(), "");
    client->set("key", "value");
    EXPECT_EQ(server->get("key", now), "value");
}

TEST(StoreFault, a_reader_that_does_not_read_gets_no_more_than_one_answer_queued) {
    constexpr size_t big = size_t{4} << 20; // more than the sockets take
    const auto server = serve();
    server->set("big", std::string(big, 'b'));
    Stranger greedy(server->url());
    greedy.greet();
    const std::string request = store::protocol::encode({Message::get, 0, "big", ""});
    for (int i = 0; i < 20; i++) greedy.message(request);
    const auto client = join(server->url(), "");
    client->set("key", "value");
    EXPECT_EQ(client->get("key", now), "value");
    for (int i = 0; i < 20; i++) ASSERT_EQ(greedy.hear().size(), 1 + big) << i;
}

TEST(StoreFault, changed_bytes_never_crash_the_server) {
    const auto server = serve();
    const std::vector<std::string> good = {
        store::protocol::encode({Message::set, 0, "key", "some value"}),
        store::protocol::encode({Message::add, 0, "count", std::string(8, '\1')}),
        store::protocol::encode({Message::get, 0, "key", ""}),
        store::protocol::encode({Message::await, store::protocol::at_once, "never", ""})};
    std::mt19937 random(11); // NOLINT(cert-msc32-c,cert-msc51-cpp): the same changes each time
    auto stranger = std::make_unique<Stranger>(server->url());
    stranger->greet();
    for (int i = 0; i < 10'000; i++) {
        std::string frame;
        const std::string &message = good[random() % good.size()];
        wire::put_u32(frame, static_cast<uint32_t>(message.size()));
        frame += message;
        const size_t at = random() % frame.size();
        frame[at] = static_cast<char>(frame[at] ^ (1 + random() % 255));
        stranger->say(frame);
        if (i % 4 == 3) { // whatever state that left: the next ones begin anew
            if (i % 400 == 3) {
                EXPECT_EQ(server->add("alive", 1), 1 + i / 400);
            }
            stranger = std::make_unique<Stranger>(server->url());
            stranger->greet();
        }
    }
    server->set("end", "1");
    EXPECT_EQ(join(server->url(), "")->get("end", now), "1");
}

TEST(StoreFault, changed_bytes_in_the_beginning_never_crash_the_server) {
    const auto server = serve("secret");
    const std::string hello = cat(static_cast<char>(Message::hello), store::protocol::magic, '\1', std::string(16, 'n'));
    std::mt19937 random(12); // NOLINT(cert-msc32-c,cert-msc51-cpp): the same changes each time
    for (int i = 0; i < 1000; i++) {
        std::string frame;
        wire::put_u32(frame, static_cast<uint32_t>(hello.size()));
        frame += hello;
        const size_t at = random() % frame.size();
        frame[at] = static_cast<char>(frame[at] ^ (1 + random() % 255));
        Stranger(server->url()).say(frame);
    }
    EXPECT_EQ(join(server->url(), "secret")->add("n", 1), 1);
}

TEST(StoreFault, a_wrong_or_missing_secret_is_refused) {
    const auto server = serve("right");
    for (const auto *secret : {"wrong", "righ", "rightt", ""}) {
        const Error error = error_of([&] { join(server->url(), secret); });
        EXPECT_EQ(error.code(), UJOIN_E_MISMATCH) << secret << ": " << error.text();
        EXPECT_NE(error.text().find("secret"), std::string::npos) << error.text();
        EXPECT_EQ(error.text().find("right"), std::string::npos) << error.text();
    }
    EXPECT_EQ(join(server->url(), "right")->add("n", 1), 1);
    const auto open_server = serve();
    EXPECT_EQ(error_of([&] { join(open_server->url(), "right"); }).code(), UJOIN_E_MISMATCH);
}

TEST(StoreFault, nothing_but_the_beginning_is_served_without_the_secret) {
    const auto server = serve("right");
    server->set("key", "value");
    Stranger stranger(server->url());
    stranger.message(cat(static_cast<char>(Message::hello), store::protocol::magic, '\1', std::string(16, 'n')));
    ASSERT_EQ(stranger.hear().substr(0, 1), std::string(1, static_cast<char>(Message::challenge)));
    stranger.message(store::protocol::encode({Message::get, 0, "key", ""}));
    EXPECT_TRUE(stranger.dropped());
    Stranger liar(server->url());
    liar.message(cat(static_cast<char>(Message::hello), store::protocol::magic, '\1', std::string(16, 'n')));
    ASSERT_EQ(liar.hear().substr(0, 1), std::string(1, static_cast<char>(Message::challenge)));
    liar.message(std::string(1, static_cast<char>(Message::proof)) + std::string(32, 'p'));
    EXPECT_EQ(liar.hear().substr(0, 1), std::string(1, static_cast<char>(Message::refused)));
    EXPECT_TRUE(liar.dropped());
}

/// A server that cannot prove the secret: it sends back the client's own proof.
TEST(StoreFault, a_false_server_is_refused) {
    io::Address address{"127.0.0.1", 0};
    const os::Fd listener = io::listen_tcp(address);
    std::thread false_server([&] {
        os::wait_ready(listener.get(), POLLIN, Deadline::in(20'000), -1);
        const os::Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        int error_number = 0;
        const Deadline deadline = Deadline::in(20'000);
        std::string hello(4 + 1 + 8 + 1 + 16, '\0');
        io::receive_all(fd.get(), hello.data(), hello.size(), deadline, -1, error_number);
        std::string challenge;
        wire::put_u32(challenge, 26);
        challenge += cat(static_cast<char>(Message::challenge), store::protocol::magic, '\1', hello.substr(14));
        io::send_all(fd.get(), challenge, deadline, -1, error_number);
        std::string proof(4 + 1 + 32, '\0');
        io::receive_all(fd.get(), proof.data(), proof.size(), deadline, -1, error_number);
        proof[4] = static_cast<char>(Message::welcome);
        io::send_all(fd.get(), proof, deadline, -1, error_number);
        char end = 0;
        io::receive_all(fd.get(), &end, 1, deadline, -1, error_number); // until the client has gone
    });
    const Error error = error_of([&] { join("tcp://" + io::to_text(address), "secret"); });
    EXPECT_EQ(error.code(), UJOIN_E_MISMATCH) << error.text();
    EXPECT_NE(error.text().find("prove"), std::string::npos) << error.text();
    false_server.join();
}

TEST(StoreFault, another_service_on_the_port_is_a_mismatch) {
    io::Address address{"127.0.0.1", 0};
    const os::Fd listener = io::listen_tcp(address);
    std::thread service([&] {
        os::wait_ready(listener.get(), POLLIN, Deadline::in(20'000), -1);
        const os::Fd fd(accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
        int error_number = 0;
        io::send_all(fd.get(), "220 mail.example ESMTP\r\n", Deadline::in(20'000), -1, error_number);
        char bytes[64];
        io::receive_all(fd.get(), bytes, sizeof bytes, Deadline::in(20'000), -1, error_number);
    });
    EXPECT_EQ(error_of([&] { join("tcp://" + io::to_text(address), ""); }).code(), UJOIN_E_MISMATCH);
    service.join();
}

TEST(StoreFault, the_secret_never_travels) {
    const std::string secret = "s3cr3t-4711";
    const auto server = serve(secret);
    Proxy proxy(server->url());
    {
        const auto client = join(proxy.url(), secret);
        client->set("key", "value that travels");
        EXPECT_EQ(server->get("key", now), "value that travels");
    }
    proxy.join();
    EXPECT_NE(proxy.heard().find("value that travels"), std::string::npos) << "the proxy heard nothing";
    EXPECT_EQ(proxy.heard().find(secret), std::string::npos);
    const Sha256::Digest digest = Sha256::of(secret);
    EXPECT_EQ(proxy.heard().find(std::string(digest.begin(), digest.end())), std::string::npos);
}
