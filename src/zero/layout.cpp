// SPDX-License-Identifier: Apache-2.0
#include "zero/layout.hpp"
#include "base/error.hpp"

namespace ujoin {

Layout Layout::with_group(std::vector<ZeroParam> added, optim::Hyper hyper) const {
    Layout next = *this;
    std::vector<size_t> counts;
    for (ZeroParam &param : added) {
        param.group = static_cast<int32_t>(hypers.size());
        counts.push_back(param.count);
        next.params.push_back(std::move(param));
    }
    next.hypers.push_back(std::move(hyper));
    next.partition.add_group(counts);

    next.segments.clear();
    next.offsets.assign(1, 0);
    size_t end = 0;
    for (const Piece &piece : next.partition.pieces()) {
        ZeroParam &param = next.params[piece.param];
        param.owner = piece.rank;
        next.offsets.resize(static_cast<size_t>(piece.rank) + 1, end); // ranks that own nothing
        end += param.bytes;
        if (param.bytes == 0) continue;
        Segment *last = next.segments.empty() ? nullptr : &next.segments.back();
        if (last && static_cast<std::byte *>(last->data) + last->bytes == param.data) {
            last->bytes += param.bytes;
        } else {
            next.segments.push_back({param.data, param.bytes});
        }
    }
    next.offsets.resize(next.partition.ranks() + 1, end);
    return next;
}

Facts Layout::facts_of_group(int32_t group) const {
    Facts facts{{"optimizer", rule->name}, {"number of param groups", cat(hypers.size())}};
    std::vector<ZeroParam> list;
    for (const ZeroParam &param : params)
        if (param.group == group) list.push_back(param);
    add_facts(list, params.size() - list.size(), facts);
    for (size_t i = 0; i < rule->hypers.size(); i++)
        facts.emplace_back(cat("hyper-parameter ", rule->hypers[i].name),
                           number_text(hypers[static_cast<size_t>(group)][i]));
    return facts;
}

} // namespace ujoin
