"""Steps of DistributedDataParallel on two processes, beside PyTorch on gloo, and how much of the exchange is hidden.

    python benchmarks/ddp.py            # starts its two processes itself
    python benchmarks/ddp.py --rounds 40 --nproc 2

Every process holds both libraries, and they take turns; the minimum of all rounds counts. `exchange` is the exchange of as many
gradients alone, `waited` what the end of the backward pass waits for it, `hidden` the share that it does not wait for.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from typing import Any

from harness import duration

WORKLOADS = ["mnist_mlp", "gpt"]


def wrapped(name: str, mod: Any) -> tuple[Any, Callable[[], None], Callable[[], None]]:
    """(the wrapped model, a step, the exchange alone) of a workload under DDP."""
    from workloads import made
    training = made(name, mod)
    ddp = mod.nn.parallel.DistributedDataParallel(_losses(mod, training.model, training.loss_of))
    buffers = [mod.zeros(n) for n in _buckets([p.numel() for p in training.model.parameters()])]

    def step() -> None:
        training.optimizer.zero_grad()
        ddp(*training.inputs).backward()
        training.optimizer.step()

    def exchange() -> None:
        for work in [mod.distributed.all_reduce(b, async_op=True) for b in buffers]:
            work.wait()

    return ddp, step, exchange


def timed(reducer: Any, best: list[float]) -> None:
    """Has a reducer note the least time that the end of a backward pass waited for its buckets."""
    finish, wait, waited = reducer.finish, reducer._wait, [0.0]

    def one(bucket: Any) -> None:
        start = time.perf_counter()
        wait(bucket)
        waited[0] += time.perf_counter() - start

    def all_of_them() -> None:
        waited[0] = 0.0
        finish()
        best[0] = min(best[0], waited[0])

    reducer.finish, reducer._wait = all_of_them, one


def _losses(mod: Any, inner: Any, loss_of: Any) -> Any:
    """The loss as a module, so that the whole forward pass goes through DDP."""
    class Losses(mod.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inner = inner

        def forward(self, *inputs: Any) -> Any:
            result = loss_of(*inputs)
            return result[0] if isinstance(result, tuple) else result

    return Losses()


def _buckets(sizes: list[int]) -> list[int]:
    """The numbers of elements that DDP exchanges together: 1 MB, then 25 MB each."""
    made, count = [], 0
    for n in reversed(sizes):
        count += n
        if count * 4 >= (1 << 20) * (25 if made else 1):
            made.append(count)
            count = 0
    return made + ([count] if count else [])


def measure(rounds: int) -> None:
    import torch

    import flambeau
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    for mod in (flambeau, torch):
        mod.set_num_threads(1)
    flambeau.distributed.init_process_group("gloo")
    torch.distributed.init_process_group("gloo", init_method=f"file://{os.environ['MEETING']}", rank=rank, world_size=world)
    if rank == 0:
        print(f"| step, {world} processes | flambeau | torch, gloo | ratio | exchange | torch | waited | hidden |\n"
              "| --- | --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name in WORKLOADS:
        ddp, *ours = wrapped(name, flambeau)
        waited = [float("inf")]
        timed(ddp.reducer, waited)
        calls = {"ours": ours[0], "theirs": (theirs := wrapped(name, torch))[1], "sent": ours[1], "sent by torch": theirs[2]}
        best = dict.fromkeys(calls, float("inf"))
        for _ in range(rounds):
            for key, call in calls.items():
                call()
                flambeau.distributed.barrier()
                start = time.perf_counter()
                call()
                best[key] = min(best[key], time.perf_counter() - start)
        if rank == 0:
            times = " | ".join(map(duration, (best["sent"], best["sent by torch"], waited[0])))
            print(f"| {name} | {duration(best['ours'])} | {duration(best['theirs'])} | {best['ours'] / best['theirs']:.2f} | "
                  f"{times} | {1 - min(1.0, waited[0] / best['sent']):.0%} |", flush=True)
    flambeau.distributed.barrier()
    flambeau.distributed.destroy_process_group()
    torch.distributed.destroy_process_group()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--nproc", type=int, default=2)
    options = parser.parse_args()
    if "RANK" in os.environ:
        measure(options.rounds)
        return
    with tempfile.TemporaryDirectory() as folder:
        subprocess.run([sys.executable, "-m", "flambeau.distributed.run", "--standalone", "--nproc-per-node",
                        str(options.nproc), __file__, "--rounds", str(options.rounds)],
                       env={**os.environ, "OMP_NUM_THREADS": "1", "MEETING": os.path.join(folder, "meeting")}, check=True)


if __name__ == "__main__":
    main()
