// SPDX-License-Identifier: Apache-2.0
// Saving, loading, and what happens when that goes wrong.
#include "harness/ddp_kit.hpp"
#include "harness/temp_dir.hpp"
#include "harness/zero_kit.hpp"
#include <algorithm>
#include <cerrno>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <gtest/gtest.h>
#include <random>
#include <sys/resource.h>
#include <sys/stat.h>
#include <thread>
#include <unistd.h>

using namespace harness;

namespace {

class ZeroSave : public TestOfRanks {
  protected:
    TempDir dir_;
    std::string path_ = dir_ / "checkpoint";
};

INSTANTIATE_TEST_SUITE_P(Backends, ZeroSave,
                         testing::Values(Where{"self", 1}, Where{"local", 2}, Where{"local", 3}, Where{"local", 4},
                                         Where{"shm", 2}),
                         where_name);

ujoin_save_options parts(int32_t bits, const ujoin_state *extra = nullptr) {
    ujoin_save_options options{};
    options.size = sizeof options;
    options.parts = bits;
    options.extra = extra;
    options.no_sync = 1; // tests need no disk
    return options;
}

const std::vector<size_t> counts{13, 1, 40, 7, 3};
const std::vector<ujoin_hyper> adam{{"lr", 0.01}, {"amsgrad", 1}};

void step(Tensors &x, const Optimizer &optimizer, int number) {
    for (size_t i = 0; i < x.data.size(); i++)
        for (size_t k = 0; k < x.data[i].size(); k++)
            x.grad[i][k] = std::sin(static_cast<float>(i + k) + static_cast<float>(number) / 2);
    optimizer.step();
}

/// A status and a text that has all these parts.
void expect_error(ujoin_status got, ujoin_status expected, const std::vector<std::string> &text) {
    EXPECT_EQ(got, expected) << ujoin_last_error();
    for (const std::string &part : text)
        EXPECT_NE(std::string(ujoin_last_error()).find(part), std::string::npos) << part << " in: " << ujoin_last_error();
}

ujoin_item text_item(const char *key, const char *text) {
    ujoin_item item{};
    item.size = sizeof item;
    item.key = key;
    item.kind = UJOIN_ITEM_TEXT;
    item.data = text;
    item.bytes = std::strlen(text);
    return item;
}

TEST_P(ZeroSave, training_goes_on_as_if_it_had_not_stopped) {
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x(counts);
        const Optimizer first(group, UJOIN_OPTIMIZER_ADAM, x, adam);
        ok(zero_set_hyper(first.get(), 0, "weight_decay", 0.125));
        for (int i = 0; i < 3; i++) step(x, first, i);
        StateOwner extra;
        ok(ujoin_state_create(&extra.state));
        const std::string note = "rank " + std::to_string(rank);
        ujoin_item item = text_item("note", note.c_str());
        ok(ujoin_state_set(extra.state, &item));
        item = number_item("position", 0.1 + rank);
        ok(ujoin_state_set(extra.state, &item));
        item.key = "random";
        item.kind = UJOIN_ITEM_BYTES;
        item.data = "a\0b";
        item.bytes = 3;
        ok(ujoin_state_set(extra.state, &item));
        const ujoin_save_options options = parts(UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS, extra.state);
        ok(zero_save(first.get(), path_.c_str(), &options));
        for (int i = 3; i < 6; i++) step(x, first, i);

        Tensors y(counts, -5);
        const Optimizer second(group, UJOIN_OPTIMIZER_ADAM, y, {});
        StateOwner back;
        ok(zero_load(second.get(), path_.c_str(), &options, &back.state));
        EXPECT_EQ(second.hyper("weight_decay"), 0.125);
        EXPECT_EQ(second.hyper("amsgrad"), 1);
        for (int i = 3; i < 6; i++) step(y, second, i);
        EXPECT_EQ(x.data, y.data);
        EXPECT_EQ(listed(state_everywhere(group, first).state), listed(state_everywhere(group, second).state));

        EXPECT_EQ(ujoin_state_count(back.state), 3U);
        ok(ujoin_state_find(back.state, "note", &item));
        EXPECT_STREQ(static_cast<const char *>(item.data), note.c_str()); // each rank gets its own
        ok(ujoin_state_find(back.state, "position", &item));
        EXPECT_EQ(item.number, 0.1 + rank);
        ok(ujoin_state_find(back.state, "random", &item));
        EXPECT_EQ(item.kind, UJOIN_ITEM_BYTES);
        EXPECT_EQ(std::string(static_cast<const char *>(item.data), item.bytes), std::string("a\0b", 3));
    });
}

