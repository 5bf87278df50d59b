"""Compares the strides of flambeau's results with PyTorch's, over PyTorch's own samples (OpInfo) in several layouts.

    PYTHONPATH=. python tools/layout_sweep.py                 # what differs, by operation, and a summary
    PYTHONPATH=. python tools/layout_sweep.py sum softmax     # only operations with one of these in their names
    PYTHONPATH=. python tools/layout_sweep.py --way backward  # gradients of the inputs instead of results
    PYTHONPATH=. python tools/layout_sweep.py --way meta      # flambeau's meta device against flambeau on the CPU
    PYTHONPATH=. python tools/layout_sweep.py --way compiled  # flambeau.compile against flambeau

Each sample is called with its tensors laid out in another way: dimensions in reverse order, the first two or the last two
swapped, channels last, repeated along the first dimension, every other element of a larger tensor; all tensors, or only the
first. What PyTorch refuses and what flambeau does not do with contiguous tensors either does not count. Strides of dimensions
of length one count only with --strict.
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

warnings.filterwarnings("ignore")
_RANDOM = ("empty", "pca_lowrank", "svd_lowrank", "resize", "fractional")


# ------------------------------------------------------------------------------------------------------------- layouts
def ordered(x: torch.Tensor, order: list[int]) -> torch.Tensor:
    """x with memory in an order of dimensions, slowest first."""
    return x.permute(order).contiguous().permute([order.index(d) for d in range(x.ndim)])


def swapped(x: torch.Tensor, a: int, b: int) -> torch.Tensor:
    order = list(range(x.ndim))
    order[a], order[b] = order[b], order[a]
    return ordered(x, order)


def sliced(x: torch.Tensor) -> torch.Tensor:
    larger = x.new_zeros((*x.shape[:-1], 2 * x.shape[-1]))[..., ::2]
    return larger.copy_(x)


LAYOUTS = {"contiguous": (0, lambda x: x),
           "reversed": (2, lambda x: ordered(x, list(range(x.ndim))[::-1])),
           "first swapped": (3, lambda x: swapped(x, 0, 1)),
           "last swapped": (3, lambda x: swapped(x, -1, -2)),
           "channels last": (3, lambda x: ordered(x, [0, *range(2, x.ndim), 1])),
           "expanded": (1, lambda x: x[:1].clone().expand(x.shape)),
           "sliced": (1, sliced)}


def laid_out(x: object, layout: str) -> object:
    least, way = LAYOUTS[layout]
    if not isinstance(x, torch.Tensor) or x.layout is not torch.strided:
        return x
    x = x.detach().resolve_conj().resolve_neg().clone()
    return x if x.ndim < least or not x.numel() else way(x)


# ------------------------------------------------------------------------------------------------------- both libraries
def function_of(name: str) -> object:
    """flambeau's function of an OpInfo's name: a function or a method."""
    try:
        return functools.reduce(getattr, name.split("."), flambeau)
    except (AttributeError, NotImplementedError):
        return getattr(flambeau.Tensor, name, None)


def ours(value: object, device: str = "cpu") -> object:
    """The same values in the same layout."""
    if isinstance(value, torch.Tensor):
        reach = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride())) if value.numel() else 0
        flat = flambeau.from_numpy(value.as_strided((reach,), (1,)).numpy().copy())
        return (flat if device == "cpu" else flambeau.empty(flat.shape, dtype=flat.dtype, device=device)).as_strided(
            tuple(value.shape), value.stride())
    if isinstance(value, (torch.dtype, torch.memory_format)):
        return getattr(flambeau, str(value).removeprefix("torch."))
    return flambeau.device(device) if isinstance(value, torch.device) else value


def results_of(library: object, function: object, leaves: list, spec: object, backward: bool) -> list:
    """The tensors that a call gives, or the gradients of its floating tensors."""
    library.manual_seed(0)
    given = [v for v in leaves if isinstance(v, library.Tensor) and v.dtype.is_floating_point] if backward else []
    for leaf in given:
        leaf.requires_grad_(True)
        leaf.grad = None
    args, kwargs = pytree.tree_unflatten(leaves, spec)
    results = function(*args, **kwargs)
    made = [r for r in pytree.tree_leaves(list(results) if isinstance(results, tuple) else results)
            if isinstance(r, library.Tensor)]
    if not backward:
        return made
    sum([(r * r).sum() for r in made if r.requires_grad]).backward()
    return [leaf.grad for leaf in given if leaf.grad is not None]


def geometry(tensors: list, strict: bool) -> list:
    return [(tuple(t.shape), tuple([s for n, s in zip(t.shape, t.stride()) if strict or (n > 1 and t.numel())]))
            if t.layout in (torch.strided, flambeau.strided) else None for t in tensors]


def pair(op: object, function: object, leaves: list, spec: object, options: object) -> tuple[list, list] | None:
    """What is to agree; None where there is nothing to compare."""
    back = options.way == "backward"
    mine = [ours(v) for v in leaves]
    if options.way in ("forward", "backward"):
        try:
            wanted = results_of(torch, op.op, leaves, spec, back)
        except Exception:
            return None
        return wanted, results_of(flambeau, function, mine, spec, back)
    try:
        wanted = results_of(flambeau, function, mine, spec, back)
        if options.way == "meta":
            return wanted, results_of(flambeau, function, [ours(v, "meta") for v in leaves], spec, back)
    except Exception:
        return None
    compiled = flambeau.compile(lambda tensors: function(*(call := pytree.tree_unflatten(
        [tensors.get(i, v) for i, v in enumerate(mine)], spec))[0], **call[1]))
    tensors = {i: v for i, v in enumerate(mine) if isinstance(v, flambeau.Tensor)}
    made = None
    for _ in range(3):
        made = compiled(tensors)
    return wanted, [r for r in pytree.tree_leaves(list(made) if isinstance(made, tuple) else made)
                    if isinstance(r, flambeau.Tensor)]


def check(op: object, options: object) -> collections.Counter:
    """How often what went wrong, by message; "checked" counts calls."""
    function, wrong = function_of(op.name), collections.Counter()
    testing = getattr(op.op, "__module__", "") or ""
    if function is None or testing.startswith("torch.testing") or not op.supports_dtype(torch.float32, "cpu"):
        return wrong
    if options.way == "backward" and not op.supports_autograd:
        return wrong
    for k, sample in enumerate(op.sample_inputs("cpu", torch.float32)):
        if k >= options.samples:
            break
        leaves, spec = pytree.tree_flatten(((sample.input, *sample.args), sample.kwargs))
        tensors = [i for i, v in enumerate(leaves) if isinstance(v, torch.Tensor)]
        try:
            results_of(flambeau, function, [ours(v) for v in leaves], spec, options.way == "backward")
        except Exception:
            continue
        for layout in LAYOUTS:
            if all(leaves[i].ndim < LAYOUTS[layout][0] for i in tensors):
                continue
            for which in (["all", "first"] if len(tensors) > 1 and layout != "contiguous" else ["all"]):
                given = [laid_out(v, layout if which == "all" or i == tensors[0] else "contiguous")
                         for i, v in enumerate(leaves)]
                wrong.update(difference(op, function, given, spec, options, f"{layout}, {which}"))
    return wrong


def difference(op: object, function: object, given: list, spec: object, options: object, name: str) -> dict[str, int]:
    try:
        found = pair(op, function, given, spec, options)
        if found is None:
            return {}
        wanted, made = geometry(found[0], options.strict), geometry(found[1], options.strict)
    except Exception as error:
        return {"checked": 1, f"[{name}] {type(error).__name__}: {str(error)[:150]}": 1}
    if wanted == made:
        return {"checked": 1}
    at = next((i for i, (a, b) in enumerate(zip(wanted, made)) if a != b), None)
    if at is None:
        return {"checked": 1, f"[{name}] {len(made)} results instead of {len(wanted)}": 1}
    inputs = "; ".join(f"{tuple(v.shape)} {v.stride()}" for v in given if isinstance(v, torch.Tensor))
    right, ours_ = found[0][at], found[1][at]
    return {"checked": 1, f"[{name}] result {at} {tuple(right.shape)}: {ours_.stride()}, not {right.stride()}, of {inputs}": 1}


def late(*_: object) -> None:
    raise TimeoutError


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--samples", type=int, default=5)
    parser.add_argument("--show", type=int, default=2, help="how many differences of each operation to print")
    parser.add_argument("--strict", action="store_true")
    parser.add_argument("--way", choices=("forward", "backward", "meta", "compiled"), default="forward")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, late)
    failed = checked = ops = bad = 0
    for op in op_db:
        if any(word in op.name for word in _RANDOM) or (options.names and not any(n in op.name for n in options.names)):
            continue
        signal.alarm(60)
        try:
            wrong = check(op, options)
        except TimeoutError:
            wrong = collections.Counter({"checked": 1, "took too long": 1})
        finally:
            signal.alarm(0)
        count = wrong.pop("checked", 0)
        ops, checked, failed, bad = ops + bool(count), checked + count, failed + sum(wrong.values()), bad + bool(wrong)
        if wrong:
            variant = f" ({op.variant_test_name})" if op.variant_test_name else ""
            print(f"{op.name}{variant}: {sum(wrong.values())} of {count}")
            for message, times in wrong.most_common(options.show):
                print(f"    {times} x {message}")
            sys.stdout.flush()
    print(f"{options.way}: {ops} operations, {checked} calls; {failed} differ, of {bad} operations")


if __name__ == "__main__":
    main()
