# SPDX-License-Identifier: Apache-2.0
"""all_reduce of torch.distributed over Gloo, timed as bench.h does it. Usage: all_reduce_torch.py RANK SIZE FILE"""
import statistics
import sys
import time

import torch
import torch.distributed as dist

SIZES = [4, 1024, 65536, 1048576, 26214400]
SMALL, BATCHES, BUDGET_US = 4096, 41, 250e3


def now_us():
    return time.perf_counter_ns() / 1e3


def operations(data):
    for _ in range(5):
        dist.all_reduce(data)
    begin = now_us()
    for _ in range(10):
        data.fill_(1)
        dist.all_reduce(data)
    shared = torch.tensor([(now_us() - begin) / 10])
    dist.all_reduce(shared)
    return int(min(max(BUDGET_US / (shared.item() / 2), 9), 400e3))


def small(data, count):
    each = count // BATCHES + 1
    values = []
    one = torch.ones(1)
    for _ in range(BATCHES):
        begin = now_us()
        for i in range(each):
            data.fill_(i)
        rewriting = now_us() - begin
        dist.all_reduce(one)
        begin = now_us()
        for i in range(each):
            data.fill_(i)
            dist.all_reduce(data)
        values.append((now_us() - begin - rewriting) / each)
    return statistics.median(values)


def large(data, count):
    values = []
    for i in range(count):
        data.fill_(i)
        begin = now_us()
        dist.all_reduce(data)
        values.append(now_us() - begin)
    return statistics.median(values)


def main():
    rank, size, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=size)
    for number in SIZES:
        data = torch.ones(number // 4)
        dist.all_reduce(data)
        assert data[0] == 2 and data[-1] == 2
        count = operations(data)
        print(number, small(data, count) if number <= SMALL else large(data, count), flush=True)
    dist.destroy_process_group()


main()
