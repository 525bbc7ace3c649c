// SPDX-License-Identifier: Apache-2.0
// Element types of parameters and gradients: what is rounded where.
#include "base/dtype.hpp"
#include "optim/convert.hpp"
#include "optim/norm.hpp"
#include "optim/simd.hpp"
#include "optim/update.hpp"
#include "os/pool.hpp"
#include <cmath>
#include <cstring>
#include <gtest/gtest.h>
#include <limits>
#include <random>

using namespace ujoin;

namespace {

constexpr size_t count = 5000; // more than two blocks

template <class To> std::vector<To> converted(const std::vector<float> &from) {
    std::vector<To> to;
    for (const float value : from) to.push_back(To(value));
    return to;
}

std::vector<float> wave(double phase) {
    std::vector<float> values(count);
    for (size_t i = 0; i < count; i++) values[i] = static_cast<float>(std::sin(static_cast<double>(i) * 0.37 + phase));
    return values;
}

/// AdamW over several steps; grad(step) in any type.
struct AdamW {
    optim::Update update;
    std::vector<float> average = std::vector<float>(count), square = std::vector<float>(count);

    void step(const void *grad, ujoin_dtype dtype) {
        const optim::Rule &rule = optim::find_rule(UJOIN_OPTIMIZER_ADAMW);
        update.grad = grad;
        update.grad_dtype = dtype;
        update.count = count;
        update.states[0] = average.data();
        update.states[1] = square.data();
        update.step++;
        update.random_key = static_cast<uint64_t>(update.step) * 12345;
        optim::apply(rule, optim::default_hyper(rule), update);
    }
};

template <class Half16> void check_master(ujoin_dtype dtype) {
    std::vector<Half16> values = converted<Half16>(wave(0));
    std::vector<float> plain;
    for (const Half16 value : values) plain.push_back(static_cast<float>(value));
    std::vector<float> master(count);
    AdamW half;
    half.update.param = values.data();
    half.update.dtype = dtype;
    half.update.master = master.data();
    AdamW single;
    single.update.param = plain.data();
    for (int step = 1; step <= 20; step++) {
        const std::vector<Half16> grad = converted<Half16>(wave(step));
        std::vector<float> wide;
        for (const Half16 value : grad) wide.push_back(static_cast<float>(value));
        half.step(grad.data(), dtype);
        single.step(wide.data(), UJOIN_F32);
    }
    EXPECT_EQ(master, plain); // every bit: the copy is what an f32 parameter would be
    for (size_t i = 0; i < count; i++) ASSERT_EQ(values[i].bits, Half16(plain[i]).bits) << i;
}

TEST(ZeroTypes, a_master_copy_is_what_an_f32_parameter_would_be) {
    check_master<BFloat16>(UJOIN_BF16);
    check_master<Half>(UJOIN_F16);
}

TEST(ZeroTypes, values_that_the_program_writes_count) {
    std::vector<BFloat16> values(count, BFloat16(1.0F));
    std::vector<float> master(count);
    const std::vector<float> grad(count, 0);
    AdamW run;
    run.update.param = values.data();
    run.update.dtype = UJOIN_BF16;
    run.update.master = master.data();
    run.step(grad.data(), UJOIN_F32);
    EXPECT_FLOAT_EQ(master[7], 1 - 1e-5F); // only the decay
    EXPECT_EQ(static_cast<float>(values[7]), 1);
    values[7] = BFloat16(3.0F);
    run.step(grad.data(), UJOIN_F32);
    EXPECT_FLOAT_EQ(master[7], 3 - 3e-5F);
    EXPECT_FLOAT_EQ(master[8], 1 - 2e-5F); // not started anew from the rounded value
}

TEST(ZeroTypes, without_a_copy_small_steps_are_lost_unless_they_are_rounded_at_random) {
    const std::vector<float> grad(count, 1);
    std::vector<BFloat16> nearest(count, BFloat16(1.0F));
    std::vector<BFloat16> random = nearest;
    AdamW a;
    a.update.param = nearest.data();
    a.update.dtype = UJOIN_BF16;
    AdamW b;
    b.update.param = random.data();
    b.update.dtype = UJOIN_BF16;
    b.update.stochastic = true;
    for (int step = 0; step < 10; step++) {
        a.step(grad.data(), UJOIN_F32);
        b.step(grad.data(), UJOIN_F32);
    }
    double mean = 0;
    for (size_t i = 0; i < count; i++) {
        EXPECT_EQ(static_cast<float>(nearest[i]), 1); // 0.001 is less than half of 2^-8
        mean += static_cast<double>(static_cast<float>(random[i])) / count;
    }
    EXPECT_NEAR(mean, 0.99, 0.001); // ten steps of 0.001 and some decay; one element varies by about 0.006
    const std::vector<BFloat16> before = random;
    AdamW again; // the same keys: the same numbers, also when the work is cut in two
    std::vector<BFloat16> other(count, BFloat16(1.0F));
    again.update.param = other.data();
    again.update.dtype = UJOIN_BF16;
    again.update.stochastic = true;
    for (int step = 0; step < 10; step++) again.step(grad.data(), UJOIN_F32);
    for (size_t i = 0; i < count; i++) ASSERT_EQ(other[i].bits, before[i].bits) << i;
}

TEST(ZeroTypes, random_rounding_keeps_infinities_nans_and_what_needs_none) {
    const float inf = std::numeric_limits<float>::infinity();
    for (const uint32_t random : {0U, 0x1234U, 0xffffffffU}) {
        EXPECT_EQ(static_cast<float>(optim::round_stochastic(inf, random)), inf);
        EXPECT_EQ(static_cast<float>(optim::round_stochastic(-inf, random)), -inf);
        EXPECT_TRUE(std::isnan(static_cast<float>(optim::round_stochastic(std::nanf(""), random))));
        EXPECT_EQ(static_cast<float>(optim::round_stochastic(-1.5F, random)), -1.5F);
    }
    int up = 0;
    for (uint64_t i = 0; i < 40000; i++)
        up += static_cast<float>(optim::round_stochastic(1 + 0x1p-9F, optim::random_bits(99, i))) > 1 ? 1 : 0;
    EXPECT_NEAR(up / 40000.0, 0.25, 0.01); // 2^-9 is a quarter of the distance 2^-7
}

TEST(ZeroTypes, gradients_of_any_type_are_used_and_multiplied) {
    std::vector<double> values(count, 1);
    std::vector<double> average(count);
    const optim::Rule &rule = optim::find_rule(UJOIN_OPTIMIZER_SGD);
    const std::vector<Half> grad = converted<Half>(std::vector<float>(count, 3));
    optim::Hyper hyper = optim::default_hyper(rule);
    hyper[0] = 0.5;
    optim::Update update;
    update.param = values.data();
    update.dtype = UJOIN_F64;
    update.grad = grad.data();
    update.grad_dtype = UJOIN_F16;
    update.count = count;
    update.unscale = 0.25;
    update.clip = 0.5;
    optim::apply(rule, hyper, update);
    for (const double value : values) ASSERT_EQ(value, 1 - 0.5 * 3 / 8);
}

/// Some steps of a rule on a parameter of any type, with gradients that are scaled; the bytes of parameter and state.
template <class T> std::vector<unsigned char> trained(ujoin_optimizer id, ujoin_dtype dtype, bool with_master) {
    const optim::Rule &rule = optim::find_rule(id);
    const std::vector<float> begin = wave(0.5);
    std::vector<T> values;
    for (const float value : begin) values.push_back(T(value));
    std::vector<float> master(count);
    std::vector<std::vector<double>> states(optim::max_states, std::vector<double>(count));
    double number = 1;
    optim::Update update;
    for (int step = 1; step <= 5; step++) {
        const std::vector<float> grad = wave(step);
        update.param = values.data();
        update.dtype = dtype;
        update.master = with_master ? master.data() : nullptr;
        update.stochastic = dtype == UJOIN_BF16 && !with_master;
        update.grad = grad.data();
        update.count = count;
        for (size_t i = 0; i < optim::max_states; i++) update.states[i] = states[i].data();
        if (rule.next_number) number = rule.next_number(optim::default_hyper(rule), step, number);
        update.number = number;
        update.step = step;
        update.first = step == 1;
        update.clip = step == 3 ? 0.75 : 1;
        optim::apply(rule, optim::default_hyper(rule), update);
    }
    std::vector<unsigned char> bytes(count * sizeof(T) + optim::max_states * count * sizeof(double));
    std::memcpy(bytes.data(), values.data(), count * sizeof(T));
    for (size_t i = 0; i < optim::max_states; i++)
        std::memcpy(bytes.data() + count * sizeof(T) + i * count * sizeof(double), states[i].data(),
                    count * sizeof(double));
    return bytes;
}

std::vector<std::vector<unsigned char>> trained_in_all_types(ujoin_optimizer id) {
    return {trained<float>(id, UJOIN_F32, false), trained<double>(id, UJOIN_F64, false),
            trained<BFloat16>(id, UJOIN_BF16, true), trained<BFloat16>(id, UJOIN_BF16, false),
            trained<Half>(id, UJOIN_F16, true)};
}

TEST(ZeroTypes, every_instruction_set_gives_the_same_bits) {
    for (ujoin_optimizer id = UJOIN_OPTIMIZER_SGD; id <= UJOIN_OPTIMIZER_LION; id++) {
        optim::set_simd_target(optim::SimdTarget::baseline);
        const std::vector<std::vector<unsigned char>> expected = trained_in_all_types(id);
        for (const optim::SimdTarget target : {optim::SimdTarget::avx2, optim::SimdTarget::avx512}) {
            if (!optim::simd_available(target)) continue;
            optim::set_simd_target(target);
            const std::vector<std::vector<unsigned char>> got = trained_in_all_types(id);
            for (size_t type = 0; type < expected.size(); type++)
                EXPECT_TRUE(got[type] == expected[type])
                    << "rule " << id << ", type " << type << ", target " << static_cast<int>(target);
        }
    }
}

TEST(ZeroTypes, norms_of_any_type_and_order) {
    const double inf = std::numeric_limits<double>::infinity();
    std::vector<float> values(count, 0);
    values[1] = -3;
    values[count - 1] = 4;
    const std::vector<BFloat16> brain = converted<BFloat16>(values);
    const auto norm = [&](double p) {
        const double parts[] = {optim::norm_part(UJOIN_F32, values.data(), count, p), 0};
        return optim::whole_norm(parts, 2, p);
    };
    EXPECT_DOUBLE_EQ(norm(2), 5);
    EXPECT_DOUBLE_EQ(norm(1), 7);
    EXPECT_DOUBLE_EQ(norm(inf), 4);
    EXPECT_NEAR(norm(3), std::cbrt(27.0 + 64), 1e-12);
    EXPECT_DOUBLE_EQ(optim::norm_part(UJOIN_BF16, brain.data(), count, 2), 25);
    values[2500] = std::numeric_limits<float>::quiet_NaN();
    for (const double p : {1.0, 2.0, 3.0, inf}) EXPECT_FALSE(std::isfinite(norm(p))) << p;
    values[2500] = -std::numeric_limits<float>::infinity();
    for (const double p : {1.0, 2.0, 3.0, inf}) EXPECT_FALSE(std::isfinite(norm(p))) << p;
    std::vector<Half> half = converted<Half>({2, -6});
    os::Pool alone(1);
    optim::scale_elements({{UJOIN_F16, half.data(), 2}}, 0.5, alone);
    EXPECT_EQ(static_cast<float>(half[1]), -3);
}

TEST(ZeroTypes, norms_have_the_same_bits_however_a_tensor_is_cut) {
    std::mt19937 random(3);
    std::uniform_real_distribution<float> any(-1, 1);
    for (const size_t size : {1, 8, 9, 100, 4096, 10'000, 30'011}) {
        std::vector<float> values(size);
        for (float &value : values) value = any(random);
        const std::vector<BFloat16> brain = converted<BFloat16>(values);
        const auto check = [&](ujoin_dtype dtype, const auto *data, double p) {
            const double whole = optim::norm_part(dtype, data, size, p);
            for (int round = 0; round < 8; round++) {
                optim::NormSum all(p);
                for (size_t begin = 0; begin < size;) {
                    const size_t part = std::min(size - begin, 8 * (1 + random() % (size / 16 + 1)));
                    optim::NormSum piece(p, begin);
                    piece.add(dtype, data + begin, part);
                    std::vector<double> numbers(optim::NormSum::count_numbers(begin, part));
                    piece.get_numbers(numbers.data());
                    all.add_numbers(numbers.data(), part);
                    begin += part;
                }
                EXPECT_EQ(all.total(), whole) << size << " elements, p " << p;
            }
        };
        for (const double p : {1.0, 2.0, 3.5, HUGE_VAL}) {
            check(UJOIN_F32, values.data(), p);
            check(UJOIN_BF16, brain.data(), p);
        }
        double squares = 0;
        for (const float value : values) squares += static_cast<double>(value) * static_cast<double>(value);
        EXPECT_NEAR(optim::norm_part(UJOIN_F32, values.data(), size, 2), squares, 1e-12 * squares);
    }
}

} // namespace
