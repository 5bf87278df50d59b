"""How fast could a training step be? Its matrix products alone in BLAS, plus the bytes it cannot avoid moving.

    python benchmarks/steps.py --json steps.json && python benchmarks/floors.py steps.json
    python benchmarks/floors.py                          # the floors alone
    python benchmarks/floors.py --workloads gpt resnet8
    python benchmarks/floors.py --threads 1              # on one core, in its own processor time: right on a busy machine too

Products: every matrix product of forward and backward at its own shape (a convolution as the product it comes down to), each
timed alone in the quicker of NumPy's and PyTorch's BLAS. Bytes: parameters, gradients and optimizer state read and written
once, activations that the backward pass needs written once and read once (PyTorch's saved tensors), over the bandwidth
measured on a buffer of the same size, so that what fits in the cache is charged at the cache's speed.
"""

from __future__ import annotations

import argparse
import itertools
import json
import time
from collections import Counter
from collections.abc import Callable, Iterable
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onednn  # noqa: F401  (before torch)
import torch
from harness import REST, duration
from steps import LABELS, pinned
from workloads import WORKLOADS, Training, made

Product = tuple[int, int, int, int]  # how many at once, rows, columns, inner size
Products = Iterable[tuple[Product, float]]  # with how often each is done


def linear(rows: int, inputs: int, outputs: int, first: bool = False) -> Products:
    """Forward, gradient of the weight, and (unless the input is data) gradient of the input."""
    yield (1, rows, outputs, inputs), 1
    yield (1, outputs, inputs, rows), 1
    if not first:
        yield (1, rows, inputs, outputs), 1


def conv(batch: int, inputs: int, outputs: int, kernel: int, size: int, first: bool = False) -> Products:
    """As one product over the columns of all images; `size` is that of the result."""
    return linear(batch * size * size, inputs * kernel * kernel, outputs, first)


def attention(batch: int, length: int, width: int) -> Products:
    """Two products forward and four backward; half of each, as a causal one needs no more."""
    yield (batch, length, length, width), 1.0  # scores and the gradient of the weights
    yield (batch, length, width, length), 2.0  # values, and the gradients of values, queries and keys


def lstm(batch: int, length: int, inputs: int, width: int) -> Products:
    """Products with the input over all time at once, with the state step by step; weight gradients over all time."""
    yield from linear(batch * length, inputs, 4 * width)
    yield (1, batch, 4 * width, width), length
    yield (1, batch, width, 4 * width), length
    yield (1, 4 * width, width, batch * length), 1


def chain(rows: int, *widths: int) -> Products:
    for number, (a, b) in enumerate(itertools.pairwise(widths)):
        yield from linear(rows, a, b, first=number == 0)


def resnet8() -> Products:
    yield from conv(32, 3, 16, 3, 32, first=True)
    for inputs, outputs, size in ((16, 16, 32), (16, 32, 16), (32, 64, 8)):
        yield from conv(32, inputs, outputs, 3, size)
        yield from conv(32, outputs, outputs, 3, size)
        if inputs != outputs:
            yield from conv(32, inputs, outputs, 1, size)
    yield from linear(32, 64, 10)


