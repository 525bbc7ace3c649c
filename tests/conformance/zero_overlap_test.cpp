// SPDX-License-Identifier: Apache-2.0
// The sharded optimizer inside the reducer: each run beside one that reduces and then steps, which must have the same bits.
#include "harness/ddp_kit.hpp"
#include "harness/zero_kit.hpp"
#include <cmath>
#include <gtest/gtest.h>
#include <numeric>
#include <optional>

using namespace harness;

namespace {

struct Recipe {
    bool overlap = true;
    bool static_graph = false;
    bool find_unused = false;
    bool gradient_view = false;
    bool parameter_view = false;
    ujoin_partition partition = 0;
    ujoin_optimizer rule = UJOIN_OPTIMIZER_ADAM;
    const ujoin_rule *custom = nullptr;
    std::vector<ujoin_hyper> hyper{};
    ujoin_comm_hook_kind hook = 0;
    ujoin_division division = 0;
    size_t buffers = 0;
    size_t bucket_bytes = 4096;
    std::vector<size_t> counts{1500, 3, 900, 0, 2100, 17, 40};
};

Recipe apart(Recipe recipe) {
    recipe.overlap = false;
    return recipe;
}

using Uses = std::function<bool(size_t param)>;
const Uses all_used = [](size_t) { return true; };

/// A model whose gradients depend on its parameters, so that no difference is ever lost.
class Trainer {
  public:
    Trainer(ujoin_group *group, const Recipe &recipe, size_t in_second_group = 0)
        : group_(group), recipe_(recipe), x_(recipe.counts), buffers_(recipe.buffers, 1) {
        for (size_t p = 0; p < x_.data.size(); p++)
            for (size_t k = 0; k < x_.data[p].size(); k++)
                x_.data[p][k] = std::cos(static_cast<float>(p) + 0.37F * static_cast<float>(k));
        make_ddp();
        make_zero(x_.data.size() - in_second_group);
    }

    ujoin_ddp *ddp() const { return ddp_.get(); }
    ujoin_zero *zero() const { return zero_.get(); }
    float *grad(size_t p) const { return static_cast<float *>(ujoin_ddp_gradient(ddp(), p)); }
    size_t size() const { return x_.data.size(); }
    const Tensors &tensors() const { return x_; }

    /// The parameters from `first` on, as zero is given them.
    std::vector<ujoin_param> params(size_t first = 0) {
        std::vector<ujoin_param> list = x_.params();
        for (size_t p = 0; p < list.size(); p++) list[p].grad = grad(p);
        list.erase(list.begin(), list.begin() + static_cast<std::ptrdiff_t>(first));
        return list;
    }

    void iterate(int t, const Uses &uses = all_used, bool sync = true) {
        ok(ujoin_ddp_set_sync(ddp(), sync ? 1 : 0));
        ok(ujoin_ddp_forward(ddp(), 1));
        for (float &value : buffers_) value += static_cast<float>(ujoin_group_rank(group_) + t);
        backward(t, uses);
        ok(ujoin_ddp_finish(ddp()));
        if (sync && !recipe_.overlap) ok(zero_step(zero(), nullptr));
    }
    void backward(int t, const Uses &uses = all_used) {
        const size_t n = size();
        for (size_t i = 0; i < n; i++) {
            const size_t p = (n - 1 - i + (shuffled_ ? static_cast<size_t>(t) * 3 : 0)) % n;
            if (!uses(p)) continue;
            const float *w = value(p);
            for (size_t k = 0; k < x_.data[p].size(); k++)
                grad(p)[k] += 0.3F * w[k] + std::sin(0.01F * static_cast<float>(k) + 0.7F * static_cast<float>(t) +
                                                     static_cast<float>(p) + static_cast<float>(ujoin_group_rank(group_)));
            ok(ujoin_ddp_ready(ddp(), p));
        }
    }
    /// Where a parameter lies; before zero has it, in the program's memory.
    const float *value(size_t p) const {
        const void *data = zero_param_data(zero(), p);
        return data ? static_cast<const float *>(data) : x_.data[p].data();
    }
    void clear() const { ok(zero_clear_gradients(zero())); }
    void shuffle() { shuffled_ = true; }

