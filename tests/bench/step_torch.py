# SPDX-License-Identifier: Apache-2.0
"""PyTorch's ZeroRedundancyOptimizer over Gloo, as step.h says. Usage: step_torch.py RANK SIZE FILE [foreach]"""
import os
import re
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.optim import ZeroRedundancyOptimizer


def mib(key):
    with open("/proc/self/status", encoding="ascii") as file:
        return int(re.search(rf"^{key}:\s*(\d+)", file.read(), re.MULTILINE).group(1)) / 1024


def reset_peak():
    with open("/proc/self/clear_refs", "w", encoding="ascii") as file:
        file.write("5")
    return mib("VmRSS")


def make(params, foreach):
    return ZeroRedundancyOptimizer(params, optimizer_class=torch.optim.AdamW, foreach=foreach)


def median_ms(optimizer, steps):
    times = []
    optimizer.step()
    for _ in range(steps):
        dist.barrier()
        begin = time.perf_counter()
        optimizer.step()
        times.append((time.perf_counter() - begin) * 1e3)
    return statistics.median(times)


def tensors(count, *shape):
    params = [torch.ones(*shape, requires_grad=True) for _ in range(count)]
    for param in params:
        param.grad = torch.full_like(param, 1e-3)
    return params


def main():
    rank, size, path, foreach = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], "foreach" in sys.argv[4:]
    torch.set_num_threads(max(1, len(os.sched_getaffinity(0)) // size))
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=size)
    params = tensors(20, 2000, 2000)
    dist.barrier()
    before = reset_peak()
    optimizer = make(params, foreach)
    print(0, f"{median_ms(optimizer, 7):.6f}")
    print(1, f"{mib('VmHWM') - before:.3f}")
    before = reset_peak()
    optimizer.consolidate_state_dict(0)
    print(3 if rank == 0 else 4, f"{max(mib('VmHWM') - before, 0.001):.3f}")
    del optimizer, params
    print(2, f"{median_ms(make(tensors(200, 1000), foreach), 50):.6f}", flush=True)
    dist.barrier()
    dist.destroy_process_group()


main()
