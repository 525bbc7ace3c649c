// SPDX-License-Identifier: Apache-2.0
#include "zero/places.hpp"
#include "comm/together.hpp"
#include <algorithm>
#include <cstring>

namespace ujoin {

Places::Place Places::place_of(Group &group, const void *data, size_t bytes) const {
    const std::vector<std::weak_ptr<SharedMemory>> &memories = group.memories();
    for (size_t i = 0; i < memories.size(); i++) {
        const std::shared_ptr<SharedMemory> memory = memories[i].lock();
        if (!memory) continue;
        const auto begin = reinterpret_cast<uintptr_t>(memory->data());
        const auto at = reinterpret_cast<uintptr_t>(data);
        if (at >= begin && at + bytes <= begin + memory->bytes()) return {static_cast<int32_t>(i), at - begin};
    }
    return {};
}

bool Places::find(Group &group, const std::vector<ZeroParam> &params, int64_t idle_timeout_ms) {
    if (group.memories().empty()) return false;
    if (changed_) {
        mine_.assign(2 * params.size(), {});
        shared_ = true;
        for (size_t i = 0; i < params.size(); i++) {
            const ZeroParam &param = params[i];
            if (param.count == 0 || param.frozen) continue;
            mine_[2 * i + 1] = place_of(group, param.data, param.bytes);
            if (param.grad) mine_[2 * i] = place_of(group, param.grad, param.grad_bytes());
            shared_ = shared_ && mine_[2 * i + 1].memory >= 0 && (!param.grad || mine_[2 * i].memory >= 0);
        }
    }
    struct Note {
        int32_t changed;
        int32_t shared;
    } const mine{changed_ ? 1 : 0, shared_ ? 1 : 0};
    std::vector<Note> notes(static_cast<size_t>(group.size()));
    OpArgs op;
    op.kind = OpKind::all_gather;
    op.count = sizeof mine;
    op.send = Memory(&mine, sizeof mine);
    op.recv = Memory(notes.data(), notes.size() * sizeof mine);
    group.run(op, Deadline::in(idle_timeout_ms));
    const auto all = [&](auto &&test) { return std::all_of(notes.begin(), notes.end(), test); };
    if (all([](const Note &note) { return note.changed == 0; })) return all_shared_;
    all_shared_ = all([](const Note &note) { return note.shared != 0; });
    if (all_shared_) exchange(group, params);
    changed_ = false;
    return all_shared_;
}

void Places::exchange(Group &group, const std::vector<ZeroParam> &params) {
    const std::string packed(reinterpret_cast<const char *>(mine_.data()), mine_.size() * sizeof(Place));
    const std::vector<std::string> texts = group.exchange(packed);
    together(group, [&] {
        std::vector<std::shared_ptr<SharedMemory>> kept;
        for (const std::weak_ptr<SharedMemory> &memory : group.memories()) kept.push_back(memory.lock());
        std::vector<std::vector<Seen>> seen(texts.size(), std::vector<Seen>(params.size()));
        for (size_t k = 0; k < texts.size(); k++) {
            std::vector<Place> theirs(mine_.size());
            if (texts[k].size() != packed.size()) fail(UJOIN_E_MISMATCH, "ranks differ in their parameters");
            std::memcpy(theirs.data(), texts[k].data(), packed.size());
            const auto address = [&](const Place &place) -> char * {
                if (place.memory < 0) return nullptr;
                const std::shared_ptr<SharedMemory> &memory = kept[static_cast<size_t>(place.memory)];
                if (!memory) fail_state("rank ", group.rank(), ": memory that rank ", k, " uses was destroyed here");
                return memory->of(static_cast<int32_t>(k)) + place.offset;
            };
            for (size_t i = 0; i < params.size(); i++) seen[k][i] = {address(theirs[2 * i]), address(theirs[2 * i + 1])};
        }
        const auto own = static_cast<size_t>(group.rank());
        for (size_t i = 0; i < params.size(); i++)
            for (size_t k = 0; k < seen.size(); k++)
                for (size_t other = 0; other < seen.size(); other++) {
                    if (other == k || !seen[k][i].value) continue;
                    if (seen[k][i].gradient && seen[k][i].gradient == seen[other][i].gradient)
                        fail_invalid("ranks ", std::min(k, other), " and ", std::max(k, other), " have the gradient of \"",
                                     params[i].name, "\" in the same memory; only parameters can be one per host");
                    if (k != own && seen[k][i].value == seen[other][i].value && (other == own || other < k))
                        seen[k][i].value = nullptr; // written once
                }
        kept_.swap(kept);
        all_.swap(seen);
    });
}

void Places::withdraw() noexcept {
    for (const std::shared_ptr<SharedMemory> &memory : kept_)
        if (memory) memory->withdraw();
}

} // namespace ujoin