    std::vector<std::vector<float>> values() const {
        std::vector<std::vector<float>> all;
        for (size_t p = 0; p < size(); p++) {
            const float *w = value(p);
            all.emplace_back(w, w + x_.data[p].size());
        }
        return all;
    }
    std::vector<std::vector<float>> gradients() const {
        std::vector<std::vector<float>> all;
        for (size_t p = 0; p < size(); p++) all.emplace_back(grad(p), grad(p) + x_.data[p].size());
        return all;
    }
    const std::vector<float> &buffers() const { return buffers_; }
    Listed state() const {
        Listed all;
        for (int32_t to = 0; to < ujoin_group_size(group_); to++) {
            ok(zero_consolidate_state_dict(zero(), to));
            if (to != ujoin_group_rank(group_)) continue;
            StateOwner owner;
            ok(zero_state_dict(zero(), &owner.state));
            all = listed(owner.state);
        }
        return all;
    }
    std::vector<ujoin_shard> shards() const {
        std::vector<ujoin_shard> list(zero_shard_count(zero()));
        for (size_t i = 0; i < list.size(); i++) {
            list[i].size = sizeof list[i];
            ok(zero_get_shard(zero(), i, &list[i]));
        }
        return list;
    }

  private:
    void make_ddp() {
        ujoin_buffer buffer{};
        buffer.data = buffers_.data();
        buffer.count = buffers_.size();
        buffer.dtype = UJOIN_F32;
        ujoin_ddp_options options = ddp_kit::ddp_options(recipe_.division);
        options.static_graph = recipe_.static_graph ? 1 : 0;
        options.find_unused = recipe_.find_unused ? 1 : 0;
        options.bucket_view = recipe_.gradient_view ? 1 : 0;
        options.bucket_bytes = recipe_.bucket_bytes;
        options.buffers = &buffer;
        options.buffer_count = recipe_.buffers == 0 ? 0 : 1;
        ujoin_ddp *ddp = nullptr;
        const std::vector<ujoin_param> params = x_.params();
        ok(ujoin_ddp_create(group_, params.data(), params.size(), &options, &ddp));
        ddp_.reset(ddp);
        for (size_t p = 0; p < size(); p++) std::fill_n(grad(p), x_.data[p].size(), 0.F);
        if (recipe_.hook == 0) return;
        ujoin_comm_hook hook{};
        hook.size = sizeof hook;
        hook.kind = recipe_.hook;
        hook.start_iteration = 1;
        ok(ujoin_ddp_set_comm_hook(ddp, &hook));
    }
    void make_zero(size_t first_group) {
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.hyper = recipe_.hyper.data();
        options.hyper_count = recipe_.hyper.size();
        options.partition = recipe_.partition;
        options.bucket_view = recipe_.parameter_view ? 1 : 0;
        options.rule = recipe_.custom;
        options.ddp = recipe_.overlap ? ddp() : nullptr;
        ujoin_zero *zero = nullptr;
        const std::vector<ujoin_param> list = params();
        ok(zero_create(group_, recipe_.rule, list.data(), first_group, &options, &zero));
        zero_.reset(zero);
    }

