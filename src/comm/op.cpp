// SPDX-License-Identifier: Apache-2.0
#include "comm/op.hpp"
#include <algorithm>
#include <iterator>

namespace ujoin {

const char *op_kind_name(OpKind kind) {
    static constexpr char names[][16] = {"none",           "barrier",  "all_reduce", "broadcast", "all_gather",
                                         "reduce_scatter", "close",    "reduce",     "gather",    "scatter",
                                         "all_to_all",     "transfer", "step",       "?"};
    return names[std::min(static_cast<size_t>(kind), std::size(names) - 1)];
}

Memory::Memory(const Segment *list, size_t count) : list_(list), count_(count) {
    for (size_t i = 0; i < count; i++) bytes_ += list[i].bytes;
}

Memory Memory::nowhere() {
    static const Segment none;
    return Memory(&none, 0);
}

OpArgs empty_shadow_of(OpArgs op) {
    op.send = op.recv = Memory::nowhere();
    op.shadow = op.empty = true;
    op.program = false;
    return op;
}

std::string describe(const Message &message) {
    return cat(message.outgoing ? "send(" : "recv(", dtype_name(message.dtype), ", ", message.count,
               message.outgoing ? ", to rank " : ", from rank ", message.peer, ")");
}

std::string describe(OpKind kind, ujoin_reduce reduce, ujoin_dtype dtype, uint64_t count, int32_t root) {
    constexpr const char *reductions[] = {"?", "sum", "avg", "min", "max", "prod"};
    const char *reduction = reductions[reduce >= UJOIN_SUM && reduce <= UJOIN_PROD ? reduce : 0];
    switch (kind) {
    case OpKind::all_reduce:
    case OpKind::reduce_scatter:
        return cat(op_kind_name(kind), "(", reduction, ", ", dtype_name(dtype), ", ", count, ")");
    case OpKind::broadcast:
        return cat("broadcast(", dtype_name(dtype), ", ", count, ", root ", root, ")");
    case OpKind::all_gather:
        return cat("all_gather(", dtype_name(dtype), ", ", count, ")");
    case OpKind::all_to_all:
        return cat("all_to_all(", dtype_name(dtype), ")");
    case OpKind::gather:
    case OpKind::scatter:
        return cat(op_kind_name(kind), "(", dtype_name(dtype), ", root ", root, ")");
    case OpKind::reduce:
        return cat("reduce(", reduction, ", ", dtype_name(dtype), ", ", count, ", root ", root, ")");
    case OpKind::owner_step:
        return cat("step(of ", count, " elements)");
    default:
        return op_kind_name(kind);
    }
}

} // namespace ujoin
