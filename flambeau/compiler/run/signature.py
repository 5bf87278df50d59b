"""The key of a call: what must be the same of two calls before one's program is thought of for the other."""

from __future__ import annotations

from typing import Any

from ...amp.autocast_mode import _settings as autocast
from ...autograd.node import AccumulateGrad, hooked
from ...autograd.state import AUTOCAST
from ...autograd.views import outdated
from ...backends import registry
from ...backends.flags import on_cuda
from ...settings import _state as settings
from ...tensors.dtypes import get_default_dtype
from ...tensors.tensor import Tensor
from ..capture.reads import added
from ..capture.trees import flatten

SIMPLE = (int, float, complex, bool, str, bytes, type(None))  # by value, not by their address


def floats_among(args: Any, kwargs: Any) -> dict[int, int]:
    """The floats that are arguments themselves: their place among the arguments, and their number among the leaves."""
    found: dict[int, int] = {}
    given = (*args, *kwargs.values())
    if not any([type(a) is float for a in given]):
        return found
    n = 0
    for place, a in enumerate(given):
        if type(a) is float:
            found[place] = n
        inside: list[Any] = []
        flatten(a, inside)
        n += len(inside)
    return found


def signature(leaves: list[Any], mode: int, shape: Any, varying: Any = ()) -> Any:
    """What the programs of one key have in common. varying: places of floats that are numbers at run time."""
    parts: list[Any] = [mode, shape, get_default_dtype(), *settings.values()]
    if mode & AUTOCAST:
        parts.append((autocast.dtype_of("cpu"), autocast.dtype_of("cuda"), autocast.cache))
    if registry.cuda_was_used():
        parts += on_cuda()
        parts += registry.cuda_places([a._array for a in leaves if issubclass(type(a), Tensor)])
    first: dict[int, int] = {}
    for n, a in enumerate(leaves):
        if issubclass(type(a), Tensor):
            array, node = a._array, a._node
            leaf = node.__class__ is AccumulateGrad
            parts.append((a.__class__, array.__class__, array.shape, array.strides, array.dtype.num, None if node is None
                          else leaf, leaf and node.hooks is not None and hooked(node),
                          first.setdefault(id(a), n), a._inference, None if a._base is None else outdated(a), added(a)))
        elif type(a) is float and (shape, n) in varying and a == a:  # (of what is not a number, each is one of its own)
            parts.append(float)
        elif type(a) in SIMPLE:
            parts.append((type(a), repr(a) if type(a) in (float, complex) else a))
        else:
            parts.append(id(a))
    return tuple(parts)