    ujoin_group *group_;
    Recipe recipe_;
    Tensors x_;
    std::vector<float> buffers_;
    bool shuffled_ = false;
    ddp_kit::DdpPtr ddp_;
    ddp_kit::ZeroPtr zero_;
};

void expect_same(const Trainer &a, const Trainer &b) {
    EXPECT_TRUE(a.values() == b.values());
    EXPECT_TRUE(a.gradients() == b.gradients());
    EXPECT_EQ(a.buffers(), b.buffers());
    EXPECT_TRUE(a.state() == b.state());
}

/// Both ways, side by side, and that each iteration changes something.
void expect_parity(ujoin_group *group, const Recipe &recipe, const std::function<Uses(int t)> &uses = nullptr) {
    Trainer a(group, recipe);
    Trainer b(group, apart(recipe));
    for (int t = 0; t < 4; t++) {
        const auto before = a.values();
        for (Trainer *each : {&a, &b}) {
            each->clear();
            each->iterate(t, uses ? uses(t) : all_used);
        }
        EXPECT_TRUE(a.values() != before) << t;
        EXPECT_TRUE(a.values() == b.values()) << t;
    }
    expect_same(a, b);
}

struct Where {
    const char *backend;
    int size;
};
void PrintTo(const Where &where, std::ostream *out) { *out << where.backend << "_" << where.size; }

class ZeroOverlap : public testing::TestWithParam<Where> {
  protected:
    void on_ranks(const std::function<void(ujoin_group *, int)> &body) {
        harness::on_ranks(GetParam().backend, GetParam().size, body);
    }
    void expect_parities(const std::vector<Recipe> &recipes, const std::function<Uses(int t)> &uses = nullptr) {
        on_ranks([&](ujoin_group *group, int) {
            for (const Recipe &recipe : recipes) expect_parity(group, recipe, uses);
        });
    }
};
INSTANTIATE_TEST_SUITE_P(Backends, ZeroOverlap,
                         testing::Values(Where{"self", 1}, Where{"local", 2}, Where{"local", 3}, Where{"shm", 2}),
                         [](const auto &of) {
                             return std::string(of.param.backend) + "_" + std::to_string(of.param.size);
                         });

/// Graph, gradients, partition.
std::vector<Recipe> with_both_gradients(bool static_graph, ujoin_partition partition) {
    Recipe recipe;
    recipe.static_graph = static_graph;
    recipe.partition = partition;
    Recipe view = recipe;
    view.gradient_view = true;
    return {recipe, view};
}

TEST_P(ZeroOverlap, O_01_O_06_O_21_whole_parameters) { expect_parities({Recipe{}}); }
TEST_P(ZeroOverlap, O_02_O_06_O_21_gradients_in_the_librarys_memory) {
    expect_parities({with_both_gradients(false, UJOIN_PARTITION_PARAMETERS)[1]});
}
TEST_P(ZeroOverlap, O_03_O_07_O_21_a_static_graph) {
    expect_parities(with_both_gradients(true, UJOIN_PARTITION_PARAMETERS));
}
TEST_P(ZeroOverlap, O_04_O_08_O_21_pieces_of_parameters) {
    expect_parities(with_both_gradients(false, UJOIN_PARTITION_ELEMENTS));
}
TEST_P(ZeroOverlap, O_05_O_09_O_21_pieces_in_a_static_graph) {
    expect_parities(with_both_gradients(true, UJOIN_PARTITION_ELEMENTS));
}

TEST_P(ZeroOverlap, O_10_a_deep_model_with_buffers) {
    std::vector<Recipe> recipes;
    for (const bool static_graph : {false, true})
        for (const ujoin_partition partition : {UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS})
            for (Recipe &recipe : with_both_gradients(static_graph, partition)) recipes.push_back(std::move(recipe));
    for (Recipe &recipe : recipes) {
        recipe.counts.clear();
        for (size_t layer = 0; layer < 50; layer++) recipe.counts.insert(recipe.counts.end(), {90 + layer, 9});
        recipe.bucket_bytes = 1000;
        recipe.buffers = 20;
    }
    expect_parities(recipes);
}

TEST_P(ZeroOverlap, O_11_O_27_ZERO_09_every_iteration_updates) {
    on_ranks([](ujoin_group *group, int) {
        for (const bool overlap : {true, false}) {
            Recipe recipe;
            recipe.overlap = overlap;
            recipe.rule = UJOIN_OPTIMIZER_SGD;
            recipe.hyper = {{"lr", 0.1}};
            recipe.counts = {1};
            const Trainer trainer(group, recipe);
            *static_cast<float *>(zero_param_data(trainer.zero(), 0)) = 1;
            for (int t = 1; t <= 5; t++) {
                *trainer.grad(0) = 1;
                ok(ddp_kit::reduce(trainer.ddp(), 1));
                if (!overlap) ok(zero_step(trainer.zero(), nullptr));
                EXPECT_FLOAT_EQ(trainer.values()[0][0], 1 - 0.1F * static_cast<float>(t)) << overlap;
            }
        }
    });
}

TEST_P(ZeroOverlap, every_rule_and_comm_hook_has_the_bits_of_a_step_apart) {
    std::vector<Recipe> recipes;
    for (ujoin_optimizer rule = UJOIN_OPTIMIZER_SGD; rule <= UJOIN_OPTIMIZER_LION; rule++)
        recipes.emplace_back().rule = rule;
    for (const ujoin_comm_hook_kind hook : {UJOIN_COMM_HOOK_BF16, UJOIN_COMM_HOOK_LOW_RANK})
        recipes.emplace_back().hook = hook;
    expect_parities(recipes);
}

TEST_P(ZeroOverlap, O_17_buckets_are_stepped_in_order_whatever_becomes_ready_first) {
    on_ranks([](ujoin_group *group, int) {
        Trainer a(group, {});
        Trainer b(group, apart({}));
        a.shuffle();
        b.shuffle();
        for (int t = 0; t < 4; t++)
            for (Trainer *each : {&a, &b}) each->iterate(t);
        expect_same(a, b);
    });
}

TEST_P(ZeroOverlap, O_20_parameters_in_the_librarys_memory) {
    Recipe recipe;
    recipe.parameter_view = true;
    Recipe pieces = recipe;
    pieces.partition = UJOIN_PARTITION_ELEMENTS;
    expect_parities({recipe, pieces});
}

TEST_P(ZeroOverlap, O_25_unused_parameters) {
    Recipe dynamic;
    dynamic.find_unused = true;
    Recipe fixed;
    fixed.static_graph = true;
    on_ranks([&](ujoin_group *group, int rank) {
        // Parameter 0 is used by nobody in iterations 1 and 2, 2 by rank 0 alone, 4 by all in turn.
        expect_parity(group, dynamic, [rank](int t) {
            return [=](size_t p) {
                if (p == 0) return t == 0 || t == 3;
                if (p == 2) return rank == 0;
                return p != 4 || (t + rank) % 2 == 0;
            };
        });
        expect_parity(group, fixed, [rank](int) { return [=](size_t p) { return p != 2 || rank == 0; }; });
    });
}

TEST_P(ZeroOverlap, O_28_accumulation_makes_one_update) {
    on_ranks([](ujoin_group *group, int) {
        Trainer a(group, {});
        Trainer b(group, apart({}));
        for (int window = 0; window < 3; window++) {
            for (Trainer *each : {&a, &b}) {
                each->clear();
                const auto before = each->values();
                for (int t = 0; t < 3; t++) {
                    each->iterate(4 * window + t, all_used, false);
                    EXPECT_TRUE(each->values() == before);
                }
                each->iterate(4 * window + 3);
                EXPECT_TRUE(each->values() != before);
            }
        }
        expect_same(a, b);
        EXPECT_EQ(a.state().at("0/p0/step"), std::vector<double>{3});
    });
}

TEST_P(ZeroOverlap, O_26_uneven_inputs) {
    for (const ujoin_division division : {UJOIN_DIVISION_INITIAL, UJOIN_DIVISION_SAMPLES})
        on_ranks([&](ujoin_group *group, int rank) {
            Recipe recipe;
            recipe.division = division;
            const auto train = [&](Trainer &trainer, const std::vector<ujoin_joinable *> &joinables) {
                for (int epoch = 0; epoch < 2; epoch++) {
                    const ddp_kit::CtxPtr ctx = ddp_kit::make_ctx(joinables);
                    ok(ujoin_ctx_start(ctx.get()));
                    for (int t = 0; t < 2 + 2 * rank; t++) {
                        trainer.clear();
                        trainer.iterate(t);
                    }
                    ok(ujoin_ctx_finish(ctx.get()));
                }
            };
            Trainer b(group, apart(recipe));
            train(b, {ujoin_ddp_joinable(b.ddp()), zero_joinable(b.zero())});
            const Listed expected = b.state();
            for (const int members : {0, 1, 2}) {
                Trainer a(group, recipe);
                std::vector<ujoin_joinable *> joinables{ujoin_ddp_joinable(a.ddp())};
                if (members == 1) joinables.push_back(zero_joinable(a.zero()));
                if (members == 2) joinables.insert(joinables.begin(), zero_joinable(a.zero()));
                train(a, joinables);
                EXPECT_TRUE(a.values() == b.values()) << members;
                EXPECT_TRUE(a.state() == expected) << members;
            }
        });
}

TEST_P(ZeroOverlap, O_14_O_19_groups_states_and_freezing_at_any_time) {
    on_ranks([](ujoin_group *group, int rank) {
        const size_t late = 3;
        Trainer a(group, {}, late);
        Trainer b(group, apart({}), late);
        for (Trainer *each : {&a, &b}) {
            EXPECT_GT(each->state().size(), 0U); // hyper-parameters, before any iteration
            each->iterate(0);
            const std::vector<ujoin_param> rest = each->params(each->size() - late);
            const ujoin_hyper lr{"lr", 0.01};
            ok(zero_add_param_group(each->zero(), rest.data(), rest.size(), &lr, 1));
            each->iterate(1);
            ok(zero_set_frozen(each->zero(), 0, 1));
            const std::vector<float> frozen = each->values()[0];
            ok(ujoin_ddp_set_sync(each->ddp(), 1));
            ok(ujoin_ddp_forward(each->ddp(), 1));
            ok(zero_set_hyper(each->zero(), -1, "amsgrad", 1)); // within an iteration: it has not stepped yet
            ok(zero_set_frozen(each->zero(), 4, 1));
            each->backward(2);
            ok(ujoin_ddp_finish(each->ddp()));
            if (each == &b) ok(zero_step(each->zero(), nullptr));
            EXPECT_EQ(each->values()[0], frozen);
            ok(zero_set_frozen(each->zero(), 0, 0));
            ok(zero_set_gradient(each->zero(), 2, nullptr));
            each->iterate(3);
            ok(zero_set_gradient(each->zero(), 2, each->grad(2)));
            EXPECT_NE(each->values()[0], frozen);
            StateOwner kept;
            for (int32_t to = 0; to < ujoin_group_size(group); to++) {
                ok(zero_consolidate_state_dict(each->zero(), to));
                if (to == rank) ok(zero_state_dict(each->zero(), &kept.state));
            }
            each->iterate(4);
            ok(zero_load_state_dict(each->zero(), kept.state));
            each->iterate(5);
        }
        expect_same(a, b);
    });
}

TEST_P(ZeroOverlap, O_13_a_step_of_the_programs_own_is_refused) {
    on_ranks([](ujoin_group *group, int) {
        Trainer a(group, {});
        a.iterate(0);
        const auto before = a.values();
        const auto refused = [&](ujoin_status status) {
            EXPECT_EQ(status, UJOIN_E_STATE);
            const std::string text = ujoin_last_error();
            EXPECT_NE(text.find("options.ddp"), std::string::npos) << text;
            EXPECT_NE(text.find("rank "), std::string::npos) << text;
        };
        bool called = false;
        ujoin_step_options options{};
        options.size = sizeof options;
        options.closure = [](void *data) {
            *static_cast<bool *>(data) = true;
            return ujoin_status{UJOIN_OK};
        };
        options.closure_data = &called;
        refused(zero_step(a.zero(), &options));
        EXPECT_FALSE(called);
        refused(zero_step(a.zero(), nullptr));
        refused(zero_clip_grad_norm(a.zero(), 1, 2, nullptr));
        EXPECT_TRUE(a.values() == before);
        a.iterate(1); // and it goes on
        EXPECT_TRUE(a.values() != before);
    });
}

/// What zero_create says to these parameters and options; rank by rank in vain.
void expect_refused(ujoin_group *group, const std::vector<ujoin_param> &params, ujoin_ddp *ddp, ujoin_status expected,
                    const std::string &part) {
    ujoin_zero_options options{};
    options.size = sizeof options;
    options.ddp = ddp;
    ujoin_zero *zero = nullptr;
    EXPECT_EQ(zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), params.size(), &options, &zero), expected);
    EXPECT_EQ(zero, nullptr);
    EXPECT_NE(std::string(ujoin_last_error()).find(part), std::string::npos) << part << " in: " << ujoin_last_error();
    zero_destroy(zero);
}

