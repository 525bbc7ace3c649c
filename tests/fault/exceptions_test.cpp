// SPDX-License-Identifier: Apache-2.0
// No exception crosses the boundary, and none ends the process: memory that runs out at each allocation in turn, callbacks
// that throw, and peers that die under operations in flight.
#include "fault/shortage.hpp"
#include "harness/overlap_kit.hpp"
#include "harness/temp_dir.hpp"
#include <atomic>
#include <chrono>
#include <condition_variable>
#include <csignal>
#include <gtest/gtest.h>
#include <mutex>
#include <stdexcept>
#include <unistd.h>

using namespace harness;

namespace {

TEST(NoException, ERRORS_04_memory_runs_out_in_groups_and_operations) {
    at_each_allocation([](Shortage &memory) {
        ujoin_group_options options{};
        options.size = sizeof options;
        options.backend = "self";
        options.world_size = 1;
        ujoin_group *group = nullptr;
        ujoin_group_info info{};
        info.size = sizeof info;
        float values[64] = {};
        const ujoin_buffer to{values, 64, UJOIN_F32, 0, 0, 0};
        float sent[64] = {};
        const ujoin_const_buffer from{sent, 64, UJOIN_F32, 0, 0, 0};
        ujoin_work *work = nullptr;
        if (memory.ok([&] { return ujoin_group_create(&options, &group); })) {
            memory.ok([&] { return ujoin_group_get_info(group, &info); });
            memory.ok([&] { return ujoin_all_reduce(group, nullptr, &to, UJOIN_SUM, nullptr, nullptr); });
            memory.ok([&] { return ujoin_broadcast(group, &to, 0, nullptr, nullptr); });
            memory.ok([&] { return ujoin_all_gather(group, nullptr, &to, nullptr, nullptr); });
            memory.ok([&] { return ujoin_reduce_scatter(group, &from, &to, UJOIN_SUM, nullptr, nullptr); });
            memory.ok([&] { return ujoin_barrier(group, nullptr); });
            if (memory.ok([&] { return ujoin_all_reduce(group, nullptr, &to, UJOIN_SUM, nullptr, &work); })) {
                memory.ok([&] { return ujoin_work_wait(work, -1); });
                memory.ok([&] { return ujoin_work_test(work); });
            }
            if (work) ujoin_work_wait(work, -1); // until then the memory belongs to the operation
            ujoin_work_destroy(work);
            memory.ok([&] { return ujoin_group_close(group, -1); });
        }
        ujoin_group_destroy(group);
    });
}

TEST(NoException, ERRORS_04_memory_runs_out_in_stores) {
    const TempDir dir;
    for (const std::string &kind : {std::string("memory://"), "file://" + dir.path() + "/"})
        at_each_allocation([&](Shortage &memory) {
            const std::string url = kind + unique("short"); // a new one each time: a file grows
            ujoin_store *store = nullptr;
            ujoin_store *view = nullptr;
            const char *keys[] = {"key"};
            char data[8];
            size_t size = 0;
            int64_t count = 0;
            memory.ok([&] { return ujoin_store_create(url.c_str(), nullptr, &store); });
            memory.ok([&] { return ujoin_store_prefix(store, "of", &view); });
            memory.ok([&] { return ujoin_store_set(view, "key", "value", 5); });
            memory.ok([&] { return ujoin_store_get(view, "key", 0, data, sizeof data, &size); });
            memory.ok([&] { return ujoin_store_add(store, "count", 1, &count); });
            memory.ok([&] { return ujoin_store_wait(view, keys, 1, 0); });
            ujoin_store_destroy(view);
            ujoin_store_destroy(store);
        });
}

TEST(NoException, ERRORS_04_memory_runs_out_in_join_contexts) {
    const ddp_kit::GroupPtr group = ddp_kit::alone();
    at_each_allocation([&](Shortage &memory) {
        ujoin_hooks hooks{};
        hooks.size = sizeof hooks;
        hooks.main_hook = [](void *, const ujoin_hook_args *) { return ujoin_status{UJOIN_OK}; };
        ujoin_joinable *joinable = nullptr;
        ujoin_ctx *ctx = nullptr;
        ujoin_ctx_report report{};
        report.size = sizeof report;
        memory.ok([&] { return ujoin_joinable_create(group.get(), &hooks, &joinable); });
        memory.ok([&] { return ujoin_ctx_create(&joinable, 1, nullptr, &ctx); });
        if (memory.ok([&] { return ujoin_ctx_start(ctx); })) {
            memory.ok([&] { return ujoin_joinable_notify(joinable, nullptr); });
            memory.ok([&] { return ujoin_ctx_finish(ctx); });
            memory.ok([&] { return ujoin_ctx_get_report(ctx, &report); });
        }
        ujoin_ctx_destroy(ctx);
        ujoin_joinable_destroy(joinable);
    });
}

/// Memory that the library has borrowed: the release notices that are still to come.
class Borrowed {
  public:
    template <class Options> void lend(Options &options) {
        options.release = [](void *of) { static_cast<Borrowed *>(of)->returned(); };
        options.release_data = this;
        const std::scoped_lock lock(mutex_);
        open_++;
    }
    bool all_returned() {
        std::unique_lock lock(mutex_);
        return changed_.wait_for(lock, std::chrono::seconds(30), [this] { return open_ == 0; });
    }

