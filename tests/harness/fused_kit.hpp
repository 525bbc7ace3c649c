// SPDX-License-Identifier: Apache-2.0
#pragma once
// What tests of fused steps share: a model of any types, trained by a reducer for all and a step, or by a fused step.
#include "harness/ddp_kit.hpp"
#include "harness/zero_kit.hpp"
#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>
#include <gtest/gtest.h>
#include <optional>
#include <string>
#include <vector>

namespace harness {

/// Where a tensor of so many bytes is to lie.
using Place = std::function<char *(size_t bytes)>;

struct FusedRecipe {
    bool fused = true;
    ujoin_optimizer rule = UJOIN_OPTIMIZER_ADAM;
    ujoin_partition partition = 0;
    ujoin_division division = 0;
    ujoin_gradient_kind gradient_kind = 0;
    bool find_unused = false;
    bool static_graph = false;
    bool gradient_view = false;
    bool parameter_view = false;
    bool no_master = false;
    bool stochastic = false;
    const ujoin_rule *custom = nullptr;
    std::vector<ujoin_hyper> hyper{};
    std::vector<ujoin_dtype> types{UJOIN_F32}; ///< in turn
    std::vector<size_t> counts{1500, 3, 900, 0, 2100, 17, 40};
    Place data = nullptr; ///< default: the test's
    Place grad = nullptr;
};

inline FusedRecipe reduced_for_all(FusedRecipe recipe) {
    recipe.fused = false;
    return recipe;
}

/// The bytes of a tensor, for comparing.
using Bytes = std::vector<std::vector<char>>;

/// A model whose gradients depend on its parameters, so that no difference is ever lost.
class FusedModel {
  public:
    FusedModel(ujoin_group *group, const FusedRecipe &recipe) : group_(group), recipe_(recipe) {
        for (size_t p = 0; p < recipe.counts.size(); p++) {
            const ujoin_dtype type = recipe.types[p % recipe.types.size()];
            const size_t count = recipe.counts[p];
            Tensor &tensor = tensors_.emplace_back();
            tensor.name = "p" + std::to_string(p);
            tensor.type = type;
            tensor.count = count;
            const size_t bytes = count * ujoin::dtype_size(type);
            tensor.own.resize(std::max<size_t>(2 * bytes, 1)); // also without elements a gradient is there
            tensor.data = recipe.data ? recipe.data(bytes) : tensor.own.data();
            tensor.grad = recipe.grad ? recipe.grad(bytes) : tensor.own.data() + bytes;
            const auto first = static_cast<float>(p);
            each(type, tensor.data, count,
                 [first](size_t k, float) { return std::cos(first + 0.37F * static_cast<float>(k)); });
        }
        make_ddp();
        make_zero();
    }

    ujoin_ddp *ddp() const { return ddp_.get(); }
    ujoin_zero *zero() const { return zero_.get(); }
    ujoin_group *group() const { return group_; }
    size_t size() const { return tensors_.size(); }
    void destroy_zero() { zero_.reset(); }
    void destroy_ddp() { ddp_.reset(); }
    void make_zero() {
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.hyper = recipe_.hyper.data();
        options.hyper_count = recipe_.hyper.size();
        options.partition = recipe_.partition;
        options.bucket_view = recipe_.parameter_view ? 1 : 0;
        options.no_master_copy = recipe_.no_master ? 1 : 0;
        options.stochastic_rounding = recipe_.stochastic ? 1 : 0;
        options.seed = 7;
        options.rule = recipe_.custom;
        options.ddp = recipe_.fused ? ddp() : nullptr;
        ujoin_zero *zero = nullptr;
        const std::vector<ujoin_param> list = params();
        ok(zero_create(group_, recipe_.rule, list.data(), list.size(), &options, &zero));
        zero_.reset(zero);
    }
    std::vector<ujoin_param> params() const {
        std::vector<ujoin_param> list;
        for (size_t p = 0; p < size(); p++) {
            ujoin_param &param = list.emplace_back();
            param.name = tensors_[p].name.c_str();
            param.data = tensors_[p].data;
            param.grad = ddp_ ? ujoin_ddp_gradient(ddp(), p) : tensors_[p].grad;
            param.count = tensors_[p].count;
            param.dtype = tensors_[p].type;
        }
        return list;
    }

    /// Computes and announces gradients; those of parameters without a use keep what they hold.
    void backward(int t, const std::function<bool(size_t p)> &uses = nullptr, float factor = 1) {
        const int32_t rank = ujoin_group_rank(group_);
        for (size_t p = size(); p-- > 0;) {
            if (uses && !uses(p)) continue;
            const Tensor &tensor = tensors_[p];
            char *grad = static_cast<char *>(ujoin_ddp_gradient(ddp(), p));
            const char *data = static_cast<const char *>(zero_param_data(zero(), p));
            const float shift = 0.7F * static_cast<float>(t) + static_cast<float>(p) + static_cast<float>(rank);
            each(tensor.type, grad, tensor.count, [&](size_t k, float old) {
                return old + factor * (0.3F * get(tensor.type, data, k) + std::sin(0.01F * static_cast<float>(k) + shift));
            });
            ok(ujoin_ddp_ready(ddp(), p));
        }
    }
    void iterate(int t, double samples = 1, const std::function<bool(size_t p)> &uses = nullptr, float factor = 1) {
        ok(ujoin_ddp_forward(ddp(), samples));
        backward(t, uses, factor);
        ok(ujoin_ddp_finish(ddp()));
    }
    ujoin_status step(const ujoin_step_options *options = nullptr) { return ok(zero_step(zero(), options)); }
    /// What lies where a gradient is, but is none.
    void spoil(size_t p, float value) const {
        char *grad = static_cast<char *>(ujoin_ddp_gradient(ddp(), p));
        each(tensors_[p].type, grad, tensors_[p].count, [value](size_t, float) { return value; });
    }
    void clear() const { ok(zero_clear_gradients(zero())); }

