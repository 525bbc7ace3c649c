// SPDX-License-Identifier: Apache-2.0
#include "optim/pieces.hpp"
#include <algorithm>

namespace ujoin::optim {

void Pieces::add(size_t begin, size_t count) {
    const size_t end = begin + count;
    const size_t pieces = count == 0 ? 0 : (end + piece_elements - 1) / piece_elements - begin / piece_elements;
    ranges_.push_back({begin, end, size() + pieces});
    elements_ += count;
}

void Pieces::clear() {
    ranges_.clear();
    elements_ = 0;
}

Pieces::Piece Pieces::at(size_t index) const {
    const auto range = std::upper_bound(ranges_.begin(), ranges_.end(), index,
                                        [](size_t value, const Range &of) { return value < of.pieces; });
    const auto place = static_cast<size_t>(range - ranges_.begin());
    const size_t first = (range->begin / piece_elements + index - first_of(place)) * piece_elements;
    const size_t begin = std::max(range->begin, first);
    return {place, begin, std::min(range->end, first + piece_elements) - begin};
}

} // namespace ujoin::optim
