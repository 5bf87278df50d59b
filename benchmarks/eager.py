"""Common operations in eager mode against PyTorch, small and large, recorded and not, in one interleaved run.

    python benchmarks/eager.py                    # the whole table (a few minutes)
    python benchmarks/eager.py small              # one size
    python benchmarks/eager.py large relu clamp   # some operations of one size
    python benchmarks/eager.py optimizers random  # one step of an optimizer; drawing

Small is 8x16, where the cost is the call; large is 1,000,000 elements, where it is the work. There is no limit per row:
the table shows where eager mode stands, good and bad.
"""

from __future__ import annotations

import sys
from typing import Any

import onednn  # noqa: F401  (before torch)
import torch
from harness import duration, interleave

import flambeau

SIZES = {"small": (8, 16), "large": (1000, 1000)}
F = "nn.functional"

# name -> call over (module, x, y, c): x is the recorded input, y a positive partner, c a condition
OPERATIONS: dict[str, Any] = {
    "add": lambda m, x, y, c: x + y,
    "mul": lambda m, x, y, c: x * y,
    "div": lambda m, x, y, c: x / y,
    "mul by a number": lambda m, x, y, c: x * 2.0,
    "add a number": lambda m, x, y, c: x + 1,
    "pow 2": lambda m, x, y, c: x ** 2,
    "broadcast add": lambda m, x, y, c: x + y[0],
    "exp": lambda m, x, y, c: x.exp(),
    "log": lambda m, x, y, c: y.log(),
    "sqrt": lambda m, x, y, c: y.sqrt(),
    "tanh": lambda m, x, y, c: x.tanh(),
    "sigmoid": lambda m, x, y, c: x.sigmoid(),
    "relu": lambda m, x, y, c: m.relu(x),
    "abs": lambda m, x, y, c: x.abs(),
    "neg": lambda m, x, y, c: -x,
    "clamp": lambda m, x, y, c: x.clamp(-0.5, 0.5),
    "where": lambda m, x, y, c: m.where(c, x, y),
    "maximum": lambda m, x, y, c: m.maximum(x, y),
    "compare": lambda m, x, y, c: x > y,
    "compare with a number": lambda m, x, y, c: x > 0,
    "sum": lambda m, x, y, c: x.sum(),
    "sum over rows": lambda m, x, y, c: x.sum(-1),
    "sum over columns": lambda m, x, y, c: x.sum(0),
    "mean": lambda m, x, y, c: x.mean(),
    "mean over rows": lambda m, x, y, c: x.mean(-1),
    "max": lambda m, x, y, c: x.max(),
    "max over rows": lambda m, x, y, c: x.max(-1),
    "amax over rows": lambda m, x, y, c: x.amax(-1),
    "argmax over rows": lambda m, x, y, c: x.argmax(-1),
    "cumsum over rows": lambda m, x, y, c: x.cumsum(-1),
    "var": lambda m, x, y, c: x.var(),
    "norm": lambda m, x, y, c: x.norm(),
    "softmax": lambda m, x, y, c: x.softmax(-1),
    "log_softmax": lambda m, x, y, c: m.log_softmax(x, -1),
    "matmul": lambda m, x, y, c: x @ y.t(),
    "transpose": lambda m, x, y, c: x.transpose(0, 1),
    "view": lambda m, x, y, c: x.view(-1),
    "reshape": lambda m, x, y, c: x.reshape(-1, 4),
    "expand": lambda m, x, y, c: x.expand(4, *x.shape),
    "unsqueeze": lambda m, x, y, c: x.unsqueeze(0),
    "index a row": lambda m, x, y, c: x[3],
    "slice": lambda m, x, y, c: x[:, 2:6],
    "cat": lambda m, x, y, c: m.cat([x, y]),
    "stack": lambda m, x, y, c: m.stack([x, y]),
    "split": lambda m, x, y, c: x.split(4),
    "chunk": lambda m, x, y, c: x.chunk(2),
    "clone": lambda m, x, y, c: x.clone(),
    "detach": lambda m, x, y, c: x.detach(),
    "to float64": lambda m, x, y, c: x.to(m.float64),
    "item": lambda m, x, y, c: y[0, 0].item(),
    "add_ in place": lambda m, x, y, c: y.add_(1e-9),
    "add_ with alpha": lambda m, x, y, c: y.add_(y, alpha=1e-9),
}
UNRECORDED = {"compare", "compare with a number", "argmax over rows", "item", "add_ in place", "add_ with alpha", "log",
              "sqrt", "detach"}


