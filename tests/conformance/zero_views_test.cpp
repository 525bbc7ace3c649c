// SPDX-License-Identifier: Apache-2.0
// Parameters in memory of the library's (bucket_view).
#include "base/error.hpp"
#include "harness/temp_dir.hpp"
#include "harness/zero_kit.hpp"
#include "zero/zero.hpp"
#include <cmath>
#include <gtest/gtest.h>

using namespace harness;

namespace {

struct Where {
    const char *backend;
    int size;
    ujoin_partition partition;
};
void PrintTo(const Where &where, std::ostream *out) { *out << where.backend << "_" << where.size; }

class ZeroViews : public testing::TestWithParam<Where> {
  protected:
    void on_ranks(const std::function<void(ujoin_group *, int)> &body) {
        harness::on_ranks(GetParam().backend, GetParam().size, body);
    }
    ujoin_zero *make(ujoin_group *group, ujoin_optimizer rule, const std::vector<ujoin_param> &params,
                     bool bucket_view = true) const {
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.bucket_view = bucket_view;
        options.partition = GetParam().partition;
        ujoin_zero *zero = nullptr;
        ok(zero_create(group, rule, params.data(), params.size(), &options, &zero));
        return zero;
    }
};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroViews,
                         testing::Values(Where{"self", 1, UJOIN_PARTITION_PARAMETERS},
                                         Where{"local", 2, UJOIN_PARTITION_PARAMETERS},
                                         Where{"local", 3, UJOIN_PARTITION_ELEMENTS},
                                         Where{"shm", 2, UJOIN_PARTITION_ELEMENTS}),
                         [](const auto &of) {
                             return std::string(of.param.backend) + "_" + std::to_string(of.param.size) +
                                    (of.param.partition == UJOIN_PARTITION_ELEMENTS ? "_elements" : "_parameters");
                         });

const std::vector<size_t> counts{13, 1, 200, 7, 40};

/// Values that tell where they belong.
Tensors numbered() {
    Tensors x(counts);
    for (size_t i = 0; i < x.data.size(); i++)
        for (size_t k = 0; k < x.data[i].size(); k++) x.data[i][k] = static_cast<float>(1000 * i + k);
    return x;
}
const float *at(ujoin_zero *zero, size_t index) { return static_cast<const float *>(zero_param_data(zero, index)); }
std::vector<float> values(ujoin_zero *zero, size_t index) { return {at(zero, index), at(zero, index) + counts[index]}; }

TEST_P(ZeroViews, Z_40_parameters_lie_side_by_side_with_their_values) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x = numbered();
        const std::vector<std::vector<float>> before = x.data;
        ujoin_zero *zero = make(group, UJOIN_OPTIMIZER_SGD, x.params());
        std::vector<size_t> order; // as the partition has them
        for (size_t i = 0; i < zero_shard_count(zero); i++) {
            ujoin_shard shard{};
            shard.size = sizeof shard;
            ok(zero_get_shard(zero, i, &shard));
            if (shard.offset == 0) order.push_back(shard.param);
        }
        ASSERT_EQ(order.size(), counts.size());
        const float *next = at(zero, order[0]);
        for (const size_t i : order) {
            EXPECT_NE(at(zero, i), x.data[i].data());
            EXPECT_EQ(at(zero, i), next);
            EXPECT_EQ(values(zero, i), before[i]);
            next += counts[i];
        }
        EXPECT_EQ(zero_param_data(zero, counts.size()), nullptr);
        // The program's own memory is not looked at any more.
        for (std::vector<float> &data : x.data) std::fill(data.begin(), data.end(), -1.0F);
        ok(zero_step(zero, nullptr));
        for (size_t i = 0; i < counts.size(); i++) {
            for (size_t k = 0; k < counts[i]; k++) EXPECT_EQ(at(zero, i)[k], before[i][k] - 1e-3F);
            EXPECT_EQ(x.data[i][0], -1);
        }
        zero_destroy(zero);
    });
}

TEST_P(ZeroViews, Z_40_without_the_option_nothing_moves) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x = numbered();
        ujoin_zero *zero = make(group, UJOIN_OPTIMIZER_SGD, x.params(), false);
        for (size_t i = 0; i < counts.size(); i++) EXPECT_EQ(at(zero, i), x.data[i].data());
        zero_destroy(zero);
    });
}

TEST_P(ZeroViews, Z_41_a_frozen_parameter_leaves_the_memory_and_comes_back) {
    on_ranks([&](ujoin_group *group, int) {
        Tensors x = numbered();
        std::vector<ujoin_param> params = x.params();
        params[3].flags = UJOIN_PARAM_FROZEN;
        ujoin_zero *zero = make(group, UJOIN_OPTIMIZER_SGD, params);
        EXPECT_EQ(at(zero, 3), x.data[3].data()); // it never was in there
        ok(zero_step(zero, nullptr));
        const std::vector<float> value = values(zero, 2);
        const float *place = at(zero, 2);
        const float *neighbour = at(zero, 0);
        ok(zero_set_frozen(zero, 2, 1));
        EXPECT_EQ(at(zero, 2), x.data[2].data());
        EXPECT_EQ(values(zero, 2), value);
        EXPECT_EQ(at(zero, 0), neighbour); // no other moves
        ok(zero_step(zero, nullptr));
        EXPECT_EQ(values(zero, 2), value);
        EXPECT_EQ(x.data[2], value);
        x.data[2][0] = 5; // a program may write it there
        ok(zero_set_frozen(zero, 2, 0));
        EXPECT_EQ(at(zero, 2), place);
        EXPECT_EQ(values(zero, 2)[0], 5);
        ok(zero_set_frozen(zero, 3, 0));
        EXPECT_NE(at(zero, 3), x.data[3].data());
        ok(zero_step(zero, nullptr));
        EXPECT_EQ(values(zero, 2)[0], 5 - 1e-3F);
        EXPECT_EQ(values(zero, 3)[0], 3000 - 1e-3F);
        EXPECT_EQ(values(zero, 0)[1], 1 - 1e-3F - 1e-3F - 1e-3F);
        zero_destroy(zero);
    });
}

