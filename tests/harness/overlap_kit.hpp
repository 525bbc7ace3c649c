// SPDX-License-Identifier: Apache-2.0
#pragma once
// What tests of steps inside a reducer share: a model that is trained that way, or by a reducer and a step after it.
#include "harness/ddp_kit.hpp"
#include "harness/zero_kit.hpp"
#include <algorithm>
#include <cmath>
#include <functional>
#include <gtest/gtest.h>
#include <vector>

namespace harness {

struct Recipe {
    bool overlap = true;
    bool released = false; ///< parameters, once their gradients are ready
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

inline Recipe apart(Recipe recipe) {
    recipe.overlap = false;
    return recipe;
}

/// One bucket for each parameter, so that there is much to do before the last gradient.
inline Recipe released(Recipe recipe = {}) {
    recipe.released = true;
    recipe.bucket_bytes = 1;
    return recipe;
}

using Uses = std::function<bool(size_t param)>;
inline const Uses all_used = [](size_t) { return true; };

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
        options.params_released_on_ready = recipe_.released ? 1 : 0;
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

inline void expect_same(const Trainer &a, const Trainer &b) {
    EXPECT_TRUE(a.values() == b.values());
    EXPECT_TRUE(a.gradients() == b.gradients());
    EXPECT_EQ(a.buffers(), b.buffers());
    EXPECT_TRUE(a.state() == b.state());
}

/// Both ways, side by side, and that each iteration changes something.
inline void expect_parity(ujoin_group *group, const Recipe &recipe, const std::function<Uses(int t)> &uses = nullptr) {
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

} // namespace harness