TEST_P(ZeroOverlap, O_12_an_optimizer_that_does_not_fit_the_reducer_is_refused) {
    on_ranks([](ujoin_group *group, int rank) {
        Tensors x({3, 4});
        const std::vector<ujoin_param> params = x.params();
        const ujoin_ddp_options options = ddp_kit::ddp_options();
        ujoin_ddp *made = nullptr;
        ok(ujoin_ddp_create(group, params.data(), params.size(), &options, &made));
        const ddp_kit::DdpPtr ddp(made);

        Tensors other({3, 4});
        expect_refused(group, other.params(), ddp.get(), UJOIN_E_INVALID, "the gradient of \"p0\" is not the one");
        std::vector<ujoin_param> list = x.params();
        list[1].count = 2;
        expect_refused(group, list, ddp.get(), UJOIN_E_INVALID, "\"p1\" has 2 elements, that of options.ddp 4");
        list = x.params();
        list[1].name = "unknown";
        expect_refused(group, list, ddp.get(), UJOIN_E_INVALID, "\"unknown\" is trained, but options.ddp does not reduce");
        if (ujoin_group_size(group) > 1) {
            expect_refused(group, params, rank == 0 ? ddp.get() : nullptr, UJOIN_E_MISMATCH, "option ddp");
        }
        ok(ujoin_ddp_forward(ddp.get(), 1));
        expect_refused(group, params, ddp.get(), UJOIN_E_STATE, "between iterations");
        for (size_t p = 2; p-- > 0;) ok(ujoin_ddp_ready(ddp.get(), p));
        ok(ujoin_ddp_finish(ddp.get()));
        {
            list[1].flags = UJOIN_PARAM_FROZEN; // what is not trained need not be reduced
            ujoin_zero_options with{};
            with.size = sizeof with;
            with.ddp = ddp.get();
            ujoin_zero *zero = nullptr;
            ok(zero_create(group, UJOIN_OPTIMIZER_SGD, list.data(), list.size(), &with, &zero));
            const ddp_kit::ZeroPtr owner(zero);
            expect_refused(group, params, ddp.get(), UJOIN_E_STATE, "another optimizer");
            EXPECT_EQ(zero_set_frozen(zero, 1, 0), UJOIN_E_INVALID) << ujoin_last_error();
            EXPECT_EQ(zero_set_gradient(zero, 0, other.grad[0].data()), UJOIN_E_INVALID) << ujoin_last_error();
            EXPECT_EQ(zero_add_param_group(zero, other.params().data(), 1, nullptr, 0), UJOIN_E_INVALID);
            ok(ddp_kit::reduce(ddp.get(), 2)); // nothing of that has changed anything
            EXPECT_NE(x.data[0][0], 1);
            EXPECT_EQ(x.data[1][0], 1);
        }
        const auto before = x.data;
        ok(ddp_kit::reduce(ddp.get(), 2)); // it only reduces now
        EXPECT_EQ(x.data, before);
    });
}

