"""`expect_gradients`: an optimizer that is asked to complain of parameters without a gradient.

PyTorch's optimizers pass such parameters over in silence, and so do these: many programs rely on it. A program that expects all
of them to be trained says so once, and `step` tells which were not reached and why.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..autograd.errors import called_at
from ..autograd.hooks import RemovableHandle
from ..tensors.tensor import Tensor
from .optimizer import Optimizer


def expect_gradients(optimizer: Optimizer, model: Any = None, *, allow: Iterable[str] = ()) -> RemovableHandle:
    """From now on `optimizer.step()` raises a RuntimeError if a parameter has no gradient. The handle's `remove()` ends that.

    model: the module (or whatever has `named_parameters()`) that names are taken from; without one the names that the optimizer
    was made with, if it was. allow: names, or beginnings of names ("backbone."), of parameters that may go without.

        >>> model = torch.nn.Linear(2, 1)
        >>> optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        >>> handle = torch.optim.expect_gradients(optimizer, model)
    """
    allowed = tuple(allow)

    def check(optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if args or kwargs.get("closure") is not None:
            return  # the closure computes the gradients, inside of step
        names = _names(optimizer, model)
        without = [p for group in optimizer.param_groups for p in group["params"]
                   if p.grad is None and not names[id(p)].startswith(allowed)]
        if without:
            raise RuntimeError(_text(optimizer, without, names))

    return optimizer.register_step_pre_hook(check)


def _names(optimizer: Optimizer, model: Any) -> dict[int, str]:
    known = {} if model is None else {id(p): name for name, p in model.named_parameters()}
    found = {}
    for number, group in enumerate(optimizer.param_groups):
        given = group.get("param_names") or [f"parameter {i} of group {number}" for i in range(len(group["params"]))]
        found.update({id(p): known.get(id(p), name) for p, name in zip(group["params"], given)})
    return found


def _text(optimizer: Optimizer, without: list[Tensor], names: dict[int, str]) -> str:
    lines = [f"{type(optimizer).__name__}.step(): {len(without)} of {len(names)} parameters have no gradient"]
    if len(without) == len(names) and all([p.requires_grad for p in without]):
        lines.append("None has one: backward() was not called since zero_grad(), or the loss does not depend on them.")
        without = []
    for p in without[:10]:
        why = "not reached by backward(): unused in the loss, or used through detach() only" if p.requires_grad else (
            "frozen (requires_grad=False): leave it out of the optimizer, or name it in `allow`")
        lines.append(f"  {names[id(p)]} {list(p.shape)}: {why}")
    if len(without) > 10:
        lines.append(f"  and {len(without) - 10} more")
    return "\n".join(lines) + called_at()
