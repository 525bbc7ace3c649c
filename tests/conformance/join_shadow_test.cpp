// SPDX-License-Identifier: Apache-2.0
// The program's own collectives inside a join context, on a group that shadows them for ranks that have joined.
#include "api/handles.hpp"
#include "harness/join_kit.hpp"
#include <csignal>
#include <numeric>
#include <unistd.h>

using namespace ujoin;
using namespace harness;

namespace {

class JoinShadow : public testing::TestWithParam<const char *> {
  protected:
    void on_ranks(int size, const std::function<void(Group &)> &body) {
        with_groups(GetParam(), size, body, [](GroupConfig &config) { config.shadow_collectives = true; });
    }
};
INSTANTIATE_TEST_SUITE_P(Backends, JoinShadow, testing::Values("local", "shm", "tcp", "hier"),
                         [](const auto &of) { return std::string(of.param); });

template <class Number> constexpr ujoin_dtype dtype_of = UJOIN_F64;
template <> constexpr ujoin_dtype dtype_of<float> = UJOIN_F32;
template <> constexpr ujoin_dtype dtype_of<int32_t> = UJOIN_I32;

template <class Number> ujoin_buffer buffer_of(std::vector<Number> &data) {
    return {data.data(), data.size(), dtype_of<Number>, 0, 0, 0};
}

/// The C functions, as a program calls them.
class Program {
  public:
    explicit Program(Group &g) : group_(g.shared_from_this()) {}

    template <class Number> std::vector<Number> all_reduce(std::vector<Number> data, ujoin_reduce reduce) {
        const ujoin_buffer buffer = buffer_of(data);
        EXPECT_EQ(ujoin_all_reduce(&group_, nullptr, &buffer, reduce, nullptr, nullptr), UJOIN_OK) << ujoin_last_error();
        return data;
    }
    double all_reduce(double number, ujoin_reduce reduce) { return all_reduce(std::vector<double>{number}, reduce)[0]; }
    std::vector<double> all_gather(double number, std::vector<int32_t> &contributors) {
        std::vector<double> all(static_cast<size_t>(ujoin_group_size(&group_)), -1);
        const ujoin_const_buffer send{&number, 1, UJOIN_F64, 0, 0, 0};
        const ujoin_buffer recv = buffer_of(all);
        ujoin_work *work = nullptr;
        EXPECT_EQ(ujoin_all_gather(&group_, &send, &recv, nullptr, &work), UJOIN_OK) << ujoin_last_error();
        EXPECT_EQ(ujoin_work_wait(work, -1), UJOIN_OK) << ujoin_last_error();
        contributors.resize(all.size());
        contributors.resize(ujoin_work_contributors(work, contributors.data(), contributors.size()));
        ujoin_work_destroy(work);
        return all;
    }
    double reduce_scatter(double number) {
        std::vector<double> all(static_cast<size_t>(ujoin_group_size(&group_)), number);
        const ujoin_const_buffer send{all.data(), all.size(), UJOIN_F64, 0, 0, 0};
        const ujoin_buffer recv{&number, 1, UJOIN_F64, 0, 0, 0};
        EXPECT_EQ(ujoin_reduce_scatter(&group_, &send, &recv, UJOIN_SUM, nullptr, nullptr), UJOIN_OK) << ujoin_last_error();
        return number;
    }
    ujoin_status broadcast(double &number, int32_t root) {
        const ujoin_buffer buffer{&number, 1, UJOIN_F64, 0, 0, 0};
        return ujoin_broadcast(&group_, &buffer, root, nullptr, nullptr);
    }
    /// What is left of `recv` after an operation with this root; this rank gives `number` to everybody.
    std::vector<double> submit(ujoin_op_kind kind, double number, int32_t root, ujoin_status *status = nullptr) {
        const std::vector<double> send(static_cast<size_t>(ujoin_group_size(&group_)), number);
        std::vector<double> recv(send.size(), -1);
        ujoin_op op{};
        op.size = sizeof op;
        op.kind = kind;
        op.peer = root;
        const bool to_all = kind == UJOIN_OP_SCATTER || kind == UJOIN_OP_ALL_TO_ALL;
        op.send = {send.data(), to_all ? send.size() : 1, UJOIN_F64, 0, 0, 0};
        const bool from_all = kind == UJOIN_OP_GATHER || kind == UJOIN_OP_ALL_TO_ALL;
        op.recv = {recv.data(), from_all ? recv.size() : 1, UJOIN_F64, 0, 0, 0};
        const ujoin_status got = ujoin_submit(&group_, &op, 1, nullptr, nullptr);
        if (status)
            *status = got;
        else
            EXPECT_EQ(got, UJOIN_OK) << ujoin_last_error();
        return recv;
    }
    void barrier() { EXPECT_EQ(ujoin_barrier(&group_, nullptr), UJOIN_OK) << ujoin_last_error(); }
    ujoin_group *handle() { return &group_; }