TEST(ZeroOverlapRanks, O_22_a_subgroup) {
    const std::string meeting = "local://" + unique("subgroup");
    harness::on_ranks("local", 4, [&](ujoin_group *, int rank) {
        if (rank % 2 == 0) return;
        const ddp_kit::GroupPtr group = ddp_kit::make_group(meeting, "local", rank / 2, 2);
        for (const ujoin_partition partition : {UJOIN_PARTITION_PARAMETERS, UJOIN_PARTITION_ELEMENTS}) {
            Recipe recipe;
            recipe.partition = partition;
            expect_parity(group.get(), recipe);
        }
    });
}

TEST(ZeroOverlapRanks, O_15_O_16_O_23_O_24_the_partition_does_not_depend_on_buckets) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int) {
        const auto loads = [&](const std::vector<size_t> &counts, size_t bucket_bytes) {
            Recipe recipe;
            recipe.counts = counts;
            recipe.bucket_bytes = bucket_bytes;
            std::vector<size_t> sums(2);
            for (const ujoin_shard &shard : Trainer(group, recipe).shards())
                sums[static_cast<size_t>(shard.rank)] += shard.count;
            return sums;
        };
        const std::vector<size_t> five(5, 100);
        EXPECT_EQ(loads(five, 1), loads(five, size_t{1} << 20));
        const std::vector<size_t> three(3, 100);
        EXPECT_EQ(loads(three, size_t{1} << 20), (std::vector<size_t>{200, 100}));
        const std::vector<size_t> uneven{500, 1'000'000, 2000, 2'000'000};
        const std::vector<size_t> sums = loads(uneven, 4'000'000);
        const size_t total = std::accumulate(uneven.begin(), uneven.end(), size_t{0});
        EXPECT_LE(static_cast<double>(std::max(sums[0], sums[1])), 1.5 * static_cast<double>(total) / 2);
    });
}

