// SPDX-License-Identifier: Apache-2.0
// Which gradients there are in an iteration and when they are reduced: accumulation, unused parameters, static graphs, the
// layout of buckets, ignored parameters, buffers. Ranks are threads, then processes.
#include "harness/ddp_kit.hpp"
#include <algorithm>

using namespace ddp_kit;

namespace {

std::vector<int32_t> used_by(const ujoin_ddp *ddp, size_t params) {
    std::vector<int32_t> used(params, -1);
    EXPECT_EQ(ujoin_ddp_used(ddp, used.data(), used.size()), params);
    return used;
}

/// An iteration in which only these gradients become ready.
ujoin_status reduce_some(ujoin_ddp *ddp, const std::vector<size_t> &params) {
    ujoin_status status = ujoin_ddp_forward(ddp, 1);
    for (const size_t i : params)
        if (status == UJOIN_OK) status = ujoin_ddp_ready(ddp, i);
    return status == UJOIN_OK ? ujoin_ddp_finish(ddp) : status;
}

void expect_error(ujoin_status status, ujoin_status code, const std::vector<std::string> &words) {
    EXPECT_EQ(status, code) << ujoin_status_name(status) << ": " << ujoin_last_error();
    for (const std::string &word : words)
        EXPECT_NE(std::string(ujoin_last_error()).find(word), std::string::npos)
            << word << " not in: " << ujoin_last_error();
}

class DdpGraph : public testing::TestWithParam<Ranks> {
  protected:
    static void ranks(int size, const Body &body) { ddp_kit::run(GetParam(), size, body); }
};

} // namespace

// ------------------------------------------------------------------------------------------------------- accumulation

TEST_P(DdpGraph, DDP_04_D_26_D_27_accumulation_reduces_in_every_second_iteration) {
    for (const bool view : {false, true})
        for (const bool fixed : {false, true})
            ranks(2, [&](ujoin_group *group, int rank) {
                std::vector<Tensor> tensors{{"a", 3}, {"b", 2}};
                ujoin_ddp_options options = ddp_options();
                options.bucket_bytes = 8;
                options.bucket_view = view ? 1 : 0;
                options.static_graph = fixed ? 1 : 0;
                const DdpPtr ddp = make_ddp(group, tensors, options);
                ASSERT_TRUE(ddp);
                std::vector<float *> grads;
                for (size_t i = 0; i < 2; i++) grads.push_back(static_cast<float *>(ujoin_ddp_gradient(ddp.get(), i)));
                EXPECT_EQ(grads[0] == tensors[0].grads<float>(), !view);
                if (view) {
                    EXPECT_EQ(grads[0] + 3, grads[1]) << "gradients of one type lie side by side";
                }
                const auto add = [&](float value) {
                    for (size_t i = 0; i < 2; i++)
                        for (size_t k = 0; k < tensors[i].count; k++) grads[i][k] += value;
                };
                for (int round = 0; round < 10; round++) {
                    for (size_t i = 0; i < 2; i++) std::fill_n(grads[i], tensors[i].count, 0.0F);
                    const float first = round == 0 ? static_cast<float>(1 + rank) : static_cast<float>(2 + 2 * rank);
                    const float second = round == 0 ? static_cast<float>(3 + 2 * rank) : static_cast<float>(2 + 2 * rank);
                    ASSERT_UJOIN_OK(ujoin_ddp_set_sync(ddp.get(), 0));
                    add(first);
                    ASSERT_UJOIN_OK(reduce(ddp.get(), 2));
                    EXPECT_EQ(grads[0][2], first) << "accumulated, not reduced";
                    ASSERT_UJOIN_OK(ujoin_ddp_set_sync(ddp.get(), 1));
                    add(second);
                    ASSERT_UJOIN_OK(reduce(ddp.get(), 2));
                    const float full = round == 0 ? 5.5F : 6.0F;
                    EXPECT_EQ(grads[0][2], full) << "round " << round;
                    EXPECT_EQ(grads[1][1], full) << "round " << round;
                    EXPECT_EQ(grads[0], ujoin_ddp_gradient(ddp.get(), 0)) << "it moved";
                }
                EXPECT_EQ(report_of(ddp.get()).iterations, 10);
            });
}

