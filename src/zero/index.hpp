// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace ujoin {

/// A file of a save, as the index knows it.
struct IndexFile {
    std::string name; ///< "" = none
    uint64_t bytes = 0;
    std::string checksum;
};

/// The state of a part of a parameter, in one rank's file.
struct SavedPiece {
    uint64_t rank = 0;
    uint64_t offset = 0; ///< elements
    uint64_t count = 0;
};

/// What index.json says.
struct CheckpointIndex {
    struct ParamGroup {
        std::vector<std::pair<std::string, double>> hypers;
        std::vector<std::string> params;
        std::vector<std::vector<SavedPiece>> pieces; ///< of each parameter, in order
    };
    std::string optimizer;
    std::vector<ParamGroup> groups;
    std::vector<IndexFile> files; ///< by rank
    IndexFile parameters;
};

std::string index_text(const CheckpointIndex &index);
/// UJOIN_E_MISMATCH says which field is wrong. Names of files are plain: none leads out of the directory.
CheckpointIndex read_index(const std::string &path);

std::string state_file_name(const std::string &id, int32_t rank);
std::string parameters_file_name(const std::string &id);
std::string new_index_name(const std::string &id);
inline constexpr const char *index_name = "index.json";
/// The id in the name of a file that a save makes in its directory; "" if it is none of those.
std::string_view id_in_name(std::string_view name);

} // namespace ujoin