struct Fails {
    int on_rank = 1;
    int at = -1; ///< updates before the one that fails
    int rank = 0;
    int done = 0;
    ujoin_ddp *ddp = nullptr;
    int refused = 0; ///< calls to the reducer from within
};

ujoin_status descend(void *data, const ujoin_rule_args *args) {
    auto &fails = *static_cast<Fails *>(data);
    if (fails.ddp && ujoin_ddp_set_sync(fails.ddp, 1) == UJOIN_E_STATE) fails.refused++;
    if (fails.rank == fails.on_rank && fails.done++ == fails.at) return UJOIN_E_CALLBACK;
    for (size_t k = 0; k < args->count; k++)
        static_cast<float *>(args->data)[k] -= 0.1F * static_cast<const float *>(args->grad)[k];
    return UJOIN_OK;
}

ujoin_rule rule_of(Fails &fails) {
    ujoin_rule rule{};
    rule.size = sizeof rule;
    rule.name = "descent";
    rule.step = descend;
    rule.user_data = &fails;
    return rule;
}

TEST(ZeroOverlapRanks, a_rule_that_fails_on_one_rank_breaks_the_optimizer_on_all) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        Fails fails;
        fails.rank = rank;
        const ujoin_rule rule = rule_of(fails);
        Recipe recipe;
        recipe.rule = UJOIN_OPTIMIZER_CUSTOM;
        recipe.custom = &rule;
        Recipe plain;
        plain.rule = UJOIN_OPTIMIZER_SGD;
        plain.hyper = {{"lr", 0.1}};
        plain.overlap = false;
        Trainer a(group, recipe);
        Trainer b(group, plain);
        fails.ddp = a.ddp();
        a.iterate(0);
        b.iterate(0);
        EXPECT_TRUE(a.values() == b.values());
        EXPECT_GT(fails.refused, 0);

        fails.at = fails.done + 1; // the second of the next step
        ok(ujoin_ddp_forward(a.ddp(), 1));
        a.backward(1);
        EXPECT_EQ(ujoin_ddp_finish(a.ddp()), UJOIN_E_CALLBACK);
        const std::string text = ujoin_last_error();
        EXPECT_NE(text.find("rank 1"), std::string::npos) << text;
        EXPECT_NE(text.find("descent"), std::string::npos) << text;
        const auto rest = a.values();
        EXPECT_EQ(ujoin_ddp_forward(a.ddp(), 1), UJOIN_E_STATE); // before the other rank waits for anything
        EXPECT_NE(std::string(ujoin_last_error()).find("a step failed half-way"), std::string::npos) << ujoin_last_error();
        EXPECT_EQ(zero_save(a.zero(), "/nowhere", nullptr), UJOIN_E_STATE);
        EXPECT_TRUE(a.values() == rest);
        b.iterate(1); // the group is whole
    });
}

