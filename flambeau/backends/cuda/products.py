"""Matrix products: what the library takes (any matrix whose rows or columns lie densely), and kernels made of it."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..dtypes import native
from ..flags import cuda as _flags
from .arrays import CudaArray, device_index, windows
from .backend import call, copied
from .cublas import Geometry, Matrices, matrices
from .driver import machine
from .fitted import even_sizes, fit, grown, is_uneven
from .table import kernel

_TAKEN = {np.dtype(t) for t in (np.float32, np.float64, np.float16, np.complex64, np.complex128)} | {native("bfloat16")}


def _matrices(x: CudaArray) -> Matrices | None:
    return matrices(x.shape, [s // x.itemsize for s in x.strides])


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
    if a.ndim == 2 and not beta and is_uneven(first, second, dtype):
        return _even(a, b, out, first, second, alpha, bias)
    _product(a, b, out, alpha, beta, bias)
    return out


def _even(a: CudaArray, b: CudaArray, out: CudaArray, first: Matrices, second: Matrices, alpha: Any,
          bias: CudaArray | None) -> CudaArray:
    """The product of operands with zeros up to even sizes, cut to what is wanted."""
    rows, depth, columns = even_sizes(first, second)
    a, b = grown(a, rows, depth, first.transposed), grown(b, depth, columns, second.transposed)
    target = out if out.shape == (rows, columns) else windows.empty((rows, columns), out.dtype)
    if bias is not None and bias.size < columns:
        bias = grown(bias[None], 1, columns, False)[0]
    _product(a, b, target, alpha, 0, bias)
    return out if target is out else fit(target, out)


def _product(a: CudaArray, b: CudaArray, out: CudaArray, alpha: Any, beta: Any, bias: CudaArray | None) -> None:
    first, second, dtype = _matrices(a), _matrices(b), a.dtype
    lead = out.strides[-2] // out.itemsize if out.ndim == 2 and out.shape[0] > 1 else out.shape[-1]
    result = Matrices(out.shape[-2], out.shape[-1], lead, False, *((out.shape[0], out.shape[-1] * out.shape[-2]) if (
        out.ndim == 3) else ()))
    geometry = Geometry(first, second, result, dtype, complex(alpha) if dtype.kind == "c" else float(alpha),
                        complex(beta) if dtype.kind == "c" else float(beta), bias is not None)
    product = machine().product(geometry, device_index(out), bool(_flags.matmul.allow_tf32))
    product.run(a, b, out, *(() if bias is None else (bias,)))


@kernel("mm", "bmm", "matmul_2d", repeatable=True, product=True)
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
