"""Compares flambeau.vmap with torch.vmap over PyTorch's own samples (OpInfo) of every operation.

    PYTHONPATH=. python tools/vmap_ops.py                # a summary, the failures, and what went example by example
    PYTHONPATH=. python tools/vmap_ops.py conv matmul    # only operations with one of these in their names

Each sample is called with all tensors batched, with only the first, and with all but the first. What PyTorch refuses, what
flambeau does not have outside of vmap either, and where flambeau gives what it gives example by example does not count.
"""

from __future__ import annotations

import argparse
import collections
import functools
import signal
import sys
import warnings

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import flambeau
from flambeau.backends.batched import table

warnings.filterwarnings("ignore")
_RANDOM = ("dropout", "rand", "normal", "bernoulli", "multinomial", "uniform", "cauchy", "exponential", "geometric", "poisson",
           "rrelu", "fractional", "empty", "pca_lowrank", "svd_lowrank", "gumbel")
_PATTERNS = {"all": lambda k: True, "first": lambda k: k == 0, "others": lambda k: k > 0}


def function_of(name: str) -> object:
    """flambeau's function of an OpInfo's name: a function or a method."""
    try:
        return functools.reduce(getattr, name.split("."), flambeau)
    except (AttributeError, NotImplementedError):
        return getattr(flambeau.Tensor, name, None)


def ours(value: object) -> object:
    if isinstance(value, torch.Tensor):
        return flambeau.from_numpy(value.detach().resolve_conj().resolve_neg().numpy().copy())
    if isinstance(value, torch.dtype):
        return getattr(flambeau, str(value).removeprefix("torch."))
    return value


def batched(value: torch.Tensor) -> torch.Tensor:
    """Two examples: the sample, and another that lies in the same domain."""
    other = value * 1.25 if value.dtype.is_floating_point else value
    return torch.stack([value.detach(), other.detach()])


def call(library: object, function: object, leaves: list, spec: object, which: list[int], way: str) -> object:
    def one(*examples: object) -> object:
        filled = list(leaves)
        for k, example in zip(which, examples):
            filled[k] = example
        args, kwargs = pytree.tree_unflatten(filled, spec)
        return function(*args, **kwargs)

    def total(*examples: object) -> object:
        results = one(*examples)
        made = [r for r in pytree.tree_leaves(list(results) if isinstance(results, tuple) else results)
                if isinstance(r, library.Tensor) and r.dtype.is_floating_point]
        return sum([(r if "plain" in way else r * r).sum() for r in made])

    examples = [leaves[k] for k in which]
    real = tuple(i for i, e in enumerate(examples) if e.dtype.is_floating_point)
    if way.startswith("inside"):
        return library.vmap(library.func.grad(total, real))(*examples)
    if way == "through":
        return library.func.grad(lambda *given: library.vmap(total)(*given).sum(), real)(*examples)
    if way == "nested" and 0 in real:
        scales = library.ones(2) + library.arange(2) / 4
        return library.vmap(lambda *outer: library.vmap(lambda s: one(outer[0] * s, *outer[1:]))(scales))(*examples)
    if way == "loop":
        return stacked([one(*[e[i] for e in examples]) for i in range(2)])
    if way.startswith("loop of"):
        return stacked([library.func.grad(total, real)(*[e[i] for e in examples]) for i in range(2)])
    return library.vmap(one)(*examples)


def stacked(results: list) -> list:
    flat = [pytree.tree_leaves(list(r) if isinstance(r, tuple) else r) for r in results]
    return [flambeau.stack(pair) for pair in zip(*flat) if isinstance(pair[0], flambeau.Tensor)]


def numbers(result: object) -> list:
    flat = pytree.tree_leaves(result if not isinstance(result, (list, tuple)) else list(result))
    return [r.detach().cpu().resolve_conj().resolve_neg().numpy() if isinstance(r, torch.Tensor) else r.detach().numpy()
            for r in flat if isinstance(r, (torch.Tensor, flambeau.Tensor))]