  private:
    void returned() {
        const std::scoped_lock lock(mutex_);
        open_--;
        changed_.notify_all();
    }

    std::mutex mutex_;
    std::condition_variable changed_;
    int open_ = 0;
};

/// A group of its own: a failure within an iteration ends it.
void train(Shortage &memory, bool overlap) {
    const ddp_kit::GroupPtr group = ddp_kit::alone();
    Tensors x({30, 7, 3});
    const std::vector<ujoin_param> params = x.params();
    ujoin_ddp_options options = ddp_kit::ddp_options();
    options.bucket_bytes = 1;
    options.params_released_on_ready = overlap ? 1 : 0;
    Borrowed borrowed;
    borrowed.lend(options);
    ujoin_ddp *ddp = nullptr;
    ujoin_zero *zero = nullptr;
    ujoin_state *state = nullptr;
    const auto create_zero = [&] {
        ujoin_zero_options with{};
        with.size = sizeof with;
        with.ddp = overlap ? ddp : nullptr;
        borrowed.lend(with);
        return zero_create(group.get(), UJOIN_OPTIMIZER_ADAM, params.data(), 2, &with, &zero);
    };
    if (memory.ok([&] { return ujoin_ddp_create(group.get(), params.data(), 3, &options, &ddp); }) &&
        memory.ok(create_zero)) {
        memory.ok([&] { return zero_set_hyper(zero, -1, "lr", 0.5); });
        memory.ok([&] { return zero_add_param_group(zero, &params[2], 1, nullptr, 0); });
        for (int t = 0; t < 2; t++) {
            if (!memory.ok([&] { return ujoin_ddp_forward(ddp, 1); })) break;
            for (size_t p = 3; p-- > 0;) memory.ok([&] { return ujoin_ddp_ready(ddp, p); });
            memory.ok([&] { return ujoin_ddp_finish(ddp); });
            if (!overlap) memory.ok([&] { return zero_step(zero, nullptr); });
        }
        memory.ok([&] { return zero_consolidate_state_dict(zero, 0); });
        if (memory.ok([&] { return zero_state_dict(zero, &state); }))
            memory.ok([&] { return zero_load_state_dict(zero, state); });
    }
    ujoin_state_destroy(state);
    zero_destroy(zero);
    ujoin_ddp_destroy(ddp);
    EXPECT_TRUE(borrowed.all_returned()); // a reduction may have been in flight
}

TEST(NoException, ERRORS_04_memory_runs_out_in_reducers_and_optimizers) {
    for (const bool overlap : {false, true}) at_each_allocation([&](Shortage &memory) { train(memory, overlap); });
}

TEST(NoException, ERRORS_04_memory_runs_out_in_lists) {
    at_each_allocation([](Shortage &memory) {
        ujoin_state *state = nullptr;
        memory.ok([&] { return ujoin_state_create(&state); });
        ujoin_item item{};
        item.size = sizeof item;
        item.key = "a name that is too long to be kept within a string";
        item.kind = UJOIN_ITEM_BYTES;
        item.data = "abc";
        item.bytes = 3;
        memory.ok([&] { return ujoin_state_set(state, &item); });
        memory.ok([&] { return ujoin_state_get(state, 0, &item); });
        memory.ok([&] { return ujoin_state_find(state, "a name that is too long to be kept within a string", &item); });
        ujoin_state_destroy(state);
    });
}

// ------------------------------------------------------------------------------------------------------- saves and loads

constexpr int32_t both = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;

/// Parameters, momentum and the program's own item that all have one number.
class Numbered {
  public:
    explicit Numbered(float number)
        : x_({6, 2}, number, number), optimizer_(group_.get(), UJOIN_OPTIMIZER_SGD, x_, {{"lr", 0}, {"momentum", 1}}) {
        optimizer_.step();
        ok(ujoin_state_create(&own_));
        const ujoin_item item = number_item("the program's own number, with a long name", static_cast<double>(number));
        ok(ujoin_state_set(own_, &item));
    }
    ~Numbered() { ujoin_state_destroy(own_); }
    Numbered(const Numbered &) = delete;
    Numbered &operator=(const Numbered &) = delete;

