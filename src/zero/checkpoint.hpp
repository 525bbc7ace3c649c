// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "zero/state.hpp"
#include <cstdint>
#include <string>

namespace ujoin {

class Zero;

/// What zero_save and zero_load are asked for.
struct SaveRequest {
    std::string path;
    int32_t parts = UJOIN_SAVE_STATE;
    bool sync = true;
    State extra;
};

// A directory holds index.json, which names all other files of the save that is valid:
//   state-<id>-<rank>.safetensors     of each rank: state/<key>/<parameter>, state/step/<parameter>, program/<kind>/<key>
//   parameters-<id>.safetensors       the parameters under their names, if they were asked for
// <id> is random and new in each save. Everything is on the disk before the index is renamed over the old one; files with
// another id are removed after that. A save of the parameters alone is one file, written under a temporary name beside it.

/// Throws on every rank alike.
void save_checkpoint(Zero &zero, const SaveRequest &request);
/// Changes nothing unless all ranks could read and check their parts. Gives this rank's items of the program's own.
State load_checkpoint(Zero &zero, const SaveRequest &request);

} // namespace ujoin
