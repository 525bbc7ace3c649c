#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# All C and C++ sources are as clang-format has them.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
if ! command -v clang-format >/dev/null; then
    echo "not ok - format"
    echo "# clang-format is not installed"
    exit 1
fi
if text=$(find src include tests examples \( -name '*.c' -o -name '*.cpp' -o -name '*.h' -o -name '*.hpp' \) -print0 2>/dev/null |
    xargs -0 -r clang-format --dry-run -Werror 2>&1); then
    echo "ok - format"
else
    echo "not ok - format"
    grep -E "error:|warning:" <<<"$text" | head -50 | sed "s|^$PWD/||; s/^/# /"
    echo "# mend it with: clang-format -i FILE"
    exit 1
fi
