"""Optimizer updates and clipping of many tensors in one kernel call. Each returns False when the tensors are not plain enough
for it (mixed dtypes, complex, half precision), and then the caller does it one tensor at a time.

Hyper-parameters go to the kernels as they are: in a captured program they are values that the program reads at each run.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ...autograd.frames import user_frame
from ...autograd.node import start_counter
from ...autograd.state import DISPATCH, FOLLOW, state
from ...backends import registry
from ...backends.cpu.layers import optim as _kernels  # noqa: F401  (enters the kernels into the table)
from ...backends.cpu.memory import dense_order
from ...backends.cpu.table import KERNELS
from ...tensors.tensor import Tensor, wrap

ndarray = registry.CPU_ARRAY


def _call(kernel: str, lists: tuple[list[Any], ...], numbers: tuple[Any, ...]) -> Any:
    """Runs a kernel over lists of arrays; False if it does not serve them. CPU kernels look at the arrays themselves."""
    first = lists[0][0]
    if state.mode & DISPATCH:  # a mode is to see every operation
        return False
    if type(first) is ndarray and not state.mode & FOLLOW:
        return KERNELS[kernel](*lists, *numbers)
    if type(first) in registry.EAGER:
        lists = _as_in_memory(lists)
    dtype = first.dtype
    arrays = []
    for k, some in enumerate(lists):
        for a in some:
            if not a.flags.c_contiguous or (a.dtype is not dtype and (k < 2 or a.ndim)):  # counts have a dtype of their own
                return False
            arrays.append(a)
    backend = registry.common(arrays)
    if dtype.char not in "fd" or backend.NAME in ("meta", "wrapper", "pending") or (
            backend.NAME == "cuda" and kernel not in backend.KERNELS):
        return False
    return backend.call(kernel, (*lists, *numbers))


def _as_in_memory(lists: tuple[list[Any], ...]) -> tuple[list[Any], ...]:
    """Arrays of one geometry without holes, such as channels-last ones, with their dimensions in memory's order: then they are
    contiguous. Others stay as they are."""
    made = [list(some) for some in lists]
    for i, first in enumerate(lists[0]):
        if first.flags.c_contiguous:
            continue
        order = dense_order(first)
        if order is None:
            return lists
        for some in made:
            if len(some) > i and some[i].ndim:
                if some[i].shape != first.shape or some[i].strides != first.strides:
                    return lists
                some[i] = some[i].transpose(order)
    return tuple(made)


def _written(*groups: list[Tensor]) -> None:
    """Counts the changes; one look at the stack finds the line that made them all."""
    frame = user_frame()
    where = None if frame is None else (frame.f_code, frame.f_lasti)
    for tensors in groups:
        for t in tensors:
            counter = t._counter
            if counter is None:
                counter = start_counter(t)
            counter.value = counter.at = counter.value + 1
            counter.where = where


def _arrays(tensors: list[Tensor]) -> list[Any]:
    return [t._array for t in tensors]


def update(kernel: str, params: list[Tensor], grads: list[Tensor], parts: Sequence[list[Tensor]],
           counts: Sequence[list[Tensor]], numbers: tuple[Any, ...]) -> bool:
    """One step of an optimizer's kernel; `parts` are the state that has the parameters' shapes, `counts` the zero-dim one."""
    lists = ([p._array for p in params], [g._array for g in grads], *map(_arrays, parts), *map(_arrays, counts))
    if _call(kernel, lists, numbers) is False:
        return False
    _written(params, *parts)
    return True


def total_norm(tensors: list[Tensor], order: Any) -> Tensor | None:
    """The norm of all tensors as one vector, zero-dim; None where there is no kernel for it."""
    if not all([t._without_overrides for t in tensors]):
        return None
    made = _call("fused_norm", (_arrays(tensors),), (order,))
    return None if made is False else wrap(made)


def clip(tensors: list[Tensor], norm: Tensor, max_norm: Any) -> bool:
    """Scales the tensors in place, whose norm is `norm`, so that it becomes max_norm if it is more."""
    if not all([t._without_overrides for t in tensors]) or not norm._without_overrides:
        return False
    arrays = _arrays(tensors)
    if registry.backend_of(arrays[0]) is not registry.backend_of(norm._array):
        return False
    if _call("fused_clip", (arrays,), (norm._array, max_norm)) is False:
        return False
    _written(tensors)
    return True
