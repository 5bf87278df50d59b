"""Conversions of many small arrays by one launch: the kernel finds its array in a table of addresses."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from .arrays import CudaArray, device_index, upload
from .launch import plan_of
from .pointwise import STORED

_EACH, _THREADS = 2048, 256  # elements and threads of a block
_TEXT = """// many conversions: {source} to {result}
#include "elements.cuh"
struct Piece {{ const {source} *from; {result} *to_; long count, first; }}; // first: the number of its first block
extern "C" __global__ void casts(const long count, const Piece *pieces) {{
    long low = 0, high = count;
    while (high - low > 1) {{
        const long middle = (low + high) / 2;
        if (pieces[middle].first <= (long)blockIdx.x) low = middle;
        else high = middle;
    }}
    const Piece p = pieces[low];
    const long from = ((long)blockIdx.x - p.first) * {each}, till = from + {each} < p.count ? from + {each} : p.count;
    for (long i = from + threadIdx.x; i < till; i += {threads}) p.to_[i] = to<{result}>(value_of(p.from[i]));
}}
"""


def run(sources: list[CudaArray], targets: list[CudaArray]) -> None:
    """Fills contiguous arrays of one dtype with the elements of others, contiguous and of one dtype as well."""
    table, blocks = np.zeros((len(sources), 4), np.int64), 0
    for row, x, made in zip(table, sources, targets, strict=True):
        row[:] = x.ctypes.data, made.ctypes.data, x.size, blocks
        blocks += -(-x.size // _EACH)
    kept: Any = upload(table)
    text = _TEXT.format(source=STORED[sources[0].dtype], result=STORED[targets[0].dtype], each=_EACH, threads=_THREADS)
    plan_of(text, "casts", device_index(sources[0]), blocks, _THREADS, "p", struct.pack("q", len(sources))).run(kept)
