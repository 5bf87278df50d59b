"""The GPT step over many (batch, length) pairs: how often the C compiler is needed, and what reading sizes at run time costs.

    python benchmarks/shapes.py                       # all
    python benchmarks/shapes.py --pairs 10 --seed 3   # fewer, others
    python benchmarks/shapes.py --threads 1           # steps on one core

The pairs are drawn at random, batches of 2 to 16 and lengths of 8 to 128. "Shared" is the compiled step as users have it: the
first shape has a library of its own, the others share one. "Static" has a library for each shape. Steps are taken in turns, in
many rounds, and the best of each counts. The cache on disk is not used: every library is built.
"""

from __future__ import annotations

import argparse
import os
import random
import tempfile
import time
from typing import Any

from harness import duration

MOST_BUILDS, MOST_TIME = 3, 1.1
TIMED = [(2, 8), (4, 16), (3, 33), (8, 32), (12, 64), (16, 128)]


class Builds:
    """Counts the libraries of programs that the C compiler makes, and its seconds."""

    def __init__(self) -> None:
        from flambeau.native import toolchain
        self.count, self.seconds = 0, 0.0
        self.compile, toolchain._compile = toolchain._compile, self

    def __call__(self, command: Any, flags: Any, source: str, target: Any) -> None:
        start = time.perf_counter()
        self.compile(command, flags, source, target)
        if target.name.startswith("step"):
            self.count += 1
            self.seconds += time.perf_counter() - start


def batch(mod: Any, size: tuple[int, int]) -> tuple[Any, Any]:
    return mod.randint(0, 65, size), mod.randint(0, 65, size)


def steps(dynamic: bool | None) -> Any:
    """The compiled step, with the optimizer's state made."""
    from workloads import gpt_of

    import flambeau
    from flambeau.compiler.render.template import Family
    flambeau.manual_seed(0)
    step = gpt_of(flambeau, 2, 8, 128).step()
    step(*batch(flambeau, (2, 8)))
    compiled = flambeau.compile(step)
    compiled._compiled.family = Family(dynamic)
    return compiled


def count(pairs: list[tuple[int, int]]) -> None:
    import flambeau
    builds, step = Builds(), steps(None)
    start = time.perf_counter()
    for size in pairs:
        step(*batch(flambeau, size))
    seconds = time.perf_counter() - start
    verdict = "" if builds.count <= MOST_BUILDS else " **missed**"
    print(f"{len(pairs)} shapes: {builds.count} builds of {duration(builds.seconds)} in all (at most {MOST_BUILDS}{verdict}), "
          f"{duration((seconds - builds.seconds) / len(pairs))} for the rest of each first call", flush=True)


def compare(rounds: int) -> None:
    import flambeau
    shared, static = steps(None), steps(False)
    for size in ((5, 20), (6, 20), (6, 21)):  # both dimensions have changed
        shared(*batch(flambeau, size))
    print("| batch x length | static | shared | ratio | at most |\n| --- | --- | --- | --- | --- |", flush=True)
    for size in TIMED:
        given, best = batch(flambeau, size), {}
        for step in (static, shared):
            for _ in range(3):
                step(*given)
        for _ in range(rounds):
            for name, step in (("static", static), ("shared", shared)):
                step(*given)  # not counted: the other's traces in the caches
                start = time.perf_counter()
                step(*given)
                best[name] = min(best.get(name, 1e9), time.perf_counter() - start)
        ratio = best["shared"] / best["static"]
        print(f"| {size[0]}x{size[1]} | {duration(best['static'])} | {duration(best['shared'])} | {ratio:.2f} | "
              f"{MOST_TIME}{'' if ratio <= MOST_TIME else ' **missed**'} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pairs", type=int, default=40)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--threads", type=int, help="threads to use (all)")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        os.environ["FLAMBEAU_CACHE"] = folder
        import flambeau
        if options.threads:
            flambeau.set_num_threads(options.threads)
        every = [(b, t) for b in range(2, 17) for t in range(8, 129)]
        count(random.Random(options.seed).sample(every, options.pairs))
        print()
        compare(options.rounds)


if __name__ == "__main__":
    main()
