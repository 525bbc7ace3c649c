// SPDX-License-Identifier: Apache-2.0
// The memory rule: once an operation has its final status, whatever it is, nobody touches the caller's memory. Here it is
// unmapped at once; whoever still reads or writes it dies.
#include "harness/ddp_kit.hpp"
#include <csignal>
#include <sys/mman.h>
#include <thread>
#include <unistd.h>

using namespace ddp_kit;

namespace {

constexpr size_t count = size_t{3} << 20; // many pieces, so that an end finds operations in their middle

/// Memory that is gone when this says so.
class Mapped {
  public:
    Mapped()
        : data_(static_cast<float *>(
              mmap(nullptr, count * sizeof(float), PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0))) {
        if (data_ == MAP_FAILED) std::abort();
        std::fill_n(data_, count, 1.0F);
    }
    ~Mapped() { unmap(); }
    Mapped(const Mapped &) = delete;
    Mapped &operator=(const Mapped &) = delete;
    void unmap() {
        if (data_) munmap(std::exchange(data_, nullptr), count * sizeof(float));
    }
    ujoin_buffer out() { return {data_, count, UJOIN_F32, UJOIN_DEVICE_HOST, 0, 0}; }
    ujoin_const_buffer in() { return {data_, count, UJOIN_F32, UJOIN_DEVICE_HOST, 0, 0}; }

  private:
    float *data_;
};

ujoin_op make_op(ujoin_op_kind kind, int rank, Mapped &memory) {
    ujoin_op op{};
    op.size = sizeof op;
    op.kind = kind;
    if (kind == UJOIN_OP_SEND && rank != 0) { // rank 0 sends to rank 1; rank 2 is not concerned
        op.kind = rank == 1 ? UJOIN_OP_RECV : UJOIN_OP_BARRIER;
        op.recv = memory.out();
    } else if (kind == UJOIN_OP_SEND) {
        op.peer = 1;
        op.send = memory.in();
    } else {
        op.recv = memory.out();
    }
    return op;
}

class GroupMemory : public testing::TestWithParam<std::tuple<Ranks, int>> {
  protected:
    void on_ranks(const Body &body) { run(std::get<0>(GetParam()), 3, body); }
    static ujoin_op_kind kind() { return std::get<1>(GetParam()); }
};
std::string name_of_kind(const testing::TestParamInfo<std::tuple<Ranks, int>> &info) {
    const char *names[] = {"", "", "all_reduce", "reduce", "broadcast", "", "", "", "", "all_to_all", "send"};
    return std::string(std::get<0>(info.param) == Ranks::threads ? "threads_" : "processes_") +
           names[std::get<1>(info.param)];
}
INSTANTIATE_TEST_SUITE_P(Kinds, GroupMemory,
                         testing::Combine(testing::Values(Ranks::threads, Ranks::processes),
                                          testing::Values(UJOIN_OP_ALL_REDUCE, UJOIN_OP_REDUCE, UJOIN_OP_BROADCAST,
                                                          UJOIN_OP_ALL_TO_ALL, UJOIN_OP_SEND)),
                         name_of_kind);

TEST_P(GroupMemory, after_an_abort_in_the_middle) {
    for (int delay_us = 0; delay_us < 4000; delay_us += 500)
        on_ranks([&](ujoin_group *group, int rank) {
            Mapped memory;
            const ujoin_op op = make_op(kind(), rank, memory);
            ujoin_work *work = nullptr;
            ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr));
            ujoin_status status = ujoin_submit(group, &op, 1, nullptr, &work);
            if (rank == 2) {
                ujoin_work_wait(work, 0);
                usleep(static_cast<useconds_t>(delay_us)); // somewhere in the middle; the result does not depend on it
                ujoin_group_abort(group, "enough");
            }
            if (status == UJOIN_OK) status = ujoin_work_wait(work, -1);
            memory.unmap();
            EXPECT_TRUE(status == UJOIN_OK || status == UJOIN_E_ABORTED) << ujoin_last_error();
            ujoin_work_destroy(work);
        });
}

TEST_P(GroupMemory, after_a_deadline) {
    on_ranks([&](ujoin_group *group, int rank) {
        Mapped memory;
        const ujoin_op op = make_op(kind(), rank, memory);
        ujoin_op_options options{};
        options.size = sizeof options;
        options.timeout_ms = 1; // over before all have come and copied, or just not
        const ujoin_status status = ujoin_submit(group, &op, 1, &options, nullptr);
        memory.unmap();
        EXPECT_TRUE(status == UJOIN_OK || status == UJOIN_E_TIMEOUT || status == UJOIN_E_ABORTED) << ujoin_last_error();
    });
}

TEST_P(GroupMemory, after_a_mismatch) {
    on_ranks([&](ujoin_group *group, int rank) {
        Mapped memory;
        ujoin_op op = make_op(kind(), rank, memory);
        if (rank == 1) op.kind = UJOIN_OP_BARRIER;
        ujoin_work *work = nullptr;
        ujoin_status status = ujoin_submit(group, &op, 1, nullptr, &work);
        if (status == UJOIN_OK) status = ujoin_work_wait(work, -1);
        memory.unmap();
        EXPECT_EQ(status, UJOIN_E_MISMATCH) << ujoin_last_error();
        ujoin_work_destroy(work);
    });
}

TEST(GroupMemoryDeath, after_the_death_of_a_peer) {
    for (const ujoin_op_kind kind : {UJOIN_OP_ALL_REDUCE, UJOIN_OP_BROADCAST})
        with_processes(3, [&](ujoin_group *group, int rank) {
            Mapped memory;
            ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr));
            const ujoin_op op = make_op(kind, rank, memory);
            ujoin_work *work = nullptr;
            ujoin_status status = ujoin_submit(group, &op, 1, nullptr, &work);
            if (rank == 1) {
                harness::expect_death(SIGKILL);
                kill(getpid(), SIGKILL);
            }
            if (status == UJOIN_OK) status = ujoin_work_wait(work, -1);
            memory.unmap();
            EXPECT_TRUE(status == UJOIN_OK || status == UJOIN_E_PEER_LOST) << ujoin_last_error();
            ujoin_work_destroy(work);
        });
}

/// Many more ranks than processors: everybody gets on.
#ifdef __SANITIZE_THREAD__
constexpr int many = 128; // each of its threads costs it much
#else
constexpr int many = 1024;
#endif

TEST(GroupScale, a_thousand_ranks_reduce_meet_and_train_on_uneven_inputs) {
    with_threads(many, [](ujoin_group *group, int rank) {
        float one = 1;
        const ujoin_buffer buffer{&one, 1, UJOIN_F32, UJOIN_DEVICE_HOST, 0, 0};
        ASSERT_UJOIN_OK(ujoin_all_reduce(group, nullptr, &buffer, UJOIN_SUM, nullptr, nullptr));
        ASSERT_EQ(one, many);
        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr));
        std::vector<Tensor> tensors = {Tensor("w", 3)};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options(UJOIN_DIVISION_ACTIVE));
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        for (int round = 0; round < (rank == many - 7 ? 3 : 2); round++) { // one rank has an input more
            tensors[0].fill_grad(round == 2 ? 5.0F : 1.0F);
            ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
            ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 0));
            ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
            ASSERT_EQ(tensors[0].grads<float>()[2], round == 2 ? 5.0F : 1.0F);
        }
        ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
    });
}

} // namespace
