// SPDX-License-Identifier: Apache-2.0
#include "zero/partition.hpp"
#include <algorithm>
#include <numeric>

namespace ujoin {
namespace {

/// Where the shares of `count` elements end that make loads as equal as they can become.
std::vector<size_t> even_ends(const std::vector<size_t> &loads, size_t count) {
    std::vector<size_t> sorted = loads;
    std::sort(sorted.begin(), sorted.end());
    size_t level = sorted[0];
    size_t raised = 1; // so many ranks come to one level
    size_t left = count;
    for (; raised < sorted.size() && (sorted[raised] - level) * raised <= left; raised++) {
        left -= (sorted[raised] - level) * raised;
        level = sorted[raised];
    }
    std::vector<size_t> ends;
    size_t end = 0;
    size_t seen = 0;
    for (const size_t load : loads) {
        if (load <= level) {
            const auto part = [&](size_t ranks) { return left / raised * ranks + left % raised * ranks / raised; };
            end += level - load + part(seen + 1) - part(seen);
            seen++;
        }
        ends.push_back(end);
    }
    return ends;
}

/// The place in a parameter nearest to `wanted` where it may be cut: a multiple of its cache line, or its end.
size_t nearest_cut(const PartitionMember &member, size_t wanted) {
    const size_t before = wanted / member.line * member.line;
    const size_t after = std::min(before + member.line, member.count);
    return 2 * (wanted - before) < after - before ? before : after;
}

} // namespace

void Partition::add_group(const std::vector<PartitionMember> &members) {
    if (kind_ == UJOIN_PARTITION_ELEMENTS) {
        cut(members, false);
        cut(members, true);
    } else {
        give_whole(members);
    }
    std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece &a, const Piece &b) { return a.rank < b.rank; });
    params_ += members.size();
    groups_++;
}

void Partition::give_whole(const std::vector<PartitionMember> &members) {
    std::vector<size_t> order(members.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return members[a].count > members[b].count; });
    for (const size_t i : order) {
        const auto smallest = std::min_element(load_.begin(), load_.end()); // the first of equals: the lowest rank
        if (!members[i].weightless) *smallest += members[i].count;
        pieces_.push_back({params_ + i, 0, members[i].count, static_cast<int32_t>(smallest - load_.begin()), groups_});
    }
}

/// Cuts those members that are weightless, or those that are not.
void Partition::cut(const std::vector<PartitionMember> &members, bool weightless) {
    std::vector<size_t> flat; // indices
    size_t count = 0;
    for (size_t i = 0; i < members.size(); i++)
        if (members[i].weightless == weightless) {
            flat.push_back(i);
            count += members[i].count;
        }
    std::vector<size_t> ends = even_ends(weightless ? std::vector<size_t>(load_.size()) : load_, count);
    size_t begin = 0; // of a parameter in the flat array
    size_t rank = 0;
    for (const size_t i : flat) {
        for (; rank < ends.size() && ends[rank] <= begin + members[i].count; rank++)
            ends[rank] = begin + nearest_cut(members[i], ends[rank] - begin);
        begin += members[i].count;
    }
    begin = rank = 0;
    for (const size_t i : flat) {
        size_t offset = 0;
        do {
            while (rank + 1 < ends.size() && ends[rank] <= begin + offset) rank++;
            const bool last = rank + 1 == ends.size();
            const size_t end = last ? members[i].count : std::min(members[i].count, ends[rank] - begin);
            pieces_.push_back({params_ + i, offset, end - offset, static_cast<int32_t>(rank), groups_});
            if (!weightless) load_[rank] += end - offset;
            offset = end;
        } while (offset < members[i].count);
        begin += members[i].count;
    }
}

} // namespace ujoin