TEST_P(ZeroSave, a_directory_holds_one_save_at_a_time) {
    std::filesystem::create_directory(path_);
    const std::string left = "state-0123456789abcdef-0.safetensors"; // of a save that was killed
    write_file(path_ + "/" + left, "half");
    write_file(path_ + "/.index-0123456789abcdef.json", "half");
    write_file(path_ + "/mine.txt", "the program's");
    on_ranks([&](ujoin_group *group, int) {
        Tensors x(counts);
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, adam);
        step(x, optimizer, 0);
        ok(zero_save(optimizer.get(), path_.c_str(), nullptr));
        step(x, optimizer, 1);
        const ujoin_save_options both = parts(UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS);
        ok(zero_save(optimizer.get(), path_.c_str(), &both));
        step(x, optimizer, 2);
        ok(zero_save(optimizer.get(), path_.c_str(), nullptr));
    });
    const std::set<std::string> names = names_in(path_);
    EXPECT_EQ(names.size(), static_cast<size_t>(size()) + 2);
    EXPECT_TRUE(names.count("index.json"));
    EXPECT_TRUE(names.count("mine.txt"));
    EXPECT_FALSE(names.count(left));
    on_ranks([&](ujoin_group *group, int) {
        Tensors x(counts);
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, adam);
        const ujoin_save_options both = parts(UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS);
        expect_error(zero_load(optimizer.get(), path_.c_str(), &both, nullptr), UJOIN_E_MISMATCH,
                     {"saved without parameters", "index.json"});
        ok(zero_load(optimizer.get(), path_.c_str(), nullptr, nullptr));
        EXPECT_EQ(listed(state_everywhere(group, optimizer).state).at("0/p0/step"), std::vector<double>{3});
    });
}

TEST_P(ZeroSave, parameters_alone_are_one_file) {
    const std::string file = dir_ / "model.safetensors";
    write_file(dir_ / ".model.safetensors.0123456789abcdef.tmp", "half"); // of a save that was killed
    on_ranks([&](ujoin_group *group, int) {
        Tensors x(counts, 3);
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        const ujoin_save_options options = parts(UJOIN_SAVE_PARAMETERS);
        ok(zero_save(optimizer.get(), file.c_str(), &options));
        Tensors y(counts, 0);
        const Optimizer other(group, UJOIN_OPTIMIZER_ADAM, y, {}); // parameters fit any optimizer
        ok(zero_load(other.get(), file.c_str(), &options, nullptr));
        EXPECT_EQ(x.data, y.data);
        Tensors z({13, 1, 40, 7, 4});
        const Optimizer wrong(group, UJOIN_OPTIMIZER_ADAM, z, {});
        expect_error(zero_load(wrong.get(), file.c_str(), &options, nullptr), UJOIN_E_MISMATCH,
                     {"\"p4\" is f32 [3]", "f32 [4]", file});
        EXPECT_EQ(z.data[0][0], 1);
    });
    EXPECT_EQ(names_in(dir_.path()), std::set<std::string>{"model.safetensors"});
}

