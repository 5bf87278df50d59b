"""Pointwise work: kernels from the expressions of rows (cpu/pointwise/loops.py), for any strides and broadcasting.

Of each expression and its types there are three kernels, built when first needed: `flat`, where all arrays lie alike without
holes and elements are loaded in runs of 16 bytes, `lines`, where at least their lines can be, and `walk` for all else. Which
one runs, on how many threads and with which steps is settled once per combination of shapes and strides.
"""

from __future__ import annotations

import re
import struct
from typing import Any, NamedTuple

import numpy as np
from numpy import ndarray

from ..cpu.arrays import strides
from ..cpu.pointwise import loops
from ..dtypes import native
from ..strides import contiguous_strides, elementwise_strides
from .arrays import CudaArray, device_index, windows
from .driver import machine
from .launch import Plan, kernel, numbers_of
from .table import KERNELS

_BF16, _F16, _F32 = native("bfloat16"), np.dtype(np.float16), np.dtype(np.float32)
# What elements are in memory, and what they are computed in: the suffix of functions and the type.
STORED = {**{dtype: {"b8": "bool"}.get(suffix, loops.C_TYPES[suffix]) for dtype, suffix in loops.SUFFIXES.items()},
          _BF16: "bf16", _F16: "f16", np.dtype(np.uint16): "unsigned short", np.dtype(np.uint32): "unsigned int",
          np.dtype(np.uint64): "unsigned long"}
COMPUTED = {**loops.SUFFIXES, _BF16: "f32", _F16: "f32"}
_DIMS = 12         # as in elements.cuh
_THREADS = 256
_FLAT = """
extern "C" __global__ void flat(const long count, R *o{pointers}{numbers}) {{
    {constants}
    const long step = (long)gridDim.x * blockDim.x * {run};
    for (long at = ((long)blockIdx.x * blockDim.x + threadIdx.x) * {run}; at < count; at += step) {{
        if (at + {run} <= count) {{
            {runs}
            Run<R, {run}> made;
            #pragma unroll
            for (int i = 0; i < {run}; i++) {{
                {loaded}
                made.at[i] = to<R>({value});
            }}
            store(o + at, made);
        }} else {{
            for (long i = at; i < count; i++) {{
                {single}
                o[i] = to<R>({value});
            }}
        }}
    }}
}}
"""
# Where the elements are that belong to a place of the result.
_WHERE = """
extern "C" __global__ void NAME(const Walk<{arrays}> w, R *o{pointers}{numbers}) {{
    {constants}
    for (long at = (long)blockIdx.x * blockDim.x + threadIdx.x; at < w.count; at += (long)gridDim.x * blockDim.x) {{
        long rest = at, {offsets};
        #pragma unroll
        for (int d = 0; d < DIMS; d++) {{
            if (d == w.dims) break;
            const long next = w.count <= 0x7fffffff ? (long)((unsigned)rest / (unsigned)w.size[d]) : rest / w.size[d];
            const long place = rest - next * w.size[d];
            {steps}
            rest = next;
        }}
"""
_WALK = _WHERE.replace("NAME", "walk") + """\
        {walked}
        o[at0] = to<R>({value});
    }}
}}
"""
_LINES = _WHERE.replace("NAME", "lines") + """\
        {line_runs}
        Run<R, {run}> made;
        #pragma unroll
        for (int i = 0; i < {run}; i++) {{
            {loaded}
            made.at[i] = to<R>({value});
        }}
        store(o + at0, made);
    }}
}}
"""


class _Operand(NamedTuple):
    """letter: in the expression. dtype: of an array's elements; of numbers, which travel with the launch, None."""

    letter: str
    dtype: np.dtype | None