def inputs(module: Any, shape: tuple[int, ...], recorded: bool) -> tuple[Any, ...]:
    count = shape[0] * shape[1]
    x = (module.arange(count, dtype=module.float32).reshape(shape) * 0.618).fmod(2.0) - 1.0
    y = (module.arange(count, dtype=module.float32).reshape(shape) * 0.414).fmod(1.0) + 0.1
    return x.requires_grad_(recorded), y, x.detach() > 0


def compare(what: str, call: Any, shape: tuple[int, ...], recorded: bool, rounds: int) -> tuple[float, float]:
    def one(module: Any) -> Any:
        x, y, c = inputs(module, shape, recorded)
        return lambda: call(module, x, y, c)

    best = interleave({"flambeau": one(flambeau), "torch": one(torch)}, rounds=rounds, min_time=0.002)
    return best["flambeau"], best["torch"]


def table(size: str, chosen: list[str]) -> None:
    print(f"\n| {size} {'x'.join(map(str, SIZES[size]))} | flambeau | torch | ratio | recorded: flambeau | torch | ratio |")
    print("| --- | --- | --- | --- | --- | --- | --- |", flush=True)
    for name, call in OPERATIONS.items():
        if chosen and not any(word in name for word in chosen):
            continue
        rounds = 30 if size == "small" else 12
        ours, theirs = compare(name, call, SIZES[size], False, rounds)
        row = f"| {name} | {duration(ours)} | {duration(theirs)} | {ours / theirs:.2f} |"
        if name in UNRECORDED:
            row += " | | |"
        else:
            ours, theirs = compare(name, call, SIZES[size], True, rounds)
            row += f" {duration(ours)} | {duration(theirs)} | {ours / theirs:.2f} |"
        print(row, flush=True)


def optimizers(chosen: list[str]) -> None:
    """One step over a hundred 32x32 parameters, and over the six of a small network."""
    print("\n| one step | flambeau | torch | ratio |\n| --- | --- | --- | --- |", flush=True)
    shapes = {"100 tensors of 32x32": [(32, 32)] * 100,
              "6 tensors of a small network": [(64, 32), (64,), (64, 64), (64,), (10, 64), (10,)]}
    kinds = {"SGD": {"lr": 1e-3}, "SGD, momentum": {"lr": 1e-3, "momentum": 0.9}, "Adam": {"lr": 1e-3},
             "AdamW": {"lr": 1e-3}}
    for label, sizes in shapes.items():
        for kind, options in kinds.items():
            def make(m: Any, kind: str = kind, options: Any = options, sizes: Any = sizes) -> Any:
                params = [m.nn.Parameter(m.ones(s)) for s in sizes]
                for p in params:
                    p.grad = m.full_like(p, 0.01)
                return getattr(m.optim, kind.partition(",")[0])(params, **options).step
            best = interleave({"f": make(flambeau), "t": make(torch)}, rounds=30, min_time=0.003)
            print(f"| {kind}, {label} | {duration(best['f'])} | {duration(best['t'])} | {best['f'] / best['t']:.2f} |",
                  flush=True)


def random(chosen: list[str]) -> None:
    print("\n| drawing | flambeau | torch | ratio |\n| --- | --- | --- | --- |", flush=True)
    draws = {"manual_seed": lambda m: m.manual_seed(7), "rand(10)": lambda m: m.rand(10),
             "rand(100)": lambda m: m.rand(100), "rand(1M)": lambda m: m.rand(1_000_000),
             "randn(5)": lambda m: m.randn(5), "randn(100)": lambda m: m.randn(100),
             "randn(10000)": lambda m: m.randn(10_000), "randn(1M)": lambda m: m.randn(1_000_000),
             "randint(100)": lambda m: m.randint(0, 10, (100,)), "randperm(100)": lambda m: m.randperm(100),
             "randperm(1M)": lambda m: m.randperm(1_000_000), "bernoulli 1M": lambda m: m.empty(1_000_000).bernoulli_(0.5)}
    for name, draw in draws.items():
        best = interleave({"f": lambda d=draw: d(flambeau), "t": lambda d=draw: d(torch)}, rounds=12, min_time=0.002)
        print(f"| {name} | {duration(best['f'])} | {duration(best['t'])} | {best['f'] / best['t']:.2f} |", flush=True)


if __name__ == "__main__":
    words = sys.argv[1:]
    groups = [w for w in words if w in SIZES or w in ("optimizers", "random")]
    chosen = [w for w in words if w not in groups]
    for group in groups or [*SIZES, "optimizers", "random"]:
        if group in SIZES:
            table(group, chosen)
        else:
            {"optimizers": optimizers, "random": random}[group](chosen)
