// SPDX-License-Identifier: Apache-2.0
#include "zero/consolidate.hpp"
#include "zero/together.hpp"
#include "zero/zero.hpp"
#include <algorithm>
#include <cstring>
#include <optional>

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

/// One rank's state, on its way. The list is filled on the target only.
struct Shard {
    std::vector<StateItem> items;
    std::vector<Segment> memory; ///< of the tensors, in the order that all ranks compute from what was announced
    size_t bytes = 0;
};

Shard open_shard(const Zero &zero, int32_t source, int32_t to, const std::vector<Announced> &announced) {
    const Layout &layout = zero.layout();
    Shard shard;
    for (const Announced &entry : announced) {
        const ZeroParam &param = layout.params.at(entry.param);
        StateItem item;
        item.owner = UJOIN_ITEM_OF_PARAM;
        item.group = param.group;
        item.param = param.name;
        const size_t bytes = layout.state_bytes(entry.param);
        for (size_t place = 0; place < layout.state_names.size(); place++) {
            if ((entry.valid >> place & 1U) == 0) continue;
            shard.bytes += bytes;
            if (layout.rank == to) {
                StateItem tensor = item;
                tensor.key = layout.state_names[place];
                tensor.kind = UJOIN_ITEM_TENSOR;
                tensor.dtype = layout.state_dtype(entry.param);
                tensor.shape = param.shape;
                tensor.bytes = bytes;
                tensor.data.resize(bytes);
                if (bytes != 0) shard.memory.push_back({tensor.data.data(), bytes});
                shard.items.push_back(std::move(tensor));
            } else if (layout.rank == source && bytes != 0) {
                const std::byte *data = zero.states()[entry.param].tensors[place].data();
                shard.memory.push_back({const_cast<std::byte *>(data), bytes}); // the root's memory is only read
            }
        }
        if (layout.rank != to) continue;
        item.kind = UJOIN_ITEM_NUMBER;
        if (layout.counts_steps()) {
            item.key = "step";
            item.number = static_cast<double>(entry.step);
            shard.items.push_back(item);
        }
        if (!layout.rule->number.empty()) {
            item.key = layout.rule->number;
            item.number = entry.number;
            shard.items.push_back(item);
        }
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
            if (const std::vector<std::byte> &data = zero.states()[entry.param].tensors[place];
                (entry.valid >> place & 1U) != 0 && !data.empty())
                std::memcpy(shard.memory[next++].data, data.data(), data.size());
}

std::unique_ptr<State> make_list(const Layout &layout, std::vector<Shard> &shards) {
    auto list = std::make_unique<State>();
    for (Shard &shard : shards)
        for (StateItem &item : shard.items) list->set(std::move(item));
    for (size_t group = 0; group < layout.hypers.size(); group++)
        for (size_t i = 0; i < layout.rule->hypers.size(); i++) {
            StateItem item;
            item.owner = UJOIN_ITEM_OF_GROUP;
            item.group = static_cast<int32_t>(group);
            item.key = layout.rule->hypers[i].name;
            item.number = layout.hypers[group][i];
            list->set(std::move(item));
        }
    return list;
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

    std::vector<Shard> shards;
    together( // all memory is there before the first byte moves
        group,
        [&] {
            for (int32_t source = 0; source < group.size(); source++)
                shards.push_back(open_shard(zero, source, to, announced[static_cast<size_t>(source)]));
        },
        deadline);
    gather(group, to, shards, timeout_ms);
    if (group.rank() != to) return nullptr;
    copy_own(zero, announced[static_cast<size_t>(to)], shards[static_cast<size_t>(to)]);
    return make_list(zero.layout(), shards);
}

} // namespace ujoin
