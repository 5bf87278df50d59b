"""Optimizer updates over lists of arrays, in place, and clipping of gradients by their norm.

Native code (native/optim.c) takes a whole group in one call. Without it, and for arrays that it does not serve (mixed dtypes,
half precision, holes), a rule answers False and has changed nothing: the optimizer then does it with tensor operations.
"""

from __future__ import annotations

from operator import itemgetter
from typing import Any

import numpy as np
from numpy import ndarray

from ....native import library
from ... import facts
from ..table import KERNELS, kernel

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


# Of each rule the arrays of its state, lists that are empty where an option does without them, and its zero-dim counts (NAdam's
# products are those of its momentum factors). Behind parameters, gradients and these come the numbers of native/optim_rules.h.
RULES = {"sgd": ("buffers", ""), "adam": ("averages squares largest", "steps"), "rmsprop": ("squares buffers means", "steps"),
         "adagrad": ("sums", "steps"), "adadelta": ("squares deltas", "steps"), "adamax": ("averages largest", "steps"),
         "nadam": ("averages squares", "steps products"), "radam": ("averages squares", "steps")}


def _enter(name: str, states: list[str], counts: list[str]) -> None:
    """Enters the kernel `fused_<name>`: one native update; False when it cannot be done."""
    held, end = len(states), len(states) + len(counts)
    seven = itemgetter(0, 1, *range(2, 2 + held), *[-1] * (3 - held), *range(2 + held, 2 + end), *[-1] * (2 - len(counts)))

    def update(*args: Any) -> bool:
        lib = _functions()
        if lib is None:
            return False
        table, kind = _collected(lib, seven((*args, _NONE)), 2)
        if not kind:
            return False
        wide = ((kind - 1) >> 1,) if counts else ()
        _function(lib, name, kind)(table, len(args[0]), *wide, *args[2 + end:])
        return True

    KERNELS[f"fused_{name}"] = update
    facts.enter(f"fused_{name}", ("params", "grads", *states, *counts), {"writes": " ".join(["params", *states, *counts])})


for _name, (_states, _counts) in RULES.items():
    _enter(_name, _states.split(), _counts.split())


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
