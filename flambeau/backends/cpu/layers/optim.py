"""Optimizer updates over lists of arrays, in place, and clipping of gradients by their norm.

Native code (native/optim.c) takes a whole group in one call. Without it SGD and Adam run here on NumPy with one scratch buffer
for all tensors of a call, and the other rules answer False: the optimizer then does them with tensor operations. False is
also the answer of all to arrays they do not serve (mixed dtypes, half precision, holes); nothing has been changed then.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from ..parallel import split
from ..table import kernel

_multiply, _add, _subtract, _divide, _sqrt = np.multiply, np.add, np.subtract, np.divide, np.sqrt
_FLOAT32, _FLOAT64 = np.dtype(np.float32), np.dtype(np.float64)
_COLUMNS = 8  # entries of a tensor in the native table
_NONE: list[ndarray] = []
_Arrays = list[ndarray]


# ------------------------------------------------------------------------------------------------------- native calls
def _functions() -> Any:
    """The native library, told how objects lie in memory; None where there is none."""
    lib = library("optim")
    if lib is not None and not hasattr(lib, "told"):
        head = object.__basicsize__  # a list is a header, a length, a pointer; a tuple's items follow its fixed part
        lib.fl_layout(head, tuple.__basicsize__, head + 8, id(ndarray), id(_FLOAT32), id(_FLOAT64))
        lib.told = True
    return lib


def _function(lib: Any, name: str, kind: int) -> Any:
    """The function for the kind of arrays that fl_collect found: float32 ones if it is odd, else float64."""
    return getattr(lib, f"fl_{name}_f32" if kind & 1 else f"fl_{name}_f64")


def _collected(lib: Any, columns: tuple[_Arrays, ...], counts: int) -> tuple[ndarray, int]:
    """The native table of seven lists of arrays, and what they are (0: not to be served; see fl_collect)."""
    table = np.empty(_COLUMNS * len(columns[0]), np.int64)
    return table, lib.fl_collect(id(columns), counts, table)


def _update(name: str, first: _Arrays, second: _Arrays, third: _Arrays, steps: _Arrays, products: _Arrays, params: _Arrays,
            grads: _Arrays, numbers: tuple[Any, ...]) -> bool:
    """One native update; False when it cannot be done."""
    lib = _functions()
    if lib is None:
        return False
    table, kind = _collected(lib, (params, grads, first, second, third, steps, products), 2)
    if not kind:
        return False
    _function(lib, name, kind)(table, len(params), (kind - 1) >> 1, *numbers)
    return True


@kernel(writes="params squares buffers means steps")
def fused_rmsprop(params: _Arrays, grads: _Arrays, squares: _Arrays, buffers: _Arrays, means: _Arrays, steps: _Arrays,
                  lr: float, alpha: float, eps: float, weight_decay: float, momentum: float, maximize: bool) -> bool:
    """RMSprop; `buffers` and `means` are empty without momentum and where the mean is not subtracted."""
    return _update("rmsprop", squares, buffers, means, steps, _NONE, params, grads,
                   (lr, alpha, eps, weight_decay, momentum, maximize))


@kernel(writes="params sums steps")
def fused_adagrad(params: _Arrays, grads: _Arrays, sums: _Arrays, steps: _Arrays, lr: float, lr_decay: float, eps: float,
                  weight_decay: float, maximize: bool) -> bool:
    return _update("adagrad", sums, _NONE, _NONE, steps, _NONE, params, grads, (lr, lr_decay, eps, weight_decay, maximize))


@kernel(writes="params squares deltas steps")
def fused_adadelta(params: _Arrays, grads: _Arrays, squares: _Arrays, deltas: _Arrays, steps: _Arrays, lr: float, rho: float,
                   eps: float, weight_decay: float, maximize: bool) -> bool:
    return _update("adadelta", squares, deltas, _NONE, steps, _NONE, params, grads, (lr, rho, eps, weight_decay, maximize))


@kernel(writes="params averages largest steps")
def fused_adamax(params: _Arrays, grads: _Arrays, averages: _Arrays, largest: _Arrays, steps: _Arrays, lr: float,
                 beta1: float, beta2: float, eps: float, weight_decay: float, maximize: bool) -> bool:
    return _update("adamax", averages, largest, _NONE, steps, _NONE, params, grads,
                   (lr, beta1, beta2, eps, weight_decay, maximize))


@kernel(writes="params averages squares steps products")
def fused_nadam(params: _Arrays, grads: _Arrays, averages: _Arrays, squares: _Arrays, steps: _Arrays, products: _Arrays,
                lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, momentum_decay: float,
                decoupled: bool, maximize: bool) -> bool:
    """NAdam; `products` are the products of all its momentum factors, zero-dim as the counts are."""
    return _update("nadam", averages, squares, _NONE, steps, products, params, grads,
                   (lr, beta1, beta2, eps, weight_decay, momentum_decay, decoupled, maximize))


@kernel(writes="params averages squares steps")
def fused_radam(params: _Arrays, grads: _Arrays, averages: _Arrays, squares: _Arrays, steps: _Arrays, lr: float, beta1: float,
                beta2: float, eps: float, weight_decay: float, decoupled: bool, maximize: bool) -> bool:
    return _update("radam", averages, squares, _NONE, steps, _NONE, params, grads,
                   (lr, beta1, beta2, eps, weight_decay, decoupled, maximize))


# ----------------------------------------------------------------------------------------------------------- clipping
@kernel
def fused_norm(arrays: _Arrays, order: float) -> Any:
    """The norm of order 1, 2 or infinity of all arrays laid end to end, zero-dim; False where that is not served."""
    lib = _functions() if order in (1, 2, np.inf) else None
    if lib is None:
        return False
    table, kind = _collected(lib, (arrays, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE), 0)
    if not kind:
        return False
    out = np.empty((), arrays[0].dtype)
    _function(lib, "total_norm", kind)(table, len(arrays), order, out)
    return out


@kernel(writes="arrays")
def fused_clip(arrays: _Arrays, norm: ndarray, max_norm: float) -> bool:
    """Multiplies all arrays by max_norm / (norm + 1e-6) if that is below one."""
    lib = _functions()
    if lib is None or norm.ndim or norm.dtype is not arrays[0].dtype:
        return False
    table, kind = _collected(lib, (arrays, _NONE, _NONE, _NONE, _NONE, _NONE, _NONE), 0)
    if not kind:
        return False
    _function(lib, "clip", kind)(table, len(arrays), norm, max_norm)
    return True


# ------------------------------------------------------------------------------------------------------- SGD and Adam
@kernel(writes="params buffers")
def fused_sgd(params: _Arrays, grads: _Arrays, buffers: _Arrays, lr: float, momentum: float, dampening: float,
              weight_decay: float, nesterov: bool, maximize: bool, first: bool) -> bool:
    """One step of SGD; with `first` the momentum buffers (empty without momentum) are new and all zero."""
    lib = _functions()
    if lib is None:
        return _plain(params, grads, buffers) and _sgd(params, grads, buffers, lr, momentum, dampening, weight_decay, nesterov,
                                                       maximize, first)
    table, kind = _collected(lib, (params, grads, buffers, _NONE, _NONE, _NONE, _NONE), 0)
    if not kind:
        return False
    _function(lib, "sgd", kind)(table, len(params), lr, momentum, dampening, weight_decay, nesterov, maximize, first)
    return True


@kernel(writes="params averages squares largest steps")
def fused_adam(params: _Arrays, grads: _Arrays, averages: _Arrays, squares: _Arrays, largest: _Arrays, steps: _Arrays,
               lr: float, beta1: float, beta2: float, eps: float, weight_decay: float, decoupled: bool,
               maximize: bool) -> bool:
    """One step of Adam (AdamW when decoupled; amsgrad when `largest` is given). `steps` are zero-dim counts."""
    numbers = lr, beta1, beta2, eps, weight_decay, decoupled, maximize
    if library("optim") is not None:
        return _update("adam", averages, squares, largest, steps, _NONE, params, grads, numbers)
    if not _plain(params, grads, averages, squares, largest) or any([s.ndim for s in steps]):
        return False
    return _adam(params, grads, averages, squares, largest, steps, *numbers)


# ----------------------------------------------------------------------------------------------------------- on NumPy
def _plain(*groups: _Arrays) -> bool:
    """Whether all are contiguous float32 or all contiguous float64 arrays."""
    dtype = groups[0][0].dtype
    if dtype.char not in "fd":
        return False
    for arrays in groups:
        for a in arrays:
            if type(a) is not ndarray or a.dtype is not dtype or not a.flags.c_contiguous:
                return False
    return True


class _Scratch:
    """Two reusable buffers as long as the largest array, seen in the shape of each.

    For small tensors the cost is the number of NumPy calls: numbers come as arrays (`number`; NumPy takes as long over a
    Python number as over the work), results go to `out` by position, and scratch views are kept by shape.
    """

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


def _sgd(params: _Arrays, grads: _Arrays, buffers: _Arrays, lr: float, momentum: float, dampening: float,
         weight_decay: float, nesterov: bool, maximize: bool, first: bool) -> bool:
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
            if first:
                buffer[...] = grad
            else:
                _multiply(buffer, keep, buffer)
                _add(buffer, grad if not dampening else _multiply(grad, take, u), buffer)
            grad = _add(grad, _multiply(buffer, keep, u), t) if nesterov else buffer
        _subtract(p, _multiply(grad, rate, u), p)
    return True


def _adam(params: _Arrays, grads: _Arrays, averages: _Arrays, squares: _Arrays, largest: _Arrays, steps: _Arrays, lr: float,
          beta1: float, beta2: float, eps: float, weight_decay: float, decoupled: bool, maximize: bool) -> bool:
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
    return True
