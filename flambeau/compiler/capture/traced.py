"""`Traced`: the arrays that tensors show while a call is captured."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ...autograd.state import not_repeatable, state
from ...backends import registry
from ..ir.parts import SCALAR
from .symbolic import SymFloat, bare_float, expression_of


class Traced(ndarray):
    """An array whose kernel calls are noted. See the text of tracing.py."""

    original: Any = None   # the array that this one stands for, where it is known

    def __array_ufunc__(self, ufunc: np.ufunc, method: str, *inputs: Any, **kwargs: Any) -> Any:
        not_repeatable(f"NumPy's {ufunc.__name__} was called on a tensor's memory")
        if "out" in kwargs:
            kwargs["out"] = tuple([stripped(o) for o in kwargs["out"]])
        return getattr(ufunc, method)(*[stripped(i) for i in inputs], **kwargs)

    def __array_function__(self, function: Any, types: Any, args: Any, kwargs: Any) -> Any:
        not_repeatable(f"NumPy's {function.__name__} was called on a tensor's memory")
        return function(*[stripped(a) for a in args], **{k: stripped(v) for k, v in kwargs.items()})

    def astype(self, dtype: Any, *args: Any, **kwargs: Any) -> ndarray:
        recorder = active()
        if recorder is None:
            return stripped(self).astype(dtype, *args, **kwargs)
        if not kwargs.get("copy", True) and np.dtype(dtype) == self.dtype:
            return self
        return recorder.made("cast", [self], stripped(self).astype(dtype))

    def copy(self, order: str = "C") -> ndarray:
        recorder = active()
        made = stripped(self).copy(order)
        return made if recorder is None else recorder.made("cast", [self], made)

    def fill(self, value: Any) -> None:
        recorder = active()
        if recorder is None:
            stripped(self).fill(value)
        else:
            recorder.write(self, value)

    def reshape(self, *shape: Any, **kwargs: Any) -> ndarray:
        made = stripped(self).reshape(*shape, **kwargs)
        if np.may_share_memory(made, self) or not made.size:
            return made.view(Traced)
        recorder = active()
        return made if recorder is None else recorder.made("reshape_copy", [self], made)

    def ravel(self, order: str = "C") -> ndarray:
        return self.reshape(-1, order=order)

    def flatten(self, order: str = "C") -> ndarray:
        return self.copy().reshape(-1, order=order)

    def __getitem__(self, key: Any) -> Any:
        if _advanced(key):
            not_repeatable("a tensor was indexed outside of a kernel")
            return stripped(self)[stripped(key)]
        found = super().__getitem__(key)
        if not isinstance(found, ndarray):
            _look(self, "an element of a tensor was read")
        return found

    def __setitem__(self, key: Any, value: Any) -> None:
        if _advanced(key):
            not_repeatable("a tensor was written to outside of a kernel")
        recorder = active()
        if recorder is None:
            stripped(self)[stripped(key)] = stripped(value)
        else:
            window = stripped(self)[key] if key.__class__ is tuple else stripped(self)[(key,)]
            if not isinstance(window, ndarray):
                window = stripped(self)[(*key, ...) if key.__class__ is tuple else (key, ...)]
            recorder.write(window, value)


PLAIN: dict[type, type] = {Traced: ndarray}   # types of traced arrays -> of those that they stand for
TRACED: dict[type, type] = {ndarray: Traced}  # (device.py adds those of a CUDA device)


def _look(array: Any, reason: str) -> None:
    if state.recorder is not None:
        state.recorder.look(array, reason)


def _refuse(what: str) -> Callable[..., Any]:
    def method(self: Traced, *args: Any, **kwargs: Any) -> Any:
        _look(self, "a tensor's value was read")
        return getattr(stripped(self), what)(*args, **kwargs)
    return method


for _name in ("item", "tolist", "tobytes", "argmax", "argmin", "nonzero", "searchsorted", "__bool__", "__float__", "__int__",
              "__index__", "__complex__"):
    setattr(Traced, _name, _refuse(_name))


def _advanced(key: Any) -> bool:
    keys = key if key.__class__ is tuple else (key,)
    return any(isinstance(k, (list, ndarray)) for k in keys)


def stripped(value: Any) -> Any:
    """A Traced array as the plain array over the same memory; a SymFloat as its number."""
    kind = value.__class__
    if kind in PLAIN:
        return value.original if value.original is not None else value.view(PLAIN[kind])
    if kind is SymFloat:
        return bare_float(value)
    if kind is list or kind is tuple:
        return kind([stripped(v) for v in value])
    return value


def active() -> Any:
    """The capture that is going on in this thread (a `Recorder`, or None)."""
    return state.recorder


def traced(array: ndarray) -> Traced:
    if array.__class__ in PLAIN:
        return array
    made = array.view(TRACED[array.__class__])
    made.original = array
    return made


def scalar(number: SymFloat, dtype: np.dtype) -> ndarray:
    """A run-time number as a zero-dim array for kernels."""
    recorder = active()
    array = np.asarray(bare_float(number), dtype)
    if recorder is None:
        return array
    storage = recorder.new_storage(SCALAR, array)
    storage.expression = expression_of(number)
    return traced(array)


registry.run_time = lambda value, dtype: scalar(value, dtype) if value.__class__ is SymFloat else None
