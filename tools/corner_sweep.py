"""Calls every operation that PyTorch has samples for (OpInfo) at its corners, and compares what flambeau does with PyTorch.

    PYTHONPATH=. python tools/corner_sweep.py                   # what differs, by operation, and a summary
    PYTHONPATH=. python tools/corner_sweep.py cumsum sort       # only operations with one of these in their names
    PYTHONPATH=. python tools/corner_sweep.py --corner empty    # one kind of corner: dtypes, empty, zero_dim or wrong
    PYTHONPATH=. python tools/corner_sweep.py --table           # the summary alone, as it stands in docs/coverage.md

Each sample is called with its tensors of every dtype; with dimensions of length zero; with tensors of no dimensions; and
with arguments that are wrong: one missing, one too many, None, a string or a number in a tensor's place, a dimension out of
range. Where PyTorch answers, flambeau must give the same dtypes, shapes and values; where PyTorch raises, an error of the
same class, or a more special one. Results of random operations count by dtype and shape.
"""

from __future__ import annotations

import argparse
import collections
import os
import signal
import warnings

os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")  # where AMX shows but is not granted, PyTorch dies

import torch
from torch.testing._internal.common_methods_invocations import op_db
from torch.utils import _pytree as pytree

import flambeau

warnings.filterwarnings("ignore")
DTYPES = "uint8 int8 int16 int32 int64 float16 bfloat16 float32 float64 complex64 complex128 bool".split()
RANDOM = ("rand", "normal", "bernoulli", "dropout", "multinomial", "uniform", "exponential", "geometric", "cauchy", "empty",
          "fractional_max_pool", "svd_lowrank", "pca_lowrank", "alpha_dropout", "rrelu", "resize")
GAUGE = ("svd", "eig", "qr", "geqrf", "ormqr", "lu", "ldl", "lstsq")  # results that are not unique
SECONDS = 20


def ours(value):
    """A value of PyTorch's as flambeau's."""
    def convert(v):
        if isinstance(v, torch.Tensor):
            made = flambeau.from_numpy(v.detach().cpu().contiguous().view(torch.uint8 if v.dtype is torch.bool else (
                torch.int16 if v.dtype is torch.bfloat16 else v.dtype)).numpy().copy()) if v.numel() else None
            kind = dtype(v.dtype)
            if made is None:
                return flambeau.empty(tuple(v.shape), dtype=kind)
            return made.view(kind) if v.dtype in (torch.bfloat16, torch.bool) else made
        if isinstance(v, torch.dtype):
            return dtype(v)
        if isinstance(v, (torch.device, torch.memory_format, torch.layout)):
            return getattr(flambeau, str(v).rpartition(".")[2], flambeau.device(str(v)) if isinstance(v, torch.device) else v)
        return v

    return pytree.tree_map(convert, value)


def dtype(d):
    return getattr(flambeau, str(d).rpartition(".")[2])


def found(name):
    if isinstance(getattr(flambeau, name, None), flambeau.dtype):  # a conversion, x.float()
        return getattr(flambeau.Tensor, name)
    here = flambeau
    for part in name.split("."):
        here = getattr(here, part)
    return here


def outcome(function, args, kwargs):
    try:
        return function(*args, **kwargs)
    except Exception as error:
        return error


def facts(value):
    leaves = pytree.tree_leaves(tuple(value) if isinstance(value, tuple) else value)
    return [(str(v.dtype).rpartition(".")[2], tuple(v.shape)) if hasattr(v, "dtype") and hasattr(v, "shape") else
            type(v).__name__ for v in leaves]


def numbers(value):
    made = []
    for v in pytree.tree_leaves(tuple(value) if isinstance(value, tuple) else value):
        if isinstance(v, (torch.Tensor, flambeau.Tensor)):
            t = torch if isinstance(v, torch.Tensor) else flambeau
            v = v.detach()
            made.append(torch.tensor(v.to(t.complex128 if v.is_complex() else t.float64).tolist()))
    return made


def close(a, b, kind):
    eps = 2e-2 if kind in ("float16", "bfloat16") else 1e-4
    return all(x.shape == y.shape and torch.allclose(x, y, rtol=eps, atol=eps, equal_nan=True)
               for x, y in zip(numbers(a), numbers(b)))


def verdict(name, expected, got, kind):
    """None where the two agree, else in which way they differ."""
    if isinstance(expected, Exception):
        if not isinstance(got, Exception):
            return "not refused"
        names = {c.__name__ for c in type(got).__mro__}
        wanted = type(expected).__name__
        # (where PyTorch's own Python stumbles over an argument of the wrong type, a TypeError is better)
        if wanted in names or (wanted == "AttributeError" and isinstance(got, TypeError)):
            return None
        return f"{type(got).__name__} for {wanted}"
    if isinstance(got, Exception):
        return f"refused: {type(got).__name__}: {str(got).splitlines()[0][:90] if str(got) else ''}"
    if facts(expected) != facts(got):
        return f"{facts(got)} for {facts(expected)}"[:120]
    if any(r in name for r in (*RANDOM, *GAUGE)) or close(expected, got, kind):
        return None
    return "values"