TEST_P(ZeroViews, groups_state_and_saved_parameters_are_as_without) {
    const TempDir dir;
    const std::string path = dir / "save";
    on_ranks([&](ujoin_group *group, int) {
        Tensors x = numbered();
        Tensors y = numbered();
        Tensors x_more({20, 3}, 2);
        Tensors y_more({20, 3}, 2);
        for (Tensors *more : {&x_more, &y_more}) more->names = {"more0", "more1"};
        ujoin_zero *viewed = make(group, UJOIN_OPTIMIZER_ADAM, x.params());
        ujoin_zero *plain = make(group, UJOIN_OPTIMIZER_ADAM, y.params(), false);
        ok(zero_add_param_group(viewed, x_more.params().data(), 2, nullptr, 0));
        ok(zero_add_param_group(plain, y_more.params().data(), 2, nullptr, 0));
        EXPECT_NE(zero_param_data(viewed, 5), x_more.data[0].data());
        EXPECT_EQ(static_cast<const float *>(zero_param_data(viewed, 5))[19], 2);
        const auto step = [&](int number) {
            for (Tensors *tensors : {&x, &y, &x_more, &y_more})
                for (std::vector<float> &grad : tensors->grad)
                    for (size_t k = 0; k < grad.size(); k++)
                        grad[k] = std::sin(static_cast<float>(k) + static_cast<float>(number));
            ok(zero_step(viewed, nullptr));
            ok(zero_step(plain, nullptr));
        };
        for (int i = 0; i < 3; i++) step(i);
        ujoin_save_options options{};
        options.size = sizeof options;
        options.parts = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;
        options.no_sync = 1;
        ok(zero_save(plain, path.c_str(), &options));
        const auto same = [&] {
            for (size_t i = 0; i < counts.size(); i++) EXPECT_EQ(values(viewed, i), y.data[i]) << i;
        };
        same();
        step(3);
        ok(zero_load(viewed, path.c_str(), &options, nullptr)); // into the memory where they lie now
        ok(zero_load(plain, path.c_str(), &options, nullptr));
        same();
        step(4);
        same();
        for (size_t i = 0; i < 2; i++)
            EXPECT_EQ(static_cast<const float *>(zero_param_data(viewed, 5 + i))[2], y_more.data[i][2]);
        zero_destroy(viewed);
        zero_destroy(plain);
    });
}

TEST_P(ZeroViews, a_call_that_fails_moves_nothing) {
    on_ranks([&](ujoin_group *group, int rank) {
        Tensors x = numbered();
        const std::vector<std::vector<float>> before = x.data;
        ujoin_zero *zero = make(group, UJOIN_OPTIMIZER_SGD, x.params());
        ujoin_zero_memory memory{};
        memory.size = sizeof memory;
        ok(zero_get_memory(zero, &memory));
        const uint64_t buffers = memory.buffers;
        EXPECT_GE(buffers, (13 + 1 + 200 + 7 + 40) * sizeof(float));
        Tensors more({20}, 2);
        more.names[0] = "more";
        const ujoin_hyper hyper{"lr", rank == 0 ? 0.5 : 0.25}; // ranks that differ
        if (GetParam().size > 1) {
            EXPECT_EQ(zero_add_param_group(zero, more.params().data(), 1, &hyper, 1), UJOIN_E_MISMATCH);
        }
        EXPECT_EQ(zero_add_param_group(zero, x.params().data(), 1, nullptr, 0), UJOIN_E_INVALID); // memory that it has
        ok(zero_get_memory(zero, &memory));
        EXPECT_EQ(memory.buffers, buffers);
        for (size_t i = 0; i < counts.size(); i++) EXPECT_EQ(values(zero, i), before[i]);
        zero_destroy(zero);
        EXPECT_EQ(more.data[0][0], 2);
    });
}

TEST(ZeroViewRanges, Z_40_what_lies_side_by_side_is_sent_as_one_range) {
    on_ranks("local", 3, [](ujoin_group *group, int) {
        Tensors x = numbered();
        const std::vector<ujoin_param> params = x.params();
        for (const ujoin_partition partition : {UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS}) {
            const std::shared_ptr<const ujoin::optim::Rule> rule = ujoin::optim::shared_rule(UJOIN_OPTIMIZER_SGD);
            ujoin::ZeroOptions options;
            options.partition = partition;
            ujoin::Layout layout(rule, options, ujoin_group_rank(group), 3);
            layout =
                layout.with_group(ujoin::read_params(params.data(), params.size(), {}), ujoin::optim::default_hyper(*rule));
            EXPECT_GT(layout.share.segments.size(), 3U);
            const ujoin::ParamViews::Block block = ujoin::ParamViews::place(layout, 0);
            ASSERT_EQ(layout.share.segments.size(), 1U);
            EXPECT_EQ(layout.share.segments[0].data, block.begin());
            EXPECT_EQ(layout.share.segments[0].bytes, block.bytes());
        }
    });
}

} // namespace
