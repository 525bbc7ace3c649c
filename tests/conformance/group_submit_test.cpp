// SPDX-License-Identifier: Apache-2.0
// Every kind of operation through ujoin_submit, against results computed here in the plainest way.
#include "harness/ddp_kit.hpp"
#include <cmath>
#include <cstring>
#include <numeric>

using namespace ddp_kit;
using ujoin::BFloat16;
using ujoin::dtype_size;
using ujoin::Half;

namespace {

constexpr ujoin_dtype all_types[] = {UJOIN_F32, UJOIN_F64, UJOIN_F16, UJOIN_BF16, UJOIN_I32, UJOIN_I64, UJOIN_U8};
constexpr size_t counts[] = {0, 1, 5, 1000, 150'001}; // in the slot, in one piece, in several

/// Elements of any type, by their values.
class Array {
  public:
    Array(ujoin_dtype dtype, size_t count, double value = 0) : dtype_(dtype), bytes_(count * dtype_size(dtype)) {
        if (value != 0) fill([value](size_t) { return value; });
    }
    template <class Value> void fill(const Value &value) {
        visit([&, n = count()](auto *data) {
            for (size_t i = 0; i < n; i++)
                data[i] = static_cast<std::decay_t<decltype(*data)>>(static_cast<float>(value(i)));
        });
    }
    size_t count() const { return bytes_.size() / dtype_size(dtype_); }
    void set(size_t i, double value) {
        visit([&](auto *data) { data[i] = static_cast<std::decay_t<decltype(*data)>>(static_cast<float>(value)); });
    }
    /// Elements of the same type from element `to` on; the place behind them.
    size_t put(size_t to, const Array &piece) {
        const auto place = bytes_.begin() + static_cast<std::ptrdiff_t>(to * dtype_size(dtype_));
        std::copy(piece.bytes_.begin(), piece.bytes_.end(), place);
        return to + piece.count();
    }
    double at(size_t i) const {
        double value = 0;
        const_cast<Array *>(this)->visit([&](auto *data) {
            if constexpr (std::is_arithmetic_v<std::decay_t<decltype(*data)>>)
                value = static_cast<double>(data[i]);
            else
                value = static_cast<double>(static_cast<float>(data[i]));
        });
        return value;
    }
    ujoin_buffer out() { return {bytes_.data(), count(), dtype_, UJOIN_DEVICE_HOST, 0, 0}; }
    ujoin_const_buffer in() const { return {bytes_.data(), count(), dtype_, UJOIN_DEVICE_HOST, 0, 0}; }
    const std::vector<char> &bytes() const { return bytes_; }

  private:
    template <class Body> void visit(Body &&body) {
        ujoin::visit_dtype(dtype_, [&](auto zero) { body(reinterpret_cast<decltype(zero) *>(bytes_.data())); });
    }
    ujoin_dtype dtype_;
    std::vector<char> bytes_;
};

ujoin_op make_op(ujoin_op_kind kind, int32_t peer = 0, ujoin_reduce reduce = 0) {
    ujoin_op op{};
    op.size = sizeof op;
    op.kind = kind;
    op.peer = peer;
    op.reduce = reduce;
    return op;
}
ujoin_status run_one(ujoin_group *group, const ujoin_op &op) { return ujoin_submit(group, &op, 1, nullptr, nullptr); }

/// What rank k's element i is: small, so that sums and products are exact in every type.
double value(int rank, size_t i) { return static_cast<double>((i + static_cast<size_t>(rank)) % 3 + 1); }
Array filled(ujoin_dtype dtype, size_t count, int rank) {
    Array array(dtype, count);
    array.fill([rank](size_t i) { return value(rank, i); });
    return array;
}
double reduced(ujoin_reduce reduce, int size, size_t i) {
    double result = value(0, i);
    for (int k = 1; k < size; k++) {
        const double v = value(k, i);
        if (reduce == UJOIN_SUM || reduce == UJOIN_AVG) result += v;
        if (reduce == UJOIN_PROD) result *= v;
        if (reduce == UJOIN_MIN) result = std::min(result, v);
        if (reduce == UJOIN_MAX) result = std::max(result, v);
    }
    return reduce == UJOIN_AVG ? result / size : result;
}
/// As the type stores it.
double stored(ujoin_dtype dtype, double v) {
    if (!ujoin::dtype_is_float(dtype)) return std::trunc(v);
    Array one(dtype, 1, v);
    return one.at(0);
}

class GroupSubmit : public testing::TestWithParam<std::tuple<Ranks, int>> {
  protected:
    void on_ranks(const Body &body) { run(std::get<0>(GetParam()), size(), body); }
    static int size() { return std::get<1>(GetParam()); }
};
INSTANTIATE_TEST_SUITE_P(Ranks, GroupSubmit,
                         testing::Combine(testing::Values(Ranks::threads, Ranks::processes),
                                          testing::Values(1, 2, 3, 4, 7)),
                         name_of);
INSTANTIATE_TEST_SUITE_P(Apart, GroupSubmit,
                         testing::Values(std::make_tuple(Ranks::connections, 2), std::make_tuple(Ranks::connections, 3),
                                         std::make_tuple(Ranks::hosts, 4), std::make_tuple(Ranks::hosts, 7)),
                         name_of);

TEST_P(GroupSubmit, all_reduce_every_type_and_reduction) {
    on_ranks([](ujoin_group *group, int rank) {
        for (const ujoin_dtype dtype : all_types)
            for (const ujoin_reduce reduce : {UJOIN_SUM, UJOIN_AVG, UJOIN_MIN, UJOIN_MAX, UJOIN_PROD})
                for (const size_t count : {size_t{0}, size_t{3}, size_t{5000}}) {
                    if (dtype == UJOIN_U8 && reduce == UJOIN_PROD && size() > 4) continue; // 3^5 is the most that fits
                    Array data = filled(dtype, count, rank);
                    ujoin_op op = make_op(UJOIN_OP_ALL_REDUCE, 0, reduce);
                    op.recv = data.out();
                    ASSERT_UJOIN_OK(run_one(group, op));
                    for (size_t i = 0; i < count; i++) {
                        const double expected = reduced(reduce, size(), i);
                        if (data.at(i) == stored(dtype, expected)) continue;
                        ASSERT_NEAR(data.at(i), expected, expected * 4e-3)
                            << ujoin::dtype_name(dtype) << " " << reduce << " " << i;
                        ASSERT_NE(reduce, UJOIN_SUM);
                    }
                }
    });
}

TEST_P(GroupSubmit, COLLECTIVES_02_reduce_to_every_root_leaves_other_memory_alone) {
    on_ranks([](ujoin_group *group, int rank) {
        for (int32_t root = 0; root < size(); root++)
            for (const ujoin_dtype dtype : {UJOIN_I64, UJOIN_F32, UJOIN_BF16})
                for (const size_t count : counts)
                    for (const bool in_place : {true, false}) {
                        if (count > 1000 && (dtype != UJOIN_F32 || root != size() - 1)) continue; // it takes its time
                        const Array mine = filled(dtype, count, rank);
                        Array data = in_place ? mine : Array(dtype, count, 77);
                        ujoin_op op = make_op(UJOIN_OP_REDUCE, root);
                        if (!in_place) op.send = mine.in();
                        op.recv = data.out();
                        ASSERT_UJOIN_OK(run_one(group, op));
                        if (rank != root) {
                            ASSERT_EQ(data.bytes(), (in_place ? mine : Array(dtype, count, 77)).bytes());
                        } else {
                            for (size_t i = 0; i < count; i++) ASSERT_EQ(data.at(i), reduced(UJOIN_SUM, size(), i)) << i;
                        }
                        ASSERT_EQ(mine.bytes(), filled(dtype, count, rank).bytes());
                    }
    });
}

TEST_P(GroupSubmit, COLLECTIVES_01_averages_divide_by_the_number_of_ranks) {
    on_ranks([](ujoin_group *group, int rank) {
        const auto ranks = static_cast<size_t>(size());
        Array ones(UJOIN_F32, 5, 1 + 2.0 * rank);
        ujoin_op op = make_op(UJOIN_OP_ALL_REDUCE, 0, UJOIN_AVG);
        op.recv = ones.out();
        ASSERT_UJOIN_OK(run_one(group, op));
        for (size_t i = 0; i < 5; i++) EXPECT_EQ(ones.at(i), size()); // of 1, 3, 5, ...

        Array parts(UJOIN_F32, 2 * ranks);
        for (size_t i = 0; i < 2 * ranks; i++) parts.set(i, static_cast<double>(i) + 1);
        Array part(UJOIN_F32, 2);
        op = make_op(UJOIN_OP_REDUCE_SCATTER, 0, UJOIN_AVG);
        op.send = parts.in();
        op.recv = part.out();
        ASSERT_UJOIN_OK(run_one(group, op));
        EXPECT_EQ(part.at(0), 2 * rank + 1);
        EXPECT_EQ(part.at(1), 2 * rank + 2);

        for (const int sign : {1, -1}) { // 3, 4, 4, ...: toward zero
            Array whole(UJOIN_I32, 1, sign * (rank == 0 ? 3 : 4));
            op = make_op(UJOIN_OP_ALL_REDUCE, 0, UJOIN_AVG);
            op.recv = whole.out();
            ASSERT_UJOIN_OK(run_one(group, op));
            EXPECT_EQ(whole.at(0), sign * 3);
        }
        const int32_t root = size() - 1;
        Array to_root(UJOIN_F32, 1, 1 + 2.0 * rank);
        op = make_op(UJOIN_OP_REDUCE, root, UJOIN_AVG);
        op.recv = to_root.out();
        ASSERT_UJOIN_OK(run_one(group, op));
        EXPECT_EQ(to_root.at(0), rank == root ? size() : 1 + 2.0 * rank);
    });
}

TEST_P(GroupSubmit, broadcast_where_the_root_gives_send_or_recv) {
    on_ranks([](ujoin_group *group, int rank) {
        for (int32_t root = 0; root < size(); root++)
            for (const size_t count : counts)
                for (const bool from_send : {true, false}) {
                    Array data(UJOIN_F64, count, rank == root ? 5 + root : -1);
                    ujoin_op op = make_op(UJOIN_OP_BROADCAST, root);
                    if (rank == root && from_send)
                        op.send = data.in();
                    else
                        op.recv = data.out();
                    ASSERT_UJOIN_OK(run_one(group, op));
                    ASSERT_EQ(data.bytes(), Array(UJOIN_F64, count, 5 + root).bytes());
                }
    });
}

/// What rank `from` has for rank `to`: n elements that tell where they come from.
Array letter(ujoin_dtype dtype, size_t n, int from, int to) {
    Array array(dtype, n);
    const auto first = static_cast<size_t>(from * 7 + to);
    array.fill([first](size_t i) { return static_cast<double>((first + i) % 11); });
    return array;
}
Array joined(ujoin_dtype dtype, const std::vector<Array> &pieces) {
    size_t count = 0;
    for (const Array &piece : pieces) count += piece.count();
    Array all(dtype, count);
    size_t at = 0;
    for (const Array &piece : pieces) at = all.put(at, piece);
    return all;
}
/// Sizes of parts: all equal, or different for each pair, some of them 0.
size_t part_size(bool equal, size_t n, int from, int to) {
    return equal ? n : n * static_cast<size_t>((from + 2 * to) % 4);
}

TEST_P(GroupSubmit, gather_and_scatter_with_equal_and_unequal_parts) {
    on_ranks([](ujoin_group *group, int rank) {
        for (int32_t root = 0; root < size(); root++)
            for (const bool equal : {true, false})
                for (const bool in_place : {false, true})
                    for (const size_t n : {size_t{0}, size_t{1}, size_t{301}, size_t{90'001}}) {
                        if (n > 301 && root != size() - 1) continue;
                        std::vector<Array> letters;
                        std::vector<size_t> sizes;
                        for (int k = 0; k < size(); k++) {
                            sizes.push_back(part_size(equal, n, k, 1));
                            letters.push_back(letter(UJOIN_F32, sizes.back(), k, 1));
                        }
                        const Array all = joined(UJOIN_F32, letters);
                        const Array &mine = letters[static_cast<size_t>(rank)];

                        Array got(UJOIN_F32, all.count(), -1);
                        size_t before = 0;
                        for (int k = 0; k < rank; k++) before += sizes[static_cast<size_t>(k)];
                        if (in_place) got.put(before, mine);
                        ujoin_op op = make_op(UJOIN_OP_GATHER, root);
                        if (!in_place || rank != root) op.send = mine.in();
                        if (rank == root) op.recv = got.out();
                        if (rank == root && !equal) op.recv_counts = sizes.data();
                        ASSERT_UJOIN_OK(run_one(group, op));
                        if (rank == root) {
                            ASSERT_EQ(got.bytes(), all.bytes());
                        }

                        Array part(UJOIN_F32, mine.count(), -1);
                        op = make_op(UJOIN_OP_SCATTER, root);
                        if (rank == root) op.send = all.in();
                        if (rank == root && !equal) op.send_counts = sizes.data();
                        const bool stays = in_place && rank == root;
                        if (!stays) op.recv = part.out();
                        ASSERT_UJOIN_OK(run_one(group, op));
                        if (!stays) {
                            ASSERT_EQ(part.bytes(), mine.bytes());
                        }
                    }
    });
}

TEST_P(GroupSubmit, all_to_all_with_equal_and_unequal_parts_and_in_place) {
    on_ranks([](ujoin_group *group, int rank) {
        for (const ujoin_dtype dtype : {UJOIN_F32, UJOIN_I64, UJOIN_U8})
            for (const size_t n : {size_t{0}, size_t{1}, size_t{333}, size_t{40'001}})
                for (const int way : {0, 1, 2}) { // equal, unequal, equal in place
                    if (n > 333 && dtype != UJOIN_I64) continue;
                    std::vector<Array> sent;
                    std::vector<Array> expected;
                    std::vector<size_t> send_counts;
                    std::vector<size_t> recv_counts;
                    for (int k = 0; k < size(); k++) {
                        send_counts.push_back(part_size(way != 1, n, rank, k));
                        recv_counts.push_back(part_size(way != 1, n, k, rank));
                        sent.push_back(letter(dtype, send_counts.back(), rank, k));
                        expected.push_back(letter(dtype, recv_counts.back(), k, rank));
                    }
                    const Array send = joined(dtype, sent);
                    Array recv = way == 2 ? send : Array(dtype, joined(dtype, expected).count(), 13);
                    ujoin_op op = make_op(UJOIN_OP_ALL_TO_ALL);
                    if (way != 2) op.send = send.in();
                    op.recv = recv.out();
                    if (way == 1) {
                        op.send_counts = send_counts.data();
                        op.recv_counts = recv_counts.data();
                    }
                    ASSERT_UJOIN_OK(run_one(group, op));
                    ASSERT_EQ(recv.bytes(), joined(dtype, expected).bytes()) << "way " << way << ", n " << n;
                }
    });
}

TEST_P(GroupSubmit, all_gather_and_reduce_scatter_with_unequal_parts) {
    on_ranks([](ujoin_group *group, int rank) {
        for (const size_t n : {size_t{0}, size_t{1}, size_t{400}, size_t{90'001}}) {
            std::vector<size_t> sizes;
            size_t before = 0;
            for (int k = 0; k < size(); k++) {
                sizes.push_back(part_size(false, n, k, 0));
                if (k < rank) before += sizes.back();
            }
            const size_t total = std::accumulate(sizes.begin(), sizes.end(), size_t{0});
            const size_t own = sizes[static_cast<size_t>(rank)];
            const Array mine = filled(UJOIN_F64, total, rank);
            Array part(UJOIN_F64, own, -1);
            ujoin_op op = make_op(UJOIN_OP_REDUCE_SCATTER);
            op.send = mine.in();
            op.recv = part.out();
            op.recv_counts = sizes.data();
            ASSERT_UJOIN_OK(run_one(group, op));
            for (size_t i = 0; i < own; i++) ASSERT_EQ(part.at(i), reduced(UJOIN_SUM, size(), before + i));

            Array all(UJOIN_F64, total, -1);
            op = make_op(UJOIN_OP_ALL_GATHER);
            op.send = part.in();
            op.recv = all.out();
            op.recv_counts = sizes.data();
            ASSERT_UJOIN_OK(run_one(group, op));
            for (size_t i = 0; i < total; i++) ASSERT_EQ(all.at(i), reduced(UJOIN_SUM, size(), i));
        }
    });
}

TEST_P(GroupSubmit, messages_between_all_ranks_at_once) {
    on_ranks([](ujoin_group *group, int rank) {
        for (const size_t n : {size_t{0}, size_t{1}, size_t{5000}, size_t{80'001}}) {
            std::vector<Array> sent;
            std::vector<Array> got;
            for (int k = 0; k < size(); k++)
                for (const int twice : {0, 1}) {
                    sent.push_back(letter(UJOIN_F32, n + static_cast<size_t>(twice), rank + twice, k));
                    got.emplace_back(UJOIN_F32, n + static_cast<size_t>(twice), -1);
                }
            std::vector<ujoin_op> ops; // sends in the order of ranks, so that most of them wait for others
            for (int k = 0; k < size(); k++)
                for (size_t twice = 0; twice < 2; twice++) {
                    ops.push_back(make_op(UJOIN_OP_SEND, k));
                    ops.back().send = sent[2 * static_cast<size_t>(k) + twice].in();
                }
            for (int k = size() - 1; k >= 0; k--)
                for (size_t twice = 0; twice < 2; twice++) {
                    ops.push_back(make_op(UJOIN_OP_RECV, k));
                    ops.back().recv = got[2 * static_cast<size_t>(k) + twice].out();
                }
            ujoin_work *work = nullptr;
            ASSERT_UJOIN_OK(ujoin_submit(group, ops.data(), ops.size(), nullptr, n == 1 ? &work : nullptr));
            if (n == 1) ASSERT_UJOIN_OK(ujoin_work_wait(work, -1));
            ujoin_work_destroy(work);
            for (int k = 0; k < size(); k++)
                for (const int twice : {0, 1})
                    ASSERT_EQ(got[2 * static_cast<size_t>(k) + static_cast<size_t>(twice)].bytes(),
                              letter(UJOIN_F32, n + static_cast<size_t>(twice), k + twice, rank).bytes())
                        << "from " << k << ", " << n;
        }
    });
}

TEST_P(GroupSubmit, messages_by_calls_of_their_own_go_round_a_ring_between_collectives) {
    on_ranks([](ujoin_group *group, int rank) {
        if (size() == 1) return;
        for (int round = 0; round < 20; round++) {
            Array token(UJOIN_I32, 150'000, round);
            ujoin_op send = make_op(UJOIN_OP_SEND, (rank + 1) % size());
            ujoin_op recv = make_op(UJOIN_OP_RECV, (rank + size() - 1) % size());
            send.send = token.in();
            recv.recv = token.out();
            if (rank == 0) ASSERT_UJOIN_OK(run_one(group, send));
            if (rank != 0) token.set(0, -1);
            ASSERT_UJOIN_OK(run_one(group, recv));
            ASSERT_EQ(token.at(0), round + (rank == 0 ? size() - 1 : rank - 1));
            ASSERT_EQ(token.at(149'999), round);
            token.set(0, token.at(0) + 1);
            if (rank != 0) ASSERT_UJOIN_OK(run_one(group, send));
            if (round % 3 != 0) continue;
            Array sum(UJOIN_I32, 200'000, 1);
            ujoin_op op = make_op(UJOIN_OP_ALL_REDUCE);
            op.recv = sum.out();
            ASSERT_UJOIN_OK(run_one(group, op));
            ASSERT_EQ(sum.bytes(), Array(UJOIN_I32, 200'000, size()).bytes());
        }
    });
}

TEST_P(GroupSubmit, a_list_is_one_work_and_neighbours_are_one_operation) {
    on_ranks([](ujoin_group *group, int rank) {
        std::vector<Array> tensors;
        for (size_t n = 0; n < 40; n++) tensors.push_back(filled(UJOIN_F32, n * n, rank));
        const Array apart = filled(UJOIN_F32, 9, rank);
        Array bits(UJOIN_I32, 3, 2);
        Array all(UJOIN_F32, static_cast<size_t>(size()), -1);
        const Array own(UJOIN_F32, 1, rank);
        std::vector<ujoin_op> ops;
        for (size_t n = 0; n < tensors.size(); n++) {
            ops.push_back(make_op(UJOIN_OP_ALL_REDUCE));
            ops.back().recv = tensors[n].out();
            if (n == 3 && rank == 0) ops.back().send = apart.in(); // in place on some ranks only
        }
        ops.push_back(make_op(UJOIN_OP_ALL_REDUCE, 0, UJOIN_PROD));
        ops.back().recv = bits.out();
        ops.push_back(make_op(UJOIN_OP_ALL_GATHER));
        ops.back().send = own.in();
        ops.back().recv = all.out();
        ops.push_back(make_op(UJOIN_OP_BARRIER));
        int released = 0;
        ujoin_op_options options{};
        options.size = sizeof options;
        options.release = [](void *count) { ++*static_cast<int *>(count); };
        options.release_data = &released;
        ujoin_work *work = nullptr;
        ASSERT_UJOIN_OK(ujoin_submit(group, ops.data(), ops.size(), &options, &work));
        ASSERT_UJOIN_OK(ujoin_work_wait(work, -1));
        EXPECT_EQ(released, 1);
        ujoin_work_destroy(work);
        for (const Array &tensor : tensors)
            for (size_t i = 0; i < tensor.count(); i++) ASSERT_EQ(tensor.at(i), reduced(UJOIN_SUM, size(), i));
        for (size_t i = 0; i < 3; i++) EXPECT_EQ(bits.at(i), std::pow(2, size()));
        for (int k = 0; k < size(); k++) EXPECT_EQ(all.at(static_cast<size_t>(k)), k);
    });
}

TEST_P(GroupSubmit, split_by_color_and_key) {
    on_ranks([](ujoin_group *group, int rank) {
        // Even and odd ranks, each in reverse order; the last rank takes no part.
        const bool out = size() > 1 && rank == size() - 1;
        ujoin_group *part = nullptr;
        const ujoin_status status = ujoin_group_split(group, out ? -1 : rank % 2, -rank, nullptr, &part);
        const GroupPtr owner(part);
        if (out) {
            EXPECT_EQ(status, UJOIN_SKIPPED);
            EXPECT_EQ(part, nullptr);
        } else {
            ASSERT_UJOIN_OK(status);
            std::vector<int> members;
            for (int k = size() - 1; k >= 0; k--)
                if (k % 2 == rank % 2 && (size() == 1 || k != size() - 1)) members.push_back(k);
            ASSERT_EQ(ujoin_group_size(part), static_cast<int32_t>(members.size()));
            ASSERT_EQ(members[static_cast<size_t>(ujoin_group_rank(part))], rank);
            Array all(UJOIN_I32, members.size());
            const Array own(UJOIN_I32, 1, rank);
            ujoin_op op = make_op(UJOIN_OP_ALL_GATHER);
            op.send = own.in();
            op.recv = all.out();
            ASSERT_UJOIN_OK(run_one(part, op));
            for (size_t k = 0; k < members.size(); k++) EXPECT_EQ(all.at(k), members[k]);
        }
        ASSERT_UJOIN_OK(ujoin_barrier(group, nullptr)); // the whole is what it was
    });
}

} // namespace
