// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "harness/errors.hpp"
#include "harness/groups.hpp"
#include "join/join_context.hpp"
#include <memory>
#include <string>
#include <vector>

namespace harness {

/// A joinable with `per_use` all-reduces of a 1 in each use, whose hooks count their calls. Its post hook can send a value
/// from the authoritative rank, and it does what a test puts into the functions.
class AllReducer : public ujoin::Joinable {
  public:
    explicit AllReducer(ujoin::Group &group, std::string name = "all_reducer", int per_use = 1)
        : Joinable(group.shared_from_this(), std::move(name)), without_option(per_use), per_use_(per_use) {}

    /// One input.
    void use(int32_t *out_active = nullptr) {
        ASSERT_EQ(notify(out_active), UJOIN_OK);
        for (int i = 0; i < per_use_; i++) total += all_reduce(1);
    }
    double all_reduce(double number) {
        ujoin::OpArgs op;
        op.kind = ujoin::OpKind::all_reduce;
        op.dtype = UJOIN_F64;
        op.count = 1;
        op.recv = ujoin::Memory(&number, sizeof number);
        group()->run(op);
        contributors = op.outcome.contributors;
        return number;
    }
    void main_hook(const ujoin::HookArgs &args) override {
        main_calls++;
        rounds.push_back(args.round);
        actives.push_back(args.active);
        EXPECT_EQ(args.authoritative_rank, -1);
        if (order) order->push_back(name() + ".main");
        if (on_main) on_main(args);
        int n = without_option;
        for (const auto &[key, given] : *args.options)
            if (key == "num_allreduces") n = static_cast<int>(given);
        for (int i = 0; i < n; i++) all_reduce(1000); // a shadow contributes nothing
    }
    void post_hook(const ujoin::HookArgs &args) override {
        post_calls++;
        last = args;
        EXPECT_EQ(args.active, 0);
        if (order) order->push_back(name() + ".post");
        if (on_post) on_post(args);
        if (!send_last) return;
        if (args.authoritative_rank == group()->rank()) value = 42;
        group()->broadcast(ujoin::Memory(&value, sizeof value), args.authoritative_rank);
    }
    std::vector<std::string> option_names() const override { return {"num_allreduces"}; }

    int without_option; ///< reductions of a main hook that is not given num_allreduces
    double total = 0;
    double value = 41;
    bool send_last = false;
    int main_calls = 0;
    int post_calls = 0;
    int32_t contributors = 0;
    ujoin::HookArgs last;
    std::vector<int64_t> rounds;
    std::vector<int32_t> actives;
    std::vector<std::string> *order = nullptr;
    std::function<void(const ujoin::HookArgs &)> on_main;
    std::function<void(const ujoin::HookArgs &)> on_post;

  private:
    int per_use_;
};

using Reducers = std::vector<std::shared_ptr<AllReducer>>;

inline Reducers reducers(ujoin::Group &group, int count, int per_use = 1) {
    Reducers list;
    for (int i = 0; i < count; i++)
        list.push_back(std::make_shared<AllReducer>(group, std::string(1, static_cast<char>('A' + i)), per_use));
    return list;
}
inline std::shared_ptr<ujoin::JoinContext> context_over(const Reducers &list, ujoin::JoinOptions options = {}) {
    return ujoin::JoinContext::create(std::vector<std::shared_ptr<ujoin::Joinable>>(list.begin(), list.end()),
                                      std::move(options));
}

inline bool has(const std::string &text, const std::string &part) { return text.find(part) != std::string::npos; }

} // namespace harness
