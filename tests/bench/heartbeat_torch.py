# SPDX-License-Identifier: Apache-2.0
"""What a torch Join costs per iteration of a loop that does nothing else. Usage: heartbeat_torch.py RANK SIZE FILE"""
import contextlib
import statistics
import sys
import time

import torch
import torch.distributed as dist
from torch.distributed.algorithms.join import Join, Joinable, JoinHook

PASSES, ROUNDS = 5, 400


class Nothing(Joinable):
    def __init__(self):
        super().__init__()

    def join_hook(self, **kwargs):
        return JoinHook()

    @property
    def join_device(self):
        return torch.device("cpu")

    @property
    def join_process_group(self):
        return dist.group.WORLD


def main():
    rank, size, path = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3]
    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method="file://" + path, rank=rank, world_size=size)
    for throws in (False, True):
        values = []
        for _ in range(PASSES):
            joinable = Nothing()
            dist.barrier()
            begin = time.perf_counter()
            with contextlib.suppress(RuntimeError), Join([joinable], throw_on_early_termination=throws):  # it throws in the end
                for _ in range(ROUNDS):
                    Join.notify_join_context(joinable)
            values.append((time.perf_counter() - begin) * 1e6 / ROUNDS)
        print(int(throws), statistics.median(values), flush=True)


main()
