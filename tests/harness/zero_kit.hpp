// SPDX-License-Identifier: Apache-2.0
#pragma once
// What tests of the sharded optimizer share: ranks of a backend with groups of the C API, and parameters in plain memory.
#include "harness/meet.hpp"
#include "ujoin.h"
#include <functional>
#include <gtest/gtest.h>
#include <map>
#include <ostream>
#include <stdexcept>
#include <string>
#include <vector>

namespace harness {

/// A call that must succeed: an error ends the rank, with its text.
inline ujoin_status ok(ujoin_status status) {
    if (status < 0) throw std::runtime_error(std::string(ujoin_status_name(status)) + ": " + ujoin_last_error());
    return status;
}

/// Ranks of a backend; each has a group.
inline void on_ranks(const std::string &backend, int size, const std::function<void(ujoin_group *group, int rank)> &body,
                     const std::function<void(ujoin_group_options &)> &adjust = {}) {
    const std::string name = unique("zero");
    const Meet meet(backend, name);
    meet.run(size, [&](int rank) {
        ujoin_group_options options{};
        options.size = sizeof options;
        options.rendezvous = meet.url().c_str();
        options.backend = backend.c_str();
        options.name = name.c_str();
        options.rank = rank;
        options.world_size = size;
        if (adjust) adjust(options);
        ujoin_group *group = nullptr;
        ok(ujoin_group_create(&options, &group));
        struct Owner {
            ujoin_group *group;
            ~Owner() { ujoin_group_destroy(group); }
        } owner{group};
        body(group, rank);
    });
}

/// A backend and a number of ranks: the parameter of a test.
struct Where {
    const char *backend;
    int size;
};
inline void PrintTo(const Where &where, std::ostream *out) { *out << where.backend << "_" << where.size; }
inline const auto where_name = [](const auto &of) {
    return std::string(of.param.backend) + "_" + std::to_string(of.param.size);
};

class TestOfRanks : public testing::TestWithParam<Where> {
  protected:
    void on_ranks(const std::function<void(ujoin_group *, int)> &body) {
        harness::on_ranks(GetParam().backend, GetParam().size, body);
    }
    int size() const { return GetParam().size; }
};

/// Parameters of f32 with gradients, all of one rank.
struct Tensors {
    std::vector<std::vector<float>> data;
    std::vector<std::vector<float>> grad;
    std::vector<std::string> names;
    std::vector<bool> has_grad;

    explicit Tensors(const std::vector<size_t> &counts, float value = 1, float slope = 1) {
        for (size_t i = 0; i < counts.size(); i++) {
            data.emplace_back(counts[i], value);
            grad.emplace_back(counts[i], slope);
            names.push_back("p" + std::to_string(i));
            has_grad.push_back(true);
        }
    }
    std::vector<ujoin_param> params() {
        std::vector<ujoin_param> list(data.size());
        for (size_t i = 0; i < data.size(); i++) {
            list[i].name = names[i].c_str();
            list[i].data = data[i].data();
            list[i].grad = has_grad[i] ? grad[i].data() : nullptr;
            list[i].count = data[i].size();
            list[i].dtype = UJOIN_F32;
        }
        return list;
    }
};

/// An optimizer that is destroyed with this object.
class Optimizer {
  public:
    Optimizer(ujoin_group *group, ujoin_optimizer rule, Tensors &tensors, const std::vector<ujoin_hyper> &hyper)
        : Optimizer(group, rule, tensors.params(), hyper) {}
    Optimizer(ujoin_group *group, ujoin_optimizer rule, const std::vector<ujoin_param> &params,
              const std::vector<ujoin_hyper> &hyper) {
        ujoin_zero_options options{};
        options.size = sizeof options;
        options.hyper = hyper.data();
        options.hyper_count = hyper.size();
        ok(zero_create(group, rule, params.data(), params.size(), &options, &zero_));
    }
    ~Optimizer() { zero_destroy(zero_); }
    Optimizer(const Optimizer &) = delete;
    Optimizer &operator=(const Optimizer &) = delete;

    ujoin_zero *get() const { return zero_; }
    void step() const { ok(zero_step(zero_, nullptr)); }
    double hyper(const char *name, int32_t group = 0) const {
        double value = 0;
        ok(zero_get_hyper(zero_, group, name, &value));
        return value;
    }
    std::vector<ujoin_shard> shards() const {
        std::vector<ujoin_shard> list;
        for (size_t i = 0; i < zero_shard_count(zero_); i++) {
            ujoin_shard shard{};
            shard.size = sizeof shard;
            ok(zero_get_shard(zero_, i, &shard));
            list.push_back(shard);
        }
        return list;
    }
    size_t load(int rank) const {
        size_t sum = 0;
        for (const ujoin_shard &shard : shards()) sum += shard.rank == rank ? shard.count : 0;
        return sum;
    }

  private:
    ujoin_zero *zero_ = nullptr;
};

/// What a list holds, in a form that is easy to compare: "group/param/key" -> numbers.
using Listed = std::map<std::string, std::vector<double>>;
inline Listed listed(const ujoin_state *state) {
    Listed all;
    for (size_t i = 0; i < ujoin_state_count(state); i++) {
        ujoin_item item{};
        item.size = sizeof item;
        ok(ujoin_state_get(state, i, &item));
        std::vector<double> &values = all[std::to_string(item.group) + "/" + item.param + "/" + item.key];
        if (item.kind == UJOIN_ITEM_NUMBER) values.push_back(item.number);
        if (item.kind == UJOIN_ITEM_TENSOR && item.dtype == UJOIN_F32)
            for (size_t k = 0; k < item.bytes / sizeof(float); k++)
                values.push_back(static_cast<double>(static_cast<const float *>(item.data)[k]));
    }
    return all;
}

/// An item that is a number of the program's own.
inline ujoin_item number_item(const char *key, double number) {
    ujoin_item item{};
    item.size = sizeof item;
    item.key = key;
    item.kind = UJOIN_ITEM_NUMBER;
    item.number = number;
    return item;
}

/// The consolidated state on every rank: consolidates to each in turn.
struct StateOwner {
    ujoin_state *state = nullptr;
    StateOwner() = default;
    StateOwner(StateOwner &&other) noexcept : state(other.state) { other.state = nullptr; }
    StateOwner(const StateOwner &) = delete;
    StateOwner &operator=(const StateOwner &) = delete;
    ~StateOwner() { ujoin_state_destroy(state); }
};
inline StateOwner state_everywhere(ujoin_group *group, const Optimizer &optimizer) {
    StateOwner owner;
    for (int32_t to = 0; to < ujoin_group_size(group); to++) {
        ok(zero_consolidate_state_dict(optimizer.get(), to));
        if (to == ujoin_group_rank(group)) ok(zero_state_dict(optimizer.get(), &owner.state));
    }
    return owner;
}

} // namespace harness
