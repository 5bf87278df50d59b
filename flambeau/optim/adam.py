"""Adam and AdamW."""

from __future__ import annotations

from typing import Any

from ..creation.factories import zeros_like
from ..ops.lists import fused
from ..ops.pointwise.comparison import maximum
from ..tensors.tensor import Tensor
from ._steps import step_number
from .optimizer import Optimizer, check_floating, check_fused, check_lr, check_range, counter, number, real_views, refuse_sparse


def _check_tensors(lr: Any, betas: tuple[Any, Any], foreach_only: Any) -> None:
    """Hyper-parameters that are tensors. foreach_only: foreach without capturable, which takes none."""
    if isinstance(betas[0], Tensor) is not isinstance(betas[1], Tensor):
        raise ValueError("betas must be either both floats or both Tensors")
    for name, value in (("lr", lr), ("betas[0]", betas[0]), ("betas[1]", betas[1])):
        if foreach_only and isinstance(value, Tensor):
            raise ValueError(f"{name} as a Tensor is not supported for capturable=False and foreach=True")


class Adam(Optimizer):
    """Steps along the mean of past gradients, divided by the root of the mean of their squares.

    >>> w = torch.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = torch.optim.Adam([w], lr=0.1)
    >>> (w ** 2).sum().backward()
    >>> optimizer.step()
    >>> w.detach().abs() < torch.tensor([1.0, 2.0])
    tensor([True, True])
    """

    def __init__(self, params: Any, lr: Any = 1e-3, betas: tuple[Any, Any] = (0.9, 0.999), eps: float = 1e-8,
                 weight_decay: float = 0, amsgrad: bool = False, *, foreach: bool | None = None, maximize: bool = False,
                 capturable: bool = False, differentiable: bool = False, fused: bool | None = None,
                 decoupled_weight_decay: bool = False):
        check_lr(lr)
        check_range("epsilon value", eps)
        check_range("beta parameter at index 0", betas[0], 0, 1)
        check_range("beta parameter at index 1", betas[1], 0, 1)
        check_range("weight_decay value", weight_decay)
        _check_tensors(lr, betas, foreach and not capturable)
        check_fused(fused, differentiable, foreach)
        super().__init__(params, dict(lr=lr, betas=betas, eps=eps, weight_decay=weight_decay, amsgrad=amsgrad,
                                      maximize=maximize, foreach=foreach, capturable=capturable,
                                      differentiable=differentiable, fused=fused,
                                      decoupled_weight_decay=decoupled_weight_decay))

    _counts = ("step",)

    def prepare(self, group, p, state) -> None:
        if group["fused"]:
            check_floating(p)
        state["step"] = counter()
        state["exp_avg"] = zeros_like(p)
        state["exp_avg_sq"] = zeros_like(p)
        if group["amsgrad"]:
            state["max_exp_avg_sq"] = zeros_like(p)

    def update(self, group, params, grads, states) -> None:
        refuse_sparse(grads, type(self).__name__, ", please consider SparseAdam instead")
        beta1, beta2 = map(number, group["betas"])
        if not group["differentiable"] and fused.update(
                "fused_adam", params, grads,
                ([s["exp_avg"] for s in states], [s["exp_avg_sq"] for s in states],
                 [s["max_exp_avg_sq"] for s in states] if group["amsgrad"] else []),
                ([s["step"] for s in states],),
                (number(group["lr"]), beta1, beta2, group["eps"], group["weight_decay"], group["decoupled_weight_decay"],
                 group["maximize"])):
            return
        for state in states:
            state["step"] += 1
        views = real_views(params, grads, states, ("exp_avg", "exp_avg_sq", "max_exp_avg_sq"))
        for p, grad, state in zip(*views):
            self._one(group, p, grad, state, beta1, beta2)

    def _one(self, group, p, grad, state, beta1, beta2) -> None:
        lr, decay = number(group["lr"]), group["weight_decay"]
        grad = -grad if group["maximize"] else grad
        if decay:
            if group["decoupled_weight_decay"]:
                p.mul_(1 - lr * decay)
            else:
                grad = grad.add(p, alpha=decay)
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


class AdamW(Adam):
    """Adam whose weight decay shrinks the parameter directly instead of entering the averages.

    >>> w = torch.tensor([1.0, -2.0], requires_grad=True)
    >>> optimizer = torch.optim.AdamW([w], lr=0.1, weight_decay=0.1)
    >>> (w ** 2).sum().backward()
    >>> optimizer.step()
    >>> w.detach().abs() < torch.tensor([1.0, 2.0])
    tensor([True, True])
    """

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
