// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "comm/group.hpp"
#include "ujoin.h"
#include <cstddef>
#include <string>
#include <utility>
#include <vector>

namespace ujoin {

/// A parameter as zero knows it. `home` and `grad` are the program's memory.
struct ZeroParam {
    std::string name;
    std::byte *data = nullptr; ///< where it lies now: `home` or `view`
    std::byte *home = nullptr;
    std::byte *view = nullptr; ///< its place in the library's memory, if it has one
    void *grad = nullptr;
    size_t count = 0;
    size_t bytes = 0;
    ujoin_dtype dtype = 0;
    ujoin_dtype grad_dtype = 0;
    std::vector<int64_t> shape;
    int32_t group = 0;
    bool frozen = false;

    size_t grad_bytes() const;
    std::byte *data_at(size_t element) const;
    const void *grad_at(size_t element) const;
    /// A step updates it.
    bool trained() const { return grad && !frozen; }
};

/// Checks and copies the descriptions; names that are missing count on from `first_index`. `known` are those that the
/// optimizer has already. UJOIN_E_INVALID and _UNSUPPORTED name the parameter.
std::vector<ZeroParam> read_params(const ujoin_param *params, size_t count, const std::vector<ZeroParam> &known);
/// UJOIN_E_INVALID unless a gradient lies where the element type can be read.
void check_gradient(const ZeroParam &param, const void *grad);

/// The shape of so many elements of a parameter: all of it, or a piece.
std::vector<int64_t> piece_shape(const ZeroParam &param, size_t count);

/// The shortest text that reads back as the same number.
std::string number_text(double value);

/// What a rank says about itself: labels and values, in an order that is the same on every rank.
using Facts = std::vector<std::pair<std::string, std::string>>;
void add_facts(const std::vector<ZeroParam> &params, size_t first_index, Facts &facts);
/// Compares the facts of all ranks. UJOIN_E_MISMATCH on every rank names the first difference, both ranks and both values.
void check_same(Group &group, const Facts &facts, const Deadline &deadline = Deadline::never());

} // namespace ujoin