def gpt() -> Products:
    rows, width = 12 * 64, 128
    for _ in range(4):
        for outputs in (3 * width, width, 4 * width):
            yield from linear(rows, width, outputs)
        yield from linear(rows, 4 * width, width)
        yield from attention(12 * 4, 64, width // 4)
    yield from linear(rows, width, 65)


PRODUCTS: dict[str, Products] = {
    "tiny_mlp": [*chain(16, 8, 32, 32, 1)],
    "two_layer": [*chain(64, 1000, 100, 10)],
    "mnist_mlp": [*chain(128, 784, 512, 256, 10)],
    "mnist_cnn": [*conv(64, 1, 32, 3, 26, first=True), *conv(64, 32, 64, 3, 24), *linear(64, 9216, 128), *linear(64, 128, 10)],
    "resnet8": [*resnet8()],
    "gpt": [*gpt()],
    "lstm_lm": [*lstm(20, 35, 256, 256), *lstm(20, 35, 256, 256), *linear(700, 256, 1000)],
    "word2vec": [((512, 5, 1, 100), 1), ((512, 5, 100, 1), 1), ((512, 100, 1, 5), 1)],
    "vae": [*chain(128, 784, 400, 20), *linear(128, 400, 20), *linear(128, 20, 400), *linear(128, 400, 784)],
}


def fastest(contenders: list[Callable[[], Any]], seconds: float) -> float:
    """Seconds per call of the quickest. A floor is what the machine can do at its best moment, so runs are as short as the
    clock allows: the minimum finds the gaps between what else goes on."""
    best = float("inf")
    for call in contenders * 3:  # in turns: the others' load comes and goes
        time.sleep(REST)
        call()
        best = min(best, shortest(call, seconds / 3))
    return best


def shortest(call: Callable[[], Any], seconds: float) -> float:
    clock = time.perf_counter if torch.get_num_threads() > 1 else time.thread_time  # one thread: only its own time counts
    end = time.perf_counter() + seconds
    start = clock()
    call()
    repeats = max(1, int(2e-5 / max(clock() - start, 1e-7)))
    best = float("inf")
    while time.perf_counter() < end or best == float("inf"):
        start = clock()
        for _ in range(repeats):
            call()
        best = min(best, (clock() - start) / repeats)
    return best


@cache
def product_seconds(product: Product, seconds: float) -> float:
    count, rows, columns, inner = product
    shapes = [(count, rows, inner), (count, inner, columns), (count, rows, columns)]
    a, b, out = (np.ones(s if count > 1 else s[1:], np.float32) for s in shapes)
    x, y, z = (torch.from_numpy(array) for array in (a, b, out))
    multiply = torch.bmm if count > 1 else torch.mm
    with torch.no_grad():
        return fastest([lambda: np.matmul(a, b, out=out), lambda: multiply(x, y, out=z)], seconds)


@cache
def bandwidth(size: int, seconds: float) -> float:
    """Bytes per second, read and written, when adding to a buffer of `size` bytes in place (half is read, half is written)."""
    x = torch.zeros(max(size // 4, 256))
    values = x.numpy()
    return 2 * x.nbytes / fastest([lambda: np.add(values, 1, out=values), lambda: x.add_(1)], seconds)


def saved_bytes(training: Training) -> int:
    """Bytes of the distinct storages that PyTorch keeps for the backward pass, parameters and the batch aside."""
    known = {t.untyped_storage().data_ptr() for t in (*training.model.parameters(), *training.inputs)}
    kept = {}

    def note(tensor: Any) -> Any:
        if tensor.layout == torch.strided and tensor.untyped_storage().data_ptr() not in known:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(note, lambda tensor: tensor):
        result = training.loss_of(*training.inputs)
    del result
    return sum(kept.values())


def moved_bytes(training: Training) -> tuple[int, int]:
    """What one step reads and writes of parameters, gradients and optimizer state; and of activations."""
    activations = 2 * saved_bytes(training)
    training.loop()()
    total = 0
    for p in training.model.parameters():
        states = sum(value.shape == p.shape for value in training.optimizer.state[p].values() if torch.is_tensor(value))
        touched = p.grad.coalesce().values().nbytes if p.grad.is_sparse else p.nbytes
        total += 2 * (2 + states) * touched
    return total, activations


def floor(name: str, seconds: float) -> dict[str, float]:
    times: Counter[Product] = Counter()
    for product, often in PRODUCTS[name]:
        times[product] += often
    products = sum(often * product_seconds(product, seconds) for product, often in times.items())
    weights, activations = moved_bytes(made(name, torch))
    rate = bandwidth((weights + activations) // 2, seconds)
    return {"flop": sum(2 * often * np.prod(product) for product, often in times.items()), "bytes": weights + activations,
            "products": products, "moving": (weights + activations) / rate, "floor": products + (weights + activations) / rate}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("steps", nargs="?", type=Path, help="what steps.py --json wrote")
    parser.add_argument("--workloads", nargs="+", choices=list(WORKLOADS), default=list(WORKLOADS), metavar="NAME",
                        help=", ".join(WORKLOADS))
    parser.add_argument("--seconds", type=float, default=0.2, help="how long to try each product with each BLAS (0.2)")
    parser.add_argument("--threads", type=int, help="cores to use (all)")
    options = parser.parse_args()
    if options.threads:
        pinned(options.threads)
    measured = json.loads(options.steps.read_text())["seconds"] if options.steps else {}
    contenders = [c for c in LABELS if any(c in result for result in measured.values())]
    print(f"| training step | Mflop | MB moved | products | moving | floor |{''.join(f' {LABELS[c]} |' for c in contenders)}")
    print("| --- " * (6 + len(contenders)) + "|", flush=True)
    for name in options.workloads:
        f = floor(name, options.seconds)
        cells = [f"{measured[name][c] / f['floor']:.2f}" if c in measured.get(name, {}) else "-" for c in contenders]
        print(f"| {WORKLOADS[name][0]} | {f['flop'] / 1e6:.1f} | {f['bytes'] / 1e6:.2f} | {duration(f['products'])} | "
              f"{duration(f['moving'])} | {duration(f['floor'])} |{''.join(f' {c} |' for c in cells)}", flush=True)
    if contenders:
        print("\nThe last columns: the measured step / the floor.")


if __name__ == "__main__":
    main()
