// SPDX-License-Identifier: Apache-2.0
// The operation owner_step over staging memory, a pipeline of chunks. In one step of it a rank shows its gradients of the
// others' chunk, and its own values of the chunk before, which it has updated; then it updates its own chunk out of what all
// show, and copies the others' values. So there is one meeting for a chunk, and what it needs stays in the cache.
#include "base/error.hpp"
#include "comm/contribution.hpp"
#include "comm/kernels.hpp"
#include "comm/owner_step.hpp"
#include "comm/shared_backend.hpp"
#include <algorithm>
#include <cstring>

namespace ujoin {
namespace {

/// What is summed and updated at once. A rule computes its factors anew for each block.
constexpr size_t block_bytes = size_t{64} << 10;

} // namespace

/// Of a chunk. A staging buffer has a slot for each other rank's gradients and one for values.
size_t SharedBackend::step_elements(const OwnerStep &step) const {
    return std::max<size_t>(1, slot_bytes() / step.element_bytes());
}
/// Where rank `from` shows its gradients of elements of `owner`, in its staging buffer.
size_t SharedBackend::gradient_place(int32_t from, int32_t owner) const {
    return static_cast<size_t>(owner < from ? owner : owner - 1) * slot_bytes();
}
char *SharedBackend::gradient_slot(int32_t from, int32_t owner) {
    return parts_.areas[static_cast<size_t>(from)]->staging(step_, parts_.chunk) + gradient_place(from, owner);
}
char *SharedBackend::value_slot(int32_t owner, uint64_t step) {
    return parts_.areas[static_cast<size_t>(owner)]->staging(step, parts_.chunk) + (parts_.areas.size() - 1) * slot_bytes();
}

/// Its gradients of the owner's chunk, and its values of the chunk before.
Mirror::Pieces SharedBackend::step_shown(const OpArgs &op, int32_t rank) const {
    const OwnerStep &step = *op.step;
    if (step.direct()) return {};
    const size_t bytes = step_elements(step) * step.element_bytes();
    Mirror::Pieces pieces;
    if (own_contributes(op) && op.cursor.offset < step.longest()) pieces[0] = {gradient_place(parts_.rank, rank), bytes};
    if (step.shares() && op.cursor.offset != 0) pieces[1] = {(parts_.areas.size() - 1) * slot_bytes(), bytes};
    return pieces;
}

void SharedBackend::stage_gradients(const OpArgs &op) {
    if (!own_contributes(op)) return;
    const OwnerStep &step = *op.step;
    for (int32_t owner = 0; owner < size(); owner++) {
        if (owner == parts_.rank) continue;
        char *const slot = gradient_slot(parts_.rank, owner);
        const auto show = [&](const StepRange &range, size_t first, size_t n, size_t place) {
            if (!range.grad || range.as_it_lies) return;
            const size_t bytes = dtype_size(range.grad_dtype);
            char *to = slot + place * step.element_bytes();
            const char *from = range.grad + first * bytes;
            if (range.absent)
                std::memset(to, 0, n * bytes);
            else if (op.scale != 1 && !scaled_by_reader(op, range.grad_dtype))
                scale_elements(range.grad_dtype, from, to, n, op.scale);
            else
                std::memcpy(to, from, n * bytes);
        };
        step.for_parts(static_cast<size_t>(owner), op.cursor.offset, step_elements(step), show);
    }
}

/// Updates this rank's chunk. What it shows of it next may be written already: all have read the buffer's last content.
void SharedBackend::step_own(const OpArgs &op) {
    OwnerStep &step = *op.step;
    const size_t block = block_bytes / step.element_bytes();
    step_scratch_.resize(2 * block_bytes);
    char *const shown = step.shares() && size() > 1 ? value_slot(parts_.rank, step_ + 1) : nullptr;
    const auto own = [&](const StepRange &range, size_t first, size_t n, size_t place) {
        const size_t begin = place * step.element_bytes(); // of the part, in a slot
        const size_t bytes = dtype_size(range.dtype);
        for (size_t done = 0; done < n; done += block) {
            const size_t count = std::min(block, n - done);
            if (range.grad) {
                const size_t at = begin + done * dtype_size(range.grad_dtype);
                step.update(range, first + done, count, sum_block(op, range, first + done, count, at));
            }
            if (shown) std::memcpy(shown + begin + done * bytes, range.value + (first + done) * bytes, count * bytes);
        }
    };
    step.for_parts(static_cast<size_t>(parts_.rank), op.cursor.offset, step_elements(step), own);
}

/// The summed and divided gradient of elements of this rank; the others show theirs `at` bytes into their slots.
const char *SharedBackend::sum_block(const OpArgs &op, const StepRange &range, size_t first, size_t count, size_t at) {
    const ujoin_dtype dtype = range.grad_dtype;
    const size_t bytes = dtype_size(dtype);
    const char *mine = range.grad + first * bytes;
    if (range.as_it_lies || nobody_contributed(op)) return mine;
    char *const sums = step_scratch_.data();
    char *const scratch = sums + block_bytes;
    size_t n = 0;
    any_scaled_ = false;
    for (int32_t k = 0; k < size(); k++) {
        const Slot &of = slot(k, step_);
        if (!contributes(op, of.flags, of.weight)) continue;
        const bool by_reader = (of.flags & flag_scaled_by_weight) && bytes == 2;
        any_scaled_ = any_scaled_ || by_reader;
        scales_[n] = by_reader ? of.weight : 1;
        inputs_[n] = gradient_slot(k, parts_.rank) + at;
        if (k == parts_.rank) {
            inputs_[n] = mine;
            if (range.absent) {
                std::memset(scratch, 0, count * bytes);
                inputs_[n] = scratch;
            } else if (op.scale != 1 && !by_reader) {
                scale_elements(dtype, mine, scratch, count, op.scale);
                inputs_[n] = scratch;
            }
        }
        n++;
    }
    reduce_inputs(dtype, UJOIN_SUM, inputs_, n, sums, count, divisor_of(op, size()));
    return sums;
}

/// The others' values of the chunk before.
void SharedBackend::take_shared(const OpArgs &op) {
    const OwnerStep &step = *op.step;
    const size_t elements = step_elements(step);
    if (!step.shares() || op.cursor.offset < elements) return;
    for (int32_t owner = 0; owner < size(); owner++) {
        if (owner == parts_.rank) continue;
        const char *const slot = value_slot(owner, step_);
        const auto take = [&](const StepRange &range, size_t first, size_t n, size_t place) {
            const size_t bytes = dtype_size(range.dtype);
            std::memcpy(range.value + first * bytes, slot + place * step.element_bytes(), n * bytes);
        };
        step.for_parts(static_cast<size_t>(owner), op.cursor.offset - elements, elements, take);
    }
}

} // namespace ujoin
