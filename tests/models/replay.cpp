// SPDX-License-Identifier: Apache-2.0
// Replays random runs of uses.pml on the real board: one thread a rank, each step on its turn; after every step the words of
// the board must say what the model's say. Usage: model_replay FILE; tests/tools/models.py writes the file.
#include "join/join_context.hpp"
#include <condition_variable>
#include <cstdio>
#include <fstream>
#include <functional>
#include <iostream>
#include <mutex>
#include <sstream>
#include <string>
#include <thread>

using namespace ujoin;

namespace {

constexpr auto patience = std::chrono::seconds(60);

struct Wrong : std::runtime_error {
    using std::runtime_error::runtime_error;
};

/// One rank on its thread. A shadow waits in its hook until the trace says so.
class Player {
  public:
    Player(std::string name, int32_t rank, int32_t size) : thread_([this, name, rank, size] { run(name, rank, size); }) {
        wait("its group", [&] { return idle_; });
    }
    ~Player() {
        {
            const std::scoped_lock lock(mutex_);
            quits_ = true;
            changed_.notify_all();
        }
        thread_.join();
    }
    Player(const Player &) = delete;

    void notify(size_t joinable) {
        give([this, joinable] { joinables_[joinable]->notify(); });
        wait("notify", [&] { return idle_; });
    }
    void join() {
        give([this] { context_->finish(); });
    }
    /// Lets the hook that this rank has come to go on.
    void shadow(int joinable) {
        wait("a main hook", [&] { return in_hook_ >= 0; });
        if (in_hook_ != joinable) throw Wrong(cat("shadows joinable ", in_hook_, ", not ", joinable));
        const std::scoped_lock lock(mutex_);
        in_hook_ = -1;
        goes_on_ = true;
        changed_.notify_all();
    }
    void leave(int64_t total) {
        wait("finish", [&] { return idle_; });
        if (!error_.empty()) throw Wrong(error_);
        if (hooks_run_ + own_ != total) throw Wrong(cat("left after ", hooks_run_, " shadows of ", total, " uses"));
    }
    Bank &bank() { return group_->board().bank(group_->rank(), 1); }
    Head head() { return Head{bank().head.load()}.in(1); }

  private:
    class Turn final : public Joinable {
      public:
        Turn(Player &player, int index)
            : Joinable(player.group_, std::string(1, static_cast<char>('A' + index))), player_(player), index_(index) {}
        void main_hook(const HookArgs &) override { player_.wait_in_hook(index_); }
        void post_hook(const HookArgs &) override {}

      private:
        Player &player_;
        int index_;
    };

