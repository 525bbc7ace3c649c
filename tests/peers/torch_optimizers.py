#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""The update rules against PyTorch's: after each of 100 steps every parameter is the same within 1e-6 of its largest value."""
import ctypes
import inspect
import math
import os
import pathlib
import random
import sys

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1] / "tools"))
import tap  # noqa: E402

try:
    import torch
except ImportError:
    system = "/usr/bin/python3"  # the one that distribution packages are for, where another comes first in PATH
    if os.path.exists(system) and not os.environ.get("UJOIN_SYSTEM_PYTHON"):
        os.execve(system, [system, *sys.argv], dict(os.environ, UJOIN_SYSTEM_PYTHON="1"))
    tap.skip("peers.torch_optimizers", "PyTorch is not installed")
    tap.done()

F32, F64 = 1, 2
RULES = {"SGD": 2, "Adam": 3, "AdamW": 4, "Adagrad": 5, "RMSprop": 6, "Adadelta": 7, "Adamax": 8, "NAdam": 9, "RAdam": 10,
         "Rprop": 11}
FLAGS = ("nesterov", "amsgrad", "maximize", "centered", "decoupled_weight_decay")
PAIRS = {"betas": ("beta1", "beta2"), "etas": ("etaminus", "etaplus"), "step_sizes": ("step_min", "step_max")}
STEPS, SHAPES = 100, [(7, 5), (13,), (1,), (4, 3, 2)]


class GroupOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("rendezvous", ctypes.c_char_p), ("backend", ctypes.c_char_p),
                ("name", ctypes.c_char_p), ("store", ctypes.c_void_p), ("rank", ctypes.c_int32),
                ("world_size", ctypes.c_int32), ("timeout_ms", ctypes.c_int64), ("rendezvous_timeout_ms", ctypes.c_int64)]


class Hyper(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("value", ctypes.c_double)]


class Param(ctypes.Structure):
    _fields_ = [("name", ctypes.c_char_p), ("data", ctypes.c_void_p), ("grad", ctypes.c_void_p), ("count", ctypes.c_size_t),
                ("dtype", ctypes.c_int32), ("grad_dtype", ctypes.c_int32), ("device", ctypes.c_int32),
                ("device_index", ctypes.c_int32), ("shape", ctypes.POINTER(ctypes.c_int64)), ("ndim", ctypes.c_int32),
                ("flags", ctypes.c_int32), ("reserved", ctypes.c_uint64 * 2)]


class ZeroOptions(ctypes.Structure):
    _fields_ = [("size", ctypes.c_size_t), ("hyper", ctypes.POINTER(Hyper)), ("hyper_count", ctypes.c_size_t),
                ("idle_timeout_ms", ctypes.c_int64), ("release", ctypes.c_void_p), ("release_data", ctypes.c_void_p)]
    # an older program's: fields that are not there are zero


library = ctypes.CDLL(str(pathlib.Path(os.environ["UJOIN_TEST_BUILD"]) / "lib" / "libujoin.so"))
library.ujoin_last_error.restype = ctypes.c_char_p
library.ujoin_group_destroy.restype = library.zero_destroy.restype = None


def expect_ok(status):
    if status != 0:
        raise RuntimeError(f"status {status}: {library.ujoin_last_error().decode()}")


class Ours:
    """The optimizer in a group of one, over copies of the tensors."""

    def __init__(self, rule, hyper, tensors, dtype):
        self.group, self.zero = ctypes.c_void_p(), ctypes.c_void_p()
        options = GroupOptions(size=ctypes.sizeof(GroupOptions), rendezvous=b"local://peers", backend=b"self", world_size=1)
        expect_ok(library.ujoin_group_create(ctypes.byref(options), ctypes.byref(self.group)))
        self.values = [t.detach().clone() for t in tensors]
        self.grads = [torch.zeros_like(t) for t in tensors]
        params = (Param * len(tensors))(*[Param(data=v.data_ptr(), grad=g.data_ptr(), count=v.numel(), dtype=dtype)
                                          for v, g in zip(self.values, self.grads)])
        numbers = (Hyper * len(hyper))(*[Hyper(name.encode(), float(value)) for name, value in hyper.items()])
        more = ZeroOptions(size=ctypes.sizeof(ZeroOptions), hyper=numbers, hyper_count=len(hyper))
        expect_ok(library.zero_create(self.group, rule, params, ctypes.c_size_t(len(tensors)), ctypes.byref(more),
                                      ctypes.byref(self.zero)))

    def step(self):
        expect_ok(library.zero_step(self.zero, None))

    def close(self):
        library.zero_destroy(self.zero)
        library.ujoin_group_destroy(self.group)


def theirs(rule, hyper, tensors):
    make = getattr(torch.optim, rule)
    options = {key: bool(value) if key in FLAGS else value for key, value in hyper.items()}
    for pair, names in PAIRS.items():
        if any(name in options for name in names):
            usual = make([torch.zeros(1)], lr=0.1).defaults[pair]
            options[pair] = tuple(options.pop(name, value) for name, value in zip(names, usual))
    return make(tensors, **options)


