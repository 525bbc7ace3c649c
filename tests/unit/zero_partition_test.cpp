// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "zero/layout.hpp"
#include "zero/partition.hpp"
#include <gtest/gtest.h>
#include <map>

using namespace ujoin;

namespace {

std::vector<size_t> loads(const Partition &partition) {
    std::vector<size_t> sums(partition.ranks());
    for (const Piece &piece : partition.pieces()) sums[static_cast<size_t>(piece.rank)] += piece.count;
    for (size_t rank = 0; rank < sums.size(); rank++) EXPECT_EQ(partition.load(static_cast<int32_t>(rank)), sums[rank]);
    return sums;
}

std::vector<size_t> loads_of(const std::vector<size_t> &counts, int32_t ranks) {
    Partition partition(ranks);
    partition.add_group(counts);
    return loads(partition);
}

std::map<size_t, int32_t> owners(const Partition &partition) {
    std::map<size_t, int32_t> map;
    for (const Piece &piece : partition.pieces()) map[piece.param] = piece.rank;
    return map;
}

std::vector<float> memory(size_t count) { return std::vector<float>(count); }

ZeroParam param(const std::string &name, float *data, size_t count) {
    ZeroParam result;
    result.name = name;
    result.data = reinterpret_cast<std::byte *>(data);
    result.count = count;
    result.bytes = count * sizeof(float);
    result.dtype = UJOIN_F32;
    result.shape = {static_cast<int64_t>(count)};
    return result;
}

TEST(ZeroPartition, largest_first_to_the_smallest_load) {
    EXPECT_EQ(loads_of({1, 1, 1, 1, 1, 1, 6}, 2), (std::vector<size_t>{6, 6}));
    const std::vector<size_t> three = loads_of({5, 9, 3, 7, 1, 8}, 3);
    EXPECT_EQ(*std::max_element(three.begin(), three.end()), 12U);
    EXPECT_EQ(loads_of({100, 3, 5, 2, 6, 4}, 2), (std::vector<size_t>{100, 20}));
}

TEST(ZeroPartition, ties_keep_the_order_and_go_to_the_lowest_rank) {
    Partition partition(2);
    partition.add_group({4, 4, 4, 4});
    EXPECT_EQ(owners(partition), (std::map<size_t, int32_t>{{0, 0}, {1, 1}, {2, 0}, {3, 1}}));
}

TEST(ZeroPartition, a_later_group_continues_the_loads_and_moves_nothing) {
    for (const int32_t ranks : {2, 4}) {
        Partition partition(ranks);
        partition.add_group({100, 3, 5, 2, 6, 4});
        const std::map<size_t, int32_t> before = owners(partition);
        partition.add_group({3});
        std::map<size_t, int32_t> after = owners(partition);
        EXPECT_EQ(after.at(6), 1);
        after.erase(6);
        EXPECT_EQ(after, before);
        const std::vector<size_t> expected = ranks == 2 ? std::vector<size_t>{100, 23} : std::vector<size_t>{100, 9, 7, 7};
        EXPECT_EQ(loads(partition), expected);
        EXPECT_EQ(partition.pieces().size(), 7U);
    }
}

TEST(ZeroPartition, pieces_are_ordered_by_rank_then_group) {
    Partition partition(3);
    partition.add_group({2, 9, 4, 4, 0});
    partition.add_group({7, 1});
    for (size_t i = 1; i < partition.pieces().size(); i++) {
        const Piece &a = partition.pieces()[i - 1];
        const Piece &b = partition.pieces()[i];
        EXPECT_LE(std::make_pair(a.rank, a.group), std::make_pair(b.rank, b.group));
    }
}

TEST(ZeroPartition, what_has_no_weight_is_given_away_but_does_not_count) {
    Partition partition(2);
    partition.add_group({100, 3, 5, 2, 6, 4}, {true, false, false, false, false, false});
    EXPECT_EQ(partition.load(0), 11U);
    EXPECT_EQ(partition.load(1), 9U);
    EXPECT_EQ(partition.pieces().size(), 6U);
}

TEST(ZeroPartition, parameters_of_a_flat_array_are_one_segment) {
    std::vector<float> flat = memory(12);
    std::vector<float> other = memory(5);
    const std::shared_ptr<const optim::Rule> rule = optim::shared_rule(UJOIN_OPTIMIZER_SGD);
    Layout layout(rule, {}, 0, 2);
    layout = layout.with_group({param("a", flat.data(), 6), param("b", flat.data() + 6, 6)}, optim::default_hyper(*rule));
    EXPECT_EQ(layout.segments.size(), 1U); // rank 0's and rank 1's part lie next to each other
    EXPECT_EQ(layout.offsets, (std::vector<size_t>{0, 24, 48}));
    layout = layout.with_group({param("c", other.data(), 5)}, optim::default_hyper(*rule));
    EXPECT_EQ(layout.segments.size(), 3U); // c comes between them
    EXPECT_EQ(layout.offsets, (std::vector<size_t>{0, 44, 68}));
    EXPECT_EQ(layout.segments[1].data, other.data());
}

TEST(ZeroPartition, ranks_without_a_shard_have_empty_parts) {
    std::vector<float> data = memory(2);
    const std::shared_ptr<const optim::Rule> rule = optim::shared_rule(UJOIN_OPTIMIZER_ADAM);
    const Layout layout =
        Layout(rule, {}, 3, 4)
            .with_group({param("a", data.data(), 1), param("b", data.data() + 1, 1)}, optim::default_hyper(*rule));
    EXPECT_EQ(layout.offsets, (std::vector<size_t>{0, 4, 8, 8, 8}));
    EXPECT_FALSE(layout.owns(0));
}

} // namespace
