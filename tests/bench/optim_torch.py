#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""PyTorch's AdamW on one tensor: "4 <ns per element>", the median, as optim.h says.

usage: optim_torch.py ELEMENTS THREADS torch|torch-foreach"""
import statistics
import sys
import time

import torch


def main():
    count, threads, kind = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(threads)
    param = torch.ones(count, requires_grad=True)
    param.grad = torch.full((count,), 1e-3)
    optimizer = torch.optim.AdamW([param], foreach=kind == "torch-foreach")
    times = []
    for step in range(min(50, 100000000 // count + 3) + 2):
        begin = time.perf_counter()
        optimizer.step()
        if step >= 2:
            times.append(time.perf_counter() - begin)
    print(4, f"{statistics.median(times) * 1e9 / count:.5f}")


if __name__ == "__main__":
    main()
