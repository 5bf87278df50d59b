"""Optimizers that look at a parameter as a matrix: Adafactor and Muon."""

from __future__ import annotations

import math
from typing import Any

from ..creation.factories import zeros_like
from ..ops.linalg.matmul import addmm
from ..tensors.dtypes import bfloat16, finfo
from ._steps import larger, smaller, step_number
from .optimizer import Optimizer, check, check_lr, check_range, counter, number, refuse_sparse


class Adafactor(Optimizer, example="lr=0.1"):
    """Keeps only the row and column means of the squared gradient: memory of a sum instead of a product."""

    _counts = ("step",)

    def __init__(self, params: Any, lr: Any = 1e-2, beta2_decay: float = -0.8, eps: tuple[float | None, float] = (None, 1e-3),
                 d: float = 1.0, weight_decay: float = 0.0, *, foreach: bool | None = None, maximize: bool = False):
        check_lr(lr)
        check(beta2_decay <= 0.0, f"beta2_decay should be <= 0 but is: {beta2_decay}")
        check(eps[0] is None or eps[0] >= 0, f"epsilon1 should be >= 0 but is: {eps[0]}")
        check(eps[1] >= 0, f"epsilon2 should be >= 0 but is: {eps[1]}")
        check(d >= 1.0, f"Clipping threshold d should be >= 1 but is: {d}")
        check(weight_decay >= 0.0, f"weight_decay should be >= 0 but is: {weight_decay}")
        super().__init__(params, dict(lr=lr, beta2_decay=beta2_decay, eps=eps, d=d, weight_decay=weight_decay,
                                      foreach=foreach, maximize=maximize))

    def prepare(self, group, p, state) -> None:
        state["step"] = counter()
        if p.dim() > 1:
            state["row_var"] = p.new_zeros((*p.shape[:-1], 1))
            state["col_var"] = p.new_zeros((*p.shape[:-2], 1, p.shape[-1]))
        else:
            state["variance"] = zeros_like(p)

    def update(self, group, params, grads, states) -> None:
        if True in [g.is_sparse for g in grads]:
            refuse_sparse("Adafactor")
        if any(p.is_complex() for p in params):
            raise RuntimeError("Adafactor does not support complex parameters")
        for p, grad, state in zip(params, grads, states):
            self._one(group, p, -grad if group["maximize"] else grad, state)

    def _one(self, group, p, grad, state) -> None:
        state["step"] += 1
        step, lr = step_number(state["step"]), number(group["lr"])
        eps1, eps2 = group["eps"]
        eps1 = finfo(p.dtype).eps if eps1 is None else eps1
        weight = step ** group["beta2_decay"]
        rate = larger(eps2, _length(p) / p.numel() ** 0.5) * smaller(lr, 1 / step ** 0.5)
        if group["weight_decay"]:
            p.mul_(1 - lr * group["weight_decay"])
        if grad.dim() > 1:
            rows, columns = state["row_var"], state["col_var"]
            rows.lerp_(grad.norm(dim=-1, keepdim=True).square_().div_(grad.size(-1)), weight)
            columns.lerp_(grad.norm(dim=-2, keepdim=True).square_().div_(grad.size(-2)), weight)
            variance = (rows @ columns).div_(rows.mean(dim=-2, keepdim=True).clamp_(min=eps1))
        else:
            state["variance"].lerp_(grad * grad, weight)
            variance = state["variance"].clone()
        change = variance.clamp_(min=eps1 * eps1).rsqrt_().mul_(grad)
        clip = larger(1.0, _length(change) / (p.numel() ** 0.5 * group["d"]))
        p.add_(change, alpha=-rate / clip)


def _length(x: Any) -> Any:
    return step_number(x.norm(2).double())


class Muon(Optimizer):
    """Momentum whose direction is made orthogonal by a few Newton-Schulz iterations; for matrices only.

    >>> w = torch.ones(2, 2, requires_grad=True)
    >>> optimizer = torch.optim.Muon([w], lr=0.1)
    >>> (w ** 2).sum().backward()
    >>> optimizer.step()
    >>> (w < 1).any()
    tensor(True)
    """

    def __init__(self, params: Any, lr: float = 1e-3, weight_decay: float = 0.1, momentum: float = 0.95,
                 nesterov: bool = True, ns_coefficients: tuple[float, float, float] = (3.4445, -4.775, 2.0315),
                 eps: float = 1e-7, ns_steps: int = 5, adjust_lr_fn: str | None = None):
        check_lr(lr)
        check_range("momentum value", momentum)
        check_range("weight_decay value", weight_decay)
        check(adjust_lr_fn in (None, "original", "match_rms_adamw"),
              f"Adjust learning rate function {adjust_lr_fn} is not supported")
        super().__init__(params, dict(lr=lr, weight_decay=weight_decay, momentum=momentum, nesterov=nesterov,
                                      ns_coefficients=ns_coefficients, eps=eps, ns_steps=ns_steps, adjust_lr_fn=adjust_lr_fn))
        for group in self.param_groups:
            for p in group["params"]:
                check(p.dim() == 2, f"Muon only supports 2D parameters whereas we found a parameter with size: {p.size()}")

    def prepare(self, group, p, state) -> None:
        state["momentum_buffer"] = zeros_like(p)

    def update(self, group, params, grads, states) -> None:
        if any(p.is_complex() for p in params):
            raise RuntimeError("Muon does not support complex parameters")
        if True in [g.is_sparse for g in grads]:
            refuse_sparse("Muon")
        lr, momentum = number(group["lr"]), group["momentum"]
        for p, grad, state in zip(params, grads, states):
            buffer = state["momentum_buffer"]
            buffer.lerp_(grad, 1 - momentum)
            direction = grad.lerp(buffer, momentum) if group["nesterov"] else buffer
            direction = orthogonalized(direction, group["ns_coefficients"], group["ns_steps"], group["eps"])
            p.mul_(1 - lr * group["weight_decay"])
            p.add_(direction.to(p.dtype), alpha=-_adjusted(lr, group["adjust_lr_fn"], p.shape))


def orthogonalized(matrix: Any, coefficients: tuple[float, float, float], steps: int, eps: float) -> Any:
    """The nearest matrix with orthonormal rows or columns, roughly, computed in bfloat16."""
    a, b, c = coefficients
    if hasattr(matrix, "full_tensor"):  # a DTensor: pieces' products would be rounded each, and sent in every step
        whole = orthogonalized(matrix.full_tensor(), coefficients, steps, eps)
        return type(matrix).from_local(whole, matrix.device_mesh)
    x = matrix.to(bfloat16)
    tall = x.size(0) > x.size(1)
    if tall:
        x = x.T
    x = x.div(x.norm().clamp(min=eps))
    for _ in range(steps):
        gram = x @ x.T
        x = addmm(x, addmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
    return x.T if tall else x


def _adjusted(lr: float, how: str | None, shape: Any) -> float:
    rows, columns = shape[:2]
    if how == "match_rms_adamw":
        return lr * 0.2 * math.sqrt(max(rows, columns))
    return lr * math.sqrt(max(1, rows / columns))
