"""What a pickle calls to make tensors again."""

from __future__ import annotations

from typing import Any

from ..backends import registry
from ..backends.cpu import creation as _cpu
from ..device import META
from ..tensor import Tensor, wrap_as


def rebuild_tensor(cls: type, flat: Any, shape: tuple[int, ...], stride: tuple[int, ...], requires_grad: bool,
                   attributes: dict[str, Any]) -> Tensor:
    """A leaf with the saved elements and strides."""
    return _dressed(wrap_as(cls, _cpu.unpacked(flat, shape, stride)), requires_grad, attributes)


def rebuild_meta(cls: type, shape: tuple[int, ...], stride: tuple[int, ...], dtype: Any, requires_grad: bool,
                 attributes: dict[str, Any]) -> Tensor:
    array = registry.backend_for(META).empty_strided(shape, stride, dtype.native)
    return _dressed(wrap_as(cls, array), requires_grad, attributes)


def rebuild_parameter(data: Tensor, requires_grad: bool) -> Tensor:
    from ..parameter import Parameter
    return Parameter(data, requires_grad)


def _dressed(made: Tensor, requires_grad: bool, attributes: dict[str, Any]) -> Tensor:
    if requires_grad:
        made.requires_grad_(True)
    made.__dict__.update(attributes)
    return made
