// SPDX-License-Identifier: Apache-2.0
// The partition by elements: the same numbers as with whole parameters, on any number of ranks.
#include "base/dtype.hpp"
#include "harness/temp_dir.hpp"
#include "harness/zero_kit.hpp"
#include <cmath>
#include <cstring>
#include <fstream>
#include <gtest/gtest.h>
#include <limits>
#include <optional>

using namespace harness;

namespace {

void expect_error(ujoin_status got, ujoin_status expected, const std::vector<std::string> &text) {
    EXPECT_EQ(got, expected) << ujoin_last_error();
    for (const std::string &part : text)
        EXPECT_NE(std::string(ujoin_last_error()).find(part), std::string::npos) << part << " in: " << ujoin_last_error();
}

/// Values and gradients of every type. One parameter has most elements, others less than a cache line; of each type one is cut.
struct Model {
    std::vector<float> giant = std::vector<float>(3001), giant_grad = giant;
    std::vector<float> tiny = std::vector<float>(5), tiny_grad = tiny;
    std::vector<float> empty, empty_grad;
    std::vector<double> wide = std::vector<double>(1201), wide_grad = wide; // whose sums are rounded
    std::vector<ujoin::BFloat16> brain = std::vector<ujoin::BFloat16>(2501), brain_grad = brain;
    std::vector<ujoin::Half> half = std::vector<ujoin::Half>(2000);
    std::vector<float> half_grad = std::vector<float>(2000); // of another type than the parameter

    Model() {
        fill(giant, 0, 0);
        fill(tiny, 1, 0);
        fill(wide, 2, 0);
        fill(brain, 3, 0);
        fill(half, 4, 0);
    }
    static double at(size_t param, size_t i, int step) {
        return std::sin(0.37 * static_cast<double>(i) + 1.7 * static_cast<double>(param) + 0.9 * step) + 0.01;
    }
    template <class T> static void fill(std::vector<T> &values, size_t param, int step) {
        for (size_t i = 0; i < values.size(); i++) {
            if constexpr (sizeof(T) == 2) {
                values[i] = T(static_cast<float>(at(param, i, step)));
            } else {
                values[i] = static_cast<T>(at(param, i, step));
            }
        }
    }
    void gradients(int step) {
        fill(giant_grad, 0, step);
        fill(tiny_grad, 1, step);
        fill(wide_grad, 2, step);
        fill(brain_grad, 3, step);
        fill(half_grad, 4, step);
    }
    template <class T, class G> static ujoin_param param(const char *name, std::vector<T> &data, std::vector<G> &grad,
                                                         ujoin_dtype dtype, ujoin_dtype grad_dtype = 0) {
        ujoin_param result{};
        result.name = name;
        result.data = data.data();
        result.grad = grad.data();
        result.count = data.size();
        result.dtype = dtype;
        result.grad_dtype = grad_dtype;
        return result;
    }
    std::vector<ujoin_param> first_group() {
        return {param("tiny", tiny, tiny_grad, UJOIN_F32), param("giant", giant, giant_grad, UJOIN_F32),
                param("empty", empty, empty_grad, UJOIN_F32), param("brain", brain, brain_grad, UJOIN_BF16)};
    }
    std::vector<ujoin_param> second_group() {
        return {param("wide", wide, wide_grad, UJOIN_F64), param("half", half, half_grad, UJOIN_F16, UJOIN_F32)};
    }
    std::vector<unsigned char> bytes() const {
        std::vector<unsigned char> all;
        const auto add = [&](const auto &values) {
            const auto *data = reinterpret_cast<const unsigned char *>(values.data());
            all.insert(all.end(), data, data + values.size() * sizeof(values[0]));
        };
        add(giant);
        add(tiny);
        add(wide);
        add(brain);
        add(half);
        return all;
    }
};

/// An optimizer of such a model, in two param groups.
class Trainer {
  public:
    Trainer(ujoin_group *group, ujoin_optimizer rule, ujoin_partition partition, Model &model, bool stochastic = false)
        : model_(model) {
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.partition = partition;
        options.no_master_copy = stochastic;
        options.stochastic_rounding = stochastic;
        options.seed = 5;
        const std::vector<ujoin_param> first = model.first_group();
        ok(zero_create(group, rule, first.data(), first.size(), &options, &zero));
        const std::vector<ujoin_param> second = model.second_group();
        const ujoin_hyper hyper{"lr", 0.003};
        ok(zero_add_param_group(zero, second.data(), second.size(), &hyper, 1));
        if (rule != UJOIN_OPTIMIZER_RPROP && rule != UJOIN_OPTIMIZER_ADAGRAD) {
            try_hyper("weight_decay", 0.01);
            try_hyper("momentum", 0.9);
            try_hyper("amsgrad", 1);
            try_hyper("centered", 1);
        }
    }
    ~Trainer() { zero_destroy(zero); }
    Trainer(const Trainer &) = delete;
    Trainer &operator=(const Trainer &) = delete;

