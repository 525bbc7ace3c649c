// SPDX-License-Identifier: Apache-2.0
// Updates, norms and scaling in pieces, by several threads: the bits are those of whole tensors.
#include "base/dtype.hpp"
#include "optim/batch.hpp"
#include "optim/norm.hpp"
#include "os/pool.hpp"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <utility>

using namespace ujoin;

namespace {

constexpr size_t count = 2 * optim::piece_elements + 1234; // three pieces

float noise(size_t seed, size_t i) {
    uint32_t x = static_cast<uint32_t>(seed) * 0x9E3779B1U + static_cast<uint32_t>(i) * 0xC2B2AE3DU;
    x = (x ^ x >> 15) * 0x2C1B3C6DU;
    return static_cast<float>(x >> 8) / 8388608.0F - 1.0F;
}

/// Parameters of one type, and their state.
template <class T> struct Params {
    std::vector<T> values;
    std::vector<float> grad = std::vector<float>(count);
    std::vector<float> master = std::vector<float>(count);
    std::vector<std::vector<double>> states{optim::max_states, std::vector<double>(count)}; // room for either type

    Params() {
        for (size_t i = 0; i < count; i++) values.push_back(T(noise(1, i)));
    }
    optim::Update update(ujoin_dtype dtype, int step, bool with_master) {
        for (size_t i = 0; i < count; i++) grad[i] = noise(static_cast<size_t>(step) + 1, i);
        optim::Update update;
        update.param = values.data();
        update.dtype = dtype;
        update.master = with_master ? master.data() : nullptr;
        update.stochastic = dtype == UJOIN_BF16 && !with_master;
        update.random_key = 77;
        update.grad = grad.data();
        update.count = count;
        for (size_t i = 0; i < optim::max_states; i++) update.states[i] = states[i].data();
        update.number = std::pow(0.9, step);
        update.step = step;
        update.first = step == 1;
        update.unscale = 0.5;
        update.clip = step == 2 ? 0.75 : 1;
        return update;
    }
};

template <class T> void expect_same_bits(Parallel &parallel, ujoin_optimizer id, ujoin_dtype dtype, bool with_master) {
    const optim::Rule &rule = optim::find_rule(id);
    const optim::Hyper hyper = optim::default_hyper(rule);
    Params<T> whole;
    Params<T> first;
    Params<T> second;
    optim::Batch batch;
    for (int step = 1; step <= 2; step++) {
        optim::apply(rule, hyper, whole.update(dtype, step, with_master));
        batch.reserve(2, 2 * count);
        batch.clear();
        batch.add(hyper, first.update(dtype, step, with_master));
        batch.add(hyper, second.update(dtype, step, with_master));
        batch.run(rule, parallel);
    }
    EXPECT_TRUE(std::memcmp(first.values.data(), whole.values.data(), count * sizeof(T)) == 0)
        << rule.name << " of " << dtype_name(dtype);
    EXPECT_TRUE(std::memcmp(second.values.data(), whole.values.data(), count * sizeof(T)) == 0)
        << rule.name << " of " << dtype_name(dtype);
    for (size_t i = 0; i < rule.states.size(); i++) EXPECT_TRUE(first.states[i] == whole.states[i]) << rule.name;
    EXPECT_TRUE(first.master == whole.master) << rule.name;
}

TEST(ZeroBatch, pieces_have_the_bits_of_whole_updates) {
    os::Pool pool(3);
    for (ujoin_optimizer id = UJOIN_OPTIMIZER_SGD; id <= UJOIN_OPTIMIZER_LION; id++) {
        expect_same_bits<float>(pool, id, UJOIN_F32, false);
        expect_same_bits<double>(pool, id, UJOIN_F64, false);
        expect_same_bits<BFloat16>(pool, id, UJOIN_BF16, true);
        expect_same_bits<BFloat16>(pool, id, UJOIN_BF16, false);
        expect_same_bits<Half>(pool, id, UJOIN_F16, true);
    }
}

TEST(ZeroBatch, pieces_cover_every_element_once_and_are_cut_where_elements_are) {
    optim::Pieces pieces;
    const std::vector<std::pair<size_t, size_t>> ranges{
        {0, 0}, {0, 1},      {16, 3 * optim::piece_elements}, {optim::piece_elements, optim::piece_elements},
        {5, 0}, {100'000, 7}};
    for (const auto &[begin, size] : ranges) pieces.add(begin, size);
    std::vector<size_t> next;
    for (const auto &[begin, size] : ranges) next.push_back(begin);
    for (size_t i = 0; i < pieces.size(); i++) {
        const optim::Pieces::Piece piece = pieces.at(i);
        EXPECT_EQ(piece.begin, next[piece.range]) << i;
        EXPECT_GT(piece.count, 0U) << i;
        next[piece.range] += piece.count;
        EXPECT_EQ(piece.begin / optim::piece_elements, (next[piece.range] - 1) / optim::piece_elements) << i;
    }
    for (size_t r = 0; r < ranges.size(); r++) EXPECT_EQ(next[r], ranges[r].first + ranges[r].second) << r;
    EXPECT_EQ(pieces.size(), 1U + 4 + 1 + 1);
}

TEST(ZeroBatch, norms_and_scaling_in_pieces) {
    os::Pool pool(3);
    std::vector<float> values;
    for (size_t i = 0; i < count; i++) values.push_back(noise(9, i));
    for (const double p : {1.0, 2.0, 3.0, HUGE_VAL}) {
        const double whole = optim::norm_part(UJOIN_F32, values.data(), count, p);
        const size_t cut = 50'000;
        std::vector<optim::NormSum> sums = optim::norm_sums({{UJOIN_F32, values.data(), 0, count},
                                                             {UJOIN_F32, values.data(), 0, cut},
                                                             {UJOIN_F32, values.data() + cut, cut, count - cut}},
                                                            p, pool);
        EXPECT_EQ(sums[0].total(), whole) << p;
        std::vector<double> numbers(optim::NormSum::count_numbers(cut, count - cut));
        sums[2].get_numbers(numbers.data());
        sums[1].add_numbers(numbers.data(), count - cut);
        EXPECT_EQ(sums[1].total(), whole) << p << ", of two inputs";
    }
    std::vector<float> scaled = values;
    std::vector<BFloat16> brain(count, BFloat16(3.0F));
    optim::scale_elements({{UJOIN_F32, scaled.data(), count}, {UJOIN_BF16, brain.data(), count}}, 0.25, pool);
    for (size_t i = 0; i < count; i++) {
        ASSERT_EQ(scaled[i], values[i] * 0.25F) << i;
        ASSERT_EQ(static_cast<float>(brain[i]), 0.75F) << i;
    }
}

} // namespace