TEST_P(ZeroSave, a_failed_save_leaves_what_was_there) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x(counts);
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, adam);
        step(x, optimizer, 0);
        ok(zero_save(optimizer.get(), path_.c_str(), nullptr));
        const std::string missing = dir_ / "no/such/place";
        expect_error(zero_save(optimizer.get(), missing.c_str(), nullptr), UJOIN_E_SYSTEM,
                     {"zero_save", missing, "No such file"});
        EXPECT_EQ(ujoin_last_errno(), ENOENT);
        const ujoin_save_options alone = parts(UJOIN_SAVE_PARAMETERS);
        expect_error(zero_save(optimizer.get(), missing.c_str(), &alone), UJOIN_E_SYSTEM, {"no/such", "No such file"});
        expect_error(zero_save(optimizer.get(), path_.c_str(), &alone), UJOIN_E_SYSTEM, {"rename"}); // a directory is there
        const std::string blocked = dir_ / "file";
        if (ujoin_group_rank(group) == 0) write_file(blocked, "x");
        ok(ujoin_barrier(group, nullptr));
        expect_error(zero_save(optimizer.get(), blocked.c_str(), nullptr), UJOIN_E_SYSTEM, {blocked, "Not a directory"});
        ok(zero_load(optimizer.get(), path_.c_str(), nullptr, nullptr)); // the group and the object are whole
        step(x, optimizer, 1);
    });
    EXPECT_EQ(names_in(dir_.path()), (std::set<std::string>{"checkpoint", "file"}));
    EXPECT_EQ(names_in(path_).size(), static_cast<size_t>(size()) + 1);
}

TEST_P(ZeroSave, SECURITY_02_Z_50_damaged_saves_are_refused_and_change_nothing) {
    const ujoin_save_options both = parts(UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS);
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({3, 2, 4, 1});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, adam);
        step(x, optimizer, 0);
        ok(zero_save(optimizer.get(), path_.c_str(), &both));
    });
    std::map<std::string, std::string> files;
    for (const std::string &name : names_in(path_)) files[name] = read_file(path_ + "/" + name);
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x({3, 2, 4, 1}, 5);
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_ADAM, x, {{"lr", 0.5}});
        step(x, optimizer, 0);
        Listed before = listed(state_everywhere(group, optimizer).state);
        std::vector<std::vector<float>> params = x.data;
        std::mt19937 random(7);
        for (int round = 0; round < 60; round++) {
            auto victim = std::next(files.begin(), static_cast<long>(random() % files.size()));
            const std::string victim_path = path_ + "/" + victim->first;
            std::string changed = victim->second;
            const size_t at = random() % changed.size();
            const auto flip = static_cast<char>(1 + random() % 255);
            if (round % 6 == 0)
                changed.resize(at / 64 * 64);
            else if (round % 6 == 1)
                changed += "x";
            else
                changed[at] = static_cast<char>(changed[at] ^ flip);
            ok(ujoin_barrier(group, nullptr));
            if (rank == 0) write_file(victim_path, changed);
            ok(ujoin_barrier(group, nullptr));
            const ujoin_status status = zero_load(optimizer.get(), path_.c_str(), &both, nullptr);
            const std::string text = ujoin_last_error();
            ok(ujoin_barrier(group, nullptr));
            if (rank == 0) write_file(victim_path, victim->second);
            ok(ujoin_barrier(group, nullptr));
            if (status == UJOIN_OK) { // a blank, or something else that means nothing, has changed
                EXPECT_EQ(changed.size(), victim->second.size() + (round % 6 == 1)) << victim->first;
                before = listed(state_everywhere(group, optimizer).state);
                params = x.data;
                continue;
            }
            EXPECT_TRUE(status == UJOIN_E_MISMATCH || status == UJOIN_E_UNSUPPORTED) << text;
            EXPECT_NE(text.find(victim->first), std::string::npos) << text;
            EXPECT_EQ(x.data, params);
            EXPECT_EQ(listed(state_everywhere(group, optimizer).state), before) << text;
        }
        ok(zero_load(optimizer.get(), path_.c_str(), &both, nullptr));
    });
}

