// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ujoin.h"
#include <cstdint>

namespace ujoin::optim {

/// The value at a step, from 0. UJOIN_E_INVALID names the field that makes no sense.
double schedule_value(const ujoin_schedule_options &schedule, int64_t step);

} // namespace ujoin::optim
