// SPDX-License-Identifier: Apache-2.0
#include "base/checksum.hpp"
#include "base/error.hpp"
#include "zero/index.hpp"
#include "zero/state.hpp"
#include <gtest/gtest.h>

using namespace ujoin;

namespace {

StateItem number(ujoin_item_owner owner, int32_t group, const std::string &param, const std::string &key,
                 double value = 0) {
    StateItem item;
    item.owner = owner;
    item.group = group;
    item.param = param;
    item.key = key;
    item.number = value;
    return item;
}

std::vector<std::string> order(const State &state) {
    std::vector<std::string> list;
    for (size_t i = 0; i < state.count(); i++)
        list.push_back(cat(state.at(i).group, state.at(i).param, ".", state.at(i).key));
    return list;
}

TEST(ZeroState, items_are_ordered_by_owner_group_parameter_and_key) {
    State state;
    state.set(number(UJOIN_ITEM_OF_GROUP, 1, "", "lr"));
    state.set(number(UJOIN_ITEM_OF_GROUP, 0, "", "momentum"));
    state.set(number(UJOIN_ITEM_OF_GROUP, 0, "", "lr"));
    state.set(number(UJOIN_ITEM_OF_PARAM, 1, "a", "step"));
    state.set(number(UJOIN_ITEM_OF_PARAM, 0, "w", "step"));
    state.set(number(UJOIN_ITEM_OF_PARAM, 0, "10", "step"));
    state.set(number(UJOIN_ITEM_OF_PARAM, 0, "9", "step"));
    state.set(number(UJOIN_ITEM_OF_PARAM, 0, "9", "exp_avg"));
    state.set(number(UJOIN_ITEM_OF_PROGRAM, 0, "", "z"));
    state.set(number(UJOIN_ITEM_OF_PROGRAM, 0, "", "epoch"));
    const std::vector<std::string> expected{"0.epoch", "0.z",     "09.exp_avg", "09.step",    "010.step",
                                            "0w.step", "1a.step", "0.lr",       "0.momentum", "1.lr"};
    EXPECT_EQ(order(state), expected);
}

TEST(ZeroState, a_key_is_unique_within_its_owner) {
    State state;
    state.set(number(UJOIN_ITEM_OF_PARAM, 0, "w", "step", 1));
    state.set(number(UJOIN_ITEM_OF_PARAM, 2, "w", "step", 2)); // the same parameter, told to be in another group
    state.set(number(UJOIN_ITEM_OF_GROUP, 0, "", "step", 3));
    state.set(number(UJOIN_ITEM_OF_PROGRAM, 0, "", "step", 4));
    state.set(number(UJOIN_ITEM_OF_PROGRAM, 0, "", "step", 5));
    EXPECT_EQ(order(state), (std::vector<std::string>{"0.step", "2w.step", "0.step"}));
    EXPECT_EQ(state.find("step")->number, 5);
    EXPECT_EQ(state.at(1).number, 2);
    EXPECT_EQ(state.find("w"), nullptr);
}

TEST(ZeroState, a_copy_does_not_change_with_the_original) {
    State state;
    state.set(number(UJOIN_ITEM_OF_PROGRAM, 0, "", "epoch", 1));
    const State copy = state;
    state.set(number(UJOIN_ITEM_OF_PROGRAM, 0, "", "epoch", 2));
    state.set(number(UJOIN_ITEM_OF_PROGRAM, 0, "", "step", 2));
    EXPECT_EQ(copy.count(), 1U);
    EXPECT_EQ(copy.find("epoch")->number, 1);
}

TEST(ZeroState, shapes_are_multiplied_with_care) {
    const auto count = [](std::vector<int64_t> shape, size_t element) {
        return shape_count(shape.data(), shape.size(), element, "shape");
    };
    EXPECT_EQ(count({}, 4), 1U);
    EXPECT_EQ(count({2, 3}, 4), 6U);
    EXPECT_EQ(count({int64_t{1} << 62, 0}, 8), 0U);
    EXPECT_THROW(count({-1}, 4), Error);
    EXPECT_THROW(count({int64_t{1} << 60}, 8), Error);
    EXPECT_THROW(count({(int64_t{1} << 42) + 1, int64_t{1} << 22}, 1), Error);
    EXPECT_THROW(count({int64_t{1} << 32, int64_t{1} << 32}, 4), Error);
}

TEST(ZeroState, a_checksum_notices_any_changed_bit) {
    std::string text = "the quick brown fox jumps over it";
    Checksum first;
    first.text(text);
    for (size_t bit = 0; bit < text.size() * 8; bit++) {
        std::string changed = text;
        changed[bit / 8] = static_cast<char>(changed[bit / 8] ^ (1 << bit % 8));
        Checksum other;
        other.text(changed);
        EXPECT_NE(other.value(), first.value()) << bit;
    }
}

TEST(ZeroState, only_names_that_a_save_gives_have_an_id) {
    const std::string id = "0123456789abcdef";
    EXPECT_EQ(id_in_name(state_file_name(id, 17)), id);
    EXPECT_EQ(id_in_name(parameters_file_name(id)), id);
    EXPECT_EQ(id_in_name(new_index_name(id)), id);
    for (const char *name : {"index.json", "model.safetensors", "state-0123456789abcdef-1x.safetensors",
                             "state-0123456789abcdeg-1.safetensors", "state-0123456789abcdef-.safetensors",
                             "state-0123456789abcdef-1.safetensors.bak", "../state-0123456789abcdef-1.safetensors",
                             "parameters-0123456789abcdef-1.safetensors", ".index-0123456789ABCDEF.json", ""})
        EXPECT_EQ(id_in_name(name), "") << name;
}

} // namespace