TEST_P(ZeroSave, an_index_cannot_lead_out_of_its_directory) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({2});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        ok(zero_save(optimizer.get(), path_.c_str(), nullptr));
    });
    std::string index = read_file(path_ + "/index.json");
    const size_t at = index.find("state-");
    index.insert(at, "../");
    write_file(path_ + "/index.json", index);
    on_ranks([&](ujoin_group *group, int) {
        Tensors x({2});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        expect_error(zero_load(optimizer.get(), path_.c_str(), nullptr, nullptr), UJOIN_E_MISMATCH, {"index.json"});
    });
}

TEST(ZeroSaveOther, a_save_of_something_else_is_told) {
    const TempDir dir;
    on_ranks("local", 2, [&](ujoin_group *group, int) {
        Tensors x({4, 4});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        ok(zero_save(optimizer.get(), (dir / "c").c_str(), nullptr));
    });
    on_ranks("local", 2, [&](ujoin_group *group, int) {
        Tensors x({4, 4});
        const Optimizer adamw(group, UJOIN_OPTIMIZER_ADAMW, x, {});
        expect_error(zero_load(adamw.get(), (dir / "c").c_str(), nullptr, nullptr), UJOIN_E_MISMATCH,
                     {"saved by sgd", "adamw"});
        x.names[1] = "q";
        const Optimizer renamed(group, UJOIN_OPTIMIZER_SGD, x, {});
        expect_error(zero_load(renamed.get(), (dir / "c").c_str(), nullptr, nullptr), UJOIN_E_MISMATCH,
                     {"\"p1\"", "\"q\""});
        expect_error(zero_load(renamed.get(), (dir / "none").c_str(), nullptr, nullptr), UJOIN_E_SYSTEM,
                     {"none/index.json"});
    });
}

/// A group of one in a child, and an optimizer whose parameters all have the same value.
void in_child(const std::function<void(const Optimizer &, Tensors &)> &body) {
    run_processes(1, [&](int) {
        const ddp_kit::GroupPtr group = ddp_kit::alone();
        Tensors x({1000, 10});
        const Optimizer optimizer(group.get(), UJOIN_OPTIMIZER_SGD, x, {{"lr", 1}, {"momentum", 0.5}});
        body(optimizer, x);
    });
}

/// Saves the value `number` in everything that `bits` name.
void save_number(const Optimizer &optimizer, Tensors &x, const std::string &path, int32_t bits, int number) {
    for (std::vector<float> &data : x.data) std::fill(data.begin(), data.end(), static_cast<float>(number));
    StateOwner extra;
    ok(ujoin_state_create(&extra.state));
    const ujoin_item item = number_item("number", number);
    ok(ujoin_state_set(extra.state, &item));
    const ujoin_save_options how = parts(bits, (bits & UJOIN_SAVE_STATE) != 0 ? extra.state : nullptr);
    ok(zero_save(optimizer.get(), path.c_str(), &how));
}

/// The number that a save has: it must be the same everywhere. Saves again, which clears up.
int check_whole_save(const std::string &path, int32_t bits) {
    int number = 0;
    on_ranks("self", 1, [&](ujoin_group *group, int) {
        Tensors x({1000, 10}, -1);
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {});
        StateOwner extra;
        const ujoin_save_options how = parts(bits);
        ok(zero_load(optimizer.get(), path.c_str(), &how, &extra.state));
        number = static_cast<int>(x.data[0][0]);
        for (const std::vector<float> &data : x.data)
            for (const float value : data) ASSERT_EQ(value, static_cast<float>(number));
        if ((bits & UJOIN_SAVE_STATE) != 0) {
            ujoin_item item{};
            item.size = sizeof item;
            ok(ujoin_state_find(extra.state, "number", &item));
            EXPECT_EQ(item.number, number);
        }
        ok(zero_save(optimizer.get(), path.c_str(), &how));
    });
    return number;
}

