"""Single eager operations whose work counts, against PyTorch eager, in one interleaved run.

    python benchmarks/kernels.py                       # everything (a few minutes)
    python benchmarks/kernels.py softmax conv2d        # rows whose name contains one of these
    python benchmarks/kernels.py --rounds 5            # quickly
    python benchmarks/kernels.py --threads 1           # on one core, which a busy machine disturbs less

Rows with a limit are those that native kernels have to win; "both" is forward and backward. Prints a Markdown table.
"""

from __future__ import annotations

import argparse
import math
from collections.abc import Callable, Iterator
from typing import Any

import onednn  # noqa: F401  (before torch)
import torch
from harness import Report, interleave
from steps import pinned

import flambeau
import flambeau.nn.functional
import flambeau.optim

Make = Callable[[Any], Callable[[], Any]]
Row = tuple[str, float | None, Make]


def functional(mod: Any) -> Any:
    return mod.nn.functional


def forward_and_both(what: str, limit: float | None, inputs: Callable[[Any], list[Any]],
                     call: Callable[..., Any]) -> Iterator[Row]:
    """A row for the forward pass alone and one for both passes; every floating input gets a gradient."""
    def forward(mod: Any) -> Callable[[], Any]:
        given = inputs(mod)
        return lambda: call(mod, *given)

    def both(mod: Any) -> Callable[[], Any]:
        given = inputs(mod)
        leaves = [x.requires_grad_() for x in given if x.is_floating_point()]
        grad = mod.ones_like(call(mod, *given)).detach()

        def run() -> None:
            call(mod, *given).backward(grad)
            for leaf in leaves:
                leaf.grad = None
        return run

    yield f"{what}, forward", limit, forward
    yield f"{what}, both", limit, both


def normalizing() -> Iterator[Row]:
    for shape in ((64, 10), (768, 65), (48, 64, 64), (1000, 1000)):
        size = "x".join(map(str, shape))
        yield from forward_and_both(f"softmax {size}", 1.0, lambda m, s=shape: [m.randn(*s)], lambda m, x: m.softmax(x, -1))
        yield from forward_and_both(f"log_softmax {size}", 1.0, lambda m, s=shape: [m.randn(*s)],
                                    lambda m, x: m.log_softmax(x, -1))
    for rows, width in ((32, 64), (768, 128), (4096, 768)):
        yield from forward_and_both(f"layer_norm {rows}x{width}", 1.0,
                                    lambda m, r=rows, w=width: [m.randn(r, w), m.ones(w), m.zeros(w)],
                                    lambda m, x, w, b: functional(m).layer_norm(x, (x.shape[1],), w, b))
    for shape in ((32, 16, 32, 32), (32, 64, 8, 8)):
        size, channels = "x".join(map(str, shape)), shape[1]
        given = lambda m, s=shape, c=channels: [m.randn(*s), m.ones(c), m.zeros(c)]
        yield from forward_and_both(f"batch_norm {size}", None, given,
                                    lambda m, x, w, b: functional(m).batch_norm(x, None, None, w, b, training=True))
        yield from forward_and_both(f"group_norm {size}", None, given, lambda m, x, w, b: functional(m).group_norm(x, 8, w, b))


def activations_and_losses() -> Iterator[Row]:
    for shape in ((32, 64), (768, 512), (1000, 1000)):
        size = "x".join(map(str, shape))
        yield from forward_and_both(f"gelu {size}", 1.0, lambda m, s=shape: [m.randn(*s)], lambda m, x: functional(m).gelu(x))
    for rows, classes in ((128, 10), (768, 65), (700, 1000), (512, 32000)):
        yield from forward_and_both(f"cross_entropy {rows}x{classes}", 1.0,
                                    lambda m, r=rows, c=classes: [m.randn(r, c), m.arange(r) % c],
                                    lambda m, x, y: functional(m).cross_entropy(x, y))


def convolution() -> Iterator[Row]:
    layers = {  # batch, channels in, size; channels out, kernel, stride, padding
        "64x1x28x28 -> 32, 3x3": (64, 1, 28, 32, 3, 1, 0), "64x32x26x26 -> 64, 3x3": (64, 32, 26, 64, 3, 1, 0),
        "32x16x32x32 -> 16, 3x3 padded": (32, 16, 32, 16, 3, 1, 1), "32x16x32x32 -> 32, 3x3 / 2": (32, 16, 32, 32, 3, 2, 1),
        "32x64x8x8 -> 64, 3x3 padded": (32, 64, 8, 64, 3, 1, 1), "32x32x16x16 -> 64, 1x1 / 2": (32, 32, 16, 64, 1, 2, 0)}
    for what, (batch, inputs, size, outputs, kernel, stride, padding) in layers.items():
        yield from forward_and_both(
            f"conv2d {what}", 1.0,
            lambda m, b=batch, i=inputs, s=size, o=outputs, k=kernel: [m.randn(b, i, s, s), m.randn(o, i, k, k), m.randn(o)],
            lambda m, x, w, b, s=stride, p=padding: functional(m).conv2d(x, w, b, s, p))
    for shape in ((64, 64, 24, 24), (32, 16, 32, 32)):
        yield from forward_and_both(f"max_pool2d {'x'.join(map(str, shape))}, 2x2", 1.0, lambda m, s=shape: [m.randn(*s)],
                                    lambda m, x: functional(m).max_pool2d(x, 2))


