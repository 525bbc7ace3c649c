// SPDX-License-Identifier: Apache-2.0
// What ujoin_submit and ujoin_group_split do when ranks disagree, die or do not come, and with wrong arguments.
#include "harness/ddp_kit.hpp"
#include <algorithm>
#include <atomic>
#include <csignal>
#include <sys/resource.h>
#include <thread>
#include <unistd.h>

using namespace ddp_kit;

namespace {

ujoin_op make_op(ujoin_op_kind kind, int32_t peer = 0) {
    ujoin_op op{};
    op.size = sizeof op;
    op.kind = kind;
    op.peer = peer;
    return op;
}
template <class T> ujoin_buffer out(std::vector<T> &data, ujoin_dtype dtype) {
    return {data.data(), data.size(), dtype, UJOIN_DEVICE_HOST, 0, 0};
}
template <class T> ujoin_const_buffer in(const std::vector<T> &data, ujoin_dtype dtype) {
    return {data.data(), data.size(), dtype, UJOIN_DEVICE_HOST, 0, 0};
}
ujoin_status submit(ujoin_group *group, const ujoin_op &op, int64_t timeout_ms = 0) {
    ujoin_op_options options{};
    options.size = sizeof options;
    options.timeout_ms = timeout_ms;
    return ujoin_submit(group, &op, 1, &options, nullptr);
}
std::vector<int32_t> missing() {
    std::vector<int32_t> ranks(ujoin_last_missing(nullptr, 0));
    ujoin_last_missing(ranks.data(), ranks.size());
    return ranks;
}
testing::AssertionResult text_has(const std::string &part) {
    const std::string text = ujoin_last_error();
    return text.find(part) != std::string::npos ? testing::AssertionSuccess() : testing::AssertionFailure() << text;
}

class GroupSubmitFaults : public testing::TestWithParam<Ranks> {
  protected:
    void on_ranks(int size, const Body &body) { run(GetParam(), size, body); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, GroupSubmitFaults,
                         testing::Values(Ranks::threads, Ranks::processes, Ranks::connections, Ranks::hosts), kind_name);

TEST_P(GroupSubmitFaults, COLLECTIVES_04_what_differs_is_told_with_both_descriptions_and_writes_nothing) {
    struct Case {
        ujoin_op_kind kinds[2];
        ujoin_reduce reduces[2];
        ujoin_dtype types[2];
        size_t counts[2];
        const char *texts[2];
    };
    const Case cases[] = {
        {{UJOIN_OP_ALL_REDUCE, UJOIN_OP_ALL_REDUCE},
         {0, 0},
         {UJOIN_F32, UJOIN_F32},
         {4, 6},
         {"all_reduce(sum, f32, 4)", "all_reduce(sum, f32, 6)"}},
        {{UJOIN_OP_ALL_REDUCE, UJOIN_OP_ALL_REDUCE},
         {0, 0},
         {UJOIN_F32, UJOIN_F64},
         {4, 2},
         {"all_reduce(sum, f32, 4)", "all_reduce(sum, f64, 2)"}},
        {{UJOIN_OP_ALL_REDUCE, UJOIN_OP_BROADCAST},
         {0, 0},
         {UJOIN_F32, UJOIN_F32},
         {4, 4},
         {"all_reduce(sum, f32, 4)", "broadcast(f32, 4, root 0)"}},
        {{UJOIN_OP_ALL_REDUCE, UJOIN_OP_ALL_REDUCE},
         {UJOIN_SUM, UJOIN_MAX},
         {UJOIN_F32, UJOIN_F32},
         {4, 4},
         {"all_reduce(sum, f32, 4)", "all_reduce(max, f32, 4)"}},
        {{UJOIN_OP_REDUCE, UJOIN_OP_ALL_REDUCE},
         {UJOIN_PROD, UJOIN_PROD},
         {UJOIN_F32, UJOIN_F32},
         {4, 4},
         {"reduce(prod, f32, 4, root 0)", "all_reduce(prod, f32, 4)"}},
        {{UJOIN_OP_ALL_TO_ALL, UJOIN_OP_ALL_TO_ALL},
         {0, 0},
         {UJOIN_F32, UJOIN_F32},
         {4, 8},
         {"sends 8 bytes to rank", "sends 16 bytes to rank"}},
    };
    for (const Case &each : cases)
        on_ranks(2, [&](ujoin_group *group, int rank) {
            std::vector<char> guarded(256, 'g');
            ujoin_op op = make_op(each.kinds[rank]);
            op.reduce = each.reduces[rank];
            op.recv = {guarded.data() + 64, each.counts[rank], each.types[rank], UJOIN_DEVICE_HOST, 0, 0};
            ASSERT_EQ(submit(group, op, 5000), UJOIN_E_MISMATCH) << ujoin_last_error();
            if (each.kinds[0] == UJOIN_OP_ALL_TO_ALL) {
                EXPECT_TRUE(text_has(each.texts[0]) || text_has(each.texts[1])) << ujoin_last_error();
            } else {
                EXPECT_TRUE(text_has(each.texts[0]));
                EXPECT_TRUE(text_has(each.texts[1]));
            }
            EXPECT_EQ(guarded, std::vector<char>(256, 'g')) << "nothing may be written";
            EXPECT_EQ(ujoin_barrier(group, nullptr), UJOIN_E_MISMATCH);
            EXPECT_TRUE(text_has("the group is broken"));
        });
}

TEST_P(GroupSubmitFaults, a_part_of_another_size_is_a_mismatch_that_names_the_pair) {
    on_ranks(3, [](ujoin_group *group, int rank) {
        const std::vector<float> mine(rank == 2 ? 5 : 4);
        std::vector<float> all(12);
        ujoin_op op = make_op(UJOIN_OP_GATHER, 0);
        op.send = in(mine, UJOIN_F32);
        op.recv = out(all, UJOIN_F32);
        const ujoin_status status = submit(group, op, 5000);
        if (rank == 0) {
            EXPECT_EQ(status, UJOIN_E_MISMATCH);
            EXPECT_TRUE(text_has("rank 2 sends 20 bytes to rank 0, which expects 16"));
        }
        if (status == UJOIN_OK) {
            EXPECT_EQ(ujoin_barrier(group, nullptr), UJOIN_E_MISMATCH) << "met in the next call";
        }
    });
}

TEST_P(GroupSubmitFaults, a_message_that_is_not_what_its_receiver_expects) {
    on_ranks(2, [](ujoin_group *group, int rank) {
        std::vector<float> data(rank == 0 ? 10 : 12, 3);
        ujoin_op op = make_op(rank == 0 ? UJOIN_OP_SEND : UJOIN_OP_RECV, 1 - rank);
        if (rank == 0)
            op.send = in(data, UJOIN_F32);
        else
            op.recv = out(data, UJOIN_F32);
        EXPECT_EQ(submit(group, op, 5000), UJOIN_E_MISMATCH);
        EXPECT_TRUE(text_has("rank 0 send(f32, 10, to rank 1)"));
        EXPECT_TRUE(text_has("rank 1 recv(f32, 12, from rank 0)"));
        EXPECT_EQ(data, std::vector<float>(data.size(), 3));
    });
}

TEST_P(GroupSubmitFaults, a_message_whose_peer_is_in_another_operation) {
    for (const bool sends : {true, false})
        on_ranks(3, [&](ujoin_group *group, int rank) {
            std::vector<float> data(100'000, 3);
            if (rank != 0) {
                EXPECT_EQ(ujoin_barrier(group, nullptr), UJOIN_E_MISMATCH);
            } else {
                ujoin_op op = make_op(sends ? UJOIN_OP_SEND : UJOIN_OP_RECV, 1);
                op.send = in(data, UJOIN_F32);
                op.recv = out(data, UJOIN_F32);
                EXPECT_EQ(submit(group, op), UJOIN_E_MISMATCH);
            }
            EXPECT_TRUE(text_has("rank 1 barrier"));
            EXPECT_TRUE(text_has(sends ? "send(f32, 100000, to rank 1)" : "recv(f32, 100000, from rank 1)"));
        });
}

TEST_P(GroupSubmitFaults, a_message_in_vain_is_a_timeout_that_names_its_peer) {
    on_ranks(3, [](ujoin_group *group, int rank) {
        std::vector<float> data(10);
        if (rank == 2) { // not concerned, hence not to blame; met by the end of the group
            EXPECT_EQ(ujoin_barrier(group, nullptr), UJOIN_E_ABORTED) << ujoin_last_error();
            return;
        }
        ujoin_op op = make_op(UJOIN_OP_SEND, 1 - rank); // both send: each waits for the other
        op.send = in(data, UJOIN_F32);
        const ujoin_status status = submit(group, op, 300);
        EXPECT_TRUE(status == UJOIN_E_TIMEOUT || status == UJOIN_E_ABORTED) << ujoin_last_error();
        EXPECT_TRUE(text_has("send(f32, 10, to rank"));
        if (status == UJOIN_E_TIMEOUT) {
            EXPECT_EQ(missing(), std::vector<int32_t>{1 - rank});
        }
    });
}

TEST(GroupSubmit, a_message_is_complete_when_its_receiver_has_it) {
    std::atomic<bool> go{false};
    with_threads(2, [&](ujoin_group *group, int rank) {
        std::vector<float> data(10, static_cast<float>(rank));
        ujoin_op op = make_op(rank == 0 ? UJOIN_OP_SEND : UJOIN_OP_RECV, 1 - rank);
        if (rank == 1) {
            while (!go) std::this_thread::yield();
            op.recv = out(data, UJOIN_F32);
            ASSERT_UJOIN_OK(submit(group, op));
            EXPECT_EQ(data, std::vector<float>(10, 0));
            return;
        }
        op.send = in(data, UJOIN_F32);
        ujoin_work *work = nullptr;
        ASSERT_UJOIN_OK(ujoin_submit(group, &op, 1, nullptr, &work));
        for (int i = 0; i < 1000; i++, std::this_thread::yield()) ASSERT_EQ(ujoin_work_test(work), UJOIN_PENDING);
        EXPECT_EQ(ujoin_work_wait(work, 20), UJOIN_PENDING);
        go = true;
        ASSERT_UJOIN_OK(ujoin_work_wait(work, -1));
        ujoin_work_destroy(work);
    });
}

TEST(GroupSubmitDeath, a_message_with_a_rank_that_dies) {
    for (const bool sends : {true, false})
        with_processes(3, [&](ujoin_group *group, int rank) {
            ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr));
            std::vector<float> data(3'000'000, 1);
            ujoin_op op = make_op(sends ? UJOIN_OP_SEND : UJOIN_OP_RECV, 1);
            op.send = in(data, UJOIN_F32);
            op.recv = out(data, UJOIN_F32);
            if (rank == 1) {
                harness::expect_death(SIGKILL);
                kill(getpid(), SIGKILL);
            }
            if (rank == 2) { // exchanges messages with rank 0 alone, afterwards: it does not need the dead one
                return;
            }
            ujoin_work *work = nullptr;
            int released = 0;
            ujoin_op_options options{};
            options.size = sizeof options;
            options.release = [](void *count) { ++*static_cast<int *>(count); };
            options.release_data = &released;
            ASSERT_UJOIN_OK(ujoin_submit(group, &op, 1, &options, &work));
            EXPECT_EQ(ujoin_work_wait(work, -1), UJOIN_E_PEER_LOST);
            EXPECT_TRUE(text_has("rank 1"));
            EXPECT_TRUE(text_has("died"));
            EXPECT_EQ(missing(), std::vector<int32_t>{1});
            EXPECT_EQ(released, 1);
            ujoin_work_destroy(work);
        });
}

TEST(GroupSubmitDeath, COLLECTIVES_05_survivors_get_an_error_and_do_not_spin) {
    with_processes(4, [](ujoin_group *group, int rank) {
        std::vector<float> data(size_t{1} << 18, 1);
        std::vector<float> late(size_t{1} << 18, 1);
        ujoin_op op = make_op(UJOIN_OP_ALL_REDUCE);
        for (int round = 0; round < 50; round++) {
            op.recv = out(data, UJOIN_F32);
            ASSERT_UJOIN_OK(submit(group, op, 20'000));
        }
        if (rank == 2) {
            harness::expect_death(SIGKILL);
            kill(getpid(), SIGKILL);
        }
        op.recv = out(late, UJOIN_F32);
        ujoin_work *work = nullptr;
        ASSERT_UJOIN_OK(ujoin_submit(group, &op, 1, nullptr, &work));
        rusage before{};
        rusage after{};
        getrusage(RUSAGE_SELF, &before);
        EXPECT_EQ(ujoin_work_wait(work, -1), UJOIN_E_PEER_LOST) << ujoin_last_error();
        getrusage(RUSAGE_SELF, &after);
        EXPECT_EQ(missing(), std::vector<int32_t>{2});
        EXPECT_TRUE(text_has("rank 2"));
        const auto us = [](const rusage &r) {
            return (r.ru_utime.tv_sec + r.ru_stime.tv_sec) * 1'000'000 + r.ru_utime.tv_usec + r.ru_stime.tv_usec;
        };
        EXPECT_LT(us(after) - us(before), 100'000 * harness::slack()) << "it waited by running";
        EXPECT_EQ(submit(group, op, 20'000), UJOIN_E_PEER_LOST) << "at once";
        ujoin_work_destroy(work);
        ujoin_group_abort(group, "enough");
    });
}

TEST_P(GroupSubmitFaults, groups_that_were_split_off_fail_alone) {
    on_ranks(4, [](ujoin_group *group, int rank) {
        ujoin_group *part = nullptr;
        ASSERT_UJOIN_OK(ujoin_group_split(group, rank / 2, 0, nullptr, &part));
        const GroupPtr owner(part);
        if (rank < 2) {
            if (rank == 0) ujoin_group_abort(part, "one half");
            EXPECT_EQ(ujoin_barrier(part, nullptr), UJOIN_E_ABORTED);
            EXPECT_TRUE(text_has("one half"));
        } else {
            ASSERT_UJOIN_OK(ujoin_barrier(part, nullptr));
        }
        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr));
    });
}

TEST_P(GroupSubmitFaults, wrong_arguments_are_named_before_anything_happens) {
    on_ranks(2, [](ujoin_group *group, int) {
        std::vector<float> data(4, 3);
        std::vector<float> other(4, 3);
        const size_t counts[] = {1, 2};
        const auto refused = [&](const ujoin_op &op, const std::string &text) {
            EXPECT_EQ(submit(group, op), UJOIN_E_INVALID) << text;
            EXPECT_TRUE(text_has(text));
        };
        EXPECT_EQ(ujoin_submit(group, nullptr, 1, nullptr, nullptr), UJOIN_E_INVALID);
        ujoin_op op = make_op(12);
        refused(op, "ops[0].kind is 12");
        op = make_op(0);
        refused(op, "ops[0].kind is 0");
        op = make_op(UJOIN_OP_REDUCE, 2);
        op.recv = out(data, UJOIN_F32);
        refused(op, "ops[0].peer (the root) is 2; expected 0 to 1");
        op = make_op(UJOIN_OP_SEND, -1);
        refused(op, "ops[0].peer is -1");
        op = make_op(UJOIN_OP_ALL_REDUCE);
        op.reduce = 6;
        op.recv = out(data, UJOIN_F32);
        refused(op, "reduce is 6");
        op = make_op(UJOIN_OP_ALL_GATHER);
        op.recv = {data.data(), 3, UJOIN_F32, UJOIN_DEVICE_HOST, 0, 0};
        refused(op, "ops[0].recv.count is 3, not a multiple of 2");
        op.recv = out(data, UJOIN_F32);
        op.recv_counts = counts;
        refused(op, "ops[0].recv_counts add up to 3; recv.count is 4");
        op = make_op(UJOIN_OP_ALL_TO_ALL);
        op.recv = out(data, UJOIN_F32);
        op.send_counts = counts;
        refused(op, "ops[0].send_counts is given, but send is not");
        op.send = in(other, UJOIN_I32);
        op.send_counts = nullptr;
        refused(op, "send is of i32, recv of f32");
        op = make_op(UJOIN_OP_ALL_REDUCE);
        op.recv = {data.data(), 4, UJOIN_F32, 7, 0, 0};
        EXPECT_EQ(submit(group, op), UJOIN_E_UNSUPPORTED);
        op = make_op(UJOIN_OP_SEND, ujoin_group_rank(group));
        op.send = in(data, UJOIN_F32);
        refused(op, "messages to this rank itself");
        op = make_op(UJOIN_OP_BROADCAST, ujoin_group_rank(group));
        op.send = in(data, UJOIN_F32);
        op.recv = out(data, UJOIN_F32);
        refused(op, "both given at the root");
        op = make_op(UJOIN_OP_BARRIER);
        op.reserved = 1;
        refused(op, "ujoin_op.reserved is not 0");
        ujoin_op two[] = {make_op(UJOIN_OP_BARRIER), make_op(UJOIN_OP_BARRIER)};
        two[1].size = 8;
        EXPECT_EQ(ujoin_submit(group, two, 2, nullptr, nullptr), UJOIN_E_INVALID);
        EXPECT_TRUE(text_has("ops[1].size is 8"));
        ujoin_group_options options{};
        options.size = sizeof options;
        options.world_size = 2;
        ujoin_group *part = nullptr;
        EXPECT_EQ(ujoin_group_split(group, 0, 0, &options, &part), UJOIN_E_INVALID);
        EXPECT_TRUE(text_has("follow from the group"));
        EXPECT_EQ(data, std::vector<float>(4, 3));
        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr)); // the group is whole
    });
}

} // namespace
