// SPDX-License-Identifier: Apache-2.0
#include "run/say.hpp"
#include <cstdio>
#include <unistd.h>

namespace ujoin_run {
namespace {

bool g_status_line = false; // before any thread

} // namespace

void expect_status_line() { g_status_line = isatty(2) == 1; }

void say(const std::string &text) { std::fputs(((g_status_line ? "\r\033[K" : "") + text).c_str(), stderr); }

} // namespace ujoin_run