def compare(rule, hyper, dtype):
    torch_type, tolerance = (torch.float32, 1e-6) if dtype == F32 else (torch.float64, 1e-14)
    torch.manual_seed(42)
    random.seed(42)
    tensors = [torch.randn(shape, dtype=torch_type, requires_grad=True) for shape in SHAPES]
    largest = [float(t.detach().abs().max()) for t in tensors]
    peer, ours = theirs(rule, hyper, tensors), Ours(RULES[rule], hyper, tensors, dtype)
    try:
        for step in range(1, STEPS + 1):
            for tensor, grad in zip(tensors, ours.grads):
                tensor.grad = torch.randn(tensor.shape, dtype=torch_type) * 10 ** random.uniform(-3, 1)
                grad.copy_(tensor.grad)
            peer.step()
            ours.step()
            for index, (tensor, value) in enumerate(zip(tensors, ours.values)):
                scale = max(largest[index], float(tensor.detach().abs().max()))
                off = float((tensor.detach() - value).abs().max()) / scale
                if math.isnan(off) or off > tolerance:
                    return [f"after step {step} tensor {index} is off by {off:.2g} of its largest value {scale:.3g}"]
    finally:
        ours.close()
    return []


DECAY = {"lr": 1e-2, "beta1": 0.8, "beta2": 0.99, "eps": 1e-6, "weight_decay": 0.1}
CASES = {
    "sgd": ("SGD", {"lr": 0.01}),
    "sgd_momentum": ("SGD", {"lr": 0.01, "momentum": 0.9}),
    "sgd_dampening": ("SGD", {"lr": 0.01, "momentum": 0.9, "dampening": 0.5, "weight_decay": 0.01}),
    "sgd_nesterov": ("SGD", {"lr": 0.01, "momentum": 0.9, "nesterov": 1, "weight_decay": 0.01}),
    "sgd_maximize": ("SGD", {"lr": 0.01, "momentum": 0.5, "maximize": 1}),
    "adam": ("Adam", {}),
    "adam_decay": ("Adam", DECAY),
    "adam_amsgrad": ("Adam", {"lr": 1e-2, "amsgrad": 1, "weight_decay": 0.01}),
    "adam_maximize": ("Adam", {"maximize": 1}),
    "adamw": ("AdamW", {}),
    "adamw_decay": ("AdamW", {"lr": 1e-2, "beta1": 0.8, "beta2": 0.99, "weight_decay": 0.1}),
    "adamw_amsgrad": ("AdamW", {"lr": 1e-2, "amsgrad": 1}),
    "adamw_maximize": ("AdamW", {"maximize": 1}),
    "adagrad": ("Adagrad", {}),
    "adagrad_decay": ("Adagrad", {"lr": 0.1, "lr_decay": 0.01, "weight_decay": 0.05, "initial_accumulator_value": 0.5}),
    "adagrad_maximize": ("Adagrad", {"lr": 0.05, "eps": 1e-6, "maximize": 1}),
    "rmsprop": ("RMSprop", {}),
    "rmsprop_momentum": ("RMSprop", {"lr": 0.005, "alpha": 0.9, "momentum": 0.9, "weight_decay": 0.1}),
    "rmsprop_centered": ("RMSprop", {"lr": 0.003, "centered": 1, "alpha": 0.95, "eps": 1e-3}),
    "rmsprop_all": ("RMSprop", {"lr": 0.002, "centered": 1, "momentum": 0.5, "weight_decay": 0.01, "eps": 1e-3, "maximize": 1}),
    "adadelta": ("Adadelta", {}),
    "adadelta_decay": ("Adadelta", {"lr": 0.5, "rho": 0.95, "eps": 1e-5, "weight_decay": 0.1, "maximize": 1}),
    "adamax": ("Adamax", {}),
    "adamax_decay": ("Adamax", dict(DECAY, maximize=1)),
    "nadam": ("NAdam", {}),
    "nadam_decay": ("NAdam", dict(DECAY, momentum_decay=0.01)),
    "nadam_decoupled": ("NAdam", dict(DECAY, decoupled_weight_decay=1, maximize=1)),
    "radam": ("RAdam", {}),
    "radam_decay": ("RAdam", DECAY),
    "radam_decoupled": ("RAdam", dict(DECAY, decoupled_weight_decay=1, maximize=1)),
    "rprop": ("Rprop", {}),
    "rprop_sizes": ("Rprop", {"lr": 0.1, "etaminus": 0.3, "etaplus": 1.5, "step_min": 1e-4, "step_max": 0.5, "maximize": 1}),
}


def main():
    torch.set_num_threads(1)
    for name, (rule, hyper) in CASES.items():
        if rule == "NAdam" and torch.__version__ < "2":
            continue  # it multiplies one factor twice there; the vectors were made by a later one
        known = inspect.signature(getattr(torch.optim, rule)).parameters
        lacks = [key for key in hyper if key in FLAGS and key not in known]  # PyTorch's optimizers got them one by one
        for dtype, suffix in ((F32, "f32"), (F64, "f64")):
            try:
                problems = compare(rule, {k: v for k, v in hyper.items() if k not in lacks}, dtype)
            except RuntimeError as error:
                problems = [str(error)]
            tap.report(f"peers.torch_{name}_{suffix}", problems)
    tap.done()


if __name__ == "__main__":
    main()
