// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>

// A loop gets the instruction set of the function that it is inlined into.
#define UJOIN_INLINE __attribute__((always_inline)) inline
#define UJOIN_INLINE_LAMBDA __attribute__((always_inline))
#define UJOIN_AVX2 __attribute__((target("avx2,f16c"), noinline))
#ifdef __clang__
#define UJOIN_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c"), noinline))
#else
#define UJOIN_AVX512 __attribute__((target("avx512f,avx512bw,avx512dq,avx512vl,f16c,prefer-vector-width=512"), noinline))
#endif

namespace ujoin::optim {

/// Instruction sets that loops are compiled for; `baseline` is what every processor of the architecture has.
enum class SimdTarget : uint8_t { baseline, avx2, avx512 };

/// The best that this processor has, or what UJOIN_SIMD names (baseline, avx2, avx512), if it has that.
SimdTarget simd_target();
/// For tests.
bool simd_available(SimdTarget target);
void set_simd_target(SimdTarget target);

} // namespace ujoin::optim
