"""Jacobians by finite differences, under the private names that PyTorch's layer tests call."""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from ..creation.factories import zeros, zeros_like
from ..ops.core.row import FUNCTIONS
from ..tensors.tensor import Tensor
from .modes import no_grad
from .passes import grad


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


def _get_numerical_jacobian(fn: Callable[..., Any], inputs: Any, outputs: Any = None, target: Any = None, eps: float = 1e-3,
                           is_forward_ad: bool = False) -> list[tuple[Tensor, ...]]:
    """Per input that requires a gradient, per output: the matrix of derivatives, (elements in) x (elements out).

    `target` names other tensors to vary than the inputs, a parameter for instance; they are changed in place and put back.
    """
    if any(t.is_complex() for t in iter_tensors(inputs)):
        raise ValueError("_get_numerical_jacobian is for real tensors: gradcheck looks at complex ones")
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
    return FUNCTIONS["stack"](rows) if rows else zeros(0, like.numel(), dtype=like.dtype)


_PRIVATE = ("`%s` was part of PyTorch's private API and not meant to be exposed. We are deprecating it and it will be removed "
            "in a future version of PyTorch. If you have a specific use for this or feature request for this to be a stable "
            "API, please file us an issue at https://github.com/pytorch/pytorch/issues/new")


def _check_grad_out(name: str, grad_out: float) -> None:
    if grad_out != 1.0:
        raise ValueError(f"Expected grad_out to be 1.0. {name} no longer supports values of grad_out != 1.0.")


def get_numerical_jacobian(fn: Callable[[Any], Any], inputs: Any, target: Any = None, eps: float = 1e-3,
                           grad_out: float = 1.0) -> tuple[Tensor, ...]:
    """Deprecated: the derivatives of the first output of fn(inputs), by each input or by `target`."""
    warnings.warn(_PRIVATE % "get_numerical_jacobian", FutureWarning, stacklevel=2)
    _check_grad_out("get_numerical_jacobian", grad_out)
    return tuple(columns[0] for columns in _get_numerical_jacobian(lambda *given: fn(given), inputs, None, target, eps))


def get_analytical_jacobian(inputs: Any, output: Tensor, nondet_tol: float = 0.0,
                            grad_out: float = 1.0) -> tuple[tuple[Tensor, ...], bool, bool, bool]:
    """Deprecated: the derivatives of an output by backward passes; whether two runs agree, sizes and types are right."""
    warnings.warn(_PRIVATE % "get_analytical_jacobian", FutureWarning, stacklevel=2)
    _check_grad_out("get_analytical_jacobian", grad_out)
    if output.is_complex():
        raise ValueError("Expected output to be non-complex. get_analytical_jacobian no longer supports functions that "
                         "return complex outputs.")
    points = list(iter_tensors(inputs, only_requiring_grad=True))
    first, again = (_backward_rows(output, points) for _ in range(2))
    reentrant, sizes_ok, types_ok, jacobians = True, True, True, []
    for k, point in enumerate(points):
        rows = [row[k] for row in first]
        sizes_ok &= all(g is None or g.shape == point.shape for g in rows)
        types_ok &= all(g is None or g.dtype is point.dtype for g in rows)
        one, other = (_stacked([_flat_or_zero(row[k], point) for row in run], point).T for run in (first, again))
        reentrant &= not one.numel() or (one - other).abs().max().item() <= nondet_tol
        jacobians.append(one)
    return tuple(jacobians), reentrant, sizes_ok, types_ok


def _backward_rows(output: Tensor, points: list[Tensor]) -> list[tuple[Any, ...]]:
    """Per element of the output, the gradients of the points."""
    rows = []
    for index in itertools.product(*map(range, output.shape)):
        seed = zeros_like(output)
        seed[index] = 1.0
        rows.append(grad(output, points, seed, retain_graph=True, allow_unused=True))
    return rows


def _flat_or_zero(gradient: Any, like: Tensor) -> Tensor:
    return (zeros_like(like) if gradient is None else gradient).detach().reshape(-1)
