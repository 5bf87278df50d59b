"""Keeping gradients within bounds."""

from __future__ import annotations

import math
import types
import warnings
from collections.abc import Iterable
from typing import Any

from ...autograd.modes import no_grad
from ...creation.factories import tensor as make
from ...ops.lists import fused
from ...tensors.tensor import Tensor

__all__ = ["clip_grad_norm_", "clip_grad_norm", "clip_grad_value_", "get_total_norm", "clip_grads_with_norm_"]


def _gradients(parameters: Any) -> list[Tensor]:
    parameters = [parameters] if isinstance(parameters, Tensor) else parameters
    return [g for p in parameters if (g := p.grad) is not None]


@no_grad()
def get_total_norm(tensors: Any, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Tensor:
    """The norm of all the tensors together, as if they were one vector.

    >>> nn.utils.get_total_norm([torch.tensor([3.0]), torch.tensor([4.0])])
    tensor(5.)
    """
    tensors = [tensors] if isinstance(tensors, Tensor) else list(tensors)
    if not tensors:
        return make(0.0)
    norm_type = float(norm_type)
    total = fused.total_norm(tensors, norm_type)
    if total is None:
        from ...linalg import vector_norm
        from ...ops.shape.joining import stack
        device = tensors[0].device
        norms = [vector_norm(t, norm_type) for t in tensors]
        total = vector_norm(stack([n.to(device) for n in norms]), norm_type)
    if error_if_nonfinite and not math.isfinite(total.item()):
        raise RuntimeError(f"The total norm of order {norm_type} for gradients from `parameters` is non-finite, so it "
                           "cannot be clipped. To disable this error and scale the gradients by the non-finite norm "
                           "anyway, set `error_if_nonfinite=False`")
    return total


@no_grad()
def clip_grads_with_norm_(parameters: Any, max_norm: float, total_norm: Tensor, foreach: bool | None = None) -> None:
    """Scales the gradients in place by max_norm / total_norm, unless they are small enough already.

    >>> p = nn.Parameter(torch.ones(2))
    >>> p.grad = torch.tensor([3.0, 4.0])
    >>> nn.utils.clip_grads_with_norm_([p], 1.0, nn.utils.get_total_norm([p.grad]))
    >>> p.grad
    tensor([0.6000, 0.8000])
    """
    grads = _gradients(parameters)
    max_norm = max_norm.item() if isinstance(max_norm, Tensor) else max_norm
    if not grads or fused.clip(grads, total_norm, max_norm):
        return
    factor = (max_norm / (total_norm + 1e-6)).clamp(max=1.0)
    for g in grads:  # multiplying by 1 costs less than asking whether the factor is one
        g.mul_(factor.to(g.device))


@no_grad()
def clip_grad_norm_(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                    foreach: bool | None = None) -> Tensor:
    """Scales the gradients of the parameters in place so that their total norm is at most max_norm; returns it.

    >>> w = nn.Parameter(torch.zeros(2))
    >>> w.grad = torch.tensor([3.0, 4.0])
    >>> nn.utils.clip_grad_norm_([w], 1.0)
    tensor(5.)
    >>> w.grad
    tensor([0.6000, 0.8000])
    """
    if isinstance(parameters, Tensor):
        parameters = [parameters]
    else:
        lazily = isinstance(parameters, types.GeneratorType)
        parameters = list(parameters)
        if lazily and not parameters:
            warnings.warn("`parameters` is an empty generator, no gradient clipping will occur.", stacklevel=3)
    total = get_total_norm(_gradients(parameters), norm_type, error_if_nonfinite, foreach)
    clip_grads_with_norm_(parameters, max_norm, total, foreach)
    return total


def clip_grad_norm(parameters: Any, max_norm: float, norm_type: float = 2.0, error_if_nonfinite: bool = False,
                   foreach: bool | None = None) -> Tensor:
    """Old name of clip_grad_norm_.

    >>> p = nn.Parameter(torch.ones(2))
    >>> p.grad = torch.tensor([3.0, 4.0])
    >>> nn.utils.clip_grad_norm([p], 1.0)
    tensor(5.)
    >>> p.grad
    tensor([0.6000, 0.8000])
    """
    warnings.warn("`torch.nn.utils.clip_grad_norm` is now deprecated in favor of `torch.nn.utils.clip_grad_norm_`.",
                  FutureWarning, stacklevel=2)
    return clip_grad_norm_(parameters, max_norm, norm_type, error_if_nonfinite, foreach)


@no_grad()
def clip_grad_value_(parameters: Tensor | Iterable[Tensor], clip_value: float, foreach: bool | None = None) -> None:
    """Clamps every gradient element in place to [-clip_value, clip_value].

    >>> w = nn.Parameter(torch.zeros(2))
    >>> w.grad = torch.tensor([3.0, -4.0])
    >>> nn.utils.clip_grad_value_([w], 1.0)
    >>> w.grad
    tensor([ 1., -1.])
    """
    clip_value = float(clip_value)
    for g in _gradients(parameters):
        g.clamp_(min=-clip_value, max=clip_value)