def same(a: object, b: object) -> str | None:
    import numpy as np
    a, b = numbers(a), numbers(b)
    if len(a) != len(b):
        return f"{len(b)} results instead of {len(a)}"
    for x, y in zip(a, b):
        if x.shape != y.shape:
            return f"shape {y.shape} instead of {x.shape}"
        if not np.allclose(x, y, rtol=1e-3, atol=1e-4, equal_nan=True):
            return f"values differ by {np.nanmax(np.abs(x.astype(complex) - y.astype(complex)))}"
    return None


def check(op: object, samples: int, way: str) -> tuple[collections.Counter, set[str]]:
    """What went wrong, by message."""
    function, wrong = function_of(op.name), collections.Counter()
    if getattr(op.op, "__name__", "") == "<lambda>" or op.variant_test_name == "grad_oriented":  # not the function of that name
        return collections.Counter(skipped=1), set()
    if function is None or not op.supports_dtype(torch.float32, "cpu"):
        return collections.Counter(skipped=1), set()
    table.looped.clear()
    if way != "forward" and not op.supports_autograd:
        return collections.Counter(skipped=1), set()
    for k, sample in enumerate(op.sample_inputs("cpu", torch.float32)):
        if k >= samples:
            break
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [i for i, v in enumerate(leaves) if isinstance(v, torch.Tensor)]
        try:
            args, kwargs = pytree.tree_unflatten([ours(v) for v in leaves], spec)
            function(*args, **kwargs)
        except Exception:
            continue
        for name, take in _PATTERNS.items():
            which = [i for n, i in enumerate(tensors) if take(n)]
            if not which or (name != "all" and len(tensors) < 2):
                continue
            given = [batched(v) if i in which else v for i, v in enumerate(leaves)]
            try:
                wanted = call(torch, op.op, given, spec, which, way)
            except Exception:
                continue
            wrong["checked"] += 1
            mine = [ours(v) for v in given]
            try:
                made = call(flambeau, function, mine, spec, which, way)
                problem = same(wanted, made)
                if problem and not same(call(flambeau, function, mine, spec, which,
                                             "loop" if way in ("forward", "nested") else f"loop of {way}"), made):
                    wrong["differs"] += 1
                    problem = None
            except Exception as error:
                problem = f"{type(error).__name__}: {str(error)[:150]}"
            if problem:
                wrong[f"[{name}] {problem}"] += 1
    return wrong, set(table.looped)


def late(*_: object) -> None:
    raise TimeoutError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=8)
    parser.add_argument("--way", choices=("forward", "nested", "inside", "inside, plain", "through"), default="forward",
                        help="results; with two calls of vmap; gradients inside of vmap (of a sum of squares, or of a plain "
                             "sum, which sends the same gradient to all examples); gradients of what vmap made")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, late)
    failed = checked = ops = others = 0
    loops = collections.defaultdict(list)
    for op in op_db:
        if any(word in op.name for word in _RANDOM) or (options.names and not any(n in op.name for n in options.names)):
            continue
        signal.alarm(60)
        try:
            wrong, looped = check(op, options.samples, options.way)
        except TimeoutError:
            wrong, looped = collections.Counter({"checked": 1, "took too long": 1}), set()
        finally:
            signal.alarm(0)
        if wrong.pop("skipped", 0):
            continue
        count = wrong.pop("checked", 0)
        others += wrong.pop("differs", 0)
        ops, checked, failed = ops + bool(count), checked + count, failed + sum(wrong.values())
        for name in looped:
            loops[name].append(op.name)
        if wrong:
            variant = f" ({op.variant_test_name})" if op.variant_test_name else ""
            print(f"{op.name}{variant}: {sum(wrong.values())} of {count}")
            for message, times in wrong.most_common(2):
                print(f"    {times} x {message}")
            sys.stdout.flush()
    print(f"{ops} operations, {checked} calls, {failed} failures; {others} times PyTorch gives something else than flambeau "
          "does with and without vmap")
    print("example by example:", "; ".join(f"{k} ({', '.join(sorted(set(v))[:4])})" for k, v in sorted(loops.items())))


if __name__ == "__main__":
    main()