TEST_P(DdpGraph, JOIN_02_joining_in_the_middle_of_a_window) {
    for (const ujoin_division division : {UJOIN_DIVISION_INITIAL, UJOIN_DIVISION_ACTIVE})
        ranks(2, [&](ujoin_group *group, int rank) {
            std::vector<Tensor> tensors{{"w", 1}};
            tensors[0].fill(1.0F);
            const DdpPtr ddp = make_ddp(group, tensors, ddp_options(division));
            ASSERT_TRUE(ddp);
            const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
            for (int pass = 0; pass < 2; pass++) { // a window that one context left open does not reach into the next
                tensors[0].fill(1.0F);
                tensors[0].fill_grad(0.0F);
                ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
                std::vector<float> reduced;
                for (int t = 0; t < (rank == 0 ? 3 : 5); t++) {
                    const bool sync = t % 2 == 1;
                    ASSERT_UJOIN_OK(ujoin_ddp_set_sync(ddp.get(), sync));
                    tensors[0].grads<float>()[0] += 1;
                    ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
                    if (!sync) continue;
                    reduced.push_back(tensors[0].grads<float>()[0]);
                    tensors[0].values<float>()[0] -= 0.1F * reduced.back();
                    tensors[0].fill_grad(0.0F);
                }
                ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
                const bool initial = division == UJOIN_DIVISION_INITIAL;
                const std::vector<float> tail{2, initial ? 1.0F : 2.0F};
                EXPECT_EQ(reduced, rank == 0 ? std::vector<float>{2} : tail);
                EXPECT_NEAR(tensors[0].values<float>()[0], initial ? 0.7F : 0.6F, 1e-6);
            }
        });
}

TEST_P(DdpGraph, samples_add_up_over_a_window) {
    ranks(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 1}};
        ujoin_ddp_options options = ddp_options(UJOIN_DIVISION_SAMPLES);
        options.gradient_kind = UJOIN_GRADIENT_SUM;
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        ASSERT_UJOIN_OK(ujoin_ddp_set_sync(ddp.get(), 0));
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1, 3));
        ASSERT_UJOIN_OK(ujoin_ddp_set_sync(ddp.get(), 1));
        tensors[0].fill_grad(rank == 0 ? 30.0F : 12.0F);
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1, rank));
        EXPECT_EQ(tensors[0].grads<float>()[0], 6);
        EXPECT_EQ(report_of(ddp.get()).divisor, 7);
    });
}

TEST_P(DdpGraph, D_30_a_pass_without_gradients_leaves_later_iterations_alone) {
    ranks(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 2}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        ASSERT_UJOIN_OK(ujoin_ddp_set_sync(ddp.get(), 0));
        tensors[0].fill_grad(7.0F);
        ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
        ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get())); // no gradient became ready
        EXPECT_EQ(tensors[0].grads<float>()[0], 7);
        ASSERT_UJOIN_OK(ujoin_ddp_set_sync(ddp.get(), 1));
        tensors[0].fill_grad(static_cast<float>(rank));
        ASSERT_UJOIN_OK(reduce(ddp.get(), 1));
        EXPECT_EQ(tensors[0].grads<float>()[0], 0.5F);
    });
}

TEST_P(DdpGraph, D_50_ranks_that_disagree_on_synchronising_are_told_so) {
    ranks(3, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 2}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        ujoin_status status = UJOIN_OK;
        for (int t = 0; t < 4 && status == UJOIN_OK; t++) {
            ASSERT_UJOIN_OK(ujoin_ddp_set_sync(ddp.get(), rank != 1 || t != 1));
            status = reduce(ddp.get(), 1);
        }
        if (status == UJOIN_OK) status = ujoin_ctx_finish(ctx.get());
        expect_error(status, UJOIN_E_MISMATCH, {"which iterations synchronise", "rank 1 after 2"});
    });
}

