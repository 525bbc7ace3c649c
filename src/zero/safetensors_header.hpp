// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "zero/safetensors.hpp"

namespace ujoin {

inline constexpr size_t max_safetensors_header = 100'000'000; ///< as the format says

/// "F32"; "" for an unknown type.
const char *safetensors_dtype_name(ujoin_dtype dtype);
/// Reads and checks a header. The tensors come in the order of their data and cover all of its `data_bytes`. Errors say
/// which field is wrong.
void read_safetensors_header(const std::string &text, uint64_t data_bytes, std::vector<FileTensor> &tensors,
                             std::map<std::string, std::string> &metadata);

} // namespace ujoin