# ------------------------------------------------------------------------------------------------------- the corners
def with_tensors(sample, change):
    return pytree.tree_map(lambda v: change(v) if isinstance(v, torch.Tensor) else v,
                           ((sample.input, *sample.args), dict(sample.kwargs)))


def dtypes(sample):
    for name in DTYPES:
        kind = getattr(torch, name)
        yield name, with_tensors(sample, lambda v, kind=kind: v.detach().to(kind) if v.dtype is torch.float32 else v)


def empty(sample):
    for where in range(3):
        yield f"no elements in dim {where}", with_tensors(
            sample, lambda v, where=where: v.detach().narrow(where, 0, 0) if v.ndim > where else v)


def zero_dim(sample):
    yield "zero-dim, all", with_tensors(sample, lambda v: v.detach().reshape(-1)[0] if v.numel() else v)
    args, kwargs = with_tensors(sample, lambda v: v.detach())
    if isinstance(args[0], torch.Tensor) and args[0].numel():
        yield "zero-dim, first", ((args[0].reshape(-1)[0], *args[1:]), kwargs)


def wrong(sample):
    args, kwargs = with_tensors(sample, lambda v: v.detach())
    yield "no arguments", ((), {})
    yield "an unknown keyword", (args, {**kwargs, "not_an_argument": 1})
    yield "too many", ((*args, *[None] * 12), kwargs)
    for i, a in enumerate(args):
        for what, value in (("None", None), ("a string", "text"), ("a list of strings", ["text"]), ("an object", object())):
            yield f"{what} for argument {i}", ((*args[:i], value, *args[i + 1:]), kwargs)
        if isinstance(a, int) and not isinstance(a, bool):
            for value in (1000, -1000):
                yield f"{value} for argument {i}", ((*args[:i], value, *args[i + 1:]), kwargs)
    for key, a in kwargs.items():
        if isinstance(a, int) and not isinstance(a, bool):
            for value in (1000, -1000):
                yield f"{key}={value}", (args, {**kwargs, key: value})


CORNERS = {"dtypes": dtypes, "empty": empty, "zero_dim": zero_dim, "wrong": wrong}


def samples(info, count):
    kind = torch.float32 if torch.float32 in info.dtypes else torch.int64
    try:
        made = info.sample_inputs("cpu", kind, requires_grad=False)
        return [s for _, s in zip(range(count), made) if all(
            v.layout is torch.strided for v in pytree.tree_leaves((s.input, s.args, s.kwargs)) if isinstance(v, torch.Tensor))]
    except Exception:
        return []


def sweep(wanted, corners, count, told):
    tally = collections.defaultdict(collections.Counter)
    for info in op_db:
        name = info.name
        if info.variant_test_name or name.startswith(("_", "torch.ops", "ops.")) or (
                wanted and not any(w in name for w in wanted)):
            continue
        try:
            function = found(name)
        except AttributeError:
            continue
        for corner in corners:
            seen = set()
            for sample in samples(info, count):
                for case, (args, kwargs) in CORNERS[corner](sample):
                    result = one(name, info.op, function, args, kwargs, case)
                    if result == "skipped":
                        continue
                    tally[corner]["calls"] += 1
                    if result is None:
                        tally[corner]["agree"] += 1
                    else:
                        kind = result.split(":")[0] if result.startswith(("refused", "not refused")) else (
                            "class of error" if " for " in result and "[" not in result else
                            "values" if result == "values" else "dtype or shape")
                        tally[corner][kind] += 1
                        if told and (case, result) not in seen:
                            seen.add((case, result))
                            print(f"{name:40} {corner:9} {case:32} {result}", flush=True)
    return tally


def one(name, theirs, function, args, kwargs, case):
    given = outcome(ours, ((args, kwargs),), {})
    if isinstance(given, Exception):
        return "skipped"
    signal.alarm(SECONDS)
    try:
        torch.manual_seed(0)
        expected = outcome(theirs, args, kwargs)
        flambeau.manual_seed(0)
        got = outcome(function, *given)
        return verdict(name, expected, got, case)
    except TimeoutError:
        return "refused: it takes too long"
    finally:
        signal.alarm(0)


def stop(*_):
    raise TimeoutError


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("names", nargs="*")
    parser.add_argument("--corner", choices=CORNERS, action="append")
    parser.add_argument("--samples", type=int, default=2, help="of each operation")
    parser.add_argument("--table", action="store_true")
    options = parser.parse_args()
    signal.signal(signal.SIGALRM, stop)
    tally = sweep(options.names, options.corner or CORNERS, options.samples, not options.table)
    kinds = ["refused", "not refused", "class of error", "dtype or shape", "values"]
    print(f"| corner | calls | agree | {' | '.join(kinds)} |\n|{' --- |' * (3 + len(kinds))}")
    for corner, counts in tally.items():
        calls = counts["calls"] or 1
        print(f"| {corner} | {counts['calls']} | {100 * counts['agree'] / calls:.1f} % | "
              + " | ".join(str(counts[k]) for k in kinds) + " |")


if __name__ == "__main__":
    main()
