"""The core against PyTorch, in one interleaved run: overhead per operation, backward, large arrays, matmul, import.

    python benchmarks/core.py            # everything
    python benchmarks/core.py overhead   # one group

Prints a Markdown table; the figures of the last release are in RESULTS.md.
"""

from __future__ import annotations

import math
import os
import resource
import subprocess
import sys
import time

import onednn  # noqa: F401  (before torch)
import torch
from harness import Report, duration, interleave

import flambeau


def overhead(report: Report) -> None:
    def pair(make):
        best = interleave({"flambeau": make(flambeau), "torch": make(torch)}, rounds=60)
        return best["flambeau"], best["torch"]

    def mul(mod, grad):
        a, b = mod.rand(3, 4), mod.rand(3, 4, requires_grad=grad)
        return lambda: a * b

    report.row("a*b 3x4 float32, not recorded", *pair(lambda m: mul(m, False)), 0.8)
    report.row("a*b 3x4 float32, recorded", *pair(lambda m: mul(m, True)), 0.6)
    for name in ("add", "exp", "tanh", "sum", "matmul"):
        def call(mod, name=name):
            a, b = mod.rand(3, 3), mod.rand(3, 3, requires_grad=True)
            f = getattr(mod, name)
            return (lambda: f(a, b)) if name in ("add", "matmul") else (lambda: f(b))
        report.row(f"{name} 3x3 float32, recorded", *pair(call))


def chains(report: Report) -> None:
    def scalar_chain(mod):
        x = mod.tensor(1.5, requires_grad=True)
        y = x
        for _ in range(100):
            y = y * 1.01
        return lambda: y.backward(retain_graph=True)

    best = interleave({"flambeau": scalar_chain(flambeau), "torch": scalar_chain(torch)}, rounds=60)
    report.row("backward of a 100-node scalar chain", best["flambeau"], best["torch"], 0.9)

    def pointwise(mod):
        x = mod.rand(4, 8, requires_grad=True)
        c = mod.rand(4, 8)

        def run():
            y = x
            for _ in range(5):
                y = (y * c + x).tanh().exp()
            y.sum().backward()
            x.grad = None
        return run

    best = interleave({"flambeau": pointwise(flambeau), "torch": pointwise(torch)}, rounds=60)
    report.row("20-op pointwise chain, forward and backward", best["flambeau"], best["torch"], 0.9)

    def custom(mod):
        class Scale(mod.autograd.Function):
            @staticmethod
            def forward(ctx, x):
                ctx.save_for_backward(x)
                return x * 2.0

            @staticmethod
            def backward(ctx, grad):
                (_,) = ctx.saved_tensors
                return grad * 2.0

        x = mod.rand(3, 4, requires_grad=True)
        g = mod.rand(3, 4)

        def run():
            Scale.apply(x).backward(g)
            x.grad = None
        return run

    best = interleave({"flambeau": custom(flambeau), "torch": custom(torch)}, rounds=60)
    report.row("custom Function, forward and backward", best["flambeau"], best["torch"], 0.5)


def large(report: Report) -> None:
    for count, label in ((1_000_000, "1 M"), (10_000_000, "10 M")):
        for name in ("add", "mul", "exp", "tanh", "sum"):
            def call(mod, name=name, count=count):
                a, b = mod.rand(count), mod.rand(count)
                f = getattr(mod, name)
                return (lambda: f(a, b)) if name in ("add", "mul") else (lambda: f(a))
            best = interleave({"flambeau": call(flambeau), "torch": call(torch)}, rounds=25)
            limit = 0.6 if (name, count) == ("add", 10_000_000) else 1.0
            report.row(f"{name} {label} float32", best["flambeau"], best["torch"], limit)


def matmul(report: Report) -> None:
    for n in (64, 128, 256, 512, 1024, 2048):
        def call(mod, n=n):
            a, b = mod.rand(n, n), mod.rand(n, n)
            return lambda: a @ b
        best = interleave({"flambeau": call(flambeau), "torch": call(torch)}, rounds=30 if n < 1024 else 10)
        report.row(f"matmul {n}x{n} float32", best["flambeau"], best["torch"], 1.0)


def import_time(report: Report) -> None:
    def seconds(module: str) -> float:
        env = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}  # imports use cached bytecode
        start = time.perf_counter()
        subprocess.run([sys.executable, "-c", f"import {module}"], check=True, env=env)
        return time.perf_counter() - start

    best = dict.fromkeys(("flambeau", "torch", "numpy", "sys"), math.inf)
    for _ in range(15):
        for module in best:
            best[module] = min(best[module], seconds(module))
    bare = best["sys"]
    report.row("import (interpreter start subtracted)", best["flambeau"] - bare, best["torch"] - bare, 0.15)
    ratio = (best["flambeau"] - bare) / (best["numpy"] - bare)
    numpy = duration(best["numpy"] - bare)
    print(f"| import, against numpy's {numpy} | {duration(best['flambeau'] - bare)} | | {ratio:.2f} | 2 |")


def growth(report: Report) -> None:
    """Cost per node from 10 to 1,000,000 nodes, and the memory of the longest chain."""
    print("\n| nodes in a chain | forward per node | backward per node |\n| --- | --- | --- |")
    for nodes in (10, 100, 1_000, 10_000, 100_000, 1_000_000):
        forward = backward = float("inf")
        for _ in range(max(1, min(20, 200_000 // nodes))):
            x = flambeau.tensor(1.0, requires_grad=True)
            start = time.perf_counter()
            y = x
            for _ in range(nodes):
                y = y * 1.0000001
            middle = time.perf_counter()
            y.backward()
            end = time.perf_counter()
            forward, backward = min(forward, middle - start), min(backward, end - middle)
            del y
        print(f"| {nodes} | {duration(forward / nodes)} | {duration(backward / nodes)} |", flush=True)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    print(f"\npeak resident memory of the process: {peak:.0f} MiB")


GROUPS = {f.__name__: f for f in (overhead, chains, large, matmul, import_time, growth)}

if __name__ == "__main__":
    chosen = sys.argv[1:] or list(GROUPS)
    report = Report()
    for group in chosen:
        GROUPS[group](report)
    missed = [r for r in report.rows if r[3] is not None and r[1] / r[2] > r[3]]
    print(f"\n{len(report.rows)} comparisons, {len(missed)} above their limit")