    /// Steps that clip, skip, freeze and leave gradients out.
    void step(int number) const {
        model_.gradients(number);
        ok(zero_set_frozen(zero, 1, number % 4 == 3 ? 1 : 0));
        ok(zero_set_gradient(zero, 4, number % 3 == 2 ? nullptr : model_.wide_grad.data()));
        ujoin_step_options options{};
        options.size = sizeof options;
        options.max_norm = number % 2 == 0 ? 1.5 : 0;
        options.norm_type = number % 4 == 2 ? 3 : 0;
        ok(zero_step(zero, &options));
    }
    double norm(double type) const {
        double result = 0;
        const ujoin_status status = ok(zero_clip_grad_norm(zero, 1e9, type, &result));
        EXPECT_EQ(status, UJOIN_OK);
        return result;
    }
    /// The whole state, on every rank.
    std::vector<unsigned char> state(ujoin_group *group) const {
        std::vector<unsigned char> all;
        for (int32_t to = 0; to < ujoin_group_size(group); to++) {
            ok(zero_consolidate_state_dict(zero, to));
            if (to != ujoin_group_rank(group)) continue;
            StateOwner list;
            ok(zero_state_dict(zero, &list.state));
            for (size_t i = 0; i < ujoin_state_count(list.state); i++) {
                ujoin_item item{};
                item.size = sizeof item;
                ok(ujoin_state_get(list.state, i, &item));
                const std::string text = std::string(item.param) + "/" + item.key + "/" + std::to_string(item.number);
                all.insert(all.end(), text.begin(), text.end());
                const auto *data = static_cast<const unsigned char *>(item.data);
                if (item.kind == UJOIN_ITEM_TENSOR) all.insert(all.end(), data, data + item.bytes);
            }
        }
        return all;
    }
    std::vector<size_t> loads(int size) const {
        std::vector<size_t> loads(static_cast<size_t>(size));
        for (size_t i = 0; i < zero_shard_count(zero); i++) {
            ujoin_shard shard{};
            shard.size = sizeof shard;
            ok(zero_get_shard(zero, i, &shard));
            loads[static_cast<size_t>(shard.rank)] += shard.count;
        }
        return loads;
    }

    ujoin_zero *zero = nullptr;

