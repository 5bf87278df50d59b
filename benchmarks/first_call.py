"""What comes first: a program's first step, and the first calls of a compiled one, with nothing on disk and with all of it.

    python benchmarks/first_call.py                   # all
    python benchmarks/first_call.py start             # import, a small model and one step of it, each time in a new process
    python benchmarks/first_call.py first             # the first calls of the GPT step, each time in a new process
    python benchmarks/first_call.py overhead          # a call of a compiled step that has almost nothing to compute
    python benchmarks/first_call.py --workload vae    # the first calls of another workload

"Cold" starts with an empty cache folder, "warm" is a new process with the folder that the cold one left. The model's
construction is timed apart from the calls: native kernels that it needs are built there. "First calls" are the first two: in
the one the optimizer makes its state, the other is compiled. torch.compile gets the model with its loss; its first call also
compiles the backward pass.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
import warnings
from typing import Any

import onednn  # noqa: F401  (before torch)
from harness import duration, interleave
from workloads import WORKLOADS, made

START = """
import time
start = time.perf_counter()
import {side} as torch
imported = time.perf_counter()
model = torch.nn.Sequential(torch.nn.Linear(20, 64), torch.nn.ReLU(), torch.nn.Linear(64, 3))
optimizer = torch.optim.Adam(model.parameters(), lr=1e-3)
x, y = torch.randn(32, 20), torch.randint(0, 3, (32,))
loss = torch.nn.functional.cross_entropy(model(x), y)
optimizer.zero_grad()
loss.backward()
optimizer.step()
print(imported - start, time.perf_counter() - start)
"""
NUMPY = "import time; start = time.perf_counter(); import numpy; print(time.perf_counter() - start)"
CACHES = {"flambeau": "FLAMBEAU_CACHE", "torch": "TORCHINDUCTOR_CACHE_DIR"}
LIMITS = {("flambeau", "cold"): 5.0, ("flambeau", "warm"): 0.5}


def child(side: str, workload: str) -> None:
    """In a process of its own: prints the seconds of construction, of the first two calls and of the quickest later one."""
    warnings.simplefilter("ignore")
    if side == "flambeau":
        import flambeau as mod
    else:
        import torch as mod
    mod.ones(2).add(1)
    start = time.perf_counter()
    training = made(workload, mod)
    step = mod.compile(training.step()) if side == "flambeau" else training.step(mod.compile(training.loss_of))
    run = training.loop(step)
    built = time.perf_counter()
    run()
    run()
    called = time.perf_counter()
    later = float("inf")
    for _ in range(10):
        again = time.perf_counter()
        run()
        later = min(later, time.perf_counter() - again)
    print(built - start, called - built, later)


def measured(side: str, workload: str, cache: str) -> list[float]:
    command = [sys.executable, __file__, "--child", side, "--workload", workload]
    done = subprocess.run(command, env={**os.environ, CACHES[side]: cache}, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(f"{side} failed:\n{done.stderr[-2000:]}")
    return [float(word) for word in done.stdout.split()[-3:]]


def first(workload: str, repeats: int) -> None:
    print(f"| {WORKLOADS[workload][0]} | construction | first calls | at most | a later call |\n{'| --- ' * 5}|", flush=True)
    for side, label in (("flambeau", "flambeau.compile of the step"), ("torch", "torch.compile of model and loss")):
        runs: dict[str, list[list[float]]] = {"cold": [], "warm": []}
        for _ in range(repeats):
            with tempfile.TemporaryDirectory() as cache:
                for state in runs:
                    runs[state].append(measured(side, workload, cache))
        for state, tries in runs.items():
            built, called, later = map(min, zip(*tries))
            limit = LIMITS.get((side, state))
            verdict = "" if limit is None else f"{limit:g} s{' **missed**' if called > limit else ''}"
            print(f"| {label}, {state} | {duration(built)} | {duration(called)} | {verdict} | {duration(later)} |", flush=True)


def start(rounds: int) -> None:
    """With kernels and Python's own code on disk: one process of each in turn, the quickest counts."""
    env = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    best: dict[str, list[float]] = {}
    programs = {"flambeau": START.format(side="flambeau"), "torch": START.format(side="torch"), "numpy": NUMPY}
    for round in range(rounds + 1):
        for side, text in programs.items():
            done = subprocess.run([sys.executable, "-c", text], env=env, capture_output=True, text=True, check=True)
            times = [float(word) for word in done.stdout.split()]
            if round:  # the first one writes what later ones find on disk
                best[side] = list(map(min, zip(best.get(side, times), times)))
    ours, theirs, numpy = best["flambeau"], best["torch"], best["numpy"][0]
    print("| in a new process | flambeau | torch | ratio | at most |\n| --- | --- | --- | --- | --- |")
    slow, much = " **missed**" * (ours[1] > 0.2), " **missed**" * (ours[1] > 0.1 * theirs[1])
    for what, a, b, limit in ((f"import (NumPy alone: {duration(numpy)})", ours[0], theirs[0], ""),
                              ("import, an MLP, Adam and its first step", ours[1], theirs[1], f"0.2 s{slow}, 0.10{much}")):
        print(f"| {what} | {duration(a)} | {duration(b)} | {a / b:.3f} | {limit} |", flush=True)


def overhead(rounds: int) -> None:
    """A step over one-element parameters: what remains is the call itself, its guards and its pointers."""
    import flambeau

    def make(count: int, compiled: bool) -> Any:
        params = [flambeau.nn.Parameter(flambeau.ones(1)) for _ in range(count)]
        optimizer = flambeau.optim.SGD(params, lr=1e-6)
        x = flambeau.ones(1)

        def step(x: Any) -> Any:
            optimizer.zero_grad()
            loss = x * params[0]
            for p in params[1:]:
                loss = loss + p
            loss.backward()
            optimizer.step()
            return loss
        called = flambeau.compile(step) if compiled else step
        return lambda: called(x)

    print("| a step of SGD over one-element parameters | eager | compiled | at most |\n| --- | --- | --- | --- |", flush=True)
    for count, limit in ((1, 15e-6), (50, None)):
        best = interleave({"eager": make(count, False), "compiled": make(count, True)}, rounds=rounds, min_time=0.001)
        verdict = "" if limit is None else f"15 us{' **missed**' if best['compiled'] > limit else ''}"
        print(f"| {count} parameters | {duration(best['eager'])} | {duration(best['compiled'])} | {verdict} |", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("parts", nargs="*", metavar="PART", help="start, first, overhead (all)")
    parser.add_argument("--workload", choices=list(WORKLOADS), default="gpt")
    parser.add_argument("--repeats", type=int, default=2, help="processes per figure; the best counts (2)")
    parser.add_argument("--rounds", type=int, default=60, help="rounds of the call overhead (60)")
    parser.add_argument("--child", choices=list(CACHES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.workload)
        return
    if unknown := set(options.parts) - {"start", "first", "overhead"}:
        parser.error(f"no part {', '.join(sorted(unknown))}; there are start, first and overhead")
    if "start" in options.parts or not options.parts:
        start(options.repeats)
        print()
    if "overhead" in options.parts or not options.parts:
        overhead(options.rounds)
        print()
    if "first" in options.parts or not options.parts:
        first(options.workload, options.repeats)


if __name__ == "__main__":
    main()
