"""Several pointwise operations over the same elements as one kernel: what one makes and the next reads stays in a register."""

from __future__ import annotations

import functools
import math
import struct
from typing import Any, NamedTuple

import numpy as np

from ..cpu.pointwise import loops
from .arrays import CudaArray
from .driver import machine
from .launch import Plan, kernel
from .pointwise import STORED
from .streams import current

MOST = 13          # arrays of a kernel
_THREADS = 256
_TEXT = """// {title}
#include "elements.cuh"
{functions}
extern "C" __global__ void flat(const long count{parameters}) {{
    {scalars}
    const long step = (long)gridDim.x * blockDim.x * {run};
    for (long at = ((long)blockIdx.x * blockDim.x + threadIdx.x) * {run}; at < count; at += step) {{
        if (at + {run} <= count) {{
            {runs}
            #pragma unroll
            for (int i = 0; i < {run}; i++) {{
                {from_runs}
                {steps}
                {to_runs}
            }}
            {stored}
        }} else {{
            for (long i = at; i < count; i++) {{
                {loaded}
                {steps}
                {put}
            }}
        }}
    }}
}}
extern "C" __global__ void single(const long count{parameters}) {{
    {scalars}
    for (long i = (long)blockIdx.x * blockDim.x + threadIdx.x; i < count; i += (long)gridDim.x * blockDim.x) {{
        {loaded}
        {steps}
        {put}
    }}
}}
"""


class Step(NamedTuple):
    """An operation: a C expression over letters, which are of the type of its suffix or bool. operands: by letter, the name of
    a value (and whether it is bool) or a number. result: the dtype in which it is kept, and rounded to."""

    expression: str
    suffix: str
    operands: dict[str, tuple[str, bool] | int | float]
    name: str
    result: np.dtype


class Fused:
    """A kernel over arrays of `count` elements that lie alike. inputs, scalars and outputs: (name, dtype) each; the arrays of a
    launch come in this order, outputs first."""

    def __init__(self, title: str, count: int, inputs: list[Any], scalars: list[Any], outputs: list[Any], steps: list[Step]):
        self.count, self.arrays = count, len(inputs) + len(scalars) + len(outputs)
        self.run_length = max(16 // max([d.itemsize for _, d in (*inputs, *outputs)]), 1)
        self.text = _text(title, self.run_length, inputs, scalars, outputs, steps)

    def run(self, arrays: list[CudaArray]) -> None:
        _plan(self.text, self.count, self.run_length, self.arrays, current.device).run(*arrays)


@functools.lru_cache(4096)
def _plan(text: str, count: int, run: int, arrays: int, device: int) -> Plan:
    most, fixed = 256 * machine().attribute("multiprocessors", device), struct.pack("q", count)
    each = lambda name, run, **more: Plan(kernel(text, name, device), device, min(-(-count // (_THREADS * run)), most),
                                          _THREADS, "p" * arrays, fixed, **more)
    return each("flat", run, otherwise=each("single", 1))


def _text(title: str, run: int, inputs: list[Any], scalars: list[Any], outputs: list[Any], steps: list[Step]) -> str:
    lines = lambda parts: " ".join(parts)
    return _TEXT.format(
        title=title, run=run, functions="\n".join([_function(n, s) for n, s in enumerate(steps)]),
        parameters="".join([f", {STORED[d]} *o_{x}" for x, d in outputs] + [f", const {STORED[d]} *p_{x}"
                                                                          for x, d in (*inputs, *scalars)]),
        scalars=lines([f"const {STORED[d]} {x} = *p_{x};" for x, d in scalars]),
        runs=lines([f"const Run<{STORED[d]}, {run}> r_{x} = *(const Run<{STORED[d]}, {run}> *)(p_{x} + at);" for x, d in inputs]
                   + [f"Run<{STORED[d]}, {run}> m_{x};" for x, d in outputs]),
        from_runs=lines([f"const {STORED[d]} {x} = r_{x}.at[i];" for x, d in inputs]),
        loaded=lines([f"const {STORED[d]} {x} = p_{x}[i];" for x, d in inputs]),
        steps=lines([_call(n, s) for n, s in enumerate(steps)]),
        to_runs=lines([f"m_{x}.at[i] = {x};" for x, _ in outputs]),
        put=lines([f"o_{x}[i] = {x};" for x, _ in outputs]),
        stored=lines([f"store(o_{x} + at, m_{x});" for x, d in outputs]))


def _computed(suffix: str) -> str:
    return "bool" if suffix == "b8" else loops.C_TYPES[suffix]


def _function(n: int, step: Step) -> str:
    kind = _computed(step.suffix)
    letters = ", ".join([f"const {'bool' if isinstance(o, tuple) and o[1] else kind} {x}" for x, o in step.operands.items()])
    value = loops.to_c(step.expression, step.suffix, {})
    return (f"FL_DEVICE {STORED[step.result]} f{n}({letters}) {{ typedef {kind} T; "
            f"return to<{STORED[step.result]}>({value}); }}")


def _call(n: int, step: Step) -> str:
    kind = _computed(step.suffix)
    given = [f"value_of({o[0]})" if isinstance(o, tuple) else f"({kind}){_literal(o)}" for o in step.operands.values()]
    return f"const {STORED[step.result]} {step.name} = f{n}({', '.join(given)});"


def _literal(value: Any) -> str:
    if isinstance(value, float) and not math.isfinite(value):
        return "__builtin_nan(\"\")" if value != value else "(1.0 / 0.0)" if value > 0 else "(-1.0 / 0.0)"
    return f"({float(value)!r})" if isinstance(value, float) else f"({int(value)}L)"
