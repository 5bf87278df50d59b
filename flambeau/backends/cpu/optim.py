"""Optimizer updates over lists of arrays, in place. One scratch buffer serves all tensors of a call."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

_multiply, _add, _subtract, _divide, _sqrt = np.multiply, np.add, np.subtract, np.divide, np.sqrt


class _Scratch:
    """Two reusable buffers as long as the largest array."""

    def __init__(self, arrays: list[ndarray]):
        size = max(a.size for a in arrays)
        self.first, self.second = np.empty(size, arrays[0].dtype), np.empty(size, arrays[0].dtype)

    def pair(self, like: ndarray) -> tuple[ndarray, ndarray]:
        n = like.size
        return self.first[:n].reshape(like.shape), self.second[:n].reshape(like.shape)


def sgd(params: list[ndarray], grads: list[ndarray], buffers: list[Any], lr: float, momentum: float, dampening: float,
        weight_decay: float, nesterov: bool, maximize: bool) -> list[Any]:
    """One step of SGD; returns the momentum buffers, making those that are None."""
    scratch = _Scratch(params)
    for i, (p, grad) in enumerate(zip(params, grads)):
        t, u = scratch.pair(p)
        if maximize:
            grad = np.negative(grad, out=t)
        if weight_decay:
            grad = _add(grad, _multiply(p, weight_decay, out=u), out=t)
        if momentum:
            buffer = buffers[i]
            if buffer is None:
                buffer = buffers[i] = grad.copy()
            else:
                _multiply(buffer, momentum, out=buffer)
                _add(buffer, grad if not dampening else _multiply(grad, 1 - dampening, out=u), out=buffer)
            grad = _add(grad, _multiply(buffer, momentum, out=u), out=t) if nesterov else buffer
        _subtract(p, _multiply(grad, lr, out=u), out=p)
    return buffers


def adam(params: list[ndarray], grads: list[ndarray], averages: list[ndarray], squares: list[ndarray],
         largest: list[ndarray], steps: list[ndarray], lr: float, beta1: float, beta2: float, eps: float,
         weight_decay: float, decoupled: bool, maximize: bool) -> None:
    """One step of Adam (AdamW when decoupled; amsgrad when `largest` is given). `steps` are zero-dim counts."""
    scratch = _Scratch(params)
    for i, (p, grad, m, v, step) in enumerate(zip(params, grads, averages, squares, steps)):
        t, u = scratch.pair(p)
        step += 1
        count = float(step)
        if maximize:
            grad = np.negative(grad, out=t)
        if weight_decay:
            if decoupled:
                _multiply(p, 1 - lr * weight_decay, out=p)
            else:
                grad = _add(grad, _multiply(p, weight_decay, out=u), out=t)
        # m += (grad - m) * (1 - beta1);  v = v * beta2 + grad * grad * (1 - beta2)
        _subtract(grad, m, out=u)
        _multiply(u, 1 - beta1, out=u)
        _add(m, u, out=m)
        _multiply(grad, grad, out=u)
        _multiply(u, 1 - beta2, out=u)
        _multiply(v, beta2, out=v)
        _add(v, u, out=v)
        if largest:
            v = np.maximum(largest[i], v, out=largest[i])
        _sqrt(v, out=u)
        _divide(u, (1 - beta2 ** count) ** 0.5, out=u)
        _add(u, eps, out=u)
        _divide(m, u, out=u)
        _multiply(u, lr / (1 - beta1 ** count), out=u)
        _subtract(p, u, out=p)
