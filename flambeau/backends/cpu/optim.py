"""Optimizer updates over lists of arrays, in place. One scratch buffer serves all tensors of a call.

For small tensors the cost is the number of NumPy calls: numbers come as arrays (`_number`; NumPy takes as long over a
Python number as over the work), results go to `out` by position, and scratch views are kept by shape.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from .parallel import split

_multiply, _add, _subtract, _divide, _sqrt = np.multiply, np.add, np.subtract, np.divide, np.sqrt


class _Scratch:
    """Two reusable buffers as long as the largest array, seen in the shape of each."""

    def __init__(self, arrays: list[ndarray], dtype: np.dtype):
        self.dtype = dtype
        size = max([a.size for a in arrays], default=0)
        self.first, self.second = np.empty(size, self.dtype), np.empty(size, self.dtype)
        self.pairs: dict[tuple[int, ...], tuple[ndarray, ndarray]] = {}

    def pair(self, like: ndarray) -> tuple[ndarray, ndarray]:
        shape = like.shape
        found = self.pairs.get(shape)
        if found is None:
            n = like.size
            found = self.pairs[shape] = self.first[:n].reshape(shape), self.second[:n].reshape(shape)
        return found

    def number(self, value: float) -> ndarray:
        return np.asarray(value, self.dtype)


_LARGE = 1 << 16  # elements from which an update goes block by block, on all cores
_BLOCK = 1 << 14  # elements that stay in a core's cache through all steps


def _in_blocks(work: Any, arrays: tuple[ndarray, ...], like: ndarray) -> None:
    """work(*pieces, scratch, scratch) over contiguous arrays of one size, shared among the cores."""
    flat = [a.reshape(-1) for a in arrays]

    def share(start: int, stop: int) -> None:
        t, u = np.empty(_BLOCK, like.dtype), np.empty(_BLOCK, like.dtype)
        for i in range(start, stop, _BLOCK):
            j = min(i + _BLOCK, stop)
            work(*[a[i:j] for a in flat], t[:j - i], u[:j - i])

    split(like.size, share)


def sgd(params: list[ndarray], grads: list[ndarray], buffers: list[Any], lr: float, momentum: float, dampening: float,
        weight_decay: float, nesterov: bool, maximize: bool) -> list[Any]:
    """One step of SGD; returns the momentum buffers, making those that are None."""
    scratch = _Scratch(params, params[0].dtype)
    rate, decay, keep, take = map(scratch.number, (lr, weight_decay, momentum, 1 - dampening))
    pair = scratch.pair
    for i, (p, grad) in enumerate(zip(params, grads)):
        t, u = pair(p)
        if maximize:
            grad = np.negative(grad, t)
        if weight_decay:
            grad = _add(grad, _multiply(p, decay, u), t)
        if momentum:
            buffer = buffers[i]
            if buffer is None:
                buffer = buffers[i] = grad.copy()
            else:
                _multiply(buffer, keep, buffer)
                _add(buffer, grad if not dampening else _multiply(grad, take, u), buffer)
            grad = _add(grad, _multiply(buffer, keep, u), t) if nesterov else buffer
        _subtract(p, _multiply(grad, rate, u), p)
    return buffers


def adam(params: list[ndarray], grads: list[ndarray], averages: list[ndarray], squares: list[ndarray],
         largest: list[ndarray], steps: list[ndarray], lr: float, beta1: float, beta2: float, eps: float,
         weight_decay: float, decoupled: bool, maximize: bool) -> None:
    """One step of Adam (AdamW when decoupled; amsgrad when `largest` is given). `steps` are zero-dim counts."""
    scratch = _Scratch([p for p in params if p.size < _LARGE], params[0].dtype)
    decay, shrink, rest1, rest2, keep2, little = map(scratch.number, (
        weight_decay, 1 - lr * weight_decay, 1 - beta1, 1 - beta2, beta2, eps))
    pair = scratch.pair
    count, root, rate = -1.0, little, little

    def work(p, grad, m, v, most, t, u):
        if maximize:
            grad = np.negative(grad, t)
        if weight_decay:
            if decoupled:
                _multiply(p, shrink, p)
            else:
                grad = _add(grad, _multiply(p, decay, u), t)
        # m += (grad - m) * (1 - beta1);  v = v * beta2 + grad * grad * (1 - beta2)
        _subtract(grad, m, u)
        _multiply(u, rest1, u)
        _add(m, u, m)
        _multiply(grad, grad, u)
        _multiply(u, rest2, u)
        _multiply(v, keep2, v)
        _add(v, u, v)
        if largest:
            v = np.maximum(most, v, out=most)
        _sqrt(v, u)
        _divide(u, root, u)
        _add(u, little, u)
        _divide(m, u, u)
        _multiply(u, rate, u)
        _subtract(p, u, p)

    for i, (p, grad, m, v, step) in enumerate(zip(params, grads, averages, squares, steps)):
        now = step.item() + 1
        step.fill(now)
        if now != count:
            count = now
            root, rate = scratch.number((1 - beta2 ** count) ** 0.5), scratch.number(lr / (1 - beta1 ** count))
        arrays = p, grad, m, v, largest[i] if largest else v
        if p.size < _LARGE:
            work(*arrays, *pair(p))
        else:
            _in_blocks(work, arrays, p)
