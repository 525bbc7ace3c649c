#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Loads the library that the first argument names with local scope, as an interpreter does, and sums ones over two ranks."""
import ctypes
import os
import sys
import threading


class GroupOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("rendezvous", ctypes.c_char_p), ("backend", ctypes.c_char_p),
                ("name", ctypes.c_char_p), ("store", ctypes.c_void_p), ("rank", ctypes.c_int32),
                ("world_size", ctypes.c_int32), ("timeout_ms", ctypes.c_int64), ("rendezvous_timeout_ms", ctypes.c_int64)]


class Buffer(ctypes.Structure):
    _fields_ = [("data", ctypes.c_void_p), ("count", ctypes.c_size_t), ("dtype", ctypes.c_int32), ("device", ctypes.c_int32),
                ("device_index", ctypes.c_int32), ("reserved", ctypes.c_int32)]


F32, SUM = 1, 1
library = ctypes.CDLL(sys.argv[1], mode=os.RTLD_NOW | os.RTLD_LOCAL)
library.ujoin_last_error.restype = ctypes.c_char_p
library.ujoin_group_destroy.restype = None
sums = [None, None]


def expect_ok(what, status):
    if status != 0:
        raise SystemExit(f"{what}: status {status}: {library.ujoin_last_error().decode()}")


def one_rank(rank):
    options = GroupOptions(size=ctypes.sizeof(GroupOptions), rendezvous=f"local://ctypes-{os.getpid()}".encode(),
                           backend=b"local", rank=rank, world_size=2, rendezvous_timeout_ms=20000)
    group = ctypes.c_void_p()
    expect_ok("ujoin_group_create", library.ujoin_group_create(ctypes.byref(options), ctypes.byref(group)))
    value = ctypes.c_float(1)
    memory = Buffer(data=ctypes.addressof(value), count=1, dtype=F32)
    expect_ok("ujoin_all_reduce", library.ujoin_all_reduce(group, None, ctypes.byref(memory), SUM, None, None))
    expect_ok("ujoin_group_close", library.ujoin_group_close(group, ctypes.c_int64(20000)))
    library.ujoin_group_destroy(group)
    sums[rank] = value.value


threads = [threading.Thread(target=one_rank, args=(rank,)) for rank in range(2)]
for thread in threads:
    thread.start()
for thread in threads:
    thread.join()
if sums != [2.0, 2.0]:
    sys.exit(f"the sums of two ones are {sums}")
