"""Optimizer updates of many tensors in one kernel call. Each returns False when the tensors are not plain enough for it
(mixed dtypes, complex, half precision, other devices), and then the optimizer does it one tensor at a time."""

from __future__ import annotations

from typing import Any

from ..autograd.node import start_counter, user_frame
from ..backends import registry
from ..backends.cpu import optim as kernels
from ..tensor import Tensor, wrap

ndarray = registry.CPU_ARRAY


def _plain(*groups: list[Tensor]) -> bool:
    """Whether all are contiguous float32 or all float64 CPU arrays."""
    native = groups[0][0]._array.dtype
    if native.char not in "fd":
        return False
    for tensors in groups:
        for t in tensors:
            a = t._array
            if type(a) is not ndarray or a.dtype is not native or not a.flags.c_contiguous:
                return False
    return not any([t.is_sparse for t in groups[1]])  # gradients


def _written(*groups: list[Tensor]) -> None:
    """Counts the changes; one look at the stack finds the line that made them all."""
    frame = user_frame()
    where = None if frame is None else (frame.f_code, frame.f_lasti)
    for tensors in groups:
        for t in tensors:
            counter = t._counter
            if counter is None:
                counter = start_counter(t)
            counter.value += 1
            counter.where = where


def _arrays(tensors: list[Tensor]) -> list[Any]:
    return [t._array for t in tensors]


def sgd(params, grads, buffers: list[Any], lr, momentum, dampening, weight_decay, nesterov, maximize) -> bool:
    known = [b for b in buffers if b is not None]
    if not _plain(params, grads, known):
        return False
    made = kernels.sgd(_arrays(params), _arrays(grads), [None if b is None else b._array for b in buffers], lr, momentum,
                       dampening, weight_decay, nesterov, maximize)
    if momentum:
        for i, array in enumerate(made):
            if buffers[i] is None:
                buffers[i] = wrap(array)
    _written(params, known)
    return True


def adam(params, grads, states, *, lr, beta1, beta2, eps, weight_decay, decoupled, amsgrad, maximize) -> bool:
    averages = [s["exp_avg"] for s in states]
    squares = [s["exp_avg_sq"] for s in states]
    largest = [s["max_exp_avg_sq"] for s in states] if amsgrad else []
    if not _plain(params, grads, averages, squares, largest):
        return False
    steps = []
    for s in states:
        step = s["step"]
        if step._array.ndim:
            return False
        steps.append(step._array)
    kernels.adam(_arrays(params), _arrays(grads), _arrays(averages), _arrays(squares), _arrays(largest), steps, lr, beta1,
                 beta2, eps, weight_decay, decoupled, maximize)
    _written(params, averages, squares, largest)
    return True
