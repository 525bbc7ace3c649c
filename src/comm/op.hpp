// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "base/dtype.hpp"
#include "base/error.hpp"
#include <cstddef>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace ujoin {

class OwnerStep;
struct StepRange;

enum class OpKind : uint8_t {
    none,
    barrier,
    all_reduce,
    broadcast,
    all_gather,
    reduce_scatter,
    close,
    reduce,
    gather,
    scatter,
    all_to_all,
    transfer,
    owner_step
};
/// In at least 16 bytes, filled up with zeros.
const char *op_kind_name(OpKind kind);
constexpr bool reduces(OpKind kind) {
    return kind == OpKind::all_reduce || kind == OpKind::reduce || kind == OpKind::reduce_scatter;
}
constexpr bool has_root(OpKind kind) {
    return kind == OpKind::broadcast || kind == OpKind::reduce || kind == OpKind::gather || kind == OpKind::scatter;
}
/// Each rank has a part for each other one.
constexpr bool moves_parts(OpKind kind) {
    return kind == OpKind::gather || kind == OpKind::scatter || kind == OpKind::all_to_all;
}

/// A piece of memory.
struct Segment {
    void *data = nullptr;
    size_t bytes = 0;
};

/// Memory as an operation sees it: one range, or several taken end to end (a bucket of gradients, a shard of parameters).
/// A list is borrowed: it lives as long as the operation.
class Memory {
  public:
    Memory() = default;
    Memory(void *data, size_t bytes) : one_{data, bytes}, bytes_(bytes) {}
    Memory(const void *data, size_t bytes) : Memory(const_cast<void *>(data), bytes) {} // only read where it is a send
    Memory(const Segment *list, size_t count);

    const Segment *begin() const { return list_ ? list_ : &one_; }
    const Segment *end() const { return list_ ? list_ + count_ : &one_ + 1; }
    size_t bytes() const { return bytes_; }
    /// Memory of no bytes whatever the count says: what would be written there is dropped.
    static Memory nowhere();
    /// No memory was given: in place.
    bool absent() const { return !list_ && !one_.data; }

  private:
    Segment one_;
    const Segment *list_ = nullptr;
    size_t count_ = 0;
    size_t bytes_ = 0;
};

/// A message to or from one rank; in order between two ranks. `transfer` makes progress with all of its messages at once.
struct Message {
    int32_t peer = 0;
    bool outgoing = false;
    ujoin_dtype dtype = UJOIN_U8;
    size_t count = 0;
    Memory memory;
    size_t pieces = 0; ///< posted or taken so far
    bool done = false;
};
std::string describe(const Message &message);

/// What a sum is divided by once all contributions are in.
enum class Divide : uint8_t { none, ranks, contributors, weight };

/// What the slots of the first operation of a use told, the same on every rank.
struct OpOutcome {
    int32_t contributors = 0;     ///< ranks that are no shadows
    double weight = 0;            ///< sum over them, in rank order
    bool stop = false;            ///< some rank asked for an agreed stop
    std::vector<int32_t> shadows; ///< the other ranks, ascending; usually none
};

/// Any operation, completely described; checked once above the backends. Counts are elements of `dtype`.
///   barrier, close: no memory           all_reduce: send n -> recv n
///   broadcast: recv n, from root        all_gather: send n -> recv W n, or parts (below)
///   reduce_scatter: send W n -> recv n  reduce: send n -> recv n at the root
///   gather: send n -> recv W n at root  scatter: send W n at root -> recv n
///   all_to_all: send W n -> recv W n    transfer: messages
///   owner_step: `step` has it all; count only tells it from another
/// gather, scatter and all_to_all also with parts of any sizes, which only the two ranks concerned must agree on (below).
struct OpArgs {
    OpKind kind = OpKind::none;
    ujoin_reduce reduce = UJOIN_SUM;
    ujoin_dtype dtype = UJOIN_U8;
    int32_t root = 0;
    size_t count = 0;
    Memory send; ///< absent = in place
    Memory recv;
    /// all_gather and reduce_scatter with parts of unequal size: W + 1 byte offsets into recv, or into send (the first 0),
    /// the same on every rank. Borrowed.
    const size_t *part_offsets = nullptr;
    /// gather, scatter and all_to_all: W + 1 byte offsets into send and recv, each rank's own, where it has
    /// parts for, or from, all ranks; `count` is 0.
    std::vector<size_t> send_offsets;
    std::vector<size_t> recv_offsets;
    std::vector<Message> messages;
    std::shared_ptr<const void> keep; ///< what the operation itself owns of the above
    OwnerStep *step = nullptr;        ///< borrowed

    /// A shadow contributes nothing to a reduction: its memory is not read, only written.
    bool shadow = false;
    bool stop_request = false;
    /// Issued by the program itself under an armed context of a group that shadows such operations.
    bool program = false;
    /// A shadow of such an operation: it has nothing to give, also to an all_gather, and drops the result.
    bool empty = false;
    /// The shadow of a use: before it begins, what rank `follow` itself issues first is shadowed. -1 = nothing is.
    int32_t follow = -1;
    uint64_t follow_context = 0; ///< the number of the context in which that rank may join meanwhile
    double weight = 0;           ///< samples of this rank
    /// The contribution is multiplied by this before it is summed (floating-point types); 16-bit types in f32 if it is the weight.
    double scale = 1;
    Divide divide = Divide::none;
    uint32_t digest = 0;          ///< anything else that ranks must agree on; compared
    const char *digest_text = ""; ///< what a difference in it means
    uint32_t use_tag = 0;         ///< UseTag::word; compared

    OpOutcome outcome;

    /// Where a backend is in this operation.
    struct Cursor {
        size_t offset = 0; ///< bytes done; elements in a step
        size_t length = 0; ///< likewise: in the present step
        int32_t peer = 0;  ///< next rank to wait for
        int8_t phase = 0;
        bool waiting = false;
        bool last = false; ///< the present step is the last one
    } cursor;
};

/// The shadow of an operation that another rank has entered.
OpArgs empty_shadow_of(OpArgs op);

/// "all_reduce(sum, f32, 100)"
std::string describe(OpKind kind, ujoin_reduce reduce, ujoin_dtype dtype, uint64_t count, int32_t root);

} // namespace ujoin
