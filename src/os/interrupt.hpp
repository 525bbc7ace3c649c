// SPDX-License-Identifier: Apache-2.0
#pragma once
#include "ujoin.h"

namespace ujoin::os {

/// Longest time between two looks at the interrupt check and at the peers' lives.
inline constexpr int64_t slice_ns = 100'000'000;

/// Runs the program's interrupt check, if there is one. UJOIN_E_CALLBACK when it asks to stop.
void check_interrupt();
/// Whether there is one: a wait without it need not wake up.
bool has_interrupt_check();
/// Replaces the check; the old one's destroy runs once no thread is inside it.
void set_interrupt_check(ujoin_call_fn fn, void *user_data, ujoin_destroy_fn destroy);

} // namespace ujoin::os
