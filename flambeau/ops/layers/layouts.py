"""Channels-last memory: a layer's result and its gradients lie in memory as its input does.

The kernels themselves know one order of dimensions. A layer that gets channels-last input is run on a contiguous copy; what it
makes is moved into the format, and so is the gradient when it comes back through the copy.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...tensors.tensor import Tensor, wrap
from ..core.row import row
from ..pointwise.convert import _clone, suggested_format
from ..pointwise.convert import _is_contiguous as is_contiguous


def _copy_row(name: str) -> Any:
    return row(f"from_{name}", "self format", kernel="clone", node="CloneBackward0", forward="linear",
               backward={"self": lambda grad: _clone(grad, name)})


_from_channels_last = {name: _copy_row(name) for name in ("channels_last", "channels_last_3d")}


def channels_last_of(*tensors: Tensor) -> str | None:
    """The channels-last format that the first such tensor is in, None where there is none."""
    for t in tensors:
        if t._array.ndim in (4, 5) and (name := suggested_format(t)) != "contiguous":
            return name
    return None


def dense_channels_last(tensor: Tensor) -> str | None:
    """As channels_last_of, also where only the elements' order says so: strides of dimensions of length 1 mean nothing."""
    if tensor._array.ndim not in (4, 5):
        return None
    last = "channels_last" if tensor._array.ndim == 4 else "channels_last_3d"
    return last if is_contiguous(tensor, last) else channels_last_of(tensor)


def contiguous_copy(tensor: Tensor, name: str) -> Tensor:
    """The tensor in plain order; its gradient comes back in the format."""
    return _from_channels_last[name](tensor, "contiguous")


def laid_out(made: Any, name: str) -> Any:
    """A layer's fresh result (or each of several), moved into memory of the format; its history stays as it is."""
    for m in made if isinstance(made, tuple) else (made,):
        m._array = _clone(wrap(m._array), name)._array
    return made


def keeping_layout(run: Callable, x: Tensor, *rest: Any, applies: bool = True) -> Any:
    """run(x, *rest), whose result lies in memory as x does, if that is channels-last; applies: unless this says no."""
    name = None if x._array.flags.c_contiguous or not applies else channels_last_of(x)
    return run(x, *rest) if name is None else laid_out(run(contiguous_copy(x, name), *rest), name)
