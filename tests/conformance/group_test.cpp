// SPDX-License-Identifier: Apache-2.0
// Operations of groups: the same tests for every backend and several sizes.
#include "base/dtype.hpp"
#include "comm/kernels.hpp"
#include "harness/groups.hpp"
#include <cmath>
#include <cstring>
#include <memory>
#include <numeric>
#include <vector>

using namespace ujoin;
using harness::all_reduce_op;

namespace {

struct Where {
    const char *backend;
    int size;
};
void PrintTo(const Where &where, std::ostream *out) { *out << where.backend << "_" << where.size; }

class GroupOps : public testing::TestWithParam<Where> {
  protected:
    void on_ranks(const std::function<void(Group &)> &body) {
        harness::with_groups(GetParam().backend, GetParam().size, body);
    }
};

INSTANTIATE_TEST_SUITE_P(Backends, GroupOps,
                         testing::Values(Where{"self", 1}, Where{"local", 1}, Where{"local", 2}, Where{"local", 3},
                                         Where{"local", 5}, Where{"shm", 1}, Where{"shm", 2}, Where{"shm", 3},
                                         Where{"shm", 4}, Where{"tcp", 1}, Where{"tcp", 2}, Where{"tcp", 3},
                                         Where{"tcp", 4}, Where{"hier", 4}),
                         [](const auto &of) {
                             return std::string(of.param.backend) + "_" + std::to_string(of.param.size);
                         });

constexpr size_t counts[] = {0, 1, 5, 6, 7, 25, 1000, 1030, 70'000, 300'001}; // the last in several pieces

/// A value that differs by rank and element and is exact in every type.
template <class T> T value(int rank, size_t i) {
    return static_cast<T>(static_cast<float>((static_cast<int>(i % 7) - 3) * (rank + 1)));
}
template <class T> double number(T v) {
    if constexpr (std::is_arithmetic_v<T>)
        return static_cast<double>(v);
    else
        return static_cast<double>(static_cast<float>(v));
}

template <class T> void check_all_reduce(Group &group, ujoin_dtype dtype) {
    for (const size_t count : counts)
        for (const ujoin_reduce reduce : {UJOIN_SUM, UJOIN_AVG, UJOIN_MIN, UJOIN_MAX}) {
            std::vector<T> data(count);
            for (size_t i = 0; i < count; i++) data[i] = value<T>(group.rank(), i);
            OpArgs op = all_reduce_op(dtype, reduce, data);
            group.run(op);
            for (size_t i = 0; i < count; i++) {
                const double base = static_cast<int>(i % 7) - 3;
                const double largest = group.size();
                double expected = base * largest * (largest + 1) / 2;
                if (reduce == UJOIN_AVG) expected = number(static_cast<T>(static_cast<float>(expected / largest)));
                if (reduce == UJOIN_MIN) expected = base < 0 ? base * largest : base;
                if (reduce == UJOIN_MAX) expected = base < 0 ? base : base * largest;
                ASSERT_EQ(number(data[i]), expected)
                    << dtype_name(dtype) << " reduction " << reduce << " count " << count << " element " << i;
            }
        }
}

TEST_P(GroupOps, all_reduce_every_type_reduction_and_count) {
    on_ranks([](Group &group) {
        check_all_reduce<float>(group, UJOIN_F32);
        check_all_reduce<double>(group, UJOIN_F64);
        check_all_reduce<Half>(group, UJOIN_F16);
        check_all_reduce<BFloat16>(group, UJOIN_BF16);
        check_all_reduce<int32_t>(group, UJOIN_I32);
        check_all_reduce<int64_t>(group, UJOIN_I64);
    });
}

TEST_P(GroupOps, sums_are_in_rank_order_and_alike_on_all_ranks) {
    on_ranks([](Group &group) {
        // 1e8 + 1 - 1e8 in f32 depends on the order.
        const size_t count = 100'000;
        std::vector<float> mine(count);
        const auto of_rank = [](int rank, size_t i) {
            return rank % 2 ? 1.0F + static_cast<float>(i % 3) : (rank % 4 ? -1e8F : 1e8F);
        };
        for (size_t i = 0; i < count; i++) mine[i] = of_rank(group.rank(), i);
        std::vector<float> result(count, -1);
        OpArgs op = all_reduce_op(UJOIN_F32, UJOIN_SUM, result);
        op.send = Memory(mine.data(), count * sizeof(float));
        group.run(op);
        for (size_t i = 0; i < count; i++) {
            float expected = of_rank(0, i);
            for (int k = 1; k < group.size(); k++) expected += of_rank(k, i);
            ASSERT_EQ(result[i], expected) << i;
            ASSERT_EQ(mine[i], of_rank(group.rank(), i)) << "send was written";
        }
    });
}

TEST(GroupPieces, a_fast_rank_does_not_overwrite_what_a_slow_one_reads) {
    // Many pieces; rank 1 meets memory that it has never touched, so that it is always behind.
    harness::with_groups("shm", 2, [](Group &group) {
        const size_t count = 6'000'000;
        std::vector<float> mine(count);
        const auto recv = std::make_unique_for_overwrite<float[]>(count);
        for (size_t i = 0; i < count; i++) mine[i] = value<float>(group.rank(), i);
        OpArgs op = all_reduce_op(UJOIN_F32, UJOIN_SUM, mine);
        if (group.rank() == 1) {
            op.send = op.recv;
            op.recv = Memory(recv.get(), count * sizeof(float));
        }
        group.run(op);
        const float *got = group.rank() == 1 ? recv.get() : mine.data();
        size_t wrong = 0;
        for (size_t i = 0; i < count; i++) wrong += got[i] != 3 * value<float>(0, i);
        EXPECT_EQ(wrong, 0U);
    });
}

TEST_P(GroupOps, unaligned_memory) {
    on_ranks([](Group &group) {
        std::vector<char> bytes(1001 * sizeof(double) + 3);
        char *data = bytes.data() + 3;
        for (size_t i = 0; i < 1001; i++) {
            const double v = static_cast<double>(i) + group.rank();
            std::memcpy(data + i * sizeof v, &v, sizeof v);
        }
        OpArgs op;
        op.kind = OpKind::all_reduce;
        op.dtype = UJOIN_F64;
        op.count = 1001;
        op.recv = Memory(data, 1001 * sizeof(double));
        group.run(op);
        for (size_t i = 0; i < 1001; i++) {
            double v = 0;
            std::memcpy(&v, data + i * sizeof v, sizeof v);
            ASSERT_EQ(v, static_cast<double>(i) * group.size() + group.size() * (group.size() - 1) / 2);
        }
    });
}

TEST_P(GroupOps, broadcast_from_every_root) {
    on_ranks([](Group &group) {
        for (int root = 0; root < group.size(); root++)
            for (const size_t count : counts) {
                std::vector<int32_t> data(count, group.rank() == root ? 40 + root : -1);
                group.broadcast(Memory(data.data(), count * 4), root);
                ASSERT_EQ(data, std::vector<int32_t>(count, 40 + root));
            }
    });
}

TEST_P(GroupOps, all_gather_in_and_out_of_place) {
    on_ranks([](Group &group) {
        const auto ranks = static_cast<size_t>(group.size());
        for (const bool in_place : {false, true})
            for (const size_t count : counts) {
                std::vector<int64_t> mine(count, group.rank() + 1);
                std::vector<int64_t> all(count * ranks, -1);
                if (in_place)
                    std::copy(mine.begin(), mine.end(), all.begin() + static_cast<ptrdiff_t>(count) * group.rank());
                OpArgs op;
                op.kind = OpKind::all_gather;
                op.dtype = UJOIN_I64;
                op.count = count;
                if (!in_place && count) op.send = Memory(mine.data(), count * 8);
                op.recv = Memory(all.data(), all.size() * 8);
                group.run(op);
                for (size_t i = 0; i < all.size(); i++) ASSERT_EQ(all[i], static_cast<int64_t>(i / count) + 1);
            }
    });
}

TEST_P(GroupOps, reduce_scatter) {
    on_ranks([](Group &group) {
        const auto ranks = static_cast<size_t>(group.size());
        for (const size_t count : counts) {
            std::vector<float> mine(count * ranks);
            for (size_t i = 0; i < mine.size(); i++)
                mine[i] = static_cast<float>(i % 1000) + static_cast<float>(group.rank());
            std::vector<float> result(count, -1);
            OpArgs op;
            op.kind = OpKind::reduce_scatter;
            op.dtype = UJOIN_F32;
            op.count = count;
            op.send = Memory(mine.data(), mine.size() * 4);
            op.recv = Memory(result.data(), count * 4);
            group.run(op);
            for (size_t i = 0; i < count; i++) {
                const size_t at = static_cast<size_t>(group.rank()) * count + i;
                ASSERT_EQ(result[i], static_cast<float>(at % 1000) * static_cast<float>(ranks) +
                                         static_cast<float>(ranks * (ranks - 1) / 2));
            }
        }
    });
}

TEST_P(GroupOps, parts_of_unequal_size_over_scattered_memory) {
    on_ranks([](Group &group) {
        // Rank k's part: k * 30,001 + 5 bytes, spread over pieces of 7,000 bytes.
        std::vector<size_t> offsets = {0};
        for (int k = 0; k < group.size(); k++) offsets.push_back(offsets.back() + static_cast<size_t>(k) * 30'001 + 5);
        std::vector<std::vector<char>> pieces;
        std::vector<Segment> list;
        for (size_t at = 0; at < offsets.back(); at += 7000) {
            pieces.emplace_back(std::min<size_t>(7000, offsets.back() - at), 'x');
            list.push_back({pieces.back().data(), pieces.back().size()});
        }
        const auto byte = [&](size_t at) -> char & { return pieces[at / 7000][at % 7000]; };
        for (size_t at = offsets[static_cast<size_t>(group.rank())]; at < offsets[static_cast<size_t>(group.rank()) + 1];
             at++)
            byte(at) = static_cast<char>('a' + at % 20);
        group.all_gather_parts(Memory(list.data(), list.size()), offsets.data());
        for (size_t at = 0; at < offsets.back(); at++) ASSERT_EQ(byte(at), static_cast<char>('a' + at % 20)) << at;
    });
}

TEST_P(GroupOps, exchange_and_agree) {
    on_ranks([](Group &group) {
        const std::vector<std::string> all =
            group.exchange(std::string(static_cast<size_t>(group.rank()) * 100, 'r') + "!");
        ASSERT_EQ(all.size(), static_cast<size_t>(group.size()));
        for (size_t k = 0; k < all.size(); k++) EXPECT_EQ(all[k], std::string(k * 100, 'r') + "!");
        group.agree(std::nullopt);
        try {
            const bool mine = group.rank() == group.size() - 1;
            group.agree(mine ? std::optional(Error(UJOIN_E_SYSTEM, "disk full").with_errno(28)) : std::nullopt);
            FAIL() << "no error";
        } catch (const Error &error) {
            EXPECT_EQ(error.code(), UJOIN_E_SYSTEM);
            EXPECT_EQ(error.system_errno(), 28);
            EXPECT_NE(error.text().find("disk full"), std::string::npos);
            EXPECT_EQ(error.ranks(), std::vector<int32_t>{group.size() - 1});
        }
        group.barrier(); // the group is whole
    });
}

TEST_P(GroupOps, a_shadow_contributes_nothing_and_gets_the_result) {
    on_ranks([](Group &group) {
        for (const size_t count : {size_t{1}, size_t{2000}, size_t{100'000}}) {
            std::vector<float> data(count, group.rank() == 0 ? NAN : static_cast<float>(group.rank()));
            OpArgs op = all_reduce_op(UJOIN_F32, UJOIN_SUM, data);
            op.shadow = group.rank() == 0;
            op.weight = group.rank() + 2;
            op.divide = Divide::contributors;
            group.run(op);
            const int others = group.size() - 1;
            EXPECT_EQ(op.outcome.contributors, others);
            EXPECT_EQ(op.outcome.weight, others * (others + 1) / 2.0 + 2 * others);
            const float expected =
                others ? static_cast<float>(others * (others + 1) / 2) / static_cast<float>(others) : NAN;
            if (others)
                EXPECT_EQ(data, std::vector<float>(count, expected));
            else
                EXPECT_TRUE(std::isnan(data[0])) << "nobody contributed: what lies there stays";
        }
    });
}

TEST_P(GroupOps, weights_scale_and_divide) {
    on_ranks([](Group &group) {
        const double samples = group.rank() == 1 ? 0 : group.rank() + 1; // rank 1 has none, and a NaN
        std::vector<double> data(3, group.rank() == 1 ? NAN : 10.0 * (group.rank() + 1));
        OpArgs op = all_reduce_op(UJOIN_F64, UJOIN_SUM, data);
        op.weight = op.scale = samples;
        op.divide = Divide::weight;
        group.run(op);
        double sum = 0;
        double total = 0;
        for (int k = 0; k < group.size(); k++) {
            if (k == 1) continue;
            sum += (k + 1) * 10.0 * (k + 1);
            total += k + 1;
        }
        EXPECT_EQ(data, std::vector<double>(3, sum / total));
    });
}

TEST_P(GroupOps, work_in_flight_completes_in_order) {
    on_ranks([](Group &group) {
        std::vector<std::vector<float>> data(20, std::vector<float>(50'000));
        std::vector<std::shared_ptr<Work>> works;
        int released = 0;
        for (size_t n = 0; n < data.size(); n++) {
            std::fill(data[n].begin(), data[n].end(), static_cast<float>(n));
            works.push_back(group.submit(all_reduce_op(UJOIN_F32, UJOIN_SUM, data[n]), Deadline::never(),
                                         Release([](void *counter) { ++*static_cast<int *>(counter); }, &released)));
        }
        std::vector<float> after(1, 1);
        OpArgs op = all_reduce_op(UJOIN_F32, UJOIN_SUM, after); // runs behind all of them
        group.run(op);
        EXPECT_EQ(after[0], static_cast<float>(group.size()));
        EXPECT_EQ(released, 20);
        for (size_t n = 0; n < data.size(); n++) {
            EXPECT_EQ(works[n]->test(), UJOIN_OK);
            EXPECT_EQ(works[n]->wait(0), UJOIN_OK);
            EXPECT_EQ(data[n], std::vector<float>(50'000, static_cast<float>(n) * static_cast<float>(group.size())));
        }
    });
}

TEST_P(GroupOps, close_waits_for_all_and_ends_the_group) {
    on_ranks([](Group &group) {
        EXPECT_EQ(group.close(-1), UJOIN_OK);
        EXPECT_EQ(group.close(0), UJOIN_OK) << "again";
        try {
            group.barrier();
            FAIL() << "an operation on a closed group";
        } catch (const Error &error) {
            EXPECT_EQ(error.code(), UJOIN_E_STATE);
        }
    });
}

template <class T>
std::vector<T> reduced(ujoin_dtype dtype, ujoin_reduce reduce, const std::vector<std::vector<T>> &inputs) {
    std::vector<const char *> pointers;
    for (const auto &input : inputs) pointers.push_back(reinterpret_cast<const char *>(input.data()));
    std::vector<T> out(inputs[0].size());
    reduce_elements(dtype, reduce, pointers.data(), pointers.size(), reinterpret_cast<char *>(out.data()), out.size(), 4);
    return out;
}

TEST(GroupKernels, sixteen_bit_sums_accumulate_in_32_bit) {
    // 2048 + 1 rounds back to 2048 in f16, three times over; in f32 the sum is 2051.
    const std::vector<Half> large(3, Half(2048.0F));
    const std::vector<Half> one(3, Half(1.0F));
    for (const Half result : reduced<Half>(UJOIN_F16, UJOIN_AVG, {large, one, one, one}))
        EXPECT_EQ(static_cast<float>(result), static_cast<float>(Half(2051.0F / 4)));
    const std::vector<BFloat16> two_fifty_six(3, BFloat16(256.0F));
    const std::vector<BFloat16> bits(3, BFloat16(1.0F));
    for (const BFloat16 result : reduced<BFloat16>(UJOIN_BF16, UJOIN_AVG, {two_fifty_six, bits, bits, bits}))
        EXPECT_EQ(static_cast<float>(result), static_cast<float>(BFloat16(259.0F / 4)));
}

TEST(GroupKernels, an_average_cannot_overflow) {
    const float largest = std::numeric_limits<float>::max();
    EXPECT_EQ(reduced<float>(UJOIN_F32, UJOIN_AVG, {{largest}, {largest}, {largest}, {largest}}),
              std::vector<float>{largest});
    const double huge = std::numeric_limits<double>::max();
    EXPECT_EQ(reduced<double>(UJOIN_F64, UJOIN_AVG, {{huge}, {huge}, {huge}, {huge}}), std::vector<double>{huge});
    const int64_t last = std::numeric_limits<int64_t>::max();
    EXPECT_EQ(reduced<int64_t>(UJOIN_I64, UJOIN_AVG, {{last}, {last}, {last}, {last}}), std::vector<int64_t>{last});
}

TEST(GroupKernels, minimum_and_maximum_propagate_a_nan_from_any_place) {
    for (size_t place = 0; place < 3; place++)
        for (const ujoin_reduce reduce : {UJOIN_MIN, UJOIN_MAX}) {
            std::vector<std::vector<double>> inputs = {{1}, {2}, {3}};
            inputs[place][0] = NAN;
            EXPECT_TRUE(std::isnan(reduced<double>(UJOIN_F64, reduce, inputs)[0])) << place;
            EXPECT_TRUE(std::isnan(static_cast<float>(
                reduced<Half>(UJOIN_F16, reduce, {{Half(place ? 1.0F : NAN)}, {Half(place ? NAN : 2.0F)}})[0])));
        }
}

TEST(GroupKernels, half_precision_converts_as_ieee_says) {
    for (uint32_t bits = 0; bits < 65536; bits++) {
        const float wide = Half::to_float(static_cast<uint16_t>(bits));
        if (std::isnan(wide))
            EXPECT_TRUE(std::isnan(Half::to_float(Half::from_float(wide))));
        else
            ASSERT_EQ(Half::from_float(wide), bits);
    }
    EXPECT_EQ(Half::from_float(65519.996F), 0x7bff); // the largest that does not round to infinity
    EXPECT_EQ(Half::from_float(65520.0F), 0x7c00);
    EXPECT_EQ(Half::from_float(0x1p-25F), 0); // a tie goes to even
    EXPECT_EQ(Half::from_float(std::nextafter(0x1p-25F, 1.0F)), 1);
    EXPECT_EQ(Half::from_float(2049.0F), Half::from_float(2048.0F));
    EXPECT_EQ(Half::from_float(2051.0F), Half::from_float(2052.0F));
    EXPECT_EQ(Half::from_float(1e-3F), 0x1419);
    EXPECT_EQ(Half::from_float(0.99999F), 0x3c00);
}

} // namespace
