// SPDX-License-Identifier: Apache-2.0
#include "zero/partition.hpp"
#include <algorithm>
#include <numeric>

namespace ujoin {

void Partition::add_group(const std::vector<size_t> &counts, const std::vector<bool> &weightless) {
    std::vector<size_t> order(counts.size());
    std::iota(order.begin(), order.end(), size_t{0});
    std::stable_sort(order.begin(), order.end(), [&](size_t a, size_t b) { return counts[a] > counts[b]; });
    for (const size_t i : order) {
        const auto smallest = std::min_element(load_.begin(), load_.end()); // the first of equals: the lowest rank
        if (weightless.empty() || !weightless[i]) *smallest += counts[i];
        pieces_.push_back({params_ + i, 0, counts[i], static_cast<int32_t>(smallest - load_.begin()), groups_});
    }
    std::stable_sort(pieces_.begin(), pieces_.end(), [](const Piece &a, const Piece &b) { return a.rank < b.rank; });
    params_ += counts.size();
    groups_++;
}

} // namespace ujoin
