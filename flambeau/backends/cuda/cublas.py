"""Matrix products by cuBLASLt, through ctypes: descriptions are made once per geometry, a call hands over the addresses."""

from __future__ import annotations

import ctypes
import functools
from typing import Any, NamedTuple

import numpy as np

from ...native import calls
from ..dtypes import native
from ..flags import cuda as _flags
from .arrays import windows
from .driver import machine, shared_library
from .launch import library as _launches

_P = ctypes.c_void_p
_WORKSPACE = 32 << 20
# The library's numbers: types of elements, how sums are made, attributes.
_TYPES = {np.dtype(np.float32): 0, np.dtype(np.float64): 1, np.dtype(np.float16): 2, native("bfloat16"): 14,
          np.dtype(np.complex64): 4, np.dtype(np.complex128): 5}
_SINGLE, _TF32, _DOUBLE = 68, 77, 70
_TRANSPOSED = (3, 4)
_EPILOGUE, _BIASED = 7, 4
_BATCH, _STEP, _MOST_WORKSPACE = 5, 6, 1


class Matrices(NamedTuple):
    """count matrices of rows x columns: `lead` elements from one row (of a transposed one: column) to the next."""

    rows: int
    columns: int
    lead: int
    transposed: bool = False
    count: int = 1
    step: int = 0


def matrices(shape: tuple[int, ...], steps: Any) -> Matrices | None:
    """An array of matrices as the library has them; None where neither rows nor columns lie densely. steps: in elements."""
    *batch, rows, columns = shape
    count, step = (batch[0], steps[0]) if batch else (1, 0)
    by_row = steps[-1] == 1 or columns == 1
    if by_row and (steps[-2] >= max(columns, 1) or rows == 1):
        return Matrices(rows, columns, max(steps[-2] if rows > 1 else columns, columns, 1), False, count, step)
    if (steps[-2] == 1 or rows == 1) and (steps[-1] >= max(rows, 1) or columns == 1):
        return Matrices(rows, columns, max(steps[-1] if columns > 1 else rows, rows, 1), True, count, step)
    return None


class Geometry(NamedTuple):
    """result = alpha * first @ second + beta * result, + bias (one per column)."""

    first: Matrices
    second: Matrices
    result: Matrices
    dtype: np.dtype
    alpha: complex = 1.0
    beta: complex = 0.0
    bias: bool = False


@functools.cache
def library() -> ctypes.CDLL:
    return shared_library("libcublasLt", (13, 12), "library of matrix products")


def _check(code: int, what: str) -> None:
    if code:
        raise RuntimeError(f"CUDA error: cuBLASLt answered {code} to {what}")


@functools.cache
def _handle(device: int) -> int:
    machine().activate(device)
    made = _P()
    _check(library().cublasLtCreate(ctypes.byref(made)), "cublasLtCreate")
    return made.value or 0


class _Heuristic(ctypes.Structure):
    _fields_ = [("algorithm", ctypes.c_char * 64), ("workspace", ctypes.c_size_t), ("state", ctypes.c_int),
                ("waves", ctypes.c_float), ("reserved", ctypes.c_int * 4)]


class _Product(ctypes.Structure):
    """As cuda.c has it."""

    _fields_ = [(name, _P) for name in (
        "multiply", "set", "context", "handle", "description", "first", "second", "result", "size")] + [
        ("alpha", ctypes.c_char * 16), ("beta", ctypes.c_char * 16), ("bias", ctypes.c_long), ("algorithm", ctypes.c_char * 64)]


