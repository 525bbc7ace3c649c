// SPDX-License-Identifier: Apache-2.0
#include "zero/layout.hpp"
#include "base/dtype.hpp"
#include "base/error.hpp"
#include "optim/norm.hpp"
#include <algorithm>

namespace ujoin {
namespace {

constexpr size_t cache_line = 64;

} // namespace

void Share::clear() {
    segments.clear();
    offsets.assign(1, 0);
    bytes = 0;
}

void Share::add(int32_t rank, std::byte *data, size_t size) {
    offsets.resize(static_cast<size_t>(rank) + 1, bytes); // ranks that own nothing
    if (size == 0) return;
    bytes += size;
    Segment *last = segments.empty() ? nullptr : &segments.back();
    if (last && static_cast<std::byte *>(last->data) + last->bytes == data) {
        last->bytes += size;
    } else {
        segments.push_back({data, size});
    }
}

void Share::complete(size_t ranks) { offsets.resize(ranks + 1, bytes); }

Layout::Layout(std::shared_ptr<const optim::Rule> r, const ZeroOptions &how, int32_t own_rank, int32_t ranks)
    : rule(std::move(r)), options(how), state_names(rule->states), rank(own_rank), partition(ranks, how.partition) {
    if (rule->per_tensor && options.partition == UJOIN_PARTITION_ELEMENTS)
        fail(UJOIN_E_UNSUPPORTED, "options.partition is UJOIN_PARTITION_ELEMENTS (", options.partition, "), but ",
             rule->name, " needs whole parameters; use UJOIN_PARTITION_PARAMETERS");
    state_names.emplace_back("master");
}

size_t Layout::state_bytes(size_t index, size_t count) const { return count * dtype_size(state_dtype(index)); }

bool Layout::has_master(size_t index) const { return options.master_copies && dtype_size(params[index].dtype) == 2; }

unsigned Layout::needed_states(size_t index) const {
    const unsigned own = optim::needed_states(*rule, hypers[static_cast<size_t>(params[index].group)]);
    return own | (has_master(index) ? 1U << rule->states.size() : 0U);
}

Layout Layout::with_group(std::vector<ZeroParam> added, optim::Hyper hyper) const {
    Layout next = *this;
    std::vector<PartitionMember> members;
    for (ZeroParam &param : added) {
        param.group = static_cast<int32_t>(hypers.size());
        members.push_back({param.count, cache_line / dtype_size(param.dtype), options.balance_trainable && param.frozen});
        next.params.push_back(std::move(param));
    }
    next.hypers.push_back(std::move(hyper));
    next.partition.add_group(members);
    next.number_pieces();
    next.arrange();
    return next;
}

void Layout::number_pieces() {
    own_pieces.assign(params.size(), none);
    numbers.assign(1, 0);
    numbers_of.assign(partition.ranks() + 1, 0);
    const std::vector<Piece> &pieces = partition.pieces();
    for (size_t i = 0; i < pieces.size(); i++) {
        if (pieces[i].rank == rank) own_pieces[pieces[i].param] = i;
        const size_t count = whole(pieces[i]) ? 1 : optim::NormSum::count_numbers(pieces[i].offset, pieces[i].count);
        numbers.push_back(numbers.back() + count);
        numbers_of[static_cast<size_t>(pieces[i].rank) + 1] = numbers.back() * sizeof(double);
    }
    for (size_t k = 1; k < numbers_of.size(); k++) numbers_of[k] = std::max(numbers_of[k], numbers_of[k - 1]);
}

void Layout::arrange() {
    share.clear();
    for (const Piece &piece : partition.pieces()) add_to(share, piece);
    share.complete(partition.ranks());
}

void Layout::add_to(Share &to, const Piece &piece) const {
    const ZeroParam &param = params[piece.param];
    if (!param.frozen) to.add(piece.rank, param.data_at(piece.offset), piece.count * dtype_size(param.dtype));
}

Facts Layout::facts_of_group(int32_t group) const {
    Facts facts{{"optimizer", rule->name}, {"number of param groups", cat(hypers.size())}};
    facts.emplace_back("option partition", cat(options.partition));
    facts.emplace_back("option balance_trainable", cat(options.balance_trainable));
    facts.emplace_back("option no_master_copy", cat(!options.master_copies));
    facts.emplace_back("option stochastic_rounding", cat(options.stochastic_rounding));
    facts.emplace_back("option seed", cat(options.seed));
    facts.emplace_back("option ddp", options.overlaps ? "a reducer"
                                     : options.fuses  ? "a reducer of UJOIN_GRADIENT_SYNC_TO_OWNER"
                                                      : "NULL");
    facts.emplace_back("UJOIN_DEBUG", options.compare_values ? "detail" : "no value that concerns steps");
    facts.emplace_back("state of the rule", join_list(rule->states));
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