  private:
    void try_hyper(const char *name, double value) const {
        for (size_t i = 0; const char *known = zero_hyper_name(zero, i); i++)
            if (std::strcmp(known, name) == 0) ok(zero_set_hyper(zero, -1, name, value));
    }
    Model &model_;
};

struct Result {
    std::vector<unsigned char> params;
    std::vector<unsigned char> state;
    std::vector<double> norms;
    bool operator==(const Result &) const = default;
};

Result trained(ujoin_group *group, ujoin_optimizer rule, ujoin_partition partition, bool stochastic = false) {
    Model model;
    const Trainer trainer(group, rule, partition, model, stochastic);
    for (int i = 0; i < 7; i++) trainer.step(i);
    std::vector<double> norms;
    for (const double type : {1.0, 2.0, 2.5, HUGE_VAL}) norms.push_back(trainer.norm(type));
    return {model.bytes(), trainer.state(group), norms};
}

Result alone(ujoin_optimizer rule, bool stochastic = false) {
    std::optional<Result> result;
    on_ranks("self", 1,
             [&](ujoin_group *group, int) { result = trained(group, rule, UJOIN_PARTITION_PARAMETERS, stochastic); });
    return *result;
}

const std::vector<ujoin_optimizer> element_wise{UJOIN_OPTIMIZER_SGD,     UJOIN_OPTIMIZER_ADAM,    UJOIN_OPTIMIZER_ADAMW,
                                                UJOIN_OPTIMIZER_ADAGRAD, UJOIN_OPTIMIZER_RMSPROP, UJOIN_OPTIMIZER_ADADELTA,
                                                UJOIN_OPTIMIZER_ADAMAX,  UJOIN_OPTIMIZER_NADAM,   UJOIN_OPTIMIZER_RADAM,
                                                UJOIN_OPTIMIZER_RPROP,   UJOIN_OPTIMIZER_LION};

class ZeroElementsRules : public testing::TestWithParam<ujoin_optimizer> {};
INSTANTIATE_TEST_SUITE_P(Rules, ZeroElementsRules, testing::ValuesIn(element_wise),
                         [](const auto &of) { return std::to_string(of.param); });

TEST_P(ZeroElementsRules, both_partitions_give_the_same_bits_on_any_number_of_ranks) {
    const Result expected = alone(GetParam());
    for (const int size : {1, 2, 3, 4})
        on_ranks("local", size, [&](ujoin_group *group, int) {
            for (const ujoin_partition partition : {UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS})
                EXPECT_TRUE(trained(group, GetParam(), partition) == expected) << size << " ranks, partition " << partition;
        });
}

class ZeroElements : public testing::TestWithParam<const char *> {};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroElements, testing::Values("local", "shm", "tcp", "hier"),
                         [](const auto &of) { return std::string(of.param); });

/// Norms of sums that are rounded often.
std::vector<double> norms_of(ujoin_group *group, ujoin_partition partition) {
    std::vector<double> value(5000), grad(5000);
    const std::vector<ujoin_param> params{Model::param("x", value, grad, UJOIN_F64)};
    ujoin_zero_options options{};
    options.size = sizeof options;
    options.partition = partition;
    ujoin_zero *zero = nullptr;
    ok(zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), 1, &options, &zero));
    std::vector<double> norms;
    for (int round = 0; round < 40; round++) {
        for (size_t i = 0; i < grad.size(); i++) grad[i] = Model::at(0, i, round) * std::pow(10, i % 5);
        norms.push_back(0);
        ok(zero_clip_grad_norm(zero, 1e12, 1, &norms.back()));
    }
    zero_destroy(zero);
    return norms;
}

TEST_P(ZeroElements, ZERO_01_a_norm_has_the_same_bits_wherever_a_parameter_is_cut) {
    std::vector<double> expected;
    on_ranks("self", 1, [&](ujoin_group *group, int) { expected = norms_of(group, UJOIN_PARTITION_PARAMETERS); });
    for (const int size : {2, 3, 4})
        on_ranks(GetParam(), size,
                 [&](ujoin_group *group, int) { EXPECT_EQ(norms_of(group, UJOIN_PARTITION_ELEMENTS), expected) << size; });
}

TEST_P(ZeroElements, stochastic_rounding_does_not_depend_on_the_partition) {
    const Result expected = alone(UJOIN_OPTIMIZER_ADAMW, true);
    for (const int size : {2, 3})
        on_ranks(GetParam(), size, [&](ujoin_group *group, int) {
            EXPECT_TRUE(trained(group, UJOIN_OPTIMIZER_ADAMW, UJOIN_PARTITION_ELEMENTS, true) == expected) << size;
        });
}

