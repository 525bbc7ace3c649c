// SPDX-License-Identifier: Apache-2.0
#include "optim/simd.hpp"
#include "base/env.hpp"
#include <atomic>

namespace ujoin::optim {
namespace {

SimdTarget choose() {
    const SimdTarget best = simd_available(SimdTarget::avx512) ? SimdTarget::avx512
                            : simd_available(SimdTarget::avx2) ? SimdTarget::avx2
                                                               : SimdTarget::baseline;
    const std::string wanted = env::text(env::Var::simd).value_or("");
    if (wanted == "baseline") return SimdTarget::baseline;
    if (wanted == "avx2" && simd_available(SimdTarget::avx2)) return SimdTarget::avx2;
    return best;
}

std::atomic<SimdTarget> &chosen() {
    static std::atomic<SimdTarget> target{choose()};
    return target;
}

} // namespace

bool simd_available(SimdTarget target) {
#ifdef __x86_64__
    if (target == SimdTarget::avx512)
        return __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
               __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
    if (target == SimdTarget::avx2) return __builtin_cpu_supports("avx2") != 0;
#endif
    return target == SimdTarget::baseline;
}

SimdTarget simd_target() { return chosen().load(std::memory_order_relaxed); }
void set_simd_target(SimdTarget target) { chosen().store(target, std::memory_order_relaxed); }

} // namespace ujoin::optim