    ujoin_status save(const std::string &path, int32_t parts) {
        ujoin_save_options options{};
        options.size = sizeof options;
        options.parts = parts;
        options.extra = parts == UJOIN_SAVE_PARAMETERS ? nullptr : own_;
        options.no_sync = 1;
        return zero_save(optimizer_.get(), path.c_str(), &options);
    }
    ujoin_status load(const std::string &path, int32_t parts) {
        ujoin_state *loaded = nullptr;
        ujoin_save_options options{};
        options.size = sizeof options;
        options.parts = parts;
        const ujoin_status status = zero_load(optimizer_.get(), path.c_str(), &options, &loaded);
        EXPECT_EQ(loaded != nullptr, status == UJOIN_OK);
        if (!loaded) return status;
        ujoin_state_destroy(own_);
        own_ = loaded;
        return status;
    }
    /// The number of all that `parts` covers.
    double number(int32_t parts) {
        std::set<double> found;
        for (const std::vector<float> &data : x_.data) found.insert(data.begin(), data.end());
        if ((parts & UJOIN_SAVE_STATE) != 0) {
            for (const auto &[key, values] : listed(state_everywhere(group_.get(), optimizer_).state))
                if (key.find("momentum_buffer") != std::string::npos) found.insert(values.begin(), values.end());
            ujoin_item item{};
            item.size = sizeof item;
            ok(ujoin_state_get(own_, 0, &item));
            found.insert(item.number);
        }
        EXPECT_EQ(found.size(), 1U) << "old and new are mixed";
        return *found.begin();
    }