TEST_P(ZeroElements, ZERO_04_one_giant_parameter_does_not_ruin_the_balance) {
    on_ranks(GetParam(), 4, [](ujoin_group *group, int) {
        Model model;
        const Trainer trainer(group, UJOIN_OPTIMIZER_ADAM, UJOIN_PARTITION_ELEMENTS, model);
        trainer.step(0);
        const double part = (3001 + 5 + 2501 + 1201 + 2000) / 4.0;
        for (const size_t load : trainer.loads(4)) EXPECT_NEAR(static_cast<double>(load), part, 32);
        ujoin_zero_memory memory{};
        memory.size = sizeof memory;
        ok(zero_get_memory(trainer.zero, &memory));
        EXPECT_EQ(memory.full_state,
                  (3001 + 5) * 3 * 4U + (2501 + 2000) * 4 * 4U + 1201 * 3 * 8U); // master copies of 16 bits
        EXPECT_LT(memory.state, memory.full_state / 3);
    });
}

TEST_P(ZeroElements, rules_that_need_whole_parameters_are_refused) {
    on_ranks(GetParam(), 2, [](ujoin_group *group, int) {
        Model model;
        const std::vector<ujoin_param> params = model.first_group();
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.partition = UJOIN_PARTITION_ELEMENTS;
        ujoin_zero *zero = nullptr;
        expect_error(zero_create(group, UJOIN_OPTIMIZER_LAMB, params.data(), params.size(), &options, &zero),
                     UJOIN_E_UNSUPPORTED, {"UJOIN_PARTITION_ELEMENTS", "lamb needs whole parameters"});
        EXPECT_EQ(zero, nullptr);
        ujoin_rule rule{};
        rule.size = sizeof rule;
        rule.name = "mine";
        rule.per_tensor = 1;
        rule.step = [](void *, const ujoin_rule_args *args) {
            EXPECT_EQ(args->offset, 0U);
            EXPECT_EQ(args->shape[0], static_cast<int64_t>(args->count)); // always as a whole
            return static_cast<ujoin_status>(UJOIN_OK);
        };
        options.rule = &rule;
        expect_error(zero_create(group, UJOIN_OPTIMIZER_CUSTOM, params.data(), params.size(), &options, &zero),
                     UJOIN_E_UNSUPPORTED, {"mine needs whole parameters"});
        options.partition = 3;
        expect_error(zero_create(group, UJOIN_OPTIMIZER_CUSTOM, params.data(), params.size(), &options, &zero),
                     UJOIN_E_INVALID, {"options.partition is 3"});
        options.partition = 0;
        ok(zero_create(group, UJOIN_OPTIMIZER_CUSTOM, params.data(), params.size(), &options, &zero));
        ok(zero_step(zero, nullptr));
        zero_destroy(zero);
        rule.per_tensor = 2;
        expect_error(zero_create(group, UJOIN_OPTIMIZER_CUSTOM, params.data(), params.size(), &options, &zero),
                     UJOIN_E_INVALID, {"options.rule.per_tensor is 2"});
    });
}

TEST_P(ZeroElements, ranks_with_different_partitions_are_told) {
    on_ranks(GetParam(), 2, [](ujoin_group *group, int rank) {
        Model model;
        const std::vector<ujoin_param> params = model.first_group();
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.partition = rank == 0 ? UJOIN_PARTITION_ELEMENTS : UJOIN_PARTITION_PARAMETERS;
        ujoin_zero *zero = nullptr;
        expect_error(zero_create(group, UJOIN_OPTIMIZER_ADAM, params.data(), params.size(), &options, &zero),
                     UJOIN_E_MISMATCH, {"option partition", "rank 0 has 2", "rank 1 has 1"});
    });
}

/// The piece that a rule of the program's own sees.
struct Seen {
    size_t offset = 0;
    size_t count = 0;
    int64_t whole = 0;
};

