"""Operations that replace part of a tensor: one row gives both `name` and `name_`.

In place they write straight into the tensor's memory. The general way (compute a result, then copy it over) would touch
the whole tensor for every few elements changed.
"""

from __future__ import annotations

import functools
import warnings
from collections.abc import Callable
from typing import Any

from ...autograd import state as _state
from ...autograd.state import state
from ...autograd.views import check_creation, check_inplace, edge_of, set_history, written
from ...backends import registry
from ...backends.cpu.arrays import has_overlap
from ...backends.cpu.table import KERNELS
from ...backends.facts import APART, LENIENT
from ...tensors.tensor import Tensor, wrap
from ..core import overrides as _overrides
from ..core.row import (
    COMPLEX32,
    NO_RECORD,
    Row,
    alias_of,
    check_overlap,
    check_writable,
    enter_inplace,
    other_names,
    public,
    store,
)

ndarray = registry.CPU_ARRAY


def _check_target(self: Tensor, kernel: str) -> None:
    """Whether the tensor can be written to: not where elements share a place, except by the lenient ones."""
    try:
        check_writable(self)
    except RuntimeError:
        if kernel not in LENIENT:
            raise
        warnings.warn(f"Use of {kernel}_ on expanded tensors is deprecated. Please clone() the tensor before performing "
                      "this operation. This also applies to advanced indexing e.g. tensor[indices] = tensor", stacklevel=4)


def write_row(self: Tensor, r: Row, args: tuple[Any, ...]) -> Tensor:
    """Runs a row in place on its first argument."""
    check_inplace(self)
    array, mode = self._array, state.mode
    if array.dtype is COMPLEX32:
        r.check_half()
    if r.kernel in APART:
        check_overlap(array, args, full=True)
    into = KERNELS.get(r.kernel + "_into")
    given = [arrays_of(a) for a in args]
    if mode & _state.FOLLOW and into is not None and _shares_places(array):
        state.follower.settle()  # from here on the arrays are plain, and written at once
        mode &= ~_state.FOLLOW
    elsewhere = type(array) is not ndarray or mode & _state.FOLLOW or _elsewhere(given)
    if into is None or elsewhere or mode & _state.FORWARD_AD or r.saves_outputs:
        return store(self, r(_before(self) if "self" in r.slots else alias_of(self), *args))
    _check_target(self, r.kernel)
    recording = not mode & NO_RECORD and r.node is not None and (
        edge_of(self) is not None or any([isinstance(a, Tensor) and edge_of(a) is not None for a in args]))
    if recording:
        before = alias_of(self)
        check_creation(self)
    into(array, *given)
    written(self)
    if recording:
        result = wrap(array)
        r.record(result, before, *args)
        if result._node is not None:
            set_history(self, result._node)
    return self


def _shares_places(array: Any) -> bool:
    """Whether elements of an array share their place in memory: there it matters which is written last."""
    return not array.flags.c_contiguous and registry.backend_of(array).NAME == "cpu" and has_overlap(array)


def _before(self: Tensor) -> Tensor:
    """The tensor as it is now, for a derivative that needs the old values after they are overwritten."""
    array = self._array
    copy = wrap(registry.backend_of(array).copy_with_layout(array, array))
    copy._node = edge_of(self)
    if self._tangent is not None:
        copy._tangent = self._tangent
    return copy


def arrays_of(value: Any) -> Any:
    if isinstance(value, Tensor):
        return value._array
    if value.__class__ in (list, tuple):
        return [t._array if isinstance(t, Tensor) else t for t in value]
    return value


def _elsewhere(given: list[Any]) -> bool:
    for a in given:
        for array in a if a.__class__ is list else (a,):
            if hasattr(array, "strides") and type(array) is not ndarray:
                return True
    return False


def writing(prepare: Callable | None = None, *, aliases: tuple[str, ...] = (), inplace: bool | str = True, **facts: Any) -> Any:
    """Exports `name` and `name_` from a function that returns (row, *arguments after the tensor)."""
    if prepare is None:
        return functools.partial(writing, aliases=aliases, inplace=inplace, **facts)
    name = prepare.__name__
    renames = other_names(prepare)

    @functools.wraps(prepare)
    def copying(input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        r, *rest = prepare(input, *args, **kwargs)
        return r(input, *rest)

    @functools.wraps(prepare)
    def changed(self: Tensor, *args: Any, **kwargs: Any) -> Tensor:
        if _overrides.active:
            done, value = _overrides.dispatch(changed, (self, *args), kwargs)
            if done:
                return value
        r, *rest = prepare(self, *args, **{renames.get(k, k): v for k, v in kwargs.items()})
        return write_row(self, r, tuple(rest))

    changed.__name__, changed.__qualname__ = name + "_", f"Tensor.{name}_"
    enter_inplace(changed, name, aliases, inplace)
    made = public(copying, name=name, aliases=aliases, **facts)
    made.inplace = changed
    return made
