// SPDX-License-Identifier: Apache-2.0
// ujoin_submit: any operations, as one.
#include "api/op_call.hpp"
#include "base/checksum.hpp"
#include <algorithm>
#include <numeric>

using namespace ujoin;
using api::Call;

namespace {

OpKind kind_of(ujoin_op_kind kind) {
    constexpr OpKind kinds[] = {OpKind::none,           OpKind::barrier,    OpKind::all_reduce, OpKind::reduce,
                                OpKind::broadcast,      OpKind::all_gather, OpKind::gather,     OpKind::scatter,
                                OpKind::reduce_scatter, OpKind::all_to_all};
    return kinds[kind];
}

/// What the caller wrote in one element of its list, checked and as the group wants it.
class Request {
  public:
    Request(Call &call, const ujoin_op &given, std::string place) : call_(call), given_(given), place_(std::move(place)) {}

    bool is_message() const { return given_.kind == UJOIN_OP_SEND || given_.kind == UJOIN_OP_RECV; }

    Message message() {
        call_.check_rank(given_.peer, name("peer"));
        Message message;
        message.peer = given_.peer;
        message.outgoing = given_.kind == UJOIN_OP_SEND;
        message.dtype = message.outgoing ? given_.send.dtype : given_.recv.dtype;
        message.count = message.outgoing ? given_.send.count : given_.recv.count;
        op_.dtype = message.dtype;
        message.memory = message.outgoing ? send(message.count) : recv(message.count);
        return message;
    }

    OpArgs operation() {
        op_.kind = kind_of(given_.kind);
        if (reduces(op_.kind)) op_.reduce = call_.reduction(given_.reduce);
        if (has_root(op_.kind)) {
            call_.check_rank(given_.peer, name("peer (the root)"));
            op_.root = given_.peer;
        }
        at_root_ = op_.root == call_.rank();
        switch (op_.kind) {
        case OpKind::barrier:
            break;
        case OpKind::all_reduce:
            same_size(true);
            break;
        case OpKind::reduce:
            same_size(at_root_);
            break;
        case OpKind::broadcast:
            broadcast();
            break;
        case OpKind::all_gather:
            all_gather();
            break;
        case OpKind::reduce_scatter:
            reduce_scatter();
            break;
        default:
            parts();
        }
        return std::move(op_);
    }

  private:
    const char *name(const char *field) {
        name_ = place_ + field;
        return name_.c_str();
    }
    Memory send(size_t elements) { return call_.memory(&given_.send, name("send"), op_, elements); }
    Memory recv(size_t elements) { return call_.memory(&given_.recv, name("recv"), op_, elements); }
    bool sends() const { return given_.send.data || given_.send.dtype != 0; } // memory of no elements may be at NULL
    bool receives() const { return given_.recv.data || given_.recv.dtype != 0; }

    /// all_reduce, reduce: what is not given as send lies in recv, which is written only where the result goes.
    void same_size(bool result_here) {
        if (!result_here && sends()) {
            op_.dtype = given_.send.dtype;
            op_.count = given_.send.count;
            op_.send = op_.recv = send(op_.count);
            return;
        }
        op_.dtype = given_.recv.dtype;
        op_.count = given_.recv.count;
        op_.recv = recv(op_.count);
        if (sends()) op_.send = send(op_.count);
    }

    void broadcast() {
        const bool from_send = at_root_ && sends();
        if (from_send && receives()) call_.invalid(name("send and recv"), " are both given at the root of a broadcast");
        op_.dtype = from_send ? given_.send.dtype : given_.recv.dtype;
        op_.count = from_send ? given_.send.count : given_.recv.count;
        op_.recv = from_send ? send(op_.count) : recv(op_.count);
    }

