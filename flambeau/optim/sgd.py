"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from ..ops import fused
from ..tensor import Tensor
from .optimizer import Optimizer, check_lr, check_range, number


class SGD(Optimizer):
    """p -= lr * (grad + weight_decay * p), or along a momentum buffer of such steps."""

    def __init__(self, params: Any, lr: Any = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: Any = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None,
                 differentiable: bool = False, fused: bool | None = None):
        check_lr(lr)
        check_range("momentum value", momentum)
        check_range("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                      nesterov=nesterov, maximize=maximize, foreach=foreach,
                                      differentiable=differentiable, fused=fused))

    def _step(self) -> None:
        for group in self.param_groups:
            params = [p for p in group["params"] if p._grad is not None]
            if params:
                self.update(group, params, [p._grad for p in params], [self.state[p] for p in params])

    def update(self, group, params, grads, states) -> None:
        sparse = [g.is_sparse for g in grads]
        if True in sparse:
            for kind in (False, True):
                some = [i for i, s in enumerate(sparse) if s is kind]
                if some:
                    self._update(group, *([values[i] for i in some] for values in (params, grads, states)))
        else:
            self._update(group, params, grads, states)

    def _update(self, group, params, grads, states) -> None:
        momentum, lr = group["momentum"], group["lr"]
        buffers = [state.get("momentum_buffer") for state in states] if momentum else [None] * len(params)
        if not group["differentiable"] and fused.sgd(
                params, grads, buffers, number(lr), momentum, group["dampening"], number(group["weight_decay"]),
                group["nesterov"], group["maximize"]):
            pass
        else:
            for i, (p, grad) in enumerate(zip(params, grads)):
                buffers[i] = self._one(group, p, grad, buffers[i])
        if momentum:
            for state, buffer in zip(states, buffers):
                state["momentum_buffer"] = buffer

    def _one(self, group, p, grad, buffer):
        lr, momentum, decay = group["lr"], group["momentum"], group["weight_decay"]
        grad = -grad if group["maximize"] else grad
        if number(decay) != 0:
            grad = grad.add(p, alpha=number(decay))
        if momentum:
            if buffer is None:
                buffer = grad.detach().clone()
            else:
                buffer.mul_(momentum).add_(grad, alpha=1 - group["dampening"])
            grad = grad.add(buffer, alpha=momentum) if group["nesterov"] else buffer
        if isinstance(lr, Tensor) and lr.requires_grad:
            p.addcmul_(grad, lr, value=-1)
        else:
            p.add_(grad, alpha=-number(lr))
        return buffer