  private:
    ddp_kit::GroupPtr group_ = ddp_kit::alone();
    Tensors x_;
    Optimizer optimizer_;
    ujoin_state *own_ = nullptr;
};

/// A save that fails leaves the one before, or is whole itself: memory may be short when all is done. Nothing else is there.
TEST(NoException, ERRORS_04_memory_runs_out_in_saves) {
    for (const int32_t parts : {both, int32_t{UJOIN_SAVE_PARAMETERS}}) {
        const TempDir dir;
        const std::string path = dir / "a checkpoint with a long name";
        const std::set<std::string>::size_type files = parts == both ? 3 : 1;
        double kept = 1;
        ok(Numbered(1).save(path, parts));
        at_each_allocation([&](Shortage &memory) {
            Numbered next(static_cast<float>(kept) + 1);
            const bool saved = memory.ok([&] { return next.save(path, parts); });
            Numbered found(-1);
            ok(found.load(path, parts));
            const double number = found.number(parts);
            EXPECT_TRUE(number == kept + 1 || (number == kept && !saved)) << number << " of " << kept;
            EXPECT_EQ(names_in(parts == both ? path : dir.path()).size(), files);
            kept = number;
        });
        EXPECT_GT(kept, 1);
    }
}

/// A load that fails has changed nothing, and the object can go on.
TEST(NoException, ERRORS_04_memory_runs_out_in_loads) {
    for (const int32_t parts : {both, int32_t{UJOIN_SAVE_PARAMETERS}}) {
        const TempDir dir;
        const std::string path = dir / "a checkpoint with a long name";
        ok(Numbered(7).save(path, parts));
        at_each_allocation([&](Shortage &memory) {
            Numbered model(3);
            const bool loaded = memory.ok([&] { return model.load(path, parts); });
            EXPECT_EQ(model.number(parts), loaded ? 7 : 3);
            ok(model.load(path, parts));
            EXPECT_EQ(model.number(parts), 7);
        });
    }
}

/// One rank of two runs out of memory within an operation in flight or a call: the other is told, and does not wait.
TEST(NoException, ERRORS_04_a_rank_without_memory_is_not_waited_for) {
    for (const int64_t at : {0, 1, 2, 5})
        harness::on_ranks("local", 2, [&](ujoin_group *group, int rank) {
            Trainer a(group, released());
            a.iterate(0);
            ok(ujoin_ddp_forward(a.ddp(), 1));
            ujoin_status status = UJOIN_OK;
            for (size_t p = a.size(); p-- > 0 && status == UJOIN_OK;) {
                if (rank == 1 && p == 2) t_shortage = {at};
                status = ujoin_ddp_ready(a.ddp(), p);
                t_shortage.left = -1;
            }
            if (status == UJOIN_OK) status = ujoin_ddp_finish(a.ddp());
            if (rank == 1) {
                EXPECT_EQ(status, UJOIN_E_NO_MEMORY) << at << ujoin_last_error();
            } else {
                EXPECT_EQ(status, UJOIN_E_ABORTED) << at << ujoin_last_error();
                EXPECT_NE(std::string(ujoin_last_error()).find("out of memory"), std::string::npos) << ujoin_last_error();
            }
        });
}

// ------------------------------------------------------------------------------------------------ callbacks that throw

struct NoStandardOne {};

/// As a callback of the program: throws what the test wants.
ujoin_status throw_it(void *data) {
    if (*static_cast<bool *>(data)) throw std::runtime_error("boom");
    throw NoStandardOne();
}

void expect_thrown(ujoin_status status, bool standard) {
    EXPECT_EQ(status, UJOIN_E_CALLBACK) << ujoin_last_error();
    const std::string text = ujoin_last_error();
    EXPECT_NE(text.find(standard ? "std::runtime_error: boom" : "NoStandardOne"), std::string::npos) << text;
}

class NoExceptionOf : public testing::TestWithParam<bool> {
  protected:
    bool standard_ = GetParam();
    ddp_kit::GroupPtr group_ = ddp_kit::alone();
};
INSTANTIATE_TEST_SUITE_P(What, NoExceptionOf, testing::Bool(),
                         [](const auto &of) { return of.param ? "standard" : "other"; });

TEST_P(NoExceptionOf, ERRORS_04_a_closure) {
    Tensors x({3});
    const Optimizer optimizer(group_.get(), UJOIN_OPTIMIZER_SGD, x, {});
    ujoin_step_options options{};
    options.size = sizeof options;
    options.closure = throw_it;
    options.closure_data = &standard_;
    expect_thrown(zero_step(optimizer.get(), &options), standard_);
    optimizer.step(); // nothing was changed, nothing is broken
}

TEST_P(NoExceptionOf, ERRORS_04_a_rule) {
    ujoin_rule rule{};
    rule.size = sizeof rule;
    rule.name = "throws";
    rule.step = [](void *data, const ujoin_rule_args *) { return throw_it(data); };
    rule.user_data = &standard_;
    for (const bool overlap : {false, true}) {
        Recipe recipe = released();
        recipe.overlap = overlap;
        recipe.rule = UJOIN_OPTIMIZER_CUSTOM;
        recipe.custom = &rule;
        Trainer trainer(group_.get(), recipe);
        ok(ujoin_ddp_forward(trainer.ddp(), 1));
        trainer.backward(0);
        const ujoin_status status = ujoin_ddp_finish(trainer.ddp());
        expect_thrown(overlap ? status : zero_step(trainer.zero(), nullptr), standard_);
    }
}

TEST_P(NoExceptionOf, ERRORS_04_hooks_of_a_reducer) {
    for (const bool later : {false, true}) {
        const ddp_kit::GroupPtr group = ddp_kit::alone();
        Trainer trainer(group.get(), apart(Recipe{}));
        ujoin_comm_hook hook{};
        hook.size = sizeof hook;
        hook.start =
            later
                ? [](void *, const ujoin_bucket *bucket,
                     ujoin_work **
                         out) { return ujoin_all_reduce(bucket->group, nullptr, &bucket->buffer, UJOIN_SUM, nullptr, out); }
                : [](void *data, const ujoin_bucket *, ujoin_work **) { return throw_it(data); };
        hook.then = [](void *data, const ujoin_bucket *, ujoin_work **) { return throw_it(data); };
        hook.user_data = &standard_;
        ok(ujoin_ddp_set_comm_hook(trainer.ddp(), &hook));
        ok(ujoin_ddp_forward(trainer.ddp(), 1));
        ujoin_status status = UJOIN_OK;
        for (size_t p = trainer.size(); p-- > 0 && status == UJOIN_OK;) status = ujoin_ddp_ready(trainer.ddp(), p);
        if (status == UJOIN_OK) status = ujoin_ddp_finish(trainer.ddp());
        expect_thrown(status, standard_);
    }
}

TEST_P(NoExceptionOf, ERRORS_04_a_join_hook) {
    ujoin_hooks hooks{};
    hooks.size = sizeof hooks;
    hooks.post_hook = [](void *data, const ujoin_hook_args *) { return throw_it(data); };
    hooks.user_data = &standard_;
    ujoin_joinable *joinable = nullptr;
    ok(ujoin_joinable_create(group_.get(), &hooks, &joinable));
    {
        const ddp_kit::CtxPtr ctx = ddp_kit::make_ctx({joinable});
        ok(ujoin_ctx_start(ctx.get()));
        expect_thrown(ujoin_ctx_finish(ctx.get()), standard_);
    }
    ujoin_joinable_destroy(joinable);
}

TEST_P(NoExceptionOf, ERRORS_04_an_interrupt_check) {
    ujoin_store *store = nullptr;
    ok(ujoin_store_create(("memory://" + unique("wait")).c_str(), nullptr, &store));
    ok(ujoin_set_interrupt_check(throw_it, &standard_, nullptr));
    const char *key = "never";
    expect_thrown(ujoin_store_wait(store, &key, 1, 60'000), standard_);
    ok(ujoin_set_interrupt_check(nullptr, nullptr, nullptr));
    ujoin_store_destroy(store);
}

TEST_P(NoExceptionOf, ERRORS_04_notices_and_the_log) {
    static std::atomic<int> calls{0};
    const ujoin_destroy_fn notice = [](void *data) {
        calls++;
        throw_it(data);
    };
    calls = 0;
    float value = 1;
    const ujoin_buffer to{&value, 1, UJOIN_F32, 0, 0, 0};
    ujoin_op_options options{};
    options.size = sizeof options;
    options.release = notice;
    options.release_data = &standard_;
    ok(ujoin_all_reduce(group_.get(), nullptr, &to, UJOIN_SUM, &options, nullptr));
    ujoin_work *work = nullptr;
    ok(ujoin_all_reduce(group_.get(), nullptr, &to, UJOIN_SUM, &options, &work)); // on another thread
    ok(ujoin_work_wait(work, -1));
    ujoin_work_destroy(work);
    EXPECT_EQ(calls, 2);

    ok(ujoin_set_interrupt_check(throw_it, &standard_, notice));
    ok(ujoin_set_interrupt_check(nullptr, nullptr, nullptr));
    EXPECT_EQ(calls, 3);
    ok(ujoin_set_log_sink(
        UJOIN_LOG_DEBUG, [](void *data, ujoin_log_level, const char *) { throw_it(data); }, &standard_, notice));
    ok(ujoin_barrier(group_.get(), nullptr));
    ok(ujoin_set_log_sink(0, nullptr, nullptr, nullptr));
    EXPECT_EQ(calls, 4);
    ujoin_hooks hooks{};
    hooks.size = sizeof hooks;
    hooks.destroy = notice;
    hooks.user_data = &standard_;
    ujoin_joinable *joinable = nullptr;
    ok(ujoin_joinable_create(group_.get(), &hooks, &joinable));
    ujoin_joinable_destroy(joinable);
    EXPECT_EQ(calls, 5);
    EXPECT_EQ(ujoin_ddp_create(nullptr, nullptr, 0, nullptr, nullptr), UJOIN_E_INVALID);
    const std::string before = ujoin_last_error();
    hooks.size = 1;
    EXPECT_EQ(ujoin_joinable_create(group_.get(), &hooks, &joinable), UJOIN_E_INVALID);
    EXPECT_NE(std::string(ujoin_last_error()), before);
}

// ------------------------------------------------------------------------------------------------------ peers that die

TEST(NoException, ERRORS_04_a_peer_is_killed_under_operations_in_flight) {
    harness::on_ranks("shm", 3, [](ujoin_group *group, int rank) {
        std::vector<std::vector<float>> values(8, std::vector<float>(100'000, 1));
        std::vector<ujoin_work *> works(values.size());
        ok(ujoin_barrier(group, nullptr));
        if (rank == 2) {
            expect_death(SIGKILL);
            ::kill(::getpid(), SIGKILL);
        }
        for (size_t i = 0; i < values.size(); i++) {
            const ujoin_buffer to{values[i].data(), values[i].size(), UJOIN_F32, 0, 0, 0};
            const ujoin_status status = ujoin_all_reduce(group, nullptr, &to, UJOIN_SUM, nullptr, &works[i]);
            EXPECT_TRUE(status == UJOIN_OK || status == UJOIN_E_PEER_LOST) << ujoin_last_error();
        }
        for (ujoin_work *work : works) {
            if (!work) continue;
            EXPECT_EQ(ujoin_work_wait(work, -1), UJOIN_E_PEER_LOST);
            EXPECT_NE(std::string(ujoin_last_error()).find("rank 2"), std::string::npos) << ujoin_last_error();
            ujoin_work_destroy(work);
        }
    });
}

} // namespace
