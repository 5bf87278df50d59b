"""Whole training steps, compiled and eager, against PyTorch and JAX, all contenders in turns in one run.

    python benchmarks/steps.py                                             # everything
    python benchmarks/steps.py --workloads gpt vae --rounds 5              # some, quickly
    python benchmarks/steps.py --contenders torch jax flambeau_compiled    # some of the five
    python benchmarks/steps.py --threads 1 --json steps.json               # on one core; figures for floors.py

torch.compile gets the model with its loss, as its users do (backward and update run outside); JAX and flambeau compile the
whole step. All start from the same parameters, and before anything is measured the losses of the first steps are compared:
a contender that computes something else, or fails, is shown as `-` and the reason is printed below the table. In each round
every contender takes as many steps as fit in 25 ms, after a pause in which the others' threads come to rest and a step that
is not counted; the best round is reported.
"""

from __future__ import annotations

import argparse
import gc
import json
import math
import os
import sys
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onednn  # noqa: F401  (before torch)
from harness import REST, duration
from workloads import WORKLOADS, made

LABELS = {"torch": "torch eager", "torch_compile": "torch.compile", "jax": "JAX jit", "flambeau": "flambeau eager",
          "flambeau_compiled": "flambeau compiled"}
PEERS = ("torch", "torch_compile", "jax")
DRAWING = {"mnist_cnn", "lstm_lm", "vae"}  # dropout or noise: other streams of random numbers give other losses
CHECKED = 5
LIMITS = {"tiny_mlp": 0.5}  # of compiled / best peer; 1.0 for the others
Run = Callable[[], Any]


def torch_eager(name: str) -> Run:
    import torch
    return made(name, torch).loop()


def torch_compile(name: str) -> Run:
    import torch
    training = made(name, torch)
    return training.loop(training.step(torch.compile(training.loss_of)))


def jax_jit(name: str) -> Run:
    import jax_programs
    import torch
    return jax_programs.program(name, made(name, torch))


def flambeau_eager(name: str) -> Run:
    import flambeau
    return made(name, flambeau).loop()


def flambeau_compiled(name: str) -> Run:
    import flambeau
    training = made(name, flambeau)
    return training.loop(flambeau.compile(training.step()))


CONTENDERS = dict(zip(LABELS, (torch_eager, torch_compile, jax_jit, flambeau_eager, flambeau_compiled)))


def seed(number: int) -> None:
    import torch

    import flambeau
    torch.manual_seed(number)
    flambeau.manual_seed(number)


def finish(loss: Any) -> None:
    """JAX answers before it has computed."""
    if hasattr(loss, "block_until_ready"):
        loss.block_until_ready()


def disagreement(name: str, contender: str, losses: list[float], expected: list[float]) -> str | None:
    """Why these losses are not those of PyTorch's program, or None."""
    if name in DRAWING and contender in ("jax", "torch_compile"):
        if not math.isclose(losses[-1], expected[-1], rel_tol=0.05):
            return f"after {CHECKED} steps the loss is {losses[-1]:.6g}, torch's is {expected[-1]:.6g}"
        return None
    for number, (got, wanted) in enumerate(zip(losses, expected)):
        if not math.isclose(got, wanted, rel_tol=1e-4):
            return f"at step {number} the loss is {got:.8g}, torch's is {wanted:.8g}"
    return None


def prepare(name: str, contenders: list[str], notes: list[str]) -> dict[str, Run]:
    """The contenders that run and compute what torch eager computes."""
    seed(1)
    reference = torch_eager(name)
    seed(1)
    expected = [reference().item() for _ in range(CHECKED)]
    ready = {}
    for contender in contenders:
        try:
            with warnings.catch_warnings(record=True) as said:
                warnings.simplefilter("always")
                run = CONTENDERS[contender](name)
                seed(1)
                problem = disagreement(name, contender, [run().item() for _ in range(CHECKED)], expected)
            if contender == "flambeau_compiled":  # it says so when it runs something eagerly
                notes += {f"{name}, {LABELS[contender]}: {w.message}" for w in said}
        except Exception as error:  # one that cannot run this workload leaves the others in
            problem = f"{type(error).__name__}: {str(error).strip().splitlines()[0] if str(error).strip() else ''}"[:300]
        if problem:
            notes.append(f"{name}, {LABELS[contender]}: {problem}")
        else:
            ready[contender] = run
    return ready


