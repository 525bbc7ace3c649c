// SPDX-License-Identifier: Apache-2.0
#pragma once
#include <functional>
#include <thread>

namespace ujoin::os {

/// Starts a thread of the library's own: with every signal blocked, so that the host's handlers never run on it.
/// UJOIN_E_SYSTEM if there can be none. `name`: at most 15 characters.
std::thread start_thread(const char *name, std::function<void()> body);

} // namespace ujoin::os