    Bytes values() const {
        Bytes all;
        for (size_t p = 0; p < size(); p++) {
            const char *data = static_cast<const char *>(zero_param_data(zero(), p));
            all.emplace_back(data, data + tensors_[p].count * ujoin::dtype_size(tensors_[p].type));
        }
        return all;
    }
    Bytes gradients() const {
        Bytes all;
        for (size_t p = 0; p < size(); p++) {
            const char *grad = static_cast<const char *>(ujoin_ddp_gradient(ddp(), p));
            all.emplace_back(grad, grad + tensors_[p].count * ujoin::dtype_size(tensors_[p].type));
        }
        return all;
    }
    /// State, step counts and hyper-parameters of all ranks, in bytes.
    std::map<std::string, std::vector<char>> state() const {
        std::map<std::string, std::vector<char>> all;
        for (int32_t to = 0; to < ujoin_group_size(group_); to++) {
            ok(zero_consolidate_state_dict(zero(), to));
            if (to != ujoin_group_rank(group_)) continue;
            StateOwner owner;
            ok(zero_state_dict(zero(), &owner.state));
            for (size_t i = 0; i < ujoin_state_count(owner.state); i++) {
                ujoin_item item{};
                item.size = sizeof item;
                ok(ujoin_state_get(owner.state, i, &item));
                std::vector<char> &bytes = all[std::to_string(item.group) + "/" + item.param + "/" + item.key];
                if (item.kind == UJOIN_ITEM_NUMBER) {
                    bytes.resize(sizeof item.number);
                    std::memcpy(bytes.data(), &item.number, sizeof item.number);
                } else if (item.kind == UJOIN_ITEM_TENSOR && item.bytes != 0) {
                    bytes.assign(static_cast<const char *>(item.data), static_cast<const char *>(item.data) + item.bytes);
                }
            }
        }
        return all;
    }

    static float get(ujoin_dtype type, const char *data, size_t k) {
        return ujoin::visit_dtype(type, [&](auto zero) {
            std::memcpy(&zero, data + k * sizeof zero, sizeof zero);
            return static_cast<float>(zero);
        });
    }
    /// Each element becomes value(its index, what it was).
    template <class Value> static void each(ujoin_dtype type, char *data, size_t count, const Value &value) {
        ujoin::visit_dtype(type, [&](auto zero) {
            for (size_t k = 0; k < count; k++, data += sizeof zero) {
                std::memcpy(&zero, data, sizeof zero);
                zero = static_cast<decltype(zero)>(value(k, static_cast<float>(zero)));
                std::memcpy(data, &zero, sizeof zero);
            }
        });
    }

  private:
    struct Tensor {
        std::string name;
        ujoin_dtype type = UJOIN_F32;
        size_t count = 0;
        std::vector<char> own;
        char *data = nullptr;
        char *grad = nullptr;
    };
    void make_ddp() {
        ujoin_ddp_options options = ddp_kit::ddp_options(recipe_.division);
        options.gradient_kind = recipe_.gradient_kind;
        options.gradient_sync = recipe_.fused ? UJOIN_GRADIENT_SYNC_TO_OWNER : 0;
        options.find_unused = recipe_.find_unused ? 1 : 0;
        options.static_graph = recipe_.static_graph ? 1 : 0;
        options.bucket_view = recipe_.gradient_view ? 1 : 0;
        options.bucket_bytes = 4096;
        ujoin_ddp *ddp = nullptr;
        const std::vector<ujoin_param> list = params();
        ok(ujoin_ddp_create(group_, list.data(), list.size(), &options, &ddp));
        ddp_.reset(ddp);
    }

    ujoin_group *group_;
    FusedRecipe recipe_;
    std::vector<Tensor> tensors_;
    ddp_kit::DdpPtr ddp_;
    ddp_kit::ZeroPtr zero_;
};

/// A pair of models, one of each way, that must have the same bits.
struct FusedPair {
    FusedModel fused;
    FusedModel apart;
    FusedPair(ujoin_group *group, const FusedRecipe &recipe)
        : fused(group, recipe), apart(group, reduced_for_all(recipe)) {}
    template <class Each> void each(Each &&body) {
        body(fused);
        body(apart);
    }
    void expect_same() {
        EXPECT_TRUE(fused.values() == apart.values());
        EXPECT_TRUE(fused.state() == apart.state());
    }
};

} // namespace harness
