// SPDX-License-Identifier: Apache-2.0
#include "zero/consolidate.hpp"
#include "comm/together.hpp"
#include "zero/zero.hpp"
#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <unordered_map>

namespace ujoin {
namespace {

constexpr size_t chunk_bytes = size_t{4} << 20;

/// State that a rank has for one parameter, without the data. Sent as it is.
struct Announced {
    uint64_t param = 0;
    uint64_t valid = 0;
    int64_t step = 0;
    double number = 0;
};

std::string announce(const Zero &zero) {
    std::string text;
    for (size_t i = 0; i < zero.states().size(); i++) {
        const ParamState &state = zero.states()[i];
        if (state.valid == 0 && state.step == 0) continue;
        const Announced entry{i, state.valid, state.step, state.number};
        text.append(reinterpret_cast<const char *>(&entry), sizeof entry);
    }
    return text;
}

std::vector<Announced> read_announced(const std::string &text) {
    std::vector<Announced> list(text.size() / sizeof(Announced));
    if (!list.empty()) std::memcpy(list.data(), text.data(), list.size() * sizeof(Announced));
    return list;
}

/// One rank's state, on its way: memory of the tensors, in the order that all ranks compute from what was announced. Ranks
/// that neither send nor receive it know its size alone.
struct Shard {
    std::vector<Segment> memory;
    size_t bytes = 0;
};

/// The whole state, on the rank that receives it.
class Collection {
  public:
    explicit Collection(const Layout &layout) : layout_(layout), tensors_(layout.params.size()) {}

    /// Where a piece of a tensor goes.
    std::byte *place(const Piece &piece, size_t state) {
        StateItem *&tensor = tensors_[piece.param][state];
        if (!tensor) {
            tensor = &add(piece.param, layout_.state_names[state]);
            tensor->kind = UJOIN_ITEM_TENSOR;
            tensor->dtype = layout_.state_dtype(piece.param);
            tensor->shape = layout_.params[piece.param].shape;
            tensor->bytes = layout_.state_bytes(piece.param, layout_.params[piece.param].count);
            tensor->data.resize(tensor->bytes);
        }
        return tensor->data.data() + layout_.state_bytes(piece.param, piece.offset);
    }

    /// The same for all pieces of a parameter.
    void add_numbers(const Announced &entry) {
        if (layout_.counts_steps()) add(entry.param, "step").number = static_cast<double>(entry.step);
        if (!layout_.rule->number.empty()) add(entry.param, layout_.rule->number).number = entry.number;
    }

    std::unique_ptr<State> list() {
        auto list = std::make_unique<State>();
        for (StateItem &item : items_) list->set(std::move(item));
        for (size_t group = 0; group < layout_.hypers.size(); group++)
            for (size_t i = 0; i < layout_.rule->hypers.size(); i++) {
                StateItem item;
                item.owner = UJOIN_ITEM_OF_GROUP;
                item.group = static_cast<int32_t>(group);
                item.key = layout_.rule->hypers[i].name;
                item.number = layout_.hypers[group][i];
                list->set(std::move(item));
            }
        return list;
    }

  private:
    StateItem &add(size_t param, const std::string &key) {
        StateItem &item = items_.emplace_back();
        item.owner = UJOIN_ITEM_OF_PARAM;
        item.group = layout_.params[param].group;
        item.param = layout_.params[param].name;
        item.key = key;
        return item;
    }