def lookups_and_attention() -> Iterator[Row]:
    for words, width, count in ((65, 128, 768), (1000, 256, 700), (10_000, 100, 3072)):
        rows = forward_and_both(f"embedding {words}x{width}, {count} words", 1.0,
                                lambda m, w=words, d=width, c=count: [m.randn(w, d), m.arange(c) * 7919 % w],
                                lambda m, weight, index: functional(m).embedding(index, weight))
        next(rows)  # looking up is a copy; the backward pass is the work
        yield from rows
    for shape in ((12, 4, 64, 32), (2, 8, 256, 64)):
        yield from forward_and_both(
            f"attention {'x'.join(map(str, shape))}, causal", None, lambda m, s=shape: [m.randn(*s) for _ in "qkv"],
            lambda m, q, k, v: functional(m).scaled_dot_product_attention(q, k, v, is_causal=True))


def adam() -> Iterator[Row]:
    for count, shape in ((100, (32, 32)), (100, (256, 256)), (6, (64, 64))):
        def make(mod: Any, count: int = count, shape: tuple[int, ...] = shape) -> Callable[[], Any]:
            params = [mod.nn.Parameter(mod.ones(shape)) for _ in range(count)]
            for p in params:
                p.grad = mod.full_like(p, 0.01)
            return mod.optim.Adam(params, lr=1e-3).step
        yield f"Adam, {count} tensors of {shape[0]}x{shape[1]}", 1.0, make


def plain() -> Iterator[Row]:
    """Operations on a million elements, matrix products and draws."""
    million = 1_000_000
    one = {"relu": lambda m, x: m.relu(x), "clamp": lambda m, x: x.clamp(-0.5, 0.5), "sigmoid": lambda m, x: m.sigmoid(x),
           "tanh": lambda m, x: m.tanh(x), "exp": lambda m, x: m.exp(x), "sum": lambda m, x: x.sum(),
           "sum over rows": lambda m, x: x.view(1000, 1000).sum(0), "cumsum": lambda m, x: x.view(1000, 1000).cumsum(1),
           "dropout": lambda m, x: functional(m).dropout(x, 0.5)}
    two = {"add": lambda m, x, y: x + y, "mul": lambda m, x, y: x * y, "where": lambda m, x, y: m.where(x > y, x, y)}
    for name, call in one.items():
        yield from forward_and_both(f"{name} 1 M", None, lambda m: [m.randn(million)], call)
    for name, call in two.items():
        yield from forward_and_both(f"{name} 1 M", None, lambda m: [m.randn(million), m.randn(million)], call)
    for n in (128, 256, 512):
        yield from forward_and_both(f"matmul {n}x{n}", None, lambda m, n=n: [m.randn(n, n), m.randn(n, n)],
                                    lambda m, a, b: a @ b)
    for name, draw in {"randn(100)": lambda m: m.randn(100), "randn(1M)": lambda m: m.randn(million),
                       "randperm(1M)": lambda m: m.randperm(million)}.items():
        yield name, None, lambda m, draw=draw: lambda: draw(m)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("words", nargs="*", help="only rows whose name contains one of these")
    parser.add_argument("--rounds", type=int, default=40)
    parser.add_argument("--threads", type=int, help="cores to use (all)")
    options = parser.parse_args()
    if options.threads:
        pinned(options.threads)
    report = Report()
    for group in (normalizing, activations_and_losses, convolution, lookups_and_attention, adam, plain):
        for what, limit, make in group():
            if options.words and not any(word in what for word in options.words):
                continue
            best = interleave({"flambeau": make(flambeau), "torch": make(torch)}, rounds=options.rounds, min_time=0.001)
            report.row(what, best["flambeau"], best["torch"], limit)
    ratios = [ours / peer for _, ours, peer, _ in report.rows]
    missed = sum(limit is not None and ours / peer > limit for _, ours, peer, limit in report.rows)
    if ratios:
        print(f"\ngeometric mean {math.exp(sum(map(math.log, ratios)) / len(ratios)):.2f} of {len(ratios)} rows; "
              f"{missed} above their limit")


if __name__ == "__main__":
    main()
