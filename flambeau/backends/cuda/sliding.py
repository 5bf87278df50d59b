"""Windows that slide over the last dimensions of arrays, and kernels of one thread per element: unfolding and pooling."""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from .arrays import device_index
from .launch import launch

Ints = "tuple[int, ...]"
_INT = 1 << 30   # elements up to which kernels count in int
_MORE = 4        # numbers of a kernel's own behind the windows
PRELUDE = """#include "elements.cuh"
typedef {index} I;
struct Sliding {{ I count, size[3], kernel[3], stride[3], padding[3], dilation[3], out[3], more[4]; }};
#define EACH(i, n) for (I i = (I)blockIdx.x * blockDim.x + threadIdx.x; i < n; i += (I)gridDim.x * blockDim.x)
// The windows along dimension d that reach the element `at`: the first one and the last one.
static __device__ inline I first_window(const Sliding &s, int d, I at) {{
    const I from = at + s.padding[d] - (s.kernel[d] - 1) * s.dilation[d];
    return from <= 0 ? 0 : (from + s.stride[d] - 1) / s.stride[d];
}}
static __device__ inline I last_window(const Sliding &s, int d, I at) {{
    const I to_ = (at + s.padding[d]) / s.stride[d];
    return to_ < s.out[d] ? to_ : s.out[d] - 1;
}}
// A flat position in three dimensions: at[0] to at[2]; what is left is the row.
static __device__ inline I split(I flat, const I *size, I *at) {{
    at[2] = flat % size[2], flat /= size[2];
    at[1] = flat % size[1], flat /= size[1];
    at[0] = flat % size[0];
    return flat / size[0];
}}
"""


class Sliding(NamedTuple):
    """The numbers of windows over up to three dimensions."""

    size: Ints
    kernel: Ints
    stride: Ints
    padding: Ints
    dilation: Ints
    out: Ints

    def packed(self, index: str, count: int, *more: int) -> bytes:
        """As the kernels have them: each filled up to three dimensions."""
        fill = 3 - len(self.size)
        numbers = [n for given, blank in zip(self, (1, 1, 1, 0, 1, 1)) for n in (*(blank,) * fill, *given)]
        return struct.pack(f"{19 + _MORE}{'i' if index == 'int' else 'q'}", count, *numbers, *more, *(0,) * (_MORE - len(more)))


def index_type(*counts: int) -> str:
    """What a kernel counts so many elements in."""
    return "int" if max(counts) < _INT else "long"


def run(text: str, name: str, count: int, fixed: bytes, *arguments: Any) -> None:
    """A kernel of one thread per element; numbers among the arguments are floats or ints."""
    if count:
        kinds = "".join(["p" if isinstance(a, np.ndarray) else "d" if a.__class__ is float else "l" for a in arguments])
        launch(text, name, kinds, count, fixed, device_index(arguments[0]), each=64).run(*arguments)