// -------------------------------------------------------------------------------------------------- unused parameters

TEST_P(DdpGraph, D_31_a_parameter_that_never_became_ready_is_named) {
    ranks(2, [](ujoin_group *group, int) {
        std::vector<Tensor> tensors{{"first", 2}, {"second", 2}};
        const DdpPtr ddp = make_ddp(group, tensors, ddp_options());
        ASSERT_TRUE(ddp);
        expect_error(reduce_some(ddp.get(), {0}), UJOIN_E_STATE, {"1 (\"second\")"});
        expect_error(ujoin_ddp_forward(ddp.get(), 1), UJOIN_E_STATE, {"1 (\"second\")", "find_unused"});
    });
}

TEST_P(DdpGraph, D_32_D_33_D_42_the_used_map_and_gradients_that_nobody_used) {
    for (const bool alike : {true, false})
        ranks(2, [&](ujoin_group *group, int rank) {
            std::vector<Tensor> tensors{{"a", 2}, {"b", 3}, {"c", 2}};
            ujoin_ddp_options options = ddp_options();
            options.find_unused = 1;
            const DdpPtr ddp = make_ddp(group, tensors, options);
            ASSERT_TRUE(ddp);
            for (int t = 0; t < 6; t++) {
                const bool odd = t % 2 == 1;
                const bool uses = odd && (alike || rank == 1);
                const auto old = static_cast<float>(70 + rank);
                for (Tensor &tensor : tensors) tensor.fill_grad(static_cast<float>(rank + 1));
                if (!uses) tensors[1].fill_grad(old);
                ASSERT_UJOIN_OK(reduce_some(ddp.get(), uses ? std::vector<size_t>{2, 0, 1} : std::vector<size_t>{0, 2}));
                EXPECT_EQ(used_by(ddp.get(), 3), (std::vector<int32_t>{2, !odd ? 0 : alike ? 2 : 1, 2})) << t;
                EXPECT_EQ(tensors[0].grads<float>()[1], 1.5F);
                const float expected = !odd ? old : alike ? 1.5F : 1.0F; // (0 + 2) / 2
                for (size_t k = 0; k < 3; k++) EXPECT_EQ(tensors[1].grads<float>()[k], expected) << t;
            }
            EXPECT_EQ(report_of(ddp.get()).rebuilt, 0);
        });
}

TEST_P(DdpGraph, a_parameter_used_in_a_window_counts_when_it_is_reduced) {
    ranks(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"a", 2}, {"b", 2}};
        ujoin_ddp_options options = ddp_options();
        options.find_unused = 1;
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        ASSERT_UJOIN_OK(ujoin_ddp_set_sync(ddp.get(), 0));
        tensors[1].fill_grad(static_cast<float>(4 * rank));
        ASSERT_UJOIN_OK(reduce_some(ddp.get(), {1}));
        ASSERT_UJOIN_OK(ujoin_ddp_set_sync(ddp.get(), 1));
        ASSERT_UJOIN_OK(reduce_some(ddp.get(), {0}));
        EXPECT_EQ(tensors[1].grads<float>()[1], 2);
        EXPECT_EQ(used_by(ddp.get(), 2), (std::vector<int32_t>{2, 2}));
        ASSERT_UJOIN_OK(reduce_some(ddp.get(), {0}));
        EXPECT_EQ(used_by(ddp.get(), 2), (std::vector<int32_t>{2, 0}));
    });
}