struct CutHook {
    bool fails = false;
};

TEST(ZeroOverlapRanks, a_bucket_that_fails_after_others_were_stepped_breaks_the_optimizer) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        CutHook cut{rank == 0};
        Trainer a(group, {});
        ujoin_comm_hook hook{};
        hook.size = sizeof hook;
        hook.user_data = &cut;
        hook.start = [](void *, const ujoin_bucket *bucket, ujoin_work **out) {
            return ujoin_all_reduce(bucket->group, nullptr, &bucket->buffer, UJOIN_SUM, nullptr, out);
        };
        hook.then = [](void *data, const ujoin_bucket *bucket, ujoin_work **) {
            const bool fails = static_cast<CutHook *>(data)->fails && bucket->is_last != 0;
            return ujoin_status{fails ? UJOIN_E_CALLBACK : UJOIN_OK};
        };
        ok(ujoin_ddp_set_comm_hook(a.ddp(), &hook));
        const auto before = a.values();
        ok(ujoin_ddp_forward(a.ddp(), 1));
        a.backward(0);
        EXPECT_LT(ujoin_ddp_finish(a.ddp()), 0);
        EXPECT_TRUE(rank == 1 || a.values() != before); // its part of the first bucket
        EXPECT_EQ(zero_save(a.zero(), "/nowhere", nullptr), UJOIN_E_STATE);
        EXPECT_NE(std::string(ujoin_last_error()).find("a step failed half-way"), std::string::npos) << ujoin_last_error();
    });
}

