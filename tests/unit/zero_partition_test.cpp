// SPDX-License-Identifier: Apache-2.0
#include "base/error.hpp"
#include "zero/layout.hpp"
#include "zero/partition.hpp"
#include <algorithm>
#include <cmath>
#include <gtest/gtest.h>
#include <map>
#include <random>

using namespace ujoin;

namespace {

std::vector<size_t> loads(const Partition &partition) {
    std::vector<size_t> sums(partition.ranks());
    for (const Piece &piece : partition.pieces()) sums[static_cast<size_t>(piece.rank)] += piece.count;
    for (size_t rank = 0; rank < sums.size(); rank++) EXPECT_EQ(partition.load(static_cast<int32_t>(rank)), sums[rank]);
    return sums;
}

std::vector<PartitionMember> members(const std::vector<size_t> &counts, size_t line = 16) {
    std::vector<PartitionMember> list;
    for (const size_t count : counts) list.push_back({count, line, false});
    return list;
}

std::vector<size_t> loads_of(const std::vector<size_t> &counts, int32_t ranks) {
    Partition partition(ranks);
    partition.add_group(members(counts));
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
    partition.add_group(members({4, 4, 4, 4}));
    EXPECT_EQ(owners(partition), (std::map<size_t, int32_t>{{0, 0}, {1, 1}, {2, 0}, {3, 1}}));
}

TEST(ZeroPartition, a_later_group_continues_the_loads_and_moves_nothing) {
    for (const int32_t ranks : {2, 4}) {
        Partition partition(ranks);
        partition.add_group(members({100, 3, 5, 2, 6, 4}));
        const std::map<size_t, int32_t> before = owners(partition);
        partition.add_group(members({3}));
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
    partition.add_group(members({2, 9, 4, 4, 0}));
    partition.add_group(members({7, 1}));
    for (size_t i = 1; i < partition.pieces().size(); i++) {
        const Piece &a = partition.pieces()[i - 1];
        const Piece &b = partition.pieces()[i];
        EXPECT_LE(std::make_pair(a.rank, a.group), std::make_pair(b.rank, b.group));
    }
}

TEST(ZeroPartition, what_has_no_weight_is_given_away_but_does_not_count) {
    Partition partition(2);
    std::vector<PartitionMember> list = members({100, 3, 5, 2, 6, 4});
    list[0].weightless = true;
    partition.add_group(list);
    EXPECT_EQ(partition.load(0), 11U);
    EXPECT_EQ(partition.load(1), 9U);
    EXPECT_EQ(partition.pieces().size(), 6U);
}

/// Every element has one owner, in the order of ranks; cuts lie between cache lines.
void expect_whole_cover(const Partition &partition, const std::vector<PartitionMember> &list) {
    std::vector<size_t> end(list.size());
    std::vector<std::pair<size_t, int32_t>> seen;
    for (const Piece &piece : partition.pieces()) {
        const PartitionMember &member = list.at(piece.param);
        EXPECT_EQ(piece.offset, end[piece.param]);
        EXPECT_TRUE(piece.count != 0 || member.count == 0);
        end[piece.param] += piece.count;
        EXPECT_TRUE(end[piece.param] == member.count || end[piece.param] % member.line == 0);
        seen.emplace_back(piece.param, piece.rank);
    }
    for (size_t i = 0; i < list.size(); i++) EXPECT_EQ(end[i], list[i].count) << i;
    for (size_t i = 0; i < list.size(); i++) // those without elements, too
        EXPECT_TRUE(std::any_of(seen.begin(), seen.end(), [&](const auto &pair) { return pair.first == i; })) << i;
    std::sort(seen.begin(), seen.end());
    EXPECT_EQ(std::adjacent_find(seen.begin(), seen.end()), seen.end()); // one piece of a parameter on a rank at most
}

TEST(ZeroPartition, ZERO_04_elements_are_within_a_cache_line_of_equal_parts) {
    std::mt19937 random(1);
    for (int round = 0; round < 200; round++) {
        const auto below = [&](size_t limit) { return random() % limit; };
        std::vector<PartitionMember> list;
        size_t total = 0;
        for (size_t n = 1 + below(12); n > 0; n--) {
            const size_t sizes[] = {below(3), below(40), below(3000), 1 + 16 * below(9)};
            list.push_back({sizes[below(4)], size_t{8} << below(3), false});
            total += list.back().count;
        }
        const auto ranks = static_cast<int32_t>(1 + below(9));
        Partition partition(ranks, UJOIN_PARTITION_ELEMENTS);
        partition.add_group(list);
        expect_whole_cover(partition, list);
        const double part = static_cast<double>(total) / ranks;
        for (const size_t load : loads(partition)) EXPECT_LE(std::abs(static_cast<double>(load) - part), 32) << round;
    }
}

TEST(ZeroPartition, elements_of_one_type_are_within_its_own_cache_line) {
    for (const size_t line : {8, 16, 32})
        for (const size_t count : {1000, 1001, 4096, 31}) {
            Partition partition(3, UJOIN_PARTITION_ELEMENTS);
            partition.add_group(members({count}, line));
            for (const size_t load : loads(partition))
                EXPECT_LE(std::abs(static_cast<double>(load) - static_cast<double>(count) / 3), static_cast<double>(line));
        }
}

TEST(ZeroPartition, elements_of_a_later_group_level_what_is_there) {
    Partition partition(4, UJOIN_PARTITION_ELEMENTS);
    std::vector<PartitionMember> list = members({3}); // rank 0 or another has them all: a cache line is not cut
    partition.add_group(list);
    const std::vector<Piece> before = partition.pieces();
    for (const PartitionMember &member : members({5, 4000, 2})) list.push_back(member);
    partition.add_group(members({5, 4000, 2}));
    expect_whole_cover(partition, list);
    for (const size_t load : loads(partition)) EXPECT_NEAR(static_cast<double>(load), 4010.0 / 4, 16);
    const auto stayed = [&](const Piece &piece) {
        return std::any_of(partition.pieces().begin(), partition.pieces().end(), [&](const Piece &now) {
            return now.param == piece.param && now.rank == piece.rank && now.count == piece.count;
        });
    };
    EXPECT_TRUE(std::all_of(before.begin(), before.end(), stayed));
    for (const Piece &piece : partition.pieces()) EXPECT_EQ(piece.group, piece.param == 0 ? 0 : 1);
}

TEST(ZeroPartition, elements_without_weight_are_spread_apart_from_the_others) {
    Partition partition(2, UJOIN_PARTITION_ELEMENTS);
    std::vector<PartitionMember> list = members({640, 100, 320, 60});
    list[0].weightless = true;
    partition.add_group(list);
    expect_whole_cover(partition, list);
    std::vector<size_t> frozen(2);
    for (const Piece &piece : partition.pieces())
        if (piece.param == 0) frozen[static_cast<size_t>(piece.rank)] += piece.count;
    EXPECT_EQ(frozen, (std::vector<size_t>{320, 320}));
    EXPECT_NEAR(static_cast<double>(partition.load(0)), 240, 16);
    EXPECT_EQ(partition.load(0) + partition.load(1), 480U);
}

TEST(ZeroPartition, parameters_of_a_flat_array_are_one_segment) {
    std::vector<float> flat = memory(12);
    std::vector<float> other = memory(5);
    const std::shared_ptr<const optim::Rule> rule = optim::shared_rule(UJOIN_OPTIMIZER_SGD);
    Layout layout(rule, {}, 0, 2);
    layout = layout.with_group({param("a", flat.data(), 6), param("b", flat.data() + 6, 6)}, optim::default_hyper(*rule));
    EXPECT_EQ(layout.share.segments.size(), 1U); // rank 0's and rank 1's part lie next to each other
    EXPECT_EQ(layout.share.offsets, (std::vector<size_t>{0, 24, 48}));
    layout = layout.with_group({param("c", other.data(), 5)}, optim::default_hyper(*rule));
    EXPECT_EQ(layout.share.segments.size(), 3U); // c comes between them
    EXPECT_EQ(layout.share.offsets, (std::vector<size_t>{0, 44, 68}));
    EXPECT_EQ(layout.share.segments[1].data, other.data());
}

TEST(ZeroPartition, ranks_without_a_shard_have_empty_parts) {
    std::vector<float> data = memory(2);
    const std::shared_ptr<const optim::Rule> rule = optim::shared_rule(UJOIN_OPTIMIZER_ADAM);
    const Layout layout =
        Layout(rule, {}, 3, 4)
            .with_group({param("a", data.data(), 1), param("b", data.data() + 1, 1)}, optim::default_hyper(*rule));
    EXPECT_EQ(layout.share.offsets, (std::vector<size_t>{0, 4, 8, 8, 8}));
    EXPECT_FALSE(layout.owns(0));
}

} // namespace