TEST_P(DdpGraph, D_48_used_counts_never_exceed_the_active_ranks) {
    ranks(3, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"a", 2}, {"b", 2}};
        ujoin_ddp_options options = ddp_options();
        options.find_unused = 1;
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
        ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
        for (int t = 0; t < (rank == 2 ? 40 : 1); t++) {
            ASSERT_UJOIN_OK(reduce_some(ddp.get(), {0}));
            EXPECT_EQ(used_by(ddp.get(), 2), (std::vector<int32_t>{t == 0 ? 3 : 1, 0})) << "round " << t;
        }
        ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
        EXPECT_EQ(used_by(ddp.get(), 2), (std::vector<int32_t>{1, 0}));
    });
}

TEST_P(DdpGraph, D_49_a_static_graph_with_a_rank_that_has_no_inputs) {
    for (const int idle : {0, 1})
        ranks(2, [&](ujoin_group *group, int rank) {
            std::vector<Tensor> tensors{{"a", 2}, {"b", 2}, {"c", 2}};
            ujoin_ddp_options options = ddp_options(UJOIN_DIVISION_ACTIVE);
            options.static_graph = 1;
            options.bucket_bytes = 1;
            const DdpPtr ddp = make_ddp(group, tensors, options);
            ASSERT_TRUE(ddp);
            const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
            ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
            for (int t = 0; t < (rank == idle ? 0 : 4); t++) {
                for (Tensor &tensor : tensors) tensor.fill_grad(static_cast<float>(t + 1));
                ASSERT_UJOIN_OK(reduce_some(ddp.get(), {0, 2}));
                for (Tensor &tensor : tensors) tensor.values<float>()[1] -= tensor.grads<float>()[1];
            }
            ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
            EXPECT_EQ(report_of(ddp.get()).rebuilt, 1);
            EXPECT_EQ(used_by(ddp.get(), 3), (std::vector<int32_t>{1, 0, 1}));
            EXPECT_EQ(tensors[0].values<float>()[1], -10);
            EXPECT_EQ(tensors[0].grads<float>()[0], 4) << "a joined rank has the result";
            EXPECT_EQ(tensors[1].grads<float>()[0], rank == idle ? 0 : 4) << "nobody used it, nobody writes it";

            // Its own first iteration, on the graph that the others have had since long.
            for (Tensor &tensor : tensors) tensor.fill_grad(static_cast<float>(2 * rank));
            ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
            expect_error(ujoin_ddp_ready(ddp.get(), 1), UJOIN_E_STATE, {"1 (\"b\")", "static"});
            ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 0));
            ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 2));
            ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
            EXPECT_EQ(tensors[2].grads<float>()[1], 1);
        });
}

TEST_P(DdpGraph, a_static_graph_misses_a_parameter_that_it_used_before) {
    ranks(2, [](ujoin_group *group, int) {
        std::vector<Tensor> tensors{{"a", 2}, {"b", 2}};
        ujoin_ddp_options options = ddp_options();
        options.static_graph = 1;
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        ASSERT_UJOIN_OK(reduce_some(ddp.get(), {0, 1}));
        expect_error(reduce_some(ddp.get(), {0}), UJOIN_E_STATE, {"1 (\"b\")"});
    });
}

// -------------------------------------------------------------------------------------------------- layout of buckets

