"""Peak memory of training steps: flambeau compiled and eager against PyTorch eager, each in its own process.

    python benchmarks/memory.py                            # the GPT step
    python benchmarks/memory.py --workloads gpt resnet8    # others

Each process first trains the tiny network, so that libraries, threads and their buffers are in place, then makes the model
and notes its resident memory. The peak is what the kernel recorded above that level: during the first step (a compiled one
runs it in Python), and during ten steps after the third. Gradients and optimizer state are part of both.
"""

from __future__ import annotations

import argparse
import gc
import os
import subprocess
import sys
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onednn  # noqa: F401  (before torch)
from workloads import WORKLOADS, Training, made

SIDES = {"torch": "torch eager", "flambeau": "flambeau eager", "flambeau_compiled": "flambeau compiled"}


def resident(field: str) -> int:
    """Bytes of VmRSS (now) or VmHWM (the highest since `forget_peak`)."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise SystemExit(f"this system does not report {field}")


def forget_peak() -> None:
    Path("/proc/self/clear_refs").write_text("5")


def child(side: str, workload: str) -> None:
    """In a process of its own: prints the bytes of the parameters, and the peaks of the first step and of later ones."""
    warnings.simplefilter("ignore")
    if side == "torch":
        import torch as mod
    else:
        import flambeau as mod

    def loop(name: str) -> tuple[Training, Callable[[], Any]]:
        training = made(name, mod)
        step = training.step()
        return training, training.loop(mod.compile(step) if side == "flambeau_compiled" else step)

    _, warm = loop("tiny_mlp")
    for _ in range(3):
        warm()
    training, run = loop(workload)
    gc.collect()
    forget_peak()
    level = resident("VmRSS")
    run()
    first = resident("VmHWM") - level
    for _ in range(2):
        run()
    forget_peak()
    for _ in range(10):
        run()
    later = resident("VmHWM") - level
    print(sum(p.numel() * p.element_size() for p in training.model.parameters()), first, later)


def peaks(side: str, workload: str, repeats: int) -> list[int]:
    """The lowest of several processes: what else the allocator does varies."""
    command = [sys.executable, __file__, "--child", side, "--workloads", workload]
    tries = []
    for _ in range(repeats):
        done = subprocess.run(command, env=os.environ, capture_output=True, text=True)
        if done.returncode:
            raise SystemExit(f"{SIDES[side]} failed on {workload}:\n{done.stderr[-2000:]}")
        tries.append([int(word) for word in done.stdout.split()[-3:]])
    return list(map(min, zip(*tries)))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=["gpt"], metavar="NAME",
                        help=f"{', '.join(WORKLOADS)} (gpt)")
    parser.add_argument("--repeats", type=int, default=3, help="processes per figure; the lowest counts (3)")
    parser.add_argument("--child", choices=list(SIDES), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        child(options.child, options.workloads[0])
        return
    print("| peak above the built model, MB | parameters | first step | later steps | later / torch | at most |")
    print("| --- " * 6 + "|", flush=True)
    for workload in options.workloads:
        reference = None
        for side, label in SIDES.items():
            parameters, first, later = peaks(side, workload, options.repeats)
            reference = reference or later
            limit = 0.8 if side == "flambeau_compiled" else None
            verdict = "" if limit is None else f"{limit:g}{' **missed**' if later / reference > limit else ''}"
            print(f"| {workload}, {label} | {parameters / 1e6:.1f} | {first / 1e6:.1f} | {later / 1e6:.1f} | "
                  f"{later / reference:.2f} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
