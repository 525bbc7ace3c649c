// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ddp/gradient_source.hpp"
#include "optim/update.hpp"
#include "zero/places.hpp"
#include <memory>
#include <vector>

namespace ujoin {

/// What an optimizer keeps whose steps sum the gradients.
struct Fused {
    std::weak_ptr<GradientSource> source;
    std::vector<optim::Update> updates; ///< by parameter; of the present step
    Places places;
    std::vector<char> used; ///< by rank and reducer's parameter, where that is found out and memory is shared
};

} // namespace ujoin
