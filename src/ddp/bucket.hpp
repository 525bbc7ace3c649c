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
    size_t rows = 0; ///< of the matrix that it is or can be seen as: its first dimension; 0 = it is none
    ujoin_dtype dtype = UJOIN_F32;
    bool ignored = false; ///< takes no part; has no elements then

    size_t bytes() const { return elements * dtype_size(dtype); }
};

/// Gradients that are reduced together, by one operation on the memory in which they lie.
struct Bucket {
    ujoin_dtype dtype = UJOIN_F32;
    size_t bytes = 0;
    size_t limit = 0;               ///< the one in force when it was closed
    std::vector<size_t> params;     ///< ascending: the order of elements is the same on every rank, wherever memory lies
    std::vector<size_t> offsets;    ///< of those parameters, in elements
    std::vector<Segment> gradients; ///< likewise, merged where they are adjacent
};

using Buckets = std::vector<Bucket>;

/// Adds memory to the end of a list; as part of the last segment where it lies right behind it. Nothing for 0 bytes.
void append_segment(std::vector<Segment> &list, void *data, size_t bytes);

/// From the last parameter to the first: the order in which a backward pass usually completes them.
std::vector<size_t> backward_order(size_t params);

/// Fills buckets of one type each while walking the parameters in `order` (each once), the one in which they are expected to
/// be complete. A bucket is closed once it holds its limit: `first_bytes` for the first of a type, so that reducing begins
/// early, `bucket_bytes` for the others. They are listed in the order in which that walk completes them. Parameters without
/// elements are in no bucket.
std::vector<Bucket> assign_buckets(const std::vector<GradParam> &params, const std::vector<size_t> &order,
                                   size_t first_bytes, size_t bucket_bytes);

/// Throws UJOIN_E_INVALID where two gradients share memory: it would be reduced twice.
void check_gradients_apart(const std::vector<GradParam> &params);

} // namespace ujoin