TEST(ZeroOverlapRanks, hyper_parameters_that_differ_are_found) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        Trainer a(group, {});
        a.iterate(0);
        ok(zero_set_hyper(a.zero(), -1, "lr", rank == 0 ? 0.5 : 0.25));
        ok(ujoin_ddp_forward(a.ddp(), 1));
        a.backward(1);
        EXPECT_EQ(ujoin_ddp_finish(a.ddp()), UJOIN_E_MISMATCH);
        EXPECT_NE(std::string(ujoin_last_error()).find("ranks differ in hyper-parameters"), std::string::npos)
            << ujoin_last_error();
        EXPECT_EQ(ujoin_ddp_forward(a.ddp(), 1) < 0, true);
    });
}

TEST(ZeroOverlapRanks, an_optimizer_that_is_gone_on_one_rank_is_noticed) {
    harness::on_ranks("local", 2, [](ujoin_group *group, int rank) {
        Tensors x({3});
        const std::vector<ujoin_param> params = x.params();
        const ujoin_ddp_options options = ddp_kit::ddp_options();
        ujoin_ddp *made = nullptr;
        ok(ujoin_ddp_create(group, params.data(), params.size(), &options, &made));
        const ddp_kit::DdpPtr ddp(made);
        ujoin_zero_options with{};
        with.size = sizeof with;
        with.ddp = ddp.get();
        ujoin_zero *zero = nullptr;
        ok(zero_create(group, UJOIN_OPTIMIZER_SGD, params.data(), params.size(), &with, &zero));
        ddp_kit::ZeroPtr owner(zero);
        if (rank == 1) owner.reset();
        EXPECT_EQ(ddp_kit::reduce(ddp.get(), 1), UJOIN_E_MISMATCH);
        EXPECT_NE(std::string(ujoin_last_error()).find("whether the reducer steps an optimizer"), std::string::npos)
            << ujoin_last_error();
    });
}

} // namespace
