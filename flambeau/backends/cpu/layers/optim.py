"""Optimizer updates over lists of arrays, in place, and clipping of gradients by their norm.

Native code (native/optim.c) takes a whole group in one call. Without it, and for arrays that it does not serve (mixed dtypes,
half precision, holes), a rule answers False and has changed nothing: the optimizer then does it with tensor operations.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from ..table import kernel

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
        return False
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
    return _update("adam", averages, squares, largest, steps, _NONE, params, grads,
                   (lr, beta1, beta2, eps, weight_decay, decoupled, maximize))
