"""Matrices with more rows and columns, zeros in them, or fewer: so that products find sizes that run at full speed."""

from __future__ import annotations

import struct

import numpy as np

from .arrays import CudaArray, device_index, windows
from .cublas import Matrices
from .launch import launch

_TEXT = """
#include "elements.cuh"
typedef unsigned short A;
struct Fit { long rows, columns, from_rows, from_columns, from_step, step; };
extern "C" __global__ void fitted(const Fit f, A *o, const A *x) {
    for (long row = blockIdx.x; row < f.rows; row += gridDim.x) {
        const A *from = x + row * f.from_step;
        A *to_ = o + row * f.step;
        const int columns = (int)f.columns, there = row < f.from_rows ? (int)f.from_columns : 0;
        for (int first = threadIdx.x; first < columns; first += 8 * blockDim.x) {
            A held[8];
            #pragma unroll
            for (int i = 0; i < 8; i++) {
                const int c = first + i * blockDim.x;
                held[i] = c < there ? from[c] : 0;
            }
            #pragma unroll
            for (int i = 0; i < 8; i++) {
                const int c = first + i * blockDim.x;
                if (c < columns) to_[c] = held[i];
            }
        }
    }
}
"""

_RUN = 8            # elements of 16 bytes: sizes that are multiples of it are what the matrix units take at full speed
_WORTH = 1 << 32    # multiplications that are worth copies of the operands


def is_uneven(first: Matrices, second: Matrices, dtype: np.dtype) -> bool:
    """Whether rows of an operand, or of the result, do not start at multiples of 16 bytes, and the product is large enough for
    that to matter."""
    return dtype.itemsize == 2 and first.rows * first.columns * second.columns >= _WORTH and bool(
        first.lead % _RUN or second.lead % _RUN or second.columns % _RUN)


def even_sizes(first: Matrices, second: Matrices) -> tuple[int, int, int]:
    """Rows, depth and columns of a product of larger operands that is quicker."""
    rows, depth, columns = [-(-n // _RUN) * _RUN for n in (first.rows, second.rows, second.columns)]
    return rows if first.transposed else first.rows, depth, columns


def fit(x: CudaArray, target: CudaArray) -> CudaArray:
    """Rows and columns of x in a target, zeros where x has none; elements of 2 bytes, rows of both are dense."""
    fixed = struct.pack("6q", *target.shape, *x.shape, x.strides[0] // 2, target.strides[0] // 2)
    launch(_TEXT, "fitted", "pp", target.shape[0] * 256, fixed, device_index(x)).run(target, x)  # a block per row
    return target


def grown(x: CudaArray, rows: int, columns: int, transposed: bool) -> CudaArray:
    """A matrix with zeros up to so many rows and columns, dense in the same direction; x itself where it has as many."""
    if x.shape == (rows, columns):
        return x
    if transposed:
        return fit(x.T, windows.empty((columns, rows), x.dtype)).T
    return fit(x, windows.empty((rows, columns), x.dtype))