class Product:
    """A product that is settled but for the arrays: `run(first, second, result[, bias])`."""

    def __init__(self, geometry: Geometry, device: int):
        lib = library()
        g, kind = geometry, _TYPES[geometry.dtype]
        single = g.dtype.char not in "dD"
        fast = g.dtype.char in "fF" and _flags.matmul.allow_tf32
        scale = kind if g.dtype.char in "dFD" else 0
        made = self._plan = _Product()
        description = _P()
        sums = (_TF32 if fast else _SINGLE) if single else _DOUBLE
        _check(lib.cublasLtMatmulDescCreate(ctypes.byref(description), sums, scale), "cublasLtMatmulDescCreate")
        # The library counts columns first: row by row, our result is the transposed product of theirs, operands swapped.
        for attribute, matrices in zip(_TRANSPOSED, (g.second, g.first)):
            self._set(description, attribute, ctypes.c_int32(matrices.transposed))
        if g.bias:
            self._set(description, _EPILOGUE, ctypes.c_int32(_BIASED))
        layouts = [self._layout(m, kind) for m in (g.second, g.first, g.result)]
        found = self._best(description, layouts, device)
        number = {"d": np.float64, "F": np.complex64, "D": np.complex128}.get(g.dtype.char, np.float32)
        made.multiply, made.set = (ctypes.cast(getattr(lib, name), _P) for name in (
            "cublasLtMatmul", "cublasLtMatmulDescSetAttribute"))
        made.context, made.handle, made.description = machine().context(device), _handle(device), description
        made.first, made.second, made.result = layouts
        made.size = size = found.workspace
        ctypes.memmove(ctypes.addressof(made) + _Product.alpha.offset, number(g.alpha).tobytes(), number().itemsize)
        ctypes.memmove(ctypes.addressof(made) + _Product.beta.offset, number(g.beta).tobytes(), number().itemsize)
        made.bias = g.bias
        ctypes.memmove(ctypes.addressof(made) + _Product.algorithm.offset, ctypes.addressof(found), 64)
        launch = calls.builtin(_launches(), "fl_cuda_product", ctypes.addressof(made))
        if size:  # of each call's own: in a graph, products may run at the same time
            self.run = lambda first, second, result, *bias: launch(second, first, result, *bias, windows.storage(size))
        else:
            self.run = lambda first, second, result, *bias: launch(second, first, result, *bias)

    @staticmethod
    def _set(description: Any, attribute: int, value: Any) -> None:
        _check(library().cublasLtMatmulDescSetAttribute(description, attribute, ctypes.byref(value), ctypes.sizeof(value)),
               f"attribute {attribute}")

    @staticmethod
    def _layout(m: Matrices, kind: int) -> _P:
        made, u64 = _P(), ctypes.c_uint64
        rows, columns = (m.rows, m.columns) if m.transposed else (m.columns, m.rows)
        _check(library().cublasLtMatrixLayoutCreate(ctypes.byref(made), kind, u64(rows), u64(columns), ctypes.c_int64(m.lead)),
               "cublasLtMatrixLayoutCreate")
        if m.count > 1:
            for attribute, value in ((_BATCH, ctypes.c_int32(m.count)), (_STEP, ctypes.c_int64(m.step))):
                _check(library().cublasLtMatrixLayoutSetAttribute(made, attribute, ctypes.byref(value), ctypes.sizeof(value)),
                       f"layout attribute {attribute}")
        return made

    @staticmethod
    def _best(description: Any, layouts: list[Any], device: int) -> _Heuristic:
        lib, preference, found, count = library(), _P(), _Heuristic(), ctypes.c_int()
        _check(lib.cublasLtMatmulPreferenceCreate(ctypes.byref(preference)), "cublasLtMatmulPreferenceCreate")
        most = ctypes.c_size_t(_WORKSPACE)
        lib.cublasLtMatmulPreferenceSetAttribute(preference, _MOST_WORKSPACE, ctypes.byref(most), ctypes.sizeof(most))
        first, second, result = layouts
        code = lib.cublasLtMatmulAlgoGetHeuristic(_P(_handle(device)), description, first, second, result, result, preference,
                                                  1, ctypes.byref(found), ctypes.byref(count))
        lib.cublasLtMatmulPreferenceDestroy(preference)
        _check(code or (15 if not count.value else 0), "the choice of an algorithm")
        return found


@functools.cache
def product(geometry: Geometry, device: int, fast: bool) -> Product:
    """fast: whether single precision may be rounded to TF32, part of what is settled."""
    return Product(geometry, device)
