"""NumPy's words for arrays on a device: CuPy's, and what it has under another name, or not quite (over_cupy.py)."""

from __future__ import annotations

import functools
import importlib
from types import ModuleType
from typing import Any

import numpy


@functools.cache
def cupy() -> Any:
    """CuPy; None where it is not installed."""
    try:
        return importlib.import_module("cupy")
    except ImportError:
        return None


class Like(ModuleType):
    """A module that stands for others: its own names first, then those of each."""

    def __init__(self, name: str, *others: Any, **own: Any):
        super().__init__(name)
        self.__dict__.update(own, _others=others)

    def __getattr__(self, name: str) -> Any:
        for other in self.__dict__["_others"]:
            found = getattr(other, name, None)
            if found is not None:
                found = self.__dict__[name] = self._adapted(name, found)
                return found
        raise AttributeError(f"{self.__name__} has no {name}")

    def _adapted(self, name: str, found: Any) -> Any:
        return found


_REDUCED = dict(maximum="max", minimum="min", fmax="nanmax", fmin="nanmin", logical_and="all", logical_or="any")


class _Function:
    """One of NumPy's functions of elements: `out=...` means nothing here, and reductions have other names in CuPy."""

    def __init__(self, name: str, function: Any):
        self.function = function
        self.reduced = getattr(cupy(), _REDUCED[name]) if name in _REDUCED else None

    def __call__(self, *args: Any, out: Any = None, **kwargs: Any) -> Any:
        return self.function(*args, **kwargs) if out is None or out is Ellipsis else self.function(*args, out=out, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.function, name)

    def reduce(self, x: Any, axis: Any = 0, dtype: Any = None, out: Any = None, keepdims: bool = False) -> Any:
        out = None if out is Ellipsis else out
        if self.reduced is None:
            return self.function.reduce(x, axis, dtype, out, keepdims)
        return self.reduced(x, axis=axis, out=out, keepdims=keepdims)


class _NumPy(Like):
    def _adapted(self, name: str, found: Any) -> Any:
        return _Function(name, found) if isinstance(found, cupy().ufunc) else found


def copyto(out: Any, source: Any, casting: str = "unsafe", where: Any = True) -> None:
    cupy().copyto(out, source, casting=casting, where=where)


def vecdot(x: Any, y: Any) -> Any:
    return (x.conj() * y).sum(-1)


def take(x: Any, at: Any, axis: Any = None, out: Any = None, mode: str = "clip") -> Any:
    return cupy().take(x, at, axis, out)


def prod(x: Any, *args: Any, **kwargs: Any) -> Any:
    return (numpy if isinstance(x, (tuple, list)) else cupy()).prod(x, *args, **kwargs)


def array(x: Any, *args: Any, subok: bool = False, **kwargs: Any) -> Any:
    return cupy().array(x, *args, **kwargs)


def empty_like(x: Any, dtype: Any = None, order: str = "K", subok: bool = False) -> Any:
    return cupy().empty_like(x, dtype, order)


def clip(x: Any, low: Any, high: Any, out: Any = None) -> Any:
    return cupy().clip(x, low, high, None if out is Ellipsis else out)


@functools.cache
def numpy_words() -> Like:
    """What stands for the module `numpy`."""
    host = ("errstate", "seterr", "dtype", "finfo", "iinfo", "broadcast_shapes", "result_type", "generic", "ufunc")
    return _NumPy("numpy", cupy(), numpy, copyto=copyto, vecdot=vecdot, take=take, prod=prod, array=array,
                  empty_like=empty_like, fft=cupy().fft, _core=Like("numpy._core", umath=Like("numpy._core.umath", clip=clip)),
                  linalg=Like("numpy.linalg", cupy().linalg, numpy.linalg), **{name: getattr(numpy, name) for name in host})
