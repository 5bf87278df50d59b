"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

from ..ops.pointwise.comparison import maximum
from ..tensors.tensor import Tensor
from ._steps import step_number
from .one_by_one import OneByOne, check_betas, decay
from .optimizer import check_floating, check_fused, check_lr, number


def _check_tensors(lr: Any, betas: tuple[Any, Any], foreach_only: Any) -> None:
    """Hyper-parameters that are tensors. foreach_only: foreach without capturable, which takes none."""
    if isinstance(betas[0], Tensor) is not isinstance(betas[1], Tensor):
        raise ValueError("betas must be either both floats or both Tensors")
    for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
        if foreach_only and isinstance(value, Tensor):
            raise ValueError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")


class Adam(OneByOne, example="lr=0.1"):
    """Steps along the mean of past gradients, divided by the root of the mean of their squares."""

    shaped, kernel = ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"), "fused_adam"
    advice = ", please consider SparseAdam instead"
    _counts = ("step",)

    def __init__(self, params: Any, lr: Any = 1e-3, betas: tuple[Any, Any] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
                 decoupled_weight_decay: bool = False):
        check_lr(lr)
        check_betas(betas, eps, weight_decay)
        _check_tensors(lr, betas, foreach and not capturable)
        check_fused(fused, differentiable, foreach)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                                      maximize=maximize, foreach=foreach, capturable=capturable,
                                      differentiable=differentiable, fused=fused,
                                      decoupled_weight_decay=decoupled_weight_decay))

    def prepare(self, group, p, state) -> None:
        if group["fused"]:
            check_floating(p)
        self.start(p, state, "exp_avg", "exp_avg_sq", "max_exp_avg_sq" if group["amsgrad"] else "")

    def numbers(self, group) -> tuple[Any, ...]:
        rates = group["lr"], *group["betas"]
        rates = rates if float is rates[0].__class__ is rates[1].__class__ else map(number, rates)
        return *rates, group["eps"], group["weight_decay"], group["decoupled_weight_decay"], group["maximize"]

    def one(self, group, p, grad, state) -> None:
        lr, (beta1, beta2) = number(group["lr"]), map(number, group["betas"])
        grad = decay(group, p, grad)
        average, squares = state["exp_avg"], state["exp_avg_sq"]
        average.lerp_(grad, 1 - beta1)
        squares.mul_(beta2).addcmul_(grad, grad, value=1 - beta2)
        step = step_number(state["step"])
        correction1, correction2 = 1 - beta1 ** step, 1 - beta2 ** step
        if group["amsgrad"]:
            largest = state["max_exp_avg_sq"]
            largest.copy_(maximum(largest, squares))
            squares = largest
        if group["differentiable"]:  # the count enters as the float32 tensor it is, as in PyTorch
            count = state["step"]
            rate = -lr / (1 - beta1 ** count)
            root = squares.clone().sqrt() / ((1 - beta2 ** count).sqrt() * rate)
            p.addcdiv_(average.clone(), root + group["eps"] / rate)
            return
        p.addcdiv_(average, (squares.sqrt() / correction2 ** 0.5).add_(group["eps"]), value=-lr / correction1)


class AdamW(Adam, example="lr=0.1, weight_decay=0.1"):
    """Adam whose weight decay shrinks the parameter directly instead of entering the averages."""

    def __init__(self, params: Any, lr: Any = 1e-3, betas: tuple[Any, Any] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 1e-2, amsgrad: bool = False, *, maximize: bool = False,
                 foreach: bool | None = None, capturable: bool = False, differentiable: bool = False,
                 fused: bool | None = None):
        super().__init__(params, lr, betas, eps, weight_decay, amsgrad, foreach=foreach, maximize=maximize,
                         capturable=capturable, differentiable=differentiable, fused=fused, decoupled_weight_decay=True)

    def __setstate__(self, state) -> None:
        super().__setstate__(state)
        for group in self.param_groups:
            group["decoupled_weight_decay"] = True
