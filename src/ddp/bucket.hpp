// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/op.hpp"
#include <cstddef>
#include <string>
#include <vector>

namespace ujoin {

/// A parameter and its gradient in the program's memory.
struct GradParam {
    std::string name;
    std::string shape; ///< "[4, 5]", for comparing and for texts
    void *data = nullptr;
    void *grad = nullptr;
    size_t elements = 0;
    ujoin_dtype dtype = UJOIN_F32;

    size_t bytes() const { return elements * dtype_size(dtype); }
};

/// Gradients that are reduced together, by one operation on the memory in which they lie.
struct Bucket {
    ujoin_dtype dtype = UJOIN_F32;
    size_t bytes = 0;
    std::vector<size_t> params;     ///< ascending: the order of elements is the same on every rank, wherever memory lies
    std::vector<Segment> gradients; ///< of those parameters, in that order, merged where they are adjacent
};

/// Adds memory to the end of a list; as part of the last segment where it lies right behind it. Nothing for 0 bytes.
void append_segment(std::vector<Segment> &list, void *data, size_t bytes);

/// Fills buckets of one type each while walking the parameters from the last to the first (the order in which a backward
/// pass completes them). A bucket is closed once it holds its limit: `first_bytes` for the first of a type, so that
/// reducing begins early, `bucket_bytes` for the others. They are listed in the order in which that walk completes them.
/// Parameters without elements are in no bucket.
std::vector<Bucket> assign_buckets(const std::vector<GradParam> &params, size_t first_bytes, size_t bucket_bytes);

/// Throws UJOIN_E_INVALID where two gradients share memory: it would be reduced twice.
void check_gradients_apart(const std::vector<GradParam> &params);

} // namespace ujoin