    void all_gather() {
        op_.dtype = given_.recv.dtype;
        if (given_.recv_counts) {
            const auto offsets = shared_offsets(given_.recv_counts);
            op_.recv = recv(op_.count);
            if (sends()) op_.send = send(given_.recv_counts[call_.rank()]);
            op_.part_offsets = offsets;
            return;
        }
        op_.count = equal_part(given_.recv.count, "recv");
        op_.recv = recv(op_.count * call_.ranks());
        if (sends()) op_.send = send(op_.count);
    }

    void reduce_scatter() {
        op_.dtype = given_.send.dtype;
        if (given_.recv_counts) {
            const auto offsets = shared_offsets(given_.recv_counts);
            op_.send = send(op_.count);
            op_.recv = recv(given_.recv_counts[call_.rank()]);
            op_.part_offsets = offsets;
            return;
        }
        op_.count = equal_part(given_.send.count, "send");
        op_.send = send(op_.count * call_.ranks());
        op_.recv = recv(op_.count);
    }

    /// gather, scatter, all_to_all: a part for each other rank, in this rank's own view.
    void parts() {
        const bool many_sent = op_.kind == OpKind::all_to_all || (op_.kind == OpKind::scatter && at_root_);
        const bool many_received = op_.kind == OpKind::all_to_all || (op_.kind == OpKind::gather && at_root_);
        const bool gives = op_.kind != OpKind::scatter || at_root_;
        const bool gets = op_.kind != OpKind::gather || at_root_;
        op_.dtype = gives && sends() ? given_.send.dtype : given_.recv.dtype;
        const bool in_place = gives && !sends() && gets && op_.kind != OpKind::scatter;
        if (in_place && op_.kind == OpKind::all_to_all && given_.send_counts)
            call_.invalid(name("send_counts"), " is given, but send is not (in place)");
        if (gives && !in_place) {
            if (many_sent) op_.send_offsets = part_offsets(given_.send_counts, given_.send.count, "send");
            op_.send = send(given_.send.count);
        }
        if (gets && (op_.kind != OpKind::scatter || !at_root_ || receives())) {
            if (many_received) op_.recv_offsets = part_offsets(given_.recv_counts, given_.recv.count, "recv");
            op_.recv = recv(given_.recv.count);
        }
    }

    size_t equal_part(size_t count, const char *side) {
        if (count % call_.ranks() != 0)
            call_.invalid(name(side), ".count is ", count, ", not a multiple of ", call_.ranks());
        return count / call_.ranks();
    }
    /// Byte offsets of the parts in a buffer of `count` elements.
    std::vector<size_t> part_offsets(const size_t *counts, size_t count, const char *side) {
        const size_t ranks = call_.ranks();
        const size_t bytes = dtype_size(op_.dtype);
        std::vector<size_t> offsets(ranks + 1);
        const size_t part = counts ? 0 : equal_part(count, side);
        for (size_t k = 0; k < ranks; k++) {
            const size_t n = counts ? counts[k] : part;
            if (n > count) call_.invalid(name(side), "_counts[", k, "] is ", n, ", more than ", side, ".count, ", count);
            offsets[k + 1] = offsets[k] + n * bytes;
        }
        if (offsets[ranks] != count * bytes)
            call_.invalid(name(side), "_counts add up to ", offsets[ranks] / std::max<size_t>(bytes, 1), "; ", side,
                          ".count is ", count);
        return offsets;
    }
    /// The same for parts on which all ranks agree; the operation keeps them.
    const size_t *shared_offsets(const size_t *counts) {
        const bool sent = op_.kind == OpKind::reduce_scatter;
        op_.count = sent ? given_.send.count : given_.recv.count;
        const auto offsets = std::make_shared<std::vector<size_t>>(part_offsets(counts, op_.count, sent ? "send" : "recv"));
        Checksum sum;
        for (const size_t offset : *offsets) sum.word(offset);
        op_.digest = sum.folded();
        op_.digest_text = "ranks differ in recv_counts";
        op_.keep = offsets;
        return offsets->data();
    }