def text(name: str, value: str, compute: str, result: np.dtype, operands: list[_Operand]) -> str:
    """Both kernels of an expression, whose operands are values of type T: numbers as they come, elements converted."""
    arrays = [o for o in operands if o.dtype is not None]
    numbers = [o for o in operands if o.dtype is None]
    kind = loops.C_TYPES[compute] if compute != "b8" else "bool"
    number = "double" if compute in ("f32", "f64") else "long"
    run = max(16 // max([result.itemsize, *[o.dtype.itemsize for o in arrays]]), 1)
    stored = {o.letter: STORED[o.dtype] for o in arrays}
    fields = dict(
        arrays=len(arrays) + 1, run=run, value=value,
        pointers="".join([f", const {t} *p{x}" for x, t in stored.items()]),
        numbers="".join([f", {number} {o.letter}_" for o in numbers]),
        constants=" ".join([f"const T {o.letter} = (T){o.letter}_;" for o in numbers]),
        runs=" ".join([f"const Run<{t}, {run}> r{x} = *(const Run<{t}, {run}> *)(p{x} + at);" for x, t in stored.items()]),
        loaded=" ".join([f"const {_kind(o, 'T')} {o.letter} = value_of(r{o.letter}.at[i]);" for o in arrays]),
        single=" ".join([f"const {_kind(o, 'T')} {o.letter} = value_of(p{o.letter}[i]);" for o in arrays]),
        offsets=", ".join([f"at{k} = 0" for k in range(len(arrays) + 1)]),
        steps=" ".join([f"at{k} += place * w.step[{k}][d];" for k in range(len(arrays) + 1)]),
        line_runs=" ".join([f"const Run<{stored[x]}, {run}> r{x} = run_of<{run}>(p{x} + at{k}, !w.step[{k}][0]);"
                            for k, x in enumerate(stored, 1)]),
        walked=" ".join([f"const {_kind(o, 'T')} {o.letter} = value_of(p{o.letter}[at{k}]);" for k, o in enumerate(arrays, 1)]))
    return (f'// {name}\n#include "elements.cuh"\ntypedef {kind} T;\ntypedef {STORED[result]} R;\n'
            + _FLAT.format(**fields) + _WALK.format(**fields) + _LINES.format(**fields))


def _kind(operand: _Operand, compute: str) -> str:
    return "bool" if operand.dtype.char == "?" else compute


class _Work(NamedTuple):
    """A kernel's text with what it takes: positions of the arguments that are arrays, then of those that are numbers."""

    text: str
    arrays: list[int]
    numbers: list[int]
    result: np.dtype
    number: str


_works: dict[Any, _Work | None] = {}
_plans: dict[Any, Any] = {}


def run(name: str, args: tuple[Any, ...], out: CudaArray | None = None) -> CudaArray | None:
    """What a pointwise kernel makes of arrays and numbers; None where it has no expression for these.

    The long way: native code repeats what has been done here (repeated.py).
    """
    key: list[Any] = [name]
    for a in args if out is None else (*args, out):
        if type(a) is CudaArray:
            key += (a.dtype.num, a.shape, None if a.flags.c_contiguous else a.strides)
        elif isinstance(a, ndarray):  # of the host, without dimensions: it travels as a number
            if a.ndim:
                return None
            key += (a.dtype.num, None if name in loops.FIXED else a.item())  # where the expression depends on it
        else:
            key.append(a.__class__ if name in loops.FIXED and a.__class__ in (int, float) else a)
    if machine().count > 1:
        key.append(device_index(next(a for a in args if type(a) is CudaArray)))
    plan = _plans.get(key := tuple(key))
    if plan is None:
        if len(_plans) > 1 << 14:
            _plans.clear()
        plan = _plans[key] = _planned(name, args, out) or False
    if plan is False:
        return None
    launch, positions, numbers, make = plan
    made = make() if out is None else out
    if numbers and name in loops.FIXED and name not in KERNELS:
        numbers_of(name, *[i + (1 if out is None else 2) for i in numbers])
    launch.run(made, *[args[i] for i in positions], *[_number(args[i]) for i in numbers])
    return made


def _number(value: Any) -> Any:
    return value.item() if isinstance(value, ndarray) else value


def _planned(name: str, args: tuple[Any, ...], out: CudaArray | None) -> Any:
    work = _work(name, args)
    if work is None:
        return None
    arrays = [a for a in args if type(a) is CudaArray]
    shape, result, make = np.broadcast_shapes(*[a.shape for a in arrays]), work.result, None
    if out is None:
        stride = elementwise_strides(shape, [(a.shape, strides(a)) for a in arrays if a.ndim or not shape])
        make = (lambda: windows.empty(shape, result)) if stride is None or stride == contiguous_strides(shape) else (
            lambda: windows.empty_strided(shape, stride, result))
        out = make()
    elif out.shape != shape or out.dtype != result:
        return None
    plan = launched(work.text, out, [args[i] for i in work.arrays], work.number * len(work.numbers))
    return plan, work.arrays, work.numbers, make


def launched(source: str, out: ndarray, arrays: list[Any], numbers: str = "") -> Plan:
    """The plan of a kernel over arrays that broadcast to the shape of `out`."""
    device = device_index(out)
    kinds = "p" * (1 + len(arrays)) + numbers
    most = 32 * machine().attribute("multiprocessors", device)
    sizes, steps = _walked(out, arrays)
    if len(sizes) > _DIMS:
        raise NotImplementedError(f"a pointwise operation on CUDA arrays whose layout has {len(sizes)} dimensions that cannot "
                                  f"be joined; at most {_DIMS} can be walked through")
    walk = Plan(kernel(source, "walk", device), device, min(-(-out.size // _THREADS), most * 8), _THREADS, kinds,
                _walking(out.size, sizes, steps))
    run = max(16 // max([out.itemsize, *[a.itemsize for a in arrays]]), 1)
    if len(sizes) > 1 or any(s[0] != 1 for s in steps):
        if not _has_lines(sizes, steps, run):
            return walk
        count, steps = out.size // run, [[*s[:-1], s[-1] * run] for s in steps]
        return Plan(kernel(source, "lines", device), device, min(-(-count // _THREADS), most * 8), _THREADS, kinds,
                    _walking(count, [*sizes[:-1], sizes[-1] // run], steps), otherwise=walk)
    return Plan(kernel(source, "flat", device), device, min(-(-out.size // (_THREADS * run)), most * 8), _THREADS, kinds,
                struct.pack("q", out.size), otherwise=walk)


def _walking(count: int, sizes: list[int], steps: list[list[int]]) -> bytes:
    """The kernels' struct Walk."""
    pad = [0] * (_DIMS - len(sizes))
    return struct.pack(f"{2 + _DIMS * (1 + len(steps))}q", count, len(sizes), *sizes[::-1], *pad,
                       *[n for s in steps for n in (*s[::-1], *pad)])


def _has_lines(sizes: list[int], steps: list[list[int]], run: int) -> bool:
    """Whether the innermost elements of all arrays lie densely in whole runs, or are one and the same."""
    return run > 1 and sizes[-1] % run == 0 and steps[0][-1] == 1 and all(
        [s[-1] == 0 or (s[-1] == 1 and not any([n % run for n in s[:-1]])) for s in steps])


def _walked(out: ndarray, arrays: list[Any]) -> tuple[list[int], list[list[int]]]:
    """Sizes, and steps of the result and each array, as few as can be."""
    shape = out.shape
    steps = [[s // out.itemsize for s in out.strides]]
    for x in arrays:
        lead = len(shape) - x.ndim
        steps.append([0] * lead + [0 if n == 1 else s // x.itemsize for n, s in zip(x.shape, x.strides)])
    sizes, merged = loops.collapse(shape, steps)
    if sizes == [1]:
        merged = [[1] for _ in merged]
    return sizes, merged


def _work(name: str, args: tuple[Any, ...]) -> _Work | None:
    key: tuple[Any, ...] = (name, *[
        (a.dtype, type(a) is CudaArray) if isinstance(a, ndarray) else
        a if a is None or a.__class__ in (str, bool) else a.__class__ for a in args])
    try:
        expression = loops.expression(name, args)
    except TypeError:
        return None
    if expression is None:
        return None
    key += (expression.c,)
    if key not in _works:
        _works[key] = _made_work(name, expression, args)
    return _works[key]


def _made_work(name: str, expression: Any, args: tuple[Any, ...]) -> _Work | None:
    letters, mask = expression.args, loops.MASKS.get(name)
    used = set(re.findall(r"\b[a-z]\b", expression.c))
    positions = [i for i, x in enumerate(letters[:len(args)]) if x in used]
    arrays = [i for i in positions if type(args[i]) is CudaArray]
    numbers = [i for i in positions if i not in arrays]
    dtypes = {args[i].dtype for i in range(len(args)) if type(args[i]) is CudaArray and i != mask}
    if len(dtypes) > 1 and dtypes <= {_F32, _BF16, _F16}:
        dtypes = {_F32}
    others = {a.dtype for a in args if isinstance(a, ndarray) and type(a) is not CudaArray} - dtypes
    if others and (others != {_F32} or not dtypes <= {_BF16, _F16}):  # a number for half types comes in single precision
        return None
    if len(dtypes) != 1 or len(used - set(letters[:len(args)])) or any([
            args[i].__class__ not in (int, float, bool) and not isinstance(args[i], ndarray) for i in numbers]):
        return None
    dtype = dtypes.pop()
    kind = "f" if dtype in (_BF16, _F16) else {"u": "i"}.get(dtype.kind, dtype.kind)
    if dtype not in COMPUTED or kind not in expression.kinds:
        return None
    result = np.dtype(bool) if loops.result_is_bool(name) else dtype
    suffix = COMPUTED[dtype]
    operands = [_Operand(letters[i], args[i].dtype) for i in arrays] + [_Operand(letters[i], None) for i in numbers]
    source = text(f"{name}: {expression.c}", loops.to_c(expression.c, suffix, {}), suffix, result, operands)
    return _Work(source, arrays, numbers, result, "d" if suffix in ("f32", "f64") else "l")