void limit_files(rlim_t bytes) {
    rlimit limit{};
    getrlimit(RLIMIT_FSIZE, &limit);
    limit.rlim_cur = std::min(bytes, limit.rlim_max);
    if (setrlimit(RLIMIT_FSIZE, &limit) != 0) throw std::runtime_error("setrlimit");
}

class ZeroSaveKilled : public testing::TestWithParam<int32_t> {};
INSTANTIATE_TEST_SUITE_P(Parts, ZeroSaveKilled,
                         testing::Values(UJOIN_SAVE_PARAMETERS, UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS),
                         [](const auto &of) {
                             return std::string((of.param & UJOIN_SAVE_STATE) != 0 ? "directory" : "file");
                         });

TEST_P(ZeroSaveKilled, in_the_middle_of_a_file) {
    const TempDir dir;
    const std::string path = dir / "save";
    in_child([&](const Optimizer &optimizer, Tensors &x) {
        save_number(optimizer, x, path, GetParam(), 1);
        expect_death(SIGXFSZ);
        limit_files(100); // the next byte past that is the end of this process
        save_number(optimizer, x, path, GetParam(), 2);
    });
    const std::string place = (GetParam() & UJOIN_SAVE_STATE) != 0 ? path : dir.path();
    const size_t files = (GetParam() & UJOIN_SAVE_STATE) != 0 ? 3 : 1;
    EXPECT_LE(names_in(place).size(), files + 1); // half a file, only where the file system has no unnamed ones
    EXPECT_EQ(check_whole_save(path, GetParam()), 1);
    EXPECT_EQ(names_in(place).size(), files); // the next save clears up
}

TEST_P(ZeroSaveKilled, at_any_moment) {
    const TempDir dir;
    const std::string path = dir / "save";
    std::mt19937 random(42);
    const int rounds = std::getenv("UJOIN_TEST_LONG") ? 200 : 20;
    for (int round = 0; round < rounds; round++) {
        const auto delay = std::chrono::microseconds(random() % 20'000);
        in_child([&](const Optimizer &optimizer, Tensors &x) {
            save_number(optimizer, x, path, GetParam(), 1); // from here on there is a save to be found
            expect_death(SIGKILL);
            const std::thread killer([&] {
                std::this_thread::sleep_for(delay);
                ::kill(::getpid(), SIGKILL);
            });
            for (int number = 2;; number++) save_number(optimizer, x, path, GetParam(), number);
        });
        EXPECT_GE(check_whole_save(path, GetParam()), 1);
        EXPECT_EQ(names_in(dir.path()), std::set<std::string>{"save"});
        if ((GetParam() & UJOIN_SAVE_STATE) != 0) {
            EXPECT_EQ(names_in(path).size(), 3U);
        }
    }
}

TEST(ZeroSaveOther, a_rank_that_cannot_write_is_named_on_every_rank) {
    const TempDir dir;
    const std::string path = dir / "save";
    on_ranks("shm", 2, [&](ujoin_group *group, int rank) {
        Tensors x({500, 400});
        const Optimizer optimizer(group, UJOIN_OPTIMIZER_SGD, x, {{"momentum", 0.5}});
        optimizer.step();
        ok(zero_save(optimizer.get(), path.c_str(), nullptr));
        const std::set<std::string> before = names_in(path);
        ok(ujoin_barrier(group, nullptr));
        std::signal(SIGXFSZ, SIG_IGN);
        if (rank == 1) limit_files(100);
        const ujoin_status status = zero_save(optimizer.get(), path.c_str(), nullptr);
        limit_files(RLIM_INFINITY);
        expect_error(status, UJOIN_E_SYSTEM, {"rank 1: ", "-1.safetensors", "File too large"});
        EXPECT_EQ(ujoin_last_errno(), EFBIG);
        ok(ujoin_barrier(group, nullptr));
        EXPECT_EQ(names_in(path), before);
        ok(zero_load(optimizer.get(), path.c_str(), nullptr, nullptr));
    });
}

} // namespace
