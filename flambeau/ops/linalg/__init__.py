"""The gate to linear algebra and signal processing: their files are imported when one of their names is first called.

They are a third of the op table and most programs need none of it, so `import flambeau` does not pay for them.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from importlib import import_module
from typing import Any

from ...tensors.tensor import Tensor
from ..core import overrides as _overrides
from ..core.row import FUNCTIONS

# file -> (names in flambeau and methods of Tensor, names in flambeau alone)
_FILES = {
    "products": ("kron trace cross matrix_power", "einsum tensordot chain_matmul cdist"),
    "solve": ("inverse det slogdet logdet triangular_solve cholesky cholesky_inverse cholesky_solve lu lu_solve",
                     "lu_unpack _lu_with_info"),
    "decompose": ("qr geqrf orgqr ormqr svd pinverse", "svd_lowrank pca_lowrank"),
    "lobpcg": ("", "lobpcg"),
    "norms": ("", "frobenius_norm nuclear_norm"),
    "misc": ("matrix_exp", "vander"),
    "signal": ("stft istft", "hann_window hamming_window blackman_window bartlett_window kaiser_window"),
}


_loaded: set[str] = set()


def _later(name: str, file: str) -> Callable:
    """Stands for a function; the first call imports its file, which enters the function itself in the table."""
    def function(*args: Any, **kwargs: Any) -> Any:
        if file not in _loaded:
            load(file)
        return FUNCTIONS[name](*args, **kwargs)

    function.__name__ = function.__qualname__ = name
    function.__module__ = __package__.partition(".")[0]  # where users find it
    return function


def load(file: str) -> None:
    """Imports one file. The stand-ins remain what users see, so that tables of overrides made beforehand keep their keys."""
    import_module("." + file, __name__)
    _loaded.add(file)
    methods, functions = (names.split() for names in _FILES[file])
    for name in (*methods, *functions):
        standin, real = _STANDINS[name], FUNCTIONS[name]
        if real is not standin:
            _overrides.STAND_INS[real] = functools.update_wrapper(standin, real)
            if name in methods:
                setattr(Tensor, name, standin)


def load_all() -> None:
    for file in _FILES:
        load(file)


_STANDINS: dict[str, Callable] = {}
for _file, (_methods, _functions) in _FILES.items():
    for _name in (*_methods.split(), *_functions.split()):
        FUNCTIONS[_name] = _STANDINS[_name] = _later(_name, _file)
    for _name in _methods.split():
        setattr(Tensor, _name, _STANDINS[_name])
