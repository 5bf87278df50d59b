"""Products of half precision whose sizes are no multiples of eight (a vocabulary of 50,257 words): matrix units load and store
sixteen bytes at a time, and without that the library takes five times as long. So such matrices are copied into larger ones.
"""

from __future__ import annotations

from typing import Any

from .arrays import CudaArray, windows
from .backend import copied, fill
from .driver import machine
from .launch import unrepeatable
from .streams import current

_EIGHT, _STEP = 8, 64  # what sizes should be a multiple of, and what they are made a multiple of
LARGE = 1 << 20        # elements of a matrix from which a copy pays


def concerns(a: CudaArray, b: CudaArray, out: CudaArray, beta: Any) -> bool:
    """Whether a product is better made of larger matrices."""
    if out.itemsize != 2 or out.ndim != 2 or beta:
        return False
    (rows, depth), columns = a.shape, out.shape[1]
    return (columns % _EIGHT and out.size >= LARGE) or (depth % _EIGHT and max(a.size, b.size) >= LARGE) or (
        rows % _EIGHT and a.size >= LARGE and a.strides[0] == 2 < a.strides[1])


def product(multiply: Any, a: CudaArray, b: CudaArray, out: CudaArray, alpha: Any, bias: CudaArray | None) -> CudaArray:
    """alpha * a @ b + bias in `out`."""
    unrepeatable()
    (rows, depth), columns = a.shape, out.shape[1]
    by_column = a.strides[0] == 2 < a.strides[1]  # of a, the rows are what lies densely
    tall, deep, wide = _more(rows) if by_column else rows, _more(depth), _more(columns)
    if bias is not None and wide != columns:
        bias = _within(bias[None], 1, wide)[0]
    made = out if (tall, wide) == out.shape else windows.empty((tall, wide), out.dtype)
    multiply(_within(a, tall, deep), _within(b, deep, wide), made, alpha, 0, bias)
    return out if made is out else _rows_copied(made[:rows, :columns], out)


def _more(size: int) -> int:
    return size if size % _EIGHT == 0 else -(-size // _STEP) * _STEP


def _within(x: CudaArray, rows: int, columns: int) -> CudaArray:
    """x in the corner of a matrix of this size, with zeros around it."""
    if x.shape == (rows, columns):
        return x
    if x.strides[0] == 2 < x.strides[1]:
        return _within(x.T, columns, rows).T
    made = windows.empty((rows, columns), x.dtype)
    _rows_copied(x, made[:x.shape[0], :x.shape[1]])
    for rest in (made[x.shape[0]:], made[:x.shape[0], x.shape[1]:]):
        fill(rest, 0)
    return made


def _rows_copied(x: CudaArray, target: CudaArray) -> CudaArray:
    """The elements of x in a target of its shape."""
    if x.strides[1] != 2 or x.shape[0] == 1:
        return copied(x, target)
    machine().activate(current.device)
    machine().copy_rows(target.ctypes.data, target.strides[0], x.ctypes.data, x.strides[0], 2 * x.shape[1], x.shape[0],
                        current.stream)
    return target