TEST_P(DdpGraph, D_41_all_ranks_adopt_one_order_of_buckets) {
    for (const int idle : {-1, 0})
        ranks(3, [&](ujoin_group *group, int rank) {
            std::vector<Tensor> tensors{{"a", 2}, {"b", 2}, {"c", 2}, {"d", 2}};
            ujoin_ddp_options options = ddp_options(UJOIN_DIVISION_ACTIVE);
            options.bucket_bytes = 16; // two parameters each
            const DdpPtr ddp = make_ddp(group, tensors, options);
            ASSERT_TRUE(ddp);
            const CtxPtr ctx = make_ctx({ujoin_ddp_joinable(ddp.get())});
            ASSERT_UJOIN_OK(ujoin_ctx_start(ctx.get()));
            // The lowest rank that has inputs: b and d, then a and c. The others have orders of their own.
            const int first = idle == 0 ? 1 : 0;
            const std::vector<size_t> order = rank == first ? std::vector<size_t>{1, 3, 0, 2}
                                              : rank == 2   ? std::vector<size_t>{0, 1, 2, 3}
                                                            : std::vector<size_t>{3, 2, 1, 0};
            for (int t = 0; t < (rank == idle ? 0 : 3); t++) {
                for (size_t i = 0; i < 4; i++) tensors[i].fill_grad(static_cast<float>(10 * rank) + static_cast<float>(i));
                if (t < 2) {
                    ASSERT_UJOIN_OK(reduce_some(ddp.get(), order));
                } else {
                    ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
                    for (const size_t i : {1U, 3U}) ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), i));
                    if (idle < 0) { // complete: what is in flight comes before the barrier
                        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr));
                        EXPECT_EQ(tensors[3].grads<float>()[1], 13);
                        EXPECT_EQ(tensors[2].grads<float>()[1], static_cast<float>(10 * rank) + 2);
                    }
                    for (const size_t i : {0U, 2U}) ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), i));
                    ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
                }
                const float mean = idle < 0 ? 10.0F : 15.0F;
                for (size_t i = 0; i < 4; i++) EXPECT_EQ(tensors[i].grads<float>()[0], mean + static_cast<float>(i));
                EXPECT_EQ(report_of(ddp.get()).rebuilt, t > 0);
            }
            ASSERT_UJOIN_OK(ujoin_ctx_finish(ctx.get()));
            EXPECT_EQ(report_of(ddp.get()).rebuilt, 1);
            EXPECT_EQ(report_of(ddp.get()).bucket_count, 2U);
        });
}

TEST_P(DdpGraph, bucket_views_need_no_memory_for_gradients_and_start_from_what_is_there) {
    ranks(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"a", 3}, {"b", 2, UJOIN_F64}, {"c", 4}};
        tensors[2].fill_grad(static_cast<float>(8 * rank));
        std::vector<ujoin_param> params = params_of(tensors);
        params[0].grad = params[1].grad = nullptr;
        ujoin_ddp_options options = ddp_options();
        options.bucket_view = 1;
        ujoin_ddp *handle = nullptr;
        ASSERT_UJOIN_OK(ujoin_ddp_create(group, params.data(), params.size(), &options, &handle));
        const DdpPtr ddp(handle);
        auto *a = static_cast<float *>(ujoin_ddp_gradient(handle, 0));
        auto *b = static_cast<double *>(ujoin_ddp_gradient(handle, 1));
        auto *c = static_cast<float *>(ujoin_ddp_gradient(handle, 2));
        EXPECT_EQ(c, a + 3);
        EXPECT_EQ(a[2], 0);
        for (int t = 0; t < 3; t++) {
            std::fill_n(b, 2, 2.0 * rank);
            ASSERT_UJOIN_OK(reduce(handle, 3));
            EXPECT_EQ(b[1], 1);
            EXPECT_EQ(c[3], 4);
        }
        EXPECT_EQ(tensors[2].grads<float>()[0], static_cast<float>(8 * rank)) << "the program's own memory is not touched";
        EXPECT_EQ(ujoin_ddp_gradient(handle, 3), nullptr);
    });
}

// ------------------------------------------------------------------------------------------------ ignored, buffers

