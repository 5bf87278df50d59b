"""all_reduce between processes of this machine, beside torch's gloo backend: `python benchmarks/distributed.py [--ranks 2]`.

Two worlds of processes take turns, so both meet the same machine; of each size the best round of each counts, and their ratio
is the figure. The share of an all_reduce that is hidden behind a computation of the same length is measured the same way.
"""

from __future__ import annotations

import argparse
import importlib
import multiprocessing
import pathlib
import tempfile
import time
from typing import Any

SIZES = [1 << 10, 1 << 14, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26]  # bytes


def serve(rank: int, size: int, name: str, path: str, pipe: Any) -> None:
    m = importlib.import_module(name)
    d = importlib.import_module(f"{name}.distributed")
    m.set_num_threads(1)
    d.init_process_group("gloo", f"file://{path}", rank=rank, world_size=size)
    pipe.send("ready")
    while (told := pipe.recv()) is not None:
        what, n, rounds = told
        pipe.send({"latency": latency, "overlap": overlap}[what](m, d, n, rounds))
    d.destroy_process_group()


def latency(m: Any, d: Any, n: int, rounds: int) -> float:
    """Seconds per all_reduce of n bytes."""
    x = m.ones(n // 4)
    d.all_reduce(x)
    best = float("inf")
    for _ in range(3):
        d.barrier()
        start = time.perf_counter()
        for _ in range(rounds):
            d.all_reduce(x)
        best = min(best, (time.perf_counter() - start) / rounds)
    return best


def overlap(m: Any, d: Any, n: int, rounds: int) -> tuple[float, float, float]:
    """Seconds of the transfer alone, of a computation of about that length alone, and of both at once."""
    x, a = m.ones(n // 4), m.ones(256, 256)

    def compute(times: int) -> None:
        for _ in range(times):
            a @ a

    def timed(function: Any) -> float:
        d.barrier()
        start = time.perf_counter()
        function()
        return time.perf_counter() - start

    def both() -> None:
        work = d.all_reduce(x, async_op=True)
        compute(times)
        work.wait()

    alone = min(timed(lambda: d.all_reduce(x)) for _ in range(rounds))
    once = min(timed(lambda: compute(10)) for _ in range(rounds)) / 10
    counts = m.tensor([float(max(1, round(alone / once)))])
    d.broadcast(counts, 0)
    times = int(counts.item())
    return alone, min(timed(lambda: compute(times)) for _ in range(rounds)), min(timed(both) for _ in range(rounds))


class World:
    """The processes of one library."""

    def __init__(self, size: int, name: str, folder: str):
        start = multiprocessing.get_context("spawn")
        self.pipes = []
        for rank in range(size):
            ours, theirs = start.Pipe()
            start.Process(target=serve, args=(rank, size, name, f"{folder}/{name}", theirs), daemon=True).start()
            self.pipes.append(ours)
        for pipe in self.pipes:
            pipe.recv()

    def ask(self, *question: Any) -> Any:
        """Rank 0's answer."""
        for pipe in self.pipes:
            pipe.send(question)
        answers = [pipe.recv() for pipe in self.pipes]
        return answers[0]

    def close(self) -> None:
        for pipe in self.pipes:
            pipe.send(None)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--ranks", type=int, default=2)
    parser.add_argument("--turns", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        pathlib.Path(folder).mkdir(exist_ok=True)
        worlds = [World(options.ranks, name, folder) for name in ("flambeau", "torch")]
        print(f"| all_reduce, {options.ranks} processes | flambeau (MPI) | torch (gloo) | ratio |\n| --- | --- | --- | --- |")
        for n in SIZES:
            rounds = max(2, min(200, (1 << 22) // n))
            best = [min(times) for times in zip(*[[w.ask("latency", n, rounds) for w in worlds] for _ in range(options.turns)])]
            said = [f"{t * 1e6:.0f} µs, {n / t / 1e9:.2f} GB/s" for t in best]
            print(f"| {n / 1024:.0f} KB | {said[0]} | {said[1]} | {best[0] / best[1]:.2f} |", flush=True)
        print("\n| transfer beside a computation of the same length | alone | computation | both | hidden |"
              "\n| --- | --- | --- | --- | --- |")
        for n in (1 << 20, 1 << 24):
            for name, world in zip(("flambeau", "torch"), worlds):
                alone, computing, both = min((world.ask("overlap", n, 10) for _ in range(2)), key=lambda t: t[2])
                hidden = (alone + computing - both) / alone
                print(f"| {name}, {n >> 20} MB | {alone * 1e3:.2f} ms | {computing * 1e3:.2f} ms | {both * 1e3:.2f} ms | "
                      f"{hidden:.0%} |", flush=True)
        for world in worlds:
            world.close()


if __name__ == "__main__":
    main()
