"""Whole training steps against PyTorch, in one interleaved run: forward, backward and update, both eager.

    python benchmarks/training.py                    # everything
    python benchmarks/training.py tiny_mlp gpt       # some
    python benchmarks/training.py --profile gpt      # where flambeau's time goes in one of them

Both sides start from the same seed and take the same steps; that their losses agree is checked before anything is
measured. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import cProfile
import math
import pstats
from collections.abc import Callable
from typing import Any

import onednn  # noqa: F401  (before torch)
import torch
from harness import Report, interleave
from workloads import WORKLOADS, made

import flambeau
import flambeau.nn.functional
import flambeau.optim


def check(name: str, steps: dict[str, Callable[[], Any]]) -> None:
    """A fast step that computes something else would be no result."""
    flambeau.manual_seed(1)
    torch.manual_seed(1)
    for number in range(3):
        ours, theirs = (steps[side]().item() for side in ("flambeau", "torch"))
        if not math.isclose(ours, theirs, rel_tol=1e-4):
            raise AssertionError(f"{name}: at step {number} flambeau's loss is {ours}, torch's {theirs}")


def measure(names: list[str], rounds: int) -> None:
    report = Report()
    for name in names:
        what, limit, _ = WORKLOADS[name]
        steps = {"flambeau": made(name, flambeau).loop(), "torch": made(name, torch).loop()}
        check(name, steps)
        best = interleave(steps, rounds=rounds)
        report.row(what, best["flambeau"], best["torch"], limit)


def profile(name: str, steps: int = 30) -> None:
    """The functions in which flambeau spends the time of this step."""
    step = made(name, flambeau).loop()
    for _ in range(3):
        step()
    profiler = cProfile.Profile()
    profiler.enable()
    for _ in range(steps):
        step()
    profiler.disable()
    print(f"{name}: {steps} steps")
    pstats.Stats(profiler).sort_stats("tottime").print_stats(22)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", help=f"any of {', '.join(WORKLOADS)}")
    parser.add_argument("--rounds", type=int, default=25)
    parser.add_argument("--profile", action="store_true", help="where the time goes, instead of the comparison")
    options = parser.parse_args()
    unknown = [name for name in options.names if name not in WORKLOADS]
    if unknown:
        parser.error(f"no workload {', '.join(unknown)}; there are {', '.join(WORKLOADS)}")
    names = options.names or list(WORKLOADS)
    if options.profile:
        for name in names:
            profile(name)
    else:
        measure(names, options.rounds)


if __name__ == "__main__":
    main()