def block(run: Run, steps: int) -> float:
    """Seconds per step of some steps in a row."""
    start = time.perf_counter()
    for _ in range(steps):
        loss = run()
    finish(loss)
    return (time.perf_counter() - start) / steps


def race(runs: dict[str, Run], rounds: int, seconds: float = 0.025) -> dict[str, float]:
    best = {contender: min(block(run, 1) for _ in range(3)) for contender, run in runs.items()}
    steps = {contender: max(1, int(seconds / once)) for contender, once in best.items()}
    gc.collect()
    gc.disable()
    try:
        for _ in range(rounds):
            for contender, run in runs.items():
                time.sleep(REST)
                finish(run())
                best[contender] = min(best[contender], block(run, steps[contender]))
    finally:
        gc.enable()
    return best


def ratios(seconds: dict[str, float]) -> tuple[float | None, float | None]:
    """flambeau eager / torch eager, and flambeau compiled / best peer, where they were measured."""
    peers = [seconds[p] for p in PEERS if p in seconds]
    eager = seconds["flambeau"] / seconds["torch"] if {"flambeau", "torch"} <= seconds.keys() else None
    compiled = seconds["flambeau_compiled"] / min(peers) if "flambeau_compiled" in seconds and peers else None
    return eager, compiled


def cell(ratio: float | None, limit: float | None = None) -> str:
    if ratio is None:
        return "-"
    return f"{ratio:.2f}{' **missed**' if limit is not None and ratio > limit else ''}"


def mean(values: list[float | None]) -> float | None:
    known = [v for v in values if v is not None]
    return math.exp(sum(map(math.log, known)) / len(known)) if known else None


def pinned(threads: int) -> None:
    """Restricts the process to as many cores: every library then makes as many threads, JAX too, which has no switch for it.
    Libraries count cores when they are loaded, so the program starts again."""
    cores = sorted(os.sched_getaffinity(0))
    if threads > len(cores):
        raise SystemExit(f"{threads} cores were asked for, there are {len(cores)}")
    if threads < len(cores):
        os.sched_setaffinity(0, cores[-threads:])
        os.execv(sys.executable, sys.orig_argv)


def measure(names: list[str], contenders: list[str], rounds: int) -> dict[str, dict[str, float]]:
    print(f"| training step | {' | '.join(LABELS[c] for c in contenders)} | eager / torch | compiled / best peer |")
    print("| --- " * (len(contenders) + 3) + "|", flush=True)
    results, notes = {}, []
    for name in names:
        runs = prepare(name, contenders, notes)
        results[name] = race(runs, rounds)
        cells = [duration(results[name][c]) if c in runs else "-" for c in contenders]
        eager, compiled = ratios(results[name])
        print(f"| {WORKLOADS[name][0]} | {' | '.join(cells)} | {cell(eager, 1.0)} | {cell(compiled, LIMITS.get(name, 1.0))} |",
              flush=True)
    eager, compiled = (mean([ratios(r)[i] for r in results.values()]) for i in (0, 1))
    print(f"| geometric mean | {' | '.join(' ' for _ in contenders)} | {cell(eager, 0.7)} | {cell(compiled, 0.7)} |")
    for note in notes:
        print(f"\n- {note}")
    return results


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS), metavar="NAME",
                        help=", ".join(WORKLOADS))
    parser.add_argument("--contenders", nargs="+", choices=list(CONTENDERS), default=list(CONTENDERS), metavar="NAME",
                        help=", ".join(CONTENDERS))
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--threads", type=int, help="cores to use (all)")
    parser.add_argument("--json", type=Path, help="where to put the seconds per step as JSON")
    options = parser.parse_args()
    if options.threads:
        pinned(options.threads)
    results = measure(options.workloads, options.contenders, options.rounds)
    if options.json:
        options.json.write_text(json.dumps({"threads": options.threads, "seconds": results}, indent=1) + "\n")


if __name__ == "__main__":
    main()
