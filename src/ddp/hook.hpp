// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/work.hpp"
#include <cstddef>
#include <cstdint>
#include <memory>

namespace ujoin {

/// A bucket of gradients, or a buffer, as a hook of the program sees it; see ujoin_bucket.
struct BucketArgs {
    void *data = nullptr;
    size_t count = 0;
    ujoin_dtype dtype = UJOIN_F32;
    const size_t *params = nullptr;
    const size_t *offsets = nullptr;
    size_t param_count = 0;
    double divisor = 0;
    int64_t iteration = 0;
    int32_t index = 0;
    bool is_last = false;
    bool is_shadow = false;
    int32_t source_rank = 0;
};

/// The program's own way to reduce. Both throw UJOIN_E_CALLBACK.
class BucketHook {
  public:
    BucketHook() = default;
    virtual ~BucketHook() = default;
    BucketHook(const BucketHook &) = delete;
    BucketHook &operator=(const BucketHook &) = delete;
    /// Work in flight, or null: the result is there.
    virtual std::shared_ptr<Work> start(const BucketArgs &args) = 0;
    virtual std::shared_ptr<Work> then(const BucketArgs &args) = 0;
};

/// How buckets or buffers are reduced.
struct HookChoice {
    ujoin_comm_hook_kind kind = UJOIN_COMM_HOOK_ALL_REDUCE;
    std::shared_ptr<BucketHook> custom;
    int64_t start_iteration = 1000; ///< low rank
    int32_t rank = 1;               ///< low rank
};

} // namespace ujoin
