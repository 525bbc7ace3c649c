// SPDX-License-Identifier: Apache-2.0
// The operation owner_step over memory that all ranks see. Between two meetings an owner reads the ranks' gradients where they
// lie, and writes each rank's values. Whoever fails in between leaves its mark, touches nothing more, says so, and goes only
// when nobody can touch its own memory any more (the protocol is that of tests/models/fused.pml).
#include "base/error.hpp"
#include "comm/contribution.hpp"
#include "comm/kernels.hpp"
#include "comm/owner_step.hpp"
#include "comm/shared_backend.hpp"
#include <algorithm>
#include <cstring>

namespace ujoin {
namespace {

constexpr size_t block_bytes = size_t{64} << 10;
/// A stopped process may keep a failing one from going for so long; then memory is taken away from it.
constexpr int64_t patience_ms = 2000;

} // namespace

/// A rank that has failed, and has not arrived at the end, may have given its memory back.
void SharedBackend::check_marks(const OpArgs &op) {
    const auto at_end = [&](int32_t k) {
        return k == parts_.rank || slot(k, step_ + 1).arrived.load(std::memory_order_acquire) >= step_ + 1;
    };
    watch_.look(at_end, [&] { return describe(op.kind, op.reduce, op.dtype, op.count, op.root); });
}

void SharedBackend::step_directly(const OpArgs &op) {
    OwnerStep &step = *op.step;
    step_scratch_.resize((1 + parts_.areas.size()) * block_bytes);
    const size_t block = block_bytes / step.element_bytes();
    check_marks(op);
    const auto own = [&](const StepRange &range, size_t first, size_t n, size_t) {
        for (size_t done = 0; done < n; done += block) {
            const size_t count = std::min(block, n - done);
            const size_t from = first + done;
            check_marks(op);
            if (range.grad) step.update(range, from, count, sum_directly(op, range, from, count));
            if (!step.shares()) continue;
            const size_t bytes = dtype_size(range.dtype);
            for (int32_t k = 0; k < size(); k++) {
                char *const to = k == parts_.rank ? nullptr : step.value_of(k, range);
                if (to) std::memcpy(to + from * bytes, range.value + from * bytes, count * bytes);
            }
        }
    };
    step.for_parts(static_cast<size_t>(parts_.rank), 0, step.count(static_cast<size_t>(parts_.rank)), own);
}

const char *SharedBackend::sum_directly(const OpArgs &op, const StepRange &range, size_t first, size_t count) {
    const ujoin_dtype dtype = range.grad_dtype;
    const size_t bytes = dtype_size(dtype);
    if (range.as_it_lies || nobody_contributed(op)) return range.grad + first * bytes;
    char *const sums = step_scratch_.data();
    size_t n = 0;
    any_scaled_ = false;
    for (int32_t k = 0; k < size(); k++) {
        const Slot &of = slot(k, step_);
        if (!contributes(op, of.flags, of.weight)) continue;
        char *const scratch = sums + (n + 1) * block_bytes;
        const char *const gradient =
            k == parts_.rank ? (range.absent ? nullptr : range.grad) : op.step->gradient_of(k, range);
        const double scale = op.step->scale_of(of.weight);
        const bool by_reader = scale != 1 && bytes == 2;
        any_scaled_ = any_scaled_ || by_reader;
        scales_[n] = by_reader ? scale : 1;
        inputs_[n] = scratch;
        if (!gradient)
            std::memset(scratch, 0, count * bytes);
        else if (scale != 1 && !by_reader)
            scale_elements(dtype, gradient + first * bytes, scratch, count, scale);
        else
            inputs_[n] = gradient + first * bytes;
        n++;
    }
    reduce_inputs(dtype, UJOIN_SUM, inputs_, n, sums, count, divisor_of(op, size()));
    return sums;
}

void SharedBackend::keep_quiet(const Error &error, OwnerStep &step) {
    watch_.mark(Fate::failed, error.text(), error.code());
    if (met_ == 0) return; // the others cannot begin without this rank
    const uint64_t first = met_;
    parts_.areas[static_cast<size_t>(parts_.rank)]->quiet.store(first, std::memory_order_seq_cst);
    watch_.mark(Fate::failed, error.text(), error.code()); // wakes those who look for that
    const Deadline patience = Deadline::in(patience_ms);
    for (int32_t k = 0; k < size(); k++) {
        if (k == parts_.rank) continue;
        const auto harmless = [&] {
            return slot(k, first).arrived.load(std::memory_order_seq_cst) < first ||
                   slot(k, first + 1).arrived.load(std::memory_order_seq_cst) >= first + 1 ||
                   parts_.areas[static_cast<size_t>(k)]->quiet.load(std::memory_order_seq_cst) >= first ||
                   watch_.has_ended(k);
        };
        if (!os::wait_event(slot(k, first + 1).event, 0, patience, harmless, [](bool) {})) return step.withdraw();
    }
}

} // namespace ujoin
