"""Sharing a batch of matrix products among the cores by our own threads instead of BLAS's.

Two threads that each work through half of a batch, copies included, beat two threads inside every single product: they
meet once instead of once per product, and they do not stall each other when the machine is busy. For that BLAS has to
use one thread meanwhile. NumPy has no switch for it, but the OpenBLAS inside NumPy does; where it cannot be found,
BLAS's own threads do the work.
"""

from __future__ import annotations

import ctypes
import glob
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np

from .. import parallel

_PREFIXES = (("scipy_openblas_", "64_"), ("scipy_openblas_", ""), ("openblas_", "64_"), ("openblas_", ""))
_lock = threading.Lock()
_inside = 0
_before = 1
_switch: Any = None  # (get, set), or False when there is none


def _find() -> Any:
    """The functions of NumPy's own OpenBLAS that read and set its number of threads."""
    home = os.path.dirname(np.__file__)
    found = glob.glob(os.path.join(home + ".libs", "*openblas*")) + glob.glob(os.path.join(home, ".dylibs",
                                                                                           "*openblas*"))
    for path in found:
        try:
            library = ctypes.CDLL(path)
        except OSError:
            continue
        for prefix, suffix in _PREFIXES:
            get = getattr(library, f"{prefix}get_num_threads{suffix}", None)
            change = getattr(library, f"{prefix}set_num_threads{suffix}", None)
            if get is not None and change is not None:
                change.argtypes, change.restype, get.restype = [ctypes.c_int], None, ctypes.c_int
                return get, change
    return False


def _enter() -> None:
    global _inside, _before
    with _lock:
        if _inside == 0:
            _before = _switch[0]()
            _switch[1](1)
        _inside += 1


def _leave() -> None:
    global _inside
    with _lock:
        _inside -= 1
        if _inside == 0:
            _switch[1](_before)


def split(count: int, work: Callable[[int, int], None], large: bool) -> None:
    """work(start, stop) over pieces of range(count): one per core if it is large and BLAS can be kept to one thread."""
    global _switch
    if not large or count < 2 or parallel.get_num_threads() < 2:
        work(0, count)
        return
    if _switch is None:
        _switch = _find()
    if _switch is False:
        work(0, count)
        return
    _enter()
    try:
        parallel.split(count, work)
    finally:
        _leave()
