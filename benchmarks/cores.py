"""Operations on a million elements, where the number of cores counts: ours beside PyTorch's, in one interleaved run.

    python benchmarks/cores.py            # with as many threads as either library takes by itself
"""

from __future__ import annotations

import os

import onednn  # noqa: F401  (before torch)
import torch
from harness import interleave

import flambeau

N = 1 << 20


def cases(mod):
    """name -> a call."""
    F = mod.nn.functional
    x, y = mod.rand(N), mod.rand(N)
    m, w, b = mod.rand(1024, 1024), mod.rand(1024), mod.rand(1024)
    parts = [mod.rand(N // 4) for _ in range(4)]
    table, at = mod.rand(50_000, 64), mod.arange(16_384) * 3 % 50_000
    g = mod.rand(1024, 1024, requires_grad=True)
    return {
        "add": lambda: x + y, "exp": lambda: x.exp(), "mul by a number": lambda: x * 2.0, "relu": lambda: x.relu(),
        "sum": lambda: x.sum(), "sum of rows": lambda: m.sum(1), "sum of columns": lambda: m.sum(0),
        "softmax": lambda: m.softmax(1), "layer_norm": lambda: F.layer_norm(m, (1024,), w, b), "cat": lambda: mod.cat(parts),
        "stack": lambda: mod.stack(parts), "transposed copy": lambda: m.t().contiguous(),
        "embedding": lambda: F.embedding(at, table),
        "index_select": lambda: table.index_select(0, at), "where": lambda: mod.where(m > 0.5, m, w),
        "cumsum": lambda: m.cumsum(1),
        "clone": lambda: x.clone(), "forward and backward": lambda: (g * 2).exp().sum().backward()}


def main() -> None:
    print(f"{os.cpu_count()} cores; threads: flambeau {flambeau.get_num_threads()}, torch {torch.get_num_threads()}\n")
    print("| 1 M elements | flambeau us | torch us | ratio |\n| --- | --- | --- | --- |")
    ours, theirs = cases(flambeau), cases(torch)
    for name in ours:
        best = interleave({"flambeau": ours[name], "torch": theirs[name]}, rounds=40)
        print(f"| {name} | {best['flambeau'] * 1e6:.0f} | {best['torch'] * 1e6:.0f} | {best['flambeau'] / best['torch']:.2f} |")


if __name__ == "__main__":
    main()