TEST_P(ZeroElements, a_rule_of_the_programs_own_is_told_where_its_piece_lies) {
    on_ranks(GetParam(), 2, [](ujoin_group *group, int rank) {
        std::vector<float> value(100, 1);
        std::vector<float> grad(100);
        for (size_t i = 0; i < 100; i++) grad[i] = static_cast<float>(i);
        const std::vector<ujoin_param> params{Model::param("x", value, grad, UJOIN_F32)};
        std::vector<Seen> seen;
        ujoin_rule rule{};
        rule.size = sizeof rule;
        rule.name = "mine";
        rule.user_data = &seen;
        rule.step = [](void *data, const ujoin_rule_args *args) {
            static_cast<std::vector<Seen> *>(data)->push_back({args->offset, args->count, args->shape[0]});
            for (size_t i = 0; i < args->count; i++)
                static_cast<float *>(args->data)[i] =
                    static_cast<const float *>(args->grad)[i] + static_cast<float>(args->offset + i) * 1000;
            return static_cast<ujoin_status>(UJOIN_OK);
        };
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.rule = &rule;
        options.partition = UJOIN_PARTITION_ELEMENTS;
        ujoin_zero *zero = nullptr;
        ok(zero_create(group, UJOIN_OPTIMIZER_CUSTOM, params.data(), 1, &options, &zero));
        ok(zero_step(zero, nullptr));
        ASSERT_EQ(seen.size(), 1U);
        EXPECT_EQ(seen[0].whole, 100);
        EXPECT_EQ(seen[0].offset, rank == 0 ? 0U : 48U); // 50 is no multiple of a cache line
        EXPECT_EQ(seen[0].count, rank == 0 ? 48U : 52U);
        for (size_t i = 0; i < 100; i++) EXPECT_EQ(value[i], static_cast<float>(i) * 1001) << i;
        zero_destroy(zero);
    });
}

TEST_P(ZeroElements, Z_48_state_moves_between_partitions_and_numbers_of_ranks) {
    ujoin_save_options options{};
    options.size = sizeof options;
    options.parts = UJOIN_SAVE_STATE | UJOIN_SAVE_PARAMETERS;
    options.no_sync = 1;
    const Result expected = alone(UJOIN_OPTIMIZER_NADAM);
    const auto go_on = [&](ujoin_group *group, const Trainer &trainer, const Model &model) {
        for (int i = 4; i < 7; i++) trainer.step(i);
        EXPECT_TRUE(model.bytes() == expected.params);
        EXPECT_TRUE(trainer.state(group) == expected.state);
    };
    for (const ujoin_partition saved : {UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS})
        for (const int savers : {1, 4}) {
            const TempDir dir;
            const std::string path = dir / "save";
            on_ranks(GetParam(), savers, [&](ujoin_group *group, int) {
                Model model;
                const Trainer trainer(group, UJOIN_OPTIMIZER_NADAM, saved, model);
                for (int i = 0; i < 4; i++) trainer.step(i);
                ok(zero_save(trainer.zero, path.c_str(), &options));
            });
            for (const ujoin_partition loaded : {UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS})
                for (const int size : {1, 2, 3, 5})
                    on_ranks(GetParam(), size, [&](ujoin_group *group, int) {
                        SCOPED_TRACE(testing::Message() << savers << " ranks with partition " << saved << " saved, " << size
                                                        << " with partition " << loaded << " loaded");
                        Model model;
                        const Trainer trainer(group, UJOIN_OPTIMIZER_NADAM, loaded, model);
                        ok(zero_load(trainer.zero, path.c_str(), &options, nullptr));
                        go_on(group, trainer, model);
                    });
        }
}

TEST_P(ZeroElements, a_list_of_the_state_moves_between_partitions) {
    const Result expected = alone(UJOIN_OPTIMIZER_ADAM);
    on_ranks(GetParam(), 3, [&](ujoin_group *group, int) {
        for (const ujoin_partition from : {UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS}) {
            Model first;
            const Trainer trainer(group, UJOIN_OPTIMIZER_ADAM, from, first);
            for (int i = 0; i < 4; i++) trainer.step(i);
            StateOwner list;
            for (int32_t to = 0; to < 3; to++) {
                ok(zero_consolidate_state_dict(trainer.zero, to));
                if (to == ujoin_group_rank(group)) ok(zero_state_dict(trainer.zero, &list.state));
            }
            Model second = first;
            const Trainer other(group, UJOIN_OPTIMIZER_ADAM,
                                from == UJOIN_PARTITION_ELEMENTS ? UJOIN_PARTITION_PARAMETERS : UJOIN_PARTITION_ELEMENTS,
                                second);
            ok(zero_load_state_dict(other.zero, list.state));
            for (int i = 4; i < 7; i++) other.step(i);
            EXPECT_TRUE(second.bytes() == expected.params) << from;
            EXPECT_TRUE(other.state(group) == expected.state) << from;
        }
    });
}

