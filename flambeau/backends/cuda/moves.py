"""Kernels that only move elements: results by their shape rule (facts.SHAPES), filled by copies between windows."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..cpu.table import KERNELS as _HOST_KERNELS
from ..facts import SHAPES, VIEWS
from .arrays import CudaArray, windows
from .backend import copied, fill
from .rules import blank
from .table import kernel

_ALL = slice(None)


def _window(x: CudaArray, dim: int, *part: int) -> CudaArray:
    return x[(*(_ALL,) * dim, slice(*part))]


@kernel("clone", "_to_copy", repeatable=True, into=True)
def to_copy(x: CudaArray, *options: Any, into: Any = None) -> CudaArray:
    return copied(x, blank("clone" if len(options) == 1 else "_to_copy", x, *options) if into is None else into[0])


@kernel("copied", repeatable=True)
def copied_(x: CudaArray) -> CudaArray:
    return copied(x, windows.empty(x.shape, x.dtype))


@kernel("clone_strided", repeatable=True)
def clone_strided(x: CudaArray, stride: Any) -> CudaArray:
    out = blank("clone_strided", x, stride)
    block = windows.owner(out)
    if block.nbytes != x.nbytes:  # the holes between the elements
        fill(windows.over(block, (block.nbytes,), np.dtype(np.uint8), 0, (1,)), 0)
    return copied(x, out)


@kernel("fill")
def filled(x: CudaArray, value: Any) -> CudaArray:
    made = windows.like(x, x.dtype)
    if type(value) is CudaArray:
        return copied(value, made)
    fill(made, value)
    return made


@kernel("cat", repeatable=True)
def cat(arrays: list[CudaArray], dim: int, dtype: np.dtype, layout: str) -> CudaArray:
    out, at = blank("cat", arrays, dim, dtype, layout), 0
    for x in arrays:
        if x.shape != (0,):
            copied(x, _window(out, dim, at, at + x.shape[dim]))
            at += x.shape[dim]
    return out


@kernel("stack", repeatable=True)
def stack(arrays: list[CudaArray], dim: int, dtype: np.dtype) -> CudaArray:
    out = blank("stack", arrays, dim, dtype)
    for i, x in enumerate(arrays):
        copied(x, out[(*(_ALL,) * dim, i)])
    return out


@kernel("flip", repeatable=True)
def flip(x: CudaArray, dims: Any) -> CudaArray:
    dims = {d % x.ndim for d in ([dims] if dims.__class__ is int else dims)} if x.ndim else set()
    turned = x[tuple([slice(None, None, -1) if d in dims else _ALL for d in range(x.ndim)])]
    return copied(turned, blank("flip", x, tuple(dims)))


@kernel("roll", repeatable=True)
def roll(x: CudaArray, shifts: Any, dims: Any) -> CudaArray:
    if not dims:  # over all elements in order
        return roll(copied_(x).reshape(-1), shifts, (0,)).reshape(x.shape)
    for shift, dim in zip(shifts, dims):
        n = x.shape[dim % x.ndim] if x.ndim else 1
        made, dim, shift = windows.empty(x.shape, x.dtype), dim % max(x.ndim, 1), shift % max(n, 1)
        if x.ndim:
            copied(_window(x, dim, 0, n - shift), _window(made, dim, shift, n))
            copied(_window(x, dim, n - shift, n), _window(made, dim, 0, shift))
            x = made
    return x if x.base is not None else copied_(x)


@kernel("constant_pad_nd", repeatable=True)
def constant_pad_nd(x: CudaArray, pad: Any, value: Any) -> CudaArray:
    out = blank("constant_pad_nd", x, pad, value)
    fill(out, value)
    inner, source = out, x
    for k in range(len(pad) // 2):
        before, after, dim = pad[2 * k], pad[2 * k + 1], x.ndim - 1 - k
        inner = _window(inner, dim, max(before, 0), inner.shape[dim] - max(after, 0))
        source = _window(source, dim, max(-before, 0), source.shape[dim] - max(-after, 0))
    copied(source, inner)
    return out


@kernel("repeat", repeatable=True)
def repeat(x: CudaArray, repeats: Any) -> CudaArray:
    out = blank("repeat", x, repeats)
    if not out.size:
        return out
    shape = (1,) * (len(repeats) - x.ndim) + x.shape
    copies = out.reshape([n for pair in zip(repeats, shape) for n in pair])
    copied(x.reshape([n for size in shape for n in (1, size)]), copies)
    return out


def _into_zeros(name: str, window: Any) -> None:
    """A kernel that puts its first array into a window of zeros."""
    @kernel(name)
    def put(grad: CudaArray, shape: Any, *where: Any) -> CudaArray:
        out = windows.empty(shape, grad.dtype)
        fill(out, 0)
        copied(grad, window(out, *where))
        return out


_into_zeros("select_backward", lambda x, dim, index: x[(*(_ALL,) * (dim % x.ndim), index)])
_into_zeros("slice_backward", lambda x, dim, start, end, step: _window(x, dim % x.ndim, start, end, step))
_into_zeros("diagonal_backward", lambda x, *where: windows.views(_HOST_KERNELS["diagonal"](windows.bare(x), *where)))


def _view_copies() -> None:
    """`expand_copy` and the like: the view, and then a copy of it."""
    for name in VIEWS:
        if f"{name}_copy" in SHAPES:
            def view_copy(*args: Any, view: Any = _HOST_KERNELS[name]) -> Any:
                made = windows.views(view(*[windows.swapped(a) for a in args]))
                return tuple([copied_(m) for m in made]) if made.__class__ in (list, tuple) else copied_(made)
            kernel(f"{name}_copy")(view_copy)


_view_copies()


def _batch_dims() -> None:
    """Into and out of a level of vmap: the host's functions, which ask for views by name."""
    for name in ("add_batch_dim", "remove_batch_dim"):
        kernel(name)(lambda *args, name=name: _HOST_KERNELS[name](*args))


_batch_dims()


@kernel("unsafe_view")
def unsafe_view(x: CudaArray, shape: Any) -> CudaArray:
    return (x if x.flags.c_contiguous else copied_(x)).reshape(shape)


@kernel("view_dtype")
def view_dtype(x: CudaArray, *geometry: Any) -> CudaArray:
    return windows.views(_HOST_KERNELS["view_dtype"](windows.bare(x), *geometry))