    const Layout &layout_;
    std::deque<StateItem> items_;
    std::vector<std::array<StateItem *, optim::max_states + 1>> tensors_;
};

/// `collection` is there on the target alone.
Shard open_shard(const Zero &zero, int32_t source, const std::vector<Announced> &announced, Collection *collection) {
    const Layout &layout = zero.layout();
    std::unordered_map<size_t, Piece> pieces;
    for (const Piece &piece : layout.partition.pieces())
        if (piece.rank == source) pieces.emplace(piece.param, piece);
    Shard shard;
    for (const Announced &entry : announced) {
        const Piece &piece = pieces.at(entry.param);
        const size_t bytes = layout.state_bytes(entry.param, piece.count);
        for (size_t state = 0; state < layout.state_names.size(); state++) {
            if ((entry.valid >> state & 1U) == 0) continue;
            shard.bytes += bytes;
            std::byte *memory = nullptr;
            if (collection) {
                memory = collection->place(piece, state);
            } else if (source == layout.rank) {
                memory = const_cast<std::byte *>(zero.states()[entry.param].tensors[state].data()); // which is only read
            }
            if (memory && bytes != 0) shard.memory.push_back({memory, bytes});
        }
        if (collection && piece.offset == 0) collection->add_numbers(entry);
    }
    return shard;
}

/// Where a walk over a shard is.
struct Cursor {
    size_t segment = 0;
    size_t inside = 0; ///< bytes of it that are done
};

/// Adds the next `bytes` of a shard's memory to a list.
void take(const Shard &shard, Cursor &at, size_t bytes, std::vector<Segment> &list) {
    while (bytes > 0) {
        const Segment &whole = shard.memory[at.segment];
        const size_t size = std::min(bytes, whole.bytes - at.inside);
        list.push_back({static_cast<std::byte *>(whole.data) + at.inside, size});
        bytes -= size;
        at.inside += size;
        if (at.inside == whole.bytes) at = {at.segment + 1, 0};
    }
}

/// All ranks but `to` send their shards, a chunk each at a time. Only `to` receives: the others have no memory for it.
void gather(Group &group, int32_t to, const std::vector<Shard> &shards, int64_t timeout_ms) {
    const auto ranks = static_cast<size_t>(group.size());
    const bool receives = group.rank() == to;
    std::vector<Cursor> cursors(ranks);
    size_t longest = 0;
    for (size_t k = 0; k < ranks; k++)
        if (k != static_cast<size_t>(to)) longest = std::max(longest, shards[k].bytes);
    for (size_t done = 0; done < longest; done += chunk_bytes) {
        std::vector<size_t> offsets(ranks + 1);
        std::vector<Segment> memory;
        for (size_t k = 0; k < ranks; k++) {
            const size_t left = shards[k].bytes - std::min(done, shards[k].bytes);
            const size_t size = k == static_cast<size_t>(to) ? 0 : std::min(chunk_bytes, left);
            offsets[k + 1] = offsets[k] + size;
            if (receives || k == static_cast<size_t>(group.rank())) take(shards[k], cursors[k], size, memory);
        }
        OpArgs op;
        op.kind = OpKind::all_gather;
        op.count = offsets[ranks];
        op.part_offsets = offsets.data();
        op.recv = receives ? Memory(memory.data(), memory.size()) : Memory::nowhere();
        if (!receives) op.send = Memory(memory.data(), memory.size());
        group.run(op, Deadline::in(timeout_ms));
    }
}

void copy_own(const Zero &zero, const std::vector<Announced> &announced, Shard &shard) {
    size_t next = 0;
    for (const Announced &entry : announced)
        for (size_t place = 0; place < zero.layout().state_names.size(); place++)
            if (const AlignedBytes &data = zero.states()[entry.param].tensors[place];
                (entry.valid >> place & 1U) != 0 && !data.empty())
                std::memcpy(shard.memory[next++].data, data.data(), data.size());
}

} // namespace

std::unique_ptr<State> consolidate_state(Zero &zero, int32_t to, int64_t timeout_ms) {
    Group &group = zero.group();
    const Deadline deadline = Deadline::in(timeout_ms);
    together(
        group,
        [&] {
            zero.check_whole("consolidation");
            if (to < 0 || to >= group.size()) fail_invalid("to is ", to, "; the group has ranks 0 to ", group.size() - 1);
        },
        deadline);
    check_same(group, {{"the rank to consolidate to", cat(to)}}, deadline);
    std::vector<std::vector<Announced>> announced;
    for (const std::string &text : group.exchange(announce(zero), deadline)) announced.push_back(read_announced(text));

    Collection collection(zero.layout());
    std::vector<Shard> shards;
    together( // all memory is there before the first byte moves
        group,
        [&] {
            for (int32_t source = 0; source < group.size(); source++)
                shards.push_back(open_shard(zero, source, announced[static_cast<size_t>(source)],
                                            group.rank() == to ? &collection : nullptr));
        },
        deadline);
    gather(group, to, shards, timeout_ms);
    if (group.rank() != to) return nullptr;
    copy_own(zero, announced[static_cast<size_t>(to)], shards[static_cast<size_t>(to)]);
    return collection.list();
}

} // namespace ujoin