TEST_P(ZeroElements, a_gradient_that_is_not_finite_in_one_piece_skips_the_step_everywhere) {
    on_ranks(GetParam(), 3, [](ujoin_group *group, int) {
        Model model;
        const Trainer trainer(group, UJOIN_OPTIMIZER_ADAM, UJOIN_PARTITION_ELEMENTS, model);
        ujoin_scaler *scaler = nullptr;
        ok(zero_scaler_create(nullptr, &scaler));
        const double before = zero_scaler_scale(scaler);
        const std::vector<unsigned char> values = model.bytes();
        model.gradients(0);
        model.giant_grad[3000] = std::numeric_limits<float>::infinity();
        ujoin_step_options options{};
        options.size = sizeof options;
        options.scaler = scaler;
        EXPECT_EQ(zero_step(trainer.zero, &options), UJOIN_SKIPPED);
        EXPECT_LT(zero_scaler_scale(scaler), before);
        EXPECT_TRUE(model.bytes() == values);
        model.gradients(0);
        EXPECT_EQ(zero_step(trainer.zero, &options), UJOIN_OK);
        EXPECT_FALSE(model.bytes() == values);
        zero_scaler_destroy(scaler);
    });
}

TEST_P(ZeroElements, uneven_inputs_step_every_piece_for_all) {
    on_ranks(GetParam(), 3, [](ujoin_group *group, int rank) {
        std::vector<float> value(1000, 1);
        std::vector<float> grad(1000, 1);
        const std::vector<ujoin_param> params{Model::param("x", value, grad, UJOIN_F32)};
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.partition = UJOIN_PARTITION_ELEMENTS;
        const ujoin_hyper hyper{"lr", 0.125};
        options.hyper = &hyper;
        options.hyper_count = 1;
        ujoin_zero *zero = nullptr;
        ok(zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), 1, &options, &zero));
        ujoin_joinable *joinable = zero_joinable(zero);
        ujoin_ctx *ctx = nullptr;
        ok(ujoin_ctx_create(&joinable, 1, nullptr, &ctx));
        ok(ujoin_ctx_start(ctx));
        for (int i = 0; i < 1 + rank; i++) ok(zero_step(zero, nullptr));
        ok(ujoin_ctx_finish(ctx));
        ujoin_ctx_destroy(ctx);
        for (const float each : value) EXPECT_EQ(each, 1 - 3 * 0.125F);
        zero_destroy(zero);
    });
}

TEST(ZeroElementsFiles, an_index_whose_pieces_make_no_sense_is_refused) {
    const TempDir dir;
    const std::string path = dir / "save";
    on_ranks("local", 2, [&](ujoin_group *group, int) {
        Model model;
        const Trainer trainer(group, UJOIN_OPTIMIZER_SGD, UJOIN_PARTITION_ELEMENTS, model);
        trainer.step(0);
        ok(zero_save(trainer.zero, path.c_str(), nullptr));
        // Another model, whose giant is smaller.
        std::vector<float> small(10), grad(10);
        std::vector<ujoin_param> params = model.first_group();
        params[1] = Model::param("giant", small, grad, UJOIN_F32);
        const std::vector<ujoin_param> second = model.second_group();
        ujoin_zero *other = nullptr;
        ok(zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), params.size(), nullptr, &other));
        ok(zero_add_param_group(other, second.data(), second.size(), nullptr, 0));
        expect_error(zero_load(other, path.c_str(), nullptr, nullptr), UJOIN_E_MISMATCH,
                     {"the pieces of parameter \"giant\" have 3001 elements; here it has 10"});
        zero_destroy(other);
    });
}

} // namespace