    Call &call_;
    const ujoin_op &given_;
    std::string place_; ///< "ops[1]."
    std::string name_;
    OpArgs op_;
    bool at_root_ = false;
};

/// Element by element, so that two of them are one on memory of two pieces.
bool may_merge(const OpArgs &a, const OpArgs &b) {
    const bool plain = a.kind == OpKind::all_reduce || a.kind == OpKind::reduce || a.kind == OpKind::broadcast;
    return plain && a.kind == b.kind && a.dtype == b.dtype && a.reduce == b.reduce && a.root == b.root;
}

/// The same on every rank, whichever of them are in place there.
OpArgs merged(const std::vector<OpArgs> &ops, size_t first, size_t last) {
    struct Lists {
        std::vector<Segment> send;
        std::vector<Segment> recv;
    };
    const auto lists = std::make_shared<Lists>();
    OpArgs op = ops[first];
    op.count = 0;
    bool in_place = true;
    for (size_t i = first; i < last; i++) {
        const Memory &send = ops[i].send.absent() ? ops[i].recv : ops[i].send;
        in_place = in_place && ops[i].send.absent();
        op.count += ops[i].count;
        lists->send.insert(lists->send.end(), send.begin(), send.end());
        lists->recv.insert(lists->recv.end(), ops[i].recv.begin(), ops[i].recv.end());
    }
    op.send = in_place ? Memory() : Memory(lists->send.data(), lists->send.size());
    op.recv = Memory(lists->recv.data(), lists->recv.size());
    op.keep = lists;
    return op;
}

std::vector<OpArgs> merge_neighbours(const std::vector<OpArgs> &ops) {
    std::vector<OpArgs> result;
    for (size_t first = 0, last = 0; first < ops.size(); first = last) {
        last = first + 1;
        while (last < ops.size() && may_merge(ops[first], ops[last])) last++;
        result.push_back(last == first + 1 ? ops[first] : merged(ops, first, last));
    }
    return result;
}

void check_own_messages(Call &call, const std::vector<Message> &messages) {
    int64_t open = 0;
    for (const Message &message : messages)
        if (message.peer == call.rank()) open += message.outgoing ? 1 : -1;
    if (open != 0) call.invalid("messages to this rank itself: each send needs its recv in the same call");
}

std::vector<OpArgs> read_list(Call &call, const ujoin_op *ops, size_t count) {
    if (!ops || count == 0) call.invalid("no operations are given");
    const size_t stride = ops->size;
    std::vector<ujoin_op> given;
    for (size_t i = 0; i < count; i++) {
        const auto *at = reinterpret_cast<const ujoin_op *>(reinterpret_cast<const char *>(ops) + i * stride);
        given.push_back(api::read_options(at, "ujoin_op"));
        if (at->size != stride) call.invalid("ops[", i, "].size is ", at->size, ", that of ops[0] ", stride);
    }
    std::vector<OpArgs> operations;
    OpArgs transfer;
    transfer.kind = OpKind::transfer;
    for (size_t i = 0; i < count; i++) {
        if (given[i].kind < UJOIN_OP_BARRIER || given[i].kind > UJOIN_OP_RECV)
            call.invalid("ops[", i, "].kind is ", given[i].kind, "; expected a value of ujoin_op_kind_value");
        Request request(call, given[i], cat("ops[", i, "]."));
        if (request.is_message())
            transfer.messages.push_back(request.message());
        else
            operations.push_back(request.operation());
    }
    check_own_messages(call, transfer.messages);
    std::vector<OpArgs> result = merge_neighbours(operations);
    if (!transfer.messages.empty()) result.insert(result.begin(), std::move(transfer));
    return result;
}

} // namespace

ujoin_status ujoin_submit(ujoin_group *group, const ujoin_op *ops, size_t count, const ujoin_op_options *options,
                          ujoin_work **out_work) {
    return api::operation("ujoin_submit", out_work, [&] {
        Call call(group, options);
        std::vector<OpArgs> list = read_list(call, ops, count);
        call.go(list, out_work);
    });
}
