"""What optimizers share whose parameters do not know of each other: a kernel updates a whole group, or a rule one at a time."""

from __future__ import annotations

from typing import Any

from ..creation.factories import zeros_like
from ..ops.lists import fused
from .optimizer import Optimizer, check_range, counter, number, real_views, refuse_sparse


class OneByOne(Optimizer):
    """A rule that updates one parameter at a time with `one(group, p, grad, state)`, where no kernel takes them together."""

    shaped: tuple[str, ...] = ()  # the parts of the state that have the parameter's shape
    counts: tuple[str, ...] = ("step",)  # its zero-dim parts, as the kernel takes them
    kernel = ""                   # the kernel that updates a whole group: it takes lists of all these, then numbers(group)
    advice = ""                   # what else serves sparse gradients
    _counts = ("step", "mu_product", "eta", "mu")

    def numbers(self, group) -> tuple[Any, ...]:
        raise NotImplementedError

    def prepare(self, group, p, state) -> None:
        self.start(p, state, *self.shaped)

    def start(self, p, state, *names: str) -> None:
        """A count of steps, and zeros for these parts of the state ("": none)."""
        state.setdefault("step", counter())
        for name in filter(None, names):
            state[name] = zeros_like(p)

    def update(self, group, params, grads, states) -> None:
        if True in [g.is_sparse for g in grads]:
            refuse_sparse(type(self).__name__, self.advice)
        if self.kernel and not group["differentiable"]:
            used = states[0]
            parts = [[s[name] for s in states] if name in used else [] for name in self.shaped]
            counts = [[s[name] for s in states] for name in self.counts]
            if fused.update(self.kernel, params, grads, parts, counts, self.numbers(group)):
                return
        for state in states:
            state["step"] += 1
        for p, grad, state in zip(*real_views(params, grads, states, self.shaped)):
            self.one(group, p, -grad if group["maximize"] else grad, state)

    def one(self, group, p, grad, state) -> None:
        raise NotImplementedError


def check_betas(betas, eps, weight_decay) -> None:
    check_range("epsilon value", eps)
    check_range("beta parameter at index 0", betas[0], 0, 1)
    check_range("beta parameter at index 1", betas[1], 0, 1)
    check_range("weight_decay value", weight_decay)


def decayed(group, p, grad):
    """The gradient with the weight decay in it."""
    return grad.add(p, alpha=group["weight_decay"]) if group["weight_decay"] else grad


def decay(group, p, grad):
    """Weight decay of the Adam family: on the parameter when decoupled, else through the gradient."""
    if group["weight_decay"] and group["decoupled_weight_decay"]:
        p.mul_(1 - number(group["lr"]) * group["weight_decay"])
        return grad
    return decayed(group, p, grad)
