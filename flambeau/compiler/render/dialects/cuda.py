"""Loop nests as CUDA C kernels: a thread per element, or a block per total.

A kernel takes the call's numbers, the addresses of the nest's places and of storages that run-time numbers are loaded from, all
in the device's memory. It does for any number of blocks, and of threads that is a power of two.
"""

from __future__ import annotations

import math
from typing import NamedTuple

from ...capture.symbolic import loads
from ...ir.literals import size
from ...ir.parts import Storage, Value
from ..nests import Let, Nest
from .c import TYPES, function, index, statement, written_out
from .c_loops import Folded

HEADER = '#include "vmath.cuh"\n'
THREADS = 256     # of a block, at most
_BLOCKS = 1 << 12  # of a launch, at most: each has more than one thing to do where there are more


class Kernel(NamedTuple):
    """arguments: what it takes addresses of, behind the call's numbers."""

    text: str
    arguments: list[Value | Storage]
    blocks: int
    threads: int


def kernel(nest: Nest, name: str) -> Kernel:
    sources = {v.storage.id: v.storage for s in nest.before if s.__class__ is Let and s.value.__class__ is tuple
               for v in loads(s.value)}
    parameters = ["const double *n", *[f"{TYPES[v.element]} *{place}" for place, v in nest.places.items()],
                  *[f"char *s{i}" for i in sources]]
    lines = [f"const {statement(s)}" for s in nest.before] + (_totals(nest) if nest.folds else _elements(nest))
    head = f'extern "C" __global__ void {name}({", ".join(parameters)})'
    text = function(head, "".join(f"    {line}\n" for line in lines))
    count = math.prod([n for n, away in zip(nest.dims, nest.reduced) if not away]) if nest.folds else (
        -(-math.prod(nest.dims) // THREADS))
    return Kernel(written_out(text), [*nest.places.values(), *sources.values()], min(max(count, 1), _BLOCKS), THREADS)


def _elements(nest: Nest) -> list[str]:
    """Each thread works on elements that are as far apart as there are threads."""
    return ["const long step = (long)gridDim.x * blockDim.x;",
            f"for (long at = (long)blockIdx.x * blockDim.x + threadIdx.x; at < {size(math.prod(nest.dims))}; at += step) {{",
            *_inside([*_places(nest, "at", range(len(nest.dims))), *map(statement, nest.body)]), "}"]


def _totals(nest: Nest) -> list[str]:
    """Each block folds what belongs to a total: its threads as they meet the elements, then two and two of their totals."""
    kept, away = ([d for d, r in enumerate(nest.reduced) if r == which] for which in (False, True))
    folds = [Folded(f, n) for n, f in enumerate(nest.folds)]
    totals, elements = (size(math.prod([nest.dims[d] for d in some])) for some in (kept, away))
    one = [*_places(nest, "at", away), *map(statement, nest.body),
           *[f"{f.total} = {f.joined(f.total, f'({f.wide(False)}){f.value}')};" for f in folds]]
    pairs = [f"if (threadIdx.x < half) {f.shares}[threadIdx.x] = {f.joined(a, b)};" for f in folds
             for a, b in [(f"{f.shares}[threadIdx.x]", f"{f.shares}[threadIdx.x + half]")]]
    put = [f"if (threadIdx.x == 0) {f.result} = {f.finished(f'{f.shares}[0]')};" for f in folds]
    lines = [*_places(nest, "total", kept), *[f"{f.wide(False)} {f.total} = {f.start};" for f in folds],
             f"for (long at = threadIdx.x; at < {elements}; at += blockDim.x) {{", *_inside(one), "}",
             *[f"{f.shares}[threadIdx.x] = {f.total};" for f in folds], "__syncthreads();",
             "for (unsigned half = blockDim.x / 2; half; half /= 2) {", *_inside([*pairs, "__syncthreads();"]), "}",
             *put, "__syncthreads();"]
    return [*[f"__shared__ {f.wide(False)} {f.shares}[{THREADS}];" for f in folds],
            f"for (long total = blockIdx.x; total < {totals}; total += gridDim.x) {{", *_inside(lines), "}"]


def _places(nest: Nest, number: str, dims: list[int] | range) -> list[str]:
    """The index of each dimension from the number of an element among them."""
    names, lines, rest = index(nest.dims), [], number
    for d in reversed(dims[1:]):
        lines += [f"const long {names[d]} = {rest} % {size(nest.dims[d])}, rest{d} = {rest} / {size(nest.dims[d])};"]
        rest = f"rest{d}"
    return [*lines, f"const long {names[dims[0]]} = {rest};"] if dims else []


def _inside(lines: list[str]) -> list[str]:
    return [f"    {line}" for line in lines]
