#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# Makes all that is generated and committed: gen.sh [FOLDER] (default: this repository; a test gives another folder and
# compares). Needs Python, rustfmt and SWIG 4.5.1: that of $SWIG, else one installed by pip into build/tools.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd -P)
to=${1:-$root}
version=4.5.1

find_swig() {
    local venv=$root/build/tools/venv
    if [ -n "${SWIG:-}" ]; then
        swig=$SWIG
    else
        swig=$venv/bin/swig
        [ -x "$swig" ] || { python3 -m venv "$venv" && "$venv/bin/pip" install --quiet "swig==$version"; }
    fi
    local found
    found=$("$swig" -version | sed -n 's/^SWIG Version //p')
    [ "$found" = "$version" ] && return
    echo "gen.sh: SWIG $version is needed, $swig is $found: its output differs" >&2
    exit 1
}

# 451: setters of const char * fields, 560: the header's own tags. Neither concerns what is generated here.
run_swig() {
    (cd "$root" && "$swig" -w451,560 -DSWIGWORDSIZE64 -Iinclude -Ibindings/swig "$@" bindings/swig/ujoin.i)
}

tree=$(mktemp -d)
trap 'rm -rf "$tree"' EXIT

find_swig
run_swig -python -doxygen -DUJOIN_API_XML -xmlout "$tree/api.xml" -outdir "$tree" -o "$tree/unused.c"
PYTHONDONTWRITEBYTECODE=1 python3 "$root/bindings/tools/generate.py" "$tree/api.xml" "$root/include/ujoin.h" "$to"
rustfmt --edition 2024 --config-path "$root/bindings/rust/rustfmt.toml" \
    "$to"/bindings/rust/ujoin-sys/{src/lib,tests/functions,examples/layout}.rs

if [ -f "$root/bindings/swig/go.i" ]; then
    mkdir -p "$to/bindings/go/internal/cujoin"
    run_swig -go -cgo -intgosize 64 -no-unique-id -package cujoin -outdir "$to/bindings/go/internal/cujoin" \
        -o "$to/bindings/go/internal/cujoin/cujoin_wrap.c"
fi