  private:
    ujoin_group group_;
};

/// Inputs of each rank of a group of three; who is active in a round follows.
constexpr int inputs[] = {1, 4, 2};
std::vector<int32_t> active_in(int round) {
    std::vector<int32_t> ranks;
    for (int k = 0; k < 3; k++)
        if (inputs[k] > round) ranks.push_back(k);
    return ranks;
}

/// Metrics after the uses of each round; rank k contributes k + 1.
void metrics_of_a_round(Group &g, Program &program, int round) {
    const std::vector<int32_t> active = active_in(round);
    const auto n = static_cast<double>(active.size());
    double sum = 0;
    for (const int32_t k : active) sum += k + 1;
    const double mine = g.rank() + 1;
    EXPECT_EQ(program.all_reduce(mine, UJOIN_SUM), sum);
    EXPECT_EQ(program.all_reduce(mine, UJOIN_AVG), sum / n) << "over those that contribute";
    EXPECT_EQ(program.all_reduce(-mine, UJOIN_MAX), -(active.front() + 1)) << "a zero of a joined rank would win";
    EXPECT_EQ(program.all_reduce(mine, UJOIN_MIN), active.front() + 1);
    EXPECT_EQ(program.all_reduce(std::vector<int32_t>{-5, g.rank()}, UJOIN_MAX), (std::vector<int32_t>{-5, active.back()}));
    const std::vector<float> large = program.all_reduce(std::vector<float>(300'000, 1.5F), UJOIN_SUM); // several pieces
    EXPECT_EQ(large.front() + large.back(), static_cast<float>(3 * n));
    EXPECT_EQ(program.reduce_scatter(mine), sum);
    program.barrier();
    std::vector<int32_t> contributors;
    const std::vector<double> all = program.all_gather(mine, contributors);
    EXPECT_EQ(contributors, active);
    for (int k = 0; k < 3; k++)
        EXPECT_EQ(all[static_cast<size_t>(k)], inputs[k] > round ? k + 1 : -1)
            << "left as it was if rank " << k << " joined";
    const std::vector<double> everybody = all; // those who have joined leave -1
    const int32_t root = active.front();
    const bool here = g.rank() == root;
    EXPECT_EQ(program.submit(UJOIN_OP_REDUCE, mine, root)[0], here ? sum : -1);
    EXPECT_EQ(program.submit(UJOIN_OP_GATHER, mine, root), here ? everybody : std::vector<double>(3, -1));
    EXPECT_EQ(program.submit(UJOIN_OP_SCATTER, mine, root)[0], root + 1);
    EXPECT_EQ(program.submit(UJOIN_OP_ALL_TO_ALL, mine, 0), everybody);
    double from_last = g.rank() == active.back() ? 7 + round : 0;
    EXPECT_EQ(program.broadcast(from_last, active.back()), UJOIN_OK) << ujoin_last_error();
    EXPECT_EQ(from_last, 7 + round);
}

} // namespace

TEST_P(JoinShadow, metrics_after_the_uses_of_a_round) {
    for (const int per_use : {0, 1, 2})
        for (const bool strict : {false, true})
            on_ranks(3, [&](Group &g) {
                Program program(g);
                const Reducers list = reducers(g, 2, per_use);
                JoinOptions options;
                options.strict = strict;
                const auto context = context_over(list, options);
                for (int pass = 0; pass < 3; pass++) {
                    context->start();
                    for (int round = 0; round < inputs[g.rank()]; round++) {
                        for (const auto &r : list) r->use();
                        metrics_of_a_round(g, program, round);
                    }
                    context->finish();
                    EXPECT_EQ(context->rounds(), (std::vector<int64_t>{1, 4, 2}));
                    EXPECT_EQ(program.all_reduce(1, UJOIN_SUM), 3) << "outside of a context all contribute";
                }
                EXPECT_EQ(list[0]->main_calls, 3 * (4 - inputs[g.rank()]));
            });
}

TEST_P(JoinShadow, statistics_in_the_middle_of_a_use) {
    on_ranks(3, [](Group &g) {
        Program program(g);
        const Reducers list = reducers(g, 1, 2);
        const auto context = context_over(list);
        context->start();
        for (int round = 0; round < inputs[g.rank()]; round++) {
            const auto n = static_cast<double>(active_in(round).size());
            list[0]->notify();
            EXPECT_EQ(program.all_reduce(1, UJOIN_SUM), n); // before, between and after the operations of the use
            EXPECT_EQ(list[0]->all_reduce(1), n);
            EXPECT_EQ(program.all_reduce(2, UJOIN_SUM), 2 * n);
            EXPECT_EQ(program.all_reduce(std::vector<float>{3}, UJOIN_SUM)[0], static_cast<float>(3 * n));
            EXPECT_EQ(list[0]->all_reduce(1), n);
            program.barrier();
        }
        context->finish();
        EXPECT_EQ(list[0]->main_calls, 4 - inputs[g.rank()]);
    });
}

TEST_P(JoinShadow, work_in_flight_while_uses_go_on) {
    for (const int per_use : {0, 1})
        on_ranks(3, [&](Group &g) {
            Program program(g);
            const Reducers list = reducers(g, 1, per_use);
            const auto context = context_over(list);
            context->start();
            const int mine = 6 * inputs[g.rank()];
            std::vector<double> sums(static_cast<size_t>(mine), 1);
            std::vector<ujoin_work *> works(static_cast<size_t>(mine));
            for (size_t i = 0; i < works.size(); i++) {
                list[0]->use();
                const ujoin_buffer buffer{&sums[i], 1, UJOIN_F64, 0, 0, 0};
                EXPECT_EQ(ujoin_all_reduce(program.handle(), nullptr, &buffer, UJOIN_SUM, nullptr, &works[i]), UJOIN_OK);
            }
            context->finish();
            for (size_t i = 0; i < works.size(); i++) {
                EXPECT_EQ(ujoin_work_test(works[i]), UJOIN_OK) << "finish waited for it";
                int32_t one = -1;
                EXPECT_EQ(ujoin_work_contributors(works[i], &one, 1), static_cast<size_t>(sums[i]));
                EXPECT_EQ(one, active_in(static_cast<int>(i / 6)).front());
                EXPECT_EQ(sums[i], static_cast<double>(active_in(static_cast<int>(i / 6)).size()));
                ujoin_work_destroy(works[i]);
            }
        });
}

TEST_P(JoinShadow, many_ranks_share_the_work) { // more than 3 ranks reduce large data in two meetings
    const int size = std::string(GetParam()) == "local" ? 64 : 6;
    on_ranks(size, [&](Group &g) {
        Program program(g);
        const Reducers list = reducers(g, 1);
        const auto context = context_over(list);
        context->start();
        const int mine = g.rank() % 3;
        for (int round = 0; round < mine; round++) {
            list[0]->use();
            double n = 0;
            for (int k = 0; k < size; k++) n += k % 3 > round;
            const std::vector<float> sums = program.all_reduce(std::vector<float>(5000, 1), UJOIN_SUM);
            EXPECT_EQ(std::accumulate(sums.begin(), sums.end(), 0.0), 5000 * n);
        }
        context->finish();
    });
}

TEST_P(JoinShadow, a_broadcast_from_a_joined_root_is_an_error_on_every_rank) {
    on_ranks(3, [](Group &g) {
        Program program(g);
        const Reducers list = reducers(g, 1);
        const auto context = context_over(list);
        context->start();
        const Error error = error_of([&] {
            for (int round = 0; round < inputs[g.rank()]; round++) {
                list[0]->use();
                double number = 5;
                const ujoin_status status = program.broadcast(number, 0);
                EXPECT_EQ(status, round == 0 ? UJOIN_OK : UJOIN_E_STATE);
                EXPECT_EQ(number, 5);
                if (status != UJOIN_OK) fail(status, ujoin_last_error());
            }
            context->finish();
        });
        context->abort("");
        EXPECT_EQ(error.code(), UJOIN_E_STATE) << error.text();
        EXPECT_TRUE(has(error.text(), "broadcast(f64, 1, root 0): its root, rank 0, has joined")) << error.text();
    });
}

TEST_P(JoinShadow, collectives_of_the_programs_own_hooks) {
    on_ranks(3, [](Group &g) {
        Program program(g);
        const Reducers list = reducers(g, 1, 0);
        double in_hook = 0; // the hook issues the use's own collective with the same function as the loop its metric
        list[0]->on_main = [&](const HookArgs &) {
            in_hook += program.all_reduce(std::vector<double>{100, 100}, UJOIN_SUM)[0];
        };
        const auto context = context_over(list);
        context->start();
        for (int round = 0; round < inputs[g.rank()]; round++) {
            const auto n = static_cast<double>(active_in(round).size());
            list[0]->use();
            EXPECT_EQ(program.all_reduce(1, UJOIN_SUM), n) << "another one: the hook waits for its own";
            EXPECT_EQ(program.all_reduce(std::vector<double>{2, 2}, UJOIN_SUM), (std::vector<double>{2 * n, 2 * n}));
            EXPECT_EQ(program.all_reduce(std::vector<double>{3, 3}, UJOIN_SUM), (std::vector<double>{3 * n, 3 * n}));
        }
        context->finish();
        double expected = 0;
        for (int round = inputs[g.rank()]; round < 4; round++) expected += 2 * static_cast<double>(active_in(round).size());
        EXPECT_EQ(in_hook, expected) << "a hook gets the result of the one that is its own";
    });
}

TEST_P(JoinShadow, a_stop_asked_in_a_collective_of_the_programs_own) {
    on_ranks(3, [](Group &g) {
        Program program(g);
        const Reducers list = reducers(g, 1, 0);
        const auto context = context_over(list);
        context->start();
        int rounds = 0;
        for (; rounds < (g.rank() == 0 ? 1 : 50) && !context->stopped(); rounds++) {
            list[0]->use();
            if (g.rank() == 2 && rounds == 3) context->stop();
            program.all_reduce(1, UJOIN_SUM);
        }
        context->finish();
        EXPECT_EQ(rounds, g.rank() == 0 ? 1 : 4);
        EXPECT_TRUE(context->report().stopped) << "also on the rank that had joined";
    });
}

TEST_P(JoinShadow, ranks_must_agree_that_the_group_does_it) {
    with_groups(
        GetParam(), 2,
        [](Group &g) {
            const Reducers list = reducers(g, 1, 0);
            const auto context = context_over(list);
            context->start();
            const Error error = error_of([&] { context->finish(); });
            EXPECT_EQ(error.code(), UJOIN_E_MISMATCH) << error.text();
            EXPECT_TRUE(has(error.text(), "shadow_collectives") || g.rank() == 0) << error.text();
        },
        [](GroupConfig &config) { config.shadow_collectives = config.rank == 1; });
}

TEST(JoinShadowDeath, of_the_rank_that_is_followed) {
    for (const bool in_operation : {false, true})
        with_groups(
            "shm", 3,
            [&](Group &g) {
                Program program(g);
                const Reducers list = reducers(g, 1, 0);
                const auto context = context_over(list);
                context->start();
                const Error error = error_of([&] {
                    for (int round = 0; round < 2 * g.rank(); round++) {
                        list[0]->use();
                        if (g.rank() == 1 && round == 1) {
                            // With the others in their operation already, or nobody there.
                            OpArgs op;
                            while (in_operation && !g.pending(2, op)) usleep(100);
                            expect_death(SIGKILL);
                            kill(getpid(), SIGKILL);
                        }
                        if (ujoin_barrier(program.handle(), nullptr) != UJOIN_OK)
                            fail(UJOIN_E_PEER_LOST, ujoin_last_error());
                    }
                    context->finish();
                });
                context->abort("");
                EXPECT_EQ(error.code(), UJOIN_E_PEER_LOST) << error.text();
                EXPECT_TRUE(has(error.text(), "rank 1 (pid ")) << error.text();
            },
            [](GroupConfig &config) { config.shadow_collectives = true; });
}
