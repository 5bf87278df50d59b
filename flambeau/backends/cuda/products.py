"""Matrix products: what the library takes (any matrix whose rows or columns lie densely), and kernels made of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import native
from ..flags import cuda as _flags
from .arrays import CudaArray, device_index, windows
from .backend import call, copied
from .cublas import Geometry, Matrices
from .driver import machine
from .fitted import fit, grown
from .streams import current
from .table import kernel

_TAKEN = {np.dtype(t) for t in (np.float32, np.float64, np.float16, np.complex64, np.complex128)} | {native("bfloat16")}


def _matrices(x: CudaArray) -> tuple[CudaArray, Matrices] | None:
    """An array of matrices as the library has them; None where neither rows nor columns lie densely."""
    *batch, rows, columns = x.shape
    size = x.itemsize
    steps = [s // size for s in x.strides]
    count, step = 1, 0
    if batch:
        count, step = batch[0], steps[0]
    by_row = steps[-1] == 1 or columns == 1
    if by_row and (steps[-2] >= max(columns, 1) or rows == 1):
        return x, Matrices(rows, columns, max(steps[-2] if rows > 1 else columns, columns, 1), False, count, step)
    if (steps[-2] == 1 or rows == 1) and (steps[-1] >= max(rows, 1) or columns == 1):
        return x, Matrices(rows, columns, max(steps[-1] if columns > 1 else rows, rows, 1), True, count, step)
    return None


def multiply(a: CudaArray, b: CudaArray, out: CudaArray | None = None, alpha: Any = 1, beta: Any = 0,
             bias: CudaArray | None = None) -> CudaArray:
    """alpha * a @ b + beta * out + bias, of two or three dimensions. out is dense row by row."""
    dtype = a.dtype
    if dtype not in _TAKEN:
        raise NotImplementedError(f'"addmm_cuda" not implemented for \'{dtype}\'')
    shape = (*a.shape[:-1], b.shape[-1])
    if bias is not None and dtype.kind == "c":  # the library adds none to complex products
        out, beta, bias = copied(bias, windows.empty(shape, dtype)), 1, None
    if out is None:
        out = windows.empty(shape, dtype)
    if not out.size or not a.shape[-1]:
        if out.size and not beta:
            out.fill(0)
        elif out.size and beta != 1:
            out[...] = call("mul", (out, np.asarray(beta, dtype)))
        if out.size and bias is not None:
            out[...] = call("add", (out, bias))
        return out
    first = _matrices(a) or _matrices(a := a.copy())
    second = _matrices(b) or _matrices(b := b.copy())
    if a.ndim == 2 and not beta and dtype.itemsize == 2 and a.shape[0] * b.size >= _WORTH and _is_odd(first[1], second[1]):
        return _even(a, b, out, first[1].transposed, second[1].transposed, alpha, bias)
    _product(a, b, out, alpha, beta, bias)
    return out


_RUN = 8            # elements of 16 bytes: sizes that are multiples of it are what the matrix units take at full speed
_WORTH = 1 << 32    # multiplications that are worth copies of the operands


def _is_odd(first: Matrices, second: Matrices) -> bool:
    """Whether rows of an operand, or of the result, do not start at multiples of 16 bytes."""
    return bool(first.lead % _RUN or second.lead % _RUN or second.columns % _RUN)


def _even(a: CudaArray, b: CudaArray, out: CudaArray, turned: bool, turned_too: bool, alpha: Any,
          bias: CudaArray | None) -> CudaArray:
    """The product of operands with zeros up to even sizes, cut to what is wanted. turned: whether columns lie densely."""
    rows, depth, columns = [-(-n // _RUN) * _RUN for n in (a.shape[0], *b.shape)]
    a, b = grown(a, rows if turned else len(a), depth, turned), grown(b, depth, columns, turned_too)
    target = out if out.shape == (len(a), columns) else windows.empty((len(a), columns), out.dtype)
    if bias is not None and bias.size < columns:
        bias = grown(bias[None], 1, columns, False)[0]
    _product(a, b, target, alpha, 0, bias)
    return out if target is out else fit(target, out)


def _product(a: CudaArray, b: CudaArray, out: CudaArray, alpha: Any, beta: Any, bias: CudaArray | None) -> None:
    first, second, dtype = _matrices(a), _matrices(b), a.dtype
    lead = out.strides[-2] // out.itemsize if out.ndim == 2 and out.shape[0] > 1 else out.shape[-1]
    result = Matrices(out.shape[-2], out.shape[-1], lead, False, *((out.shape[0], out.shape[-1] * out.shape[-2]) if (
        out.ndim == 3) else ()))
    geometry = Geometry(first[1], second[1], result, dtype, complex(alpha) if dtype.kind == "c" else float(alpha),
                        complex(beta) if dtype.kind == "c" else float(beta), bias is not None)
    product = machine().product(geometry, device_index(out), current.stream, bool(_flags.matmul.allow_tf32))
    product.run(a, b, out, *(() if bias is None else (bias,)))


@kernel("mm", "bmm", "matmul_2d", repeatable=True)
def mm(a: CudaArray, b: CudaArray) -> CudaArray:
    return multiply(a, b)


@kernel("mv", repeatable=True)
def mv(a: CudaArray, v: CudaArray) -> CudaArray:
    return multiply(a, v[:, None]).reshape(a.shape[:1])


@kernel("dot", repeatable=True)
def dot(a: CudaArray, b: CudaArray) -> CudaArray:
    return multiply(a[None], b[:, None]).reshape(())


@kernel("linear", repeatable=True)
def linear(bias: CudaArray | None, x: CudaArray, weight: CudaArray) -> CudaArray:
    flat = x.reshape((-1, x.shape[-1])) if x.flags.c_contiguous else x.copy().reshape((-1, x.shape[-1]))
    made = multiply(flat, weight.T, bias=bias if bias is None or bias.flags.c_contiguous else bias.copy())
    return made.reshape((*x.shape[:-1], weight.shape[0]))


def _added(this: CudaArray, shape: tuple[int, ...], beta: Any) -> CudaArray | None:
    """What a product is added to: a new array with its elements, which broadcast; None where nothing is added."""
    return copied(this, windows.empty(shape, this.dtype)) if beta else None


@kernel("addmm", "baddbmm", repeatable=True)
def addmm(this: CudaArray, a: CudaArray, b: CudaArray, beta: Any, alpha: Any) -> CudaArray:
    shape = (*a.shape[:-1], b.shape[-1])
    if this.shape == shape[-1:] and beta == 1 and this.flags.c_contiguous and this.dtype == a.dtype:
        return multiply(a, b, alpha=alpha, bias=this)
    return multiply(a, b, _added(this, shape, beta), alpha, beta)


@kernel("addmv", repeatable=True)
def addmv(this: CudaArray, a: CudaArray, v: CudaArray, beta: Any, alpha: Any) -> CudaArray:
    out = _added(this, a.shape[:1], beta)
    return multiply(a, v[:, None], None if out is None else out[:, None], alpha, beta).reshape(a.shape[:1])


@kernel("addbmm", repeatable=True)
def addbmm(this: CudaArray, a: CudaArray, b: CudaArray, beta: Any, alpha: Any) -> CudaArray:
    count, rows, depth = a.shape
    side = a.transpose(1, 0, 2).copy().reshape((rows, count * depth))
    return addmm(this, side, (b if b.flags.c_contiguous else b.copy()).reshape((count * depth, b.shape[-1])), beta, alpha)
