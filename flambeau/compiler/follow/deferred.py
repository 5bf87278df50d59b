"""Which kernel calls may wait: those of which it is known beforehand what shape they give and that they do not fail.

A kernel that fails must fail at its line. So one that depends on values there (positions out of range, division by zero) waits
only where a look at the values, which must be there already, says that it is all right.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy import ndarray

from ...backends.facts import NUMERIC, POINTWISE, SAFE, VIEWS, Check
from ..render import lowerings
from ..render.lower import _load as load_lowerings
from .promises import Promise

VIEW, LATER, CHECKED, NOW = "view", "later", "checked", "now"  # a window onto the same memory; may wait; perhaps; may not

_kinds: dict[str, str] = {}


def kind_of(kernel: str) -> str:
    found = _kinds.get(kernel)
    if found is None:
        load_lowerings()
        safe = SAFE.get(kernel, kernel in lowerings.LOWERINGS or kernel in POINTWISE or kernel[0] == "~")
        found = VIEW if kernel in VIEWS else CHECKED if isinstance(safe, Check) else LATER if safe else NOW
        _kinds[kernel] = found
    return found


# ------------------------------------------------------------------------------------------------- what depends on values
def _arrays_of(args: Any) -> list[Any]:
    return [a for x in args for a in (x if x.__class__ in (list, tuple) else (x,)) if isinstance(a, ndarray)]


def needs(kernel: str, args: tuple[Any, ...]) -> list[Any] | None:
    """The arrays whose values must be there before it is known whether a call may wait; None: it may."""
    check = SAFE[kernel]
    if check.matters is not None and not check.matters(*args):
        return None
    return _arrays_of([args[i] for i in check.values])


def passes(kernel: str, args: tuple[Any, ...]) -> bool:
    """Whether a call of a kernel with values to look at does not fail."""
    return SAFE[kernel].holds(*args)


def numeric(kernel: str) -> bool:
    """Whether the floats among a kernel's arguments enter nothing but arithmetic: a program can read them at each run."""
    return kernel in POINTWISE or kernel in NUMERIC


def promised(arrays: list[Any]) -> bool:
    return any([type(a) is Promise for a in arrays])


_LASTING = (int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type, np.dtype, np.generic)


def lasting(value: Any) -> bool:
    """Whether a plain argument stays what it is: others may be changed after they were noted."""
    if isinstance(value, tuple):
        return all(map(lasting, value))
    if value.__class__ is slice:
        return lasting((value.start, value.stop, value.step))
    return isinstance(value, _LASTING)


def same(a: Any, b: Any) -> bool:
    """Whether two plain arguments are the same for a kernel: their types, and every bit of them."""
    if a is b:
        return True
    kind = a.__class__
    if kind is not b.__class__:
        return False
    if kind is int or kind is str or kind is bool:
        return a == b
    if kind is float:
        return a.hex() == b.hex()
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if kind is complex or kind is slice:
        return repr(a) == repr(b)
    return isinstance(a, (np.dtype, np.generic)) and a == b and repr(a) == repr(b)