    void run(const std::string &name, int32_t rank, int32_t size) {
        GroupConfig config;
        config.rendezvous = "local://" + name;
        config.backend = "local";
        config.rank = rank;
        config.size = size;
        group_ = Group::create(config);
        joinables_ = {std::make_shared<Turn>(*this, 0), std::make_shared<Turn>(*this, 1)};
        context_ = JoinContext::create({joinables_[0], joinables_[1]}, {});
        context_->start();
        std::unique_lock lock(mutex_);
        for (;;) {
            idle_ = true;
            changed_.notify_all();
            changed_.wait(lock, [&] { return task_ || quits_; });
            if (!task_) break;
            const std::function<void()> task = std::exchange(task_, nullptr);
            lock.unlock();
            try {
                task();
                lock.lock();
            } catch (const std::exception &error) {
                lock.lock();
                error_ = error.what();
            }
        }
        if (!error_.empty() || quits_) context_->abort("the trace is over");
    }
    void give(std::function<void()> task) {
        wait("the step before", [&] { return idle_; });
        own_ = context_->report().rounds >= 0 ? static_cast<int64_t>(head().pos()) : 0;
        const std::scoped_lock lock(mutex_);
        task_ = std::move(task);
        idle_ = false;
        changed_.notify_all();
    }
    template <class Done> void wait(const char *what, Done &&done) {
        std::unique_lock lock(mutex_);
        if (!changed_.wait_for(lock, patience, done)) throw Wrong(cat("does not come to ", what));
    }
    void wait_in_hook(int joinable) {
        std::unique_lock lock(mutex_);
        in_hook_ = joinable;
        hooks_run_++;
        changed_.notify_all();
        changed_.wait(lock, [&] { return goes_on_ || quits_; });
        if (!goes_on_) fail(UJOIN_E_CALLBACK, "the trace ended in a hook");
        goes_on_ = false;
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    std::function<void()> task_;
    bool idle_ = false, quits_ = false, goes_on_ = false;
    int in_hook_ = -1;
    int64_t own_ = 0, hooks_run_ = 0;
    std::string error_;
    std::shared_ptr<Group> group_;
    std::vector<std::shared_ptr<Joinable>> joinables_;
    std::shared_ptr<JoinContext> context_;
    std::thread thread_; // last: it uses the others
};

/// What the model's words of a rank say.
struct Words {
    uint64_t pos = 0;
    bool joined = false;
    uint64_t total = 0;
};

void replay_trace(int32_t ranks, int64_t seed, const std::vector<std::string> &steps) {
    std::vector<std::unique_ptr<Player>> players(static_cast<size_t>(ranks));
    std::vector<Words> words(players.size());
    std::vector<std::thread> makers; // they meet
    for (int32_t r = 0; r < ranks; r++)
        makers.emplace_back(
            [&, r] { players[static_cast<size_t>(r)] = std::make_unique<Player>(cat("replay-", seed), r, ranks); });
    for (std::thread &maker : makers) maker.join();
    for (const std::string &step : steps) {
        std::istringstream in(step);
        std::string what;
        size_t r = 0;
        int64_t a = 0, b = 0;
        in >> what >> r >> a >> b;
        Player &player = *players[r];
        Words &own = words[r];
        try {
            if (what == "notify") {
                player.notify(static_cast<size_t>(a - 1));
                own.pos++;
                if (player.bank().ring[static_cast<size_t>(b) % ring_size] != a - 1) throw Wrong("wrote another entry");
            } else if (what == "join") {
                player.join();
                own.joined = true;
                own.total = static_cast<uint64_t>(a);
            } else if (what == "shadow") {
                player.shadow(static_cast<int>(a - 1));
                own.pos++;
            } else {
                player.leave(a);
            }
            // A rank publishes by itself after join and after a hook: it comes to what the model says, and the others stay.
            const auto end = std::chrono::steady_clock::now() + patience;
            for (size_t k = 0; k < words.size(); k++) {
                const auto same = [&] {
                    const Head head = players[k]->head();
                    return head.pos() == words[k].pos && head.joined() == words[k].joined &&
                           (!head.joined() || players[k]->bank().total == words[k].total);
                };
                while (!same() && k == r && std::chrono::steady_clock::now() < end) std::this_thread::yield();
                if (!same())
                    throw Wrong(
                        cat("the board says ", players[k]->head().pos(), ", the model ", words[k].pos, " of rank ", k));
            }
        } catch (const Wrong &wrong) {
            throw Wrong(cat("seed ", seed, ", step '", step, "': rank ", r, " ", wrong.what()));
        }
    }
}

} // namespace

int main(int argc, char **argv) {
    if (argc != 2) return 2;
    std::ifstream in(argv[1]);
    std::string line;
    std::vector<std::string> steps;
    int32_t ranks = 0;
    int64_t seed = 0, traces = 0;
    try {
        while (std::getline(in, line)) {
            std::istringstream words(line);
            std::string first;
            words >> first;
            if (first == "begin") {
                words >> ranks >> seed;
                steps.clear();
            } else if (first == "end") {
                replay_trace(ranks, seed, steps);
                traces++;
            } else {
                steps.push_back(line);
            }
        }
    } catch (const std::exception &error) {
        std::cout << error.what() << "\n";
        for (const std::string &step : steps) std::cout << step << "\n";
        return 1;
    }
    std::cout << traces << " traces\n";
    return 0;
}
