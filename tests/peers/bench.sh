#!/usr/bin/env bash
# SPDX-License-Identifier: Apache-2.0
# The benches run against every peer; one round shows that they work. Nothing fails on speed.
cd "$(dirname "${BASH_SOURCE[0]}")/../.." || exit 1
if text=$(tests/bench/run --rounds 1 --elements 1 --require gloo,openmpi,mpich,torch 2>&1); then
    echo "ok - peers.bench"
else
    echo "not ok - peers.bench"
fi
tail -40 <<<"$text" | sed 's/^/# /'
