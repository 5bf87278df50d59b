"""Stochastic gradient descent, with momentum."""

from __future__ import annotations

from typing import Any

from ..creation.factories import zeros_like
from ..ops.lists import fused
from ..tensors.tensor import Tensor
from .optimizer import Optimizer, check_floating, check_fused, check_lr, check_range, number, with_gradient


class SGD(Optimizer, example="lr=0.1, momentum=0.9"):
    """p -= lr * (grad + weight_decay * p), or along a momentum buffer of such steps."""

    def __init__(self, params: Any, lr: Any = 1e-3, momentum: float = 0, dampening: float = 0, weight_decay: Any = 0,
                 nesterov: bool = False, *, maximize: bool = False, foreach: bool | None = None,
                 differentiable: bool = False, fused: bool | None = None):
        check_lr(lr)
        check_range("momentum value", momentum)
        check_range("weight_decay value", weight_decay)
        if nesterov and (momentum <= 0 or dampening != 0):
            raise ValueError("Nesterov momentum requires a momentum and zero dampening")
        check_fused(fused, differentiable, foreach)
        super().__init__(params, dict(lr=lr, momentum=momentum, dampening=dampening, weight_decay=weight_decay,
                                      nesterov=nesterov, maximize=maximize, foreach=foreach,
                                      differentiable=differentiable, fused=fused))

    def _step(self) -> None:
        for group in self.param_groups:
            params = with_gradient(group)
            if params:
                if group["fused"]:
                    check_floating(params[0])
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
        momentum = group["momentum"]
        if not momentum:
            if not self._fused(group, params, grads, [], False):
                for p, grad in zip(params, grads):
                    self._one(group, p, grad, None)
            return
        new = [state.get("momentum_buffer") is None for state in states]
        if True not in new or False not in new:
            self._with_momentum(group, params, grads, states, new[0])
            return
        for first in (True, False):
            some = [i for i, n in enumerate(new) if n is first]
            self._with_momentum(group, *([values[i] for i in some] for values in (params, grads, states)), first)

    def _with_momentum(self, group, params, grads, states, first: bool) -> None:
        """Parameters that all have a momentum buffer, or that all are seen for the first time: it becomes the gradient."""
        if not grads[0].is_sparse:
            buffers = [zeros_like(g) for g in grads] if first else [state["momentum_buffer"] for state in states]
            if self._fused(group, params, grads, buffers, first):
                if first:
                    for state, buffer in zip(states, buffers):
                        state["momentum_buffer"] = buffer
                return
        for p, grad, state in zip(params, grads, states):
            state["momentum_buffer"] = self._one(group, p, grad, state.get("momentum_buffer"))

    def _fused(self, group, params, grads, buffers, first: bool) -> bool:
        return not group["differentiable"] and not grads[0].is_sparse and fused.update(
            "fused_sgd", params, grads, (buffers,), (),
            (number(group["lr"]), group["momentum"], group["dampening"], number(group["weight_decay"]), group["nesterov"],
             first, group["maximize"]))

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