TEST_P(DdpGraph, D_39_ignored_parameters_are_neither_checked_nor_reduced) {
    ranks(2, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"a", 2}, {rank == 0 ? "x" : "y", 3U + static_cast<size_t>(rank)}, {"c", 2}};
        for (Tensor &tensor : tensors) tensor.fill(static_cast<float>(rank));
        tensors[1].fill_grad(static_cast<float>(rank + 5));
        std::vector<ujoin_param> params = params_of(tensors);
        params[1].flags = UJOIN_PARAM_IGNORED;
        if (rank == 1) params[1].grad = nullptr;
        ujoin_ddp *handle = nullptr;
        ASSERT_UJOIN_OK(ujoin_ddp_create(group, params.data(), params.size(), nullptr, &handle));
        const DdpPtr ddp(handle);
        EXPECT_EQ(tensors[2].values<float>()[0], 0);
        EXPECT_EQ(tensors[1].values<float>()[0], static_cast<float>(rank)) << "an ignored parameter was broadcast";
        for (int t = 0; t < 3; t++) {
            tensors[0].fill_grad(static_cast<float>(2 * rank));
            ASSERT_UJOIN_OK(reduce_some(handle, t == 0 ? std::vector<size_t>{0, 2} : std::vector<size_t>{0, 1, 2}));
            EXPECT_EQ(tensors[0].grads<float>()[1], 1);
            EXPECT_EQ(tensors[1].grads<float>()[0], static_cast<float>(rank + 5));
        }
        EXPECT_EQ(ujoin_ddp_gradient(handle, 1), nullptr);
        EXPECT_EQ(used_by(handle, 3), (std::vector<int32_t>{2, 0, 2}));

        params[1].flags = rank == 0 ? UJOIN_PARAM_IGNORED : 0;
        params[1].grad = tensors[1].grads<float>();
        ujoin_ddp *none = nullptr;
        expect_error(ujoin_ddp_create(group, params.data(), params.size(), nullptr, &none), UJOIN_E_MISMATCH,
                     {"parameter 1", "(ignored) on rank 0"});
    });
}

TEST_P(DdpGraph, D_20_starting_values_are_taken_from_a_chosen_rank) {
    ranks(3, [](ujoin_group *group, int rank) {
        std::vector<Tensor> tensors{{"w", 3}};
        tensors[0].fill(static_cast<float>(rank + 1));
        int64_t steps = 100 + rank;
        const ujoin_buffer buffer{&steps, 1, UJOIN_I64, 0, 0, 0};
        ujoin_ddp_options options = ddp_options();
        options.source_rank = 1;
        options.buffers = &buffer;
        options.buffer_count = 1;
        const DdpPtr ddp = make_ddp(group, tensors, options);
        ASSERT_TRUE(ddp);
        EXPECT_EQ(tensors[0].values<float>()[2], 2);
        EXPECT_EQ(steps, 101);
    });
}

TEST_P(DdpGraph, D_36_buffers_come_from_rank_0_before_each_forward) {
    for (const bool keep : {false, true})
        ranks(3, [&](ujoin_group *group, int rank) {
            std::vector<Tensor> tensors{{"w", 1}};
            std::vector<float> mean(5);
            std::vector<uint8_t> flag(1);
            const std::vector<ujoin_buffer> buffers{{mean.data(), mean.size(), UJOIN_F32, 0, 0, 0},
                                                    {flag.data(), flag.size(), UJOIN_U8, 0, 0, 0}};
            ujoin_ddp_options options = ddp_options();
            options.buffers = buffers.data();
            options.buffer_count = buffers.size();
            options.no_buffer_broadcast = keep ? 1 : 0;
            const DdpPtr ddp = make_ddp(group, tensors, options);
            ASSERT_TRUE(ddp);
            for (int t = 1; t < 4; t++) {
                std::fill(mean.begin(), mean.end(), static_cast<float>(10 * t + rank));
                flag[0] = static_cast<uint8_t>(10 * t + rank);
                ASSERT_UJOIN_OK(ujoin_ddp_forward(ddp.get(), 1));
                EXPECT_EQ(mean[4], static_cast<float>(10 * t + (keep ? rank : 0)));
                EXPECT_EQ(flag[0], 10 * t + (keep ? rank : 0));
                ASSERT_UJOIN_OK(ujoin_ddp_ready(ddp.get(), 0));
                ASSERT_UJOIN_OK(ujoin_ddp_finish(ddp.get()));
            }
        });
}

INSTANTIATE_TEST_SUITE_P(Ranks, DdpGraph,
                         testing::Values(Ranks::threads, Ranks::processes, Ranks::connections, Ranks::hosts), kind_name);
