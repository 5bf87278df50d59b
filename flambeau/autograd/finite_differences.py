"""Jacobians by finite differences, under the private names that PyTorch's layer tests call."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

from ..tensor import Tensor
from .modes import no_grad


def iter_tensors(value: Any, only_requiring_grad: bool = False) -> Iterator[Tensor]:
    """The tensors in nested tuples, lists and dicts, in order."""
    if isinstance(value, Tensor):
        if value.requires_grad or not only_requiring_grad:
            yield value
    elif isinstance(value, dict):
        for inner in value.values():
            yield from iter_tensors(inner, only_requiring_grad)
    elif isinstance(value, (tuple, list)):
        for inner in value:
            yield from iter_tensors(inner, only_requiring_grad)


def _columns(fn: Callable[[], tuple[Tensor, ...]], point: Tensor, eps: float) -> list[list[Tensor]]:
    """Per element of `point`: how each output changes with it (the central difference), as flat tensors."""
    data, found = point.detach(), []
    for index in itertools.product(*map(range, data.shape)):
        kept, sides = data[index].item(), []
        for value in (kept + eps, kept - eps):
            data[index] = value
            sides.append([o.detach().reshape(-1).clone() for o in fn()])
        data[index] = kept
        found.append([(high - low) / (2 * eps) for high, low in zip(*sides)])
    return found


def get_numerical_jacobian(fn: Callable[..., Any], inputs: Any, outputs: Any = None, target: Any = None, eps: float = 1e-3,
                           is_forward_ad: bool = False) -> list[tuple[Tensor, ...]]:
    """Per input that requires a gradient, per output: the matrix of derivatives, (elements in) x (elements out).

    `target` names other tensors to vary than the inputs, a parameter for instance; they are changed in place and put back.
    """
    if any(t.is_complex() for t in iter_tensors(inputs)):
        raise ValueError("get_numerical_jacobian is for real tensors: gradcheck looks at complex ones")
    arguments = inputs if isinstance(inputs, tuple) else tuple(inputs) if isinstance(inputs, list) else (inputs,)

    def call() -> tuple[Tensor, ...]:
        made = fn(*arguments)
        made = made if isinstance(made, (tuple, list)) else (made,)
        return tuple(o for o in made if isinstance(o, Tensor) and o.is_floating_point())

    jacobians = []
    with no_grad():
        for point in iter_tensors(arguments if target is None else target, only_requiring_grad=True):
            like = call() if outputs is None else tuple(outputs)
            columns = _columns(call, point, eps)
            jacobians.append(tuple(_stacked([c[i] for c in columns], o) for i, o in enumerate(like)))
    return jacobians


def _stacked(rows: list[Tensor], like: Tensor) -> Tensor:
    from ..creation import zeros
    from ..ops.table import FUNCTIONS
    return FUNCTIONS["stack"](rows) if rows else zeros(0, like.numel(), dtype=like.dtype)
