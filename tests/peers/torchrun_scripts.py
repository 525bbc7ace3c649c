#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Three PyTorch scripts, as users write them for torchrun, run unchanged under ujoin-run: data-parallel training, training
on uneven inputs with a join context, and a sharded optimizer with a checkpoint that a second attempt goes on from.
Prints TAP."""
import json
import os
import pathlib
import subprocess
import sys
import tempfile
import textwrap

ROOT = pathlib.Path(__file__).resolve().parents[2]
RUN = ROOT / "build" / "dev" / "bin" / "ujoin-run"
PYTHON = "/usr/bin/python3"

HEAD = """
import os
import sys
import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel as DDP

dist.init_process_group("gloo", init_method="env://")
rank, world = dist.get_rank(), dist.get_world_size()
assert rank == int(os.environ["RANK"]) and world == int(os.environ["WORLD_SIZE"])
torch.manual_seed(7)
model = torch.nn.Linear(4, 2)
"""

SCRIPTS = {
    "ddp": HEAD + """
from torch.utils.data import DataLoader, TensorDataset
from torch.utils.data.distributed import DistributedSampler

data = TensorDataset(torch.arange(64.0).reshape(16, 4) / 64, torch.ones(16, 2))
loader = DataLoader(data, batch_size=4, sampler=DistributedSampler(data, shuffle=False))
ddp = DDP(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
for epoch in range(3):
    for x, y in loader:
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(ddp(x), y).backward()
        optimizer.step()
weights = [torch.zeros_like(model.weight) for _ in range(world)]
dist.all_gather(weights, model.weight.detach())
assert all(torch.equal(weights[0], other) for other in weights)
print(f"rank {rank} of {world} done", flush=True)
dist.barrier()
dist.destroy_process_group()
""",
    "join": HEAD + """
from torch.distributed.algorithms.join import Join

ddp = DDP(model)
optimizer = torch.optim.SGD(ddp.parameters(), lr=0.1)
steps = 0
with Join([ddp]):
    for _ in range(3 + rank):
        optimizer.zero_grad()
        ddp(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        steps += 1
assert steps == 3 + rank
print(f"rank {rank} of {world} done", flush=True)
dist.destroy_process_group()
""",
    "zero": HEAD + """
from torch.distributed.elastic.multiprocessing.errors import record
from torch.distributed.optim import ZeroRedundancyOptimizer

@record
def main(path):
    attempt = int(os.environ["TORCHELASTIC_RESTART_COUNT"])
    ddp = DDP(model)
    optimizer = ZeroRedundancyOptimizer(ddp.parameters(), optimizer_class=torch.optim.Adam, lr=0.01)
    begin = 0
    if attempt > 0:
        saved = torch.load(path)
        begin = saved["step"]
        model.load_state_dict(saved["model"])
    for step in range(begin, 6):
        ddp(torch.ones(2, 4)).sum().backward()
        optimizer.step()
        optimizer.zero_grad()
        if step == 2 and rank == 0:
            torch.save({"step": 3, "model": model.state_dict()}, path)
        dist.barrier()
        if step == 3 and attempt == 0 and rank == 1:
            raise RuntimeError("a bad batch")
    print(f"rank {rank} of {world} done, from step {begin}", flush=True)

main(sys.argv[1])
dist.destroy_process_group()
""",
}


def free_port():
    import socket
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(place, name, options, args=()):
    script = place / f"{name}.py"
    script.write_text(textwrap.dedent(SCRIPTS[name]))
    variables = {k: v for k, v in os.environ.items() if k not in ("RANK", "WORLD_SIZE")}
    variables.update(PYTHON_EXEC=PYTHON, TMPDIR=str(place), GLOO_SOCKET_IFNAME="lo")
    return subprocess.run([str(RUN), "--nproc-per-node", "2", "--master-port", str(free_port()), *options, str(script), *args],
                          env=variables, capture_output=True, text=True, timeout=300, check=False)


def report(name, problems, done):
    print(f"{'not ok' if problems else 'ok'} - peers.torchrun_{name}")
    for line in problems + ((done.stdout + done.stderr).splitlines()[-30:] if problems else []):
        print(f"# {line}")


def missing(done, lines):
    return [f"exit status {done.returncode}"] * (done.returncode != 0) + [
        f"no line {line!r}" for line in lines if line not in done.stdout + done.stderr]


def main():
    if subprocess.run([PYTHON, "-c", "import torch"], capture_output=True, check=False).returncode != 0:
        for name in SCRIPTS:
            print(f"ok - peers.torchrun_{name} # SKIP no PyTorch for {PYTHON}")
        return
    with tempfile.TemporaryDirectory() as folder:
        place = pathlib.Path(folder)
        for name in ("ddp", "join"):
            done = run(place, name, ["--tee=3"] if name == "ddp" else ["--standalone"])
            report(name, missing(done, ["rank 0 of 2 done", "rank 1 of 2 done"]), done)
        result = place / "result.json"
        done = run(place, "zero", ["--max_restarts=1", "--log_dir", str(place / "logs"), "--rdzv_id", "job", "--json",
                                   str(result)], [str(place / "checkpoint.pt")])
        problems = missing(done, ["rank 1 of 2 done, from step 3", "a bad batch", "starting again"])
        if not problems and json.loads(result.read_text())["restarts"] != 1:
            problems = ["the result tells of no restart"]
        recorded = place / "logs" / "job" / "attempt_0" / "1" / "error.json"
        if not problems and "RuntimeError: a bad batch" not in recorded.read_text():
            problems = [f"{recorded} is not the script's own record"]
        report("zero", problems, done)


if __name__ == "__main__":
    main()
