"""Derivatives of operations whose forward pass can be repeated in small, differentiable steps: attention, recurrent layers.

An ordinary backward pass has a kernel for them (`fused` in their rows). When the pass is itself recorded, the formulas made
here go through the steps instead.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...tensors.tensor import Tensor
from .row import taking


def by_steps(steps: Callable, args: str, wanted: str) -> dict[str, Callable]:
    """Formulas of the wanted arguments. steps(*args): one tensor for each output that carries a gradient."""
    return {target: taking(f"grads {args}", functools.partial(_repeated, steps, args.split().index(target)))
            for target in wanted.split()}


def _repeated(steps: Callable, which: int, grads: Any, *args: Any) -> Tensor | None:
    """The gradient of argument `which` of steps(*args), itself differentiable.

    Each tensor is taken under an alias: if one input was computed from another, only the direct way counts.
    """
    from ...autograd import grad as gradient_of
    from ...autograd.modes import enable_grad
    with enable_grad():
        aliases = [a.view_as(a) if isinstance(a, Tensor) and a.is_floating_point() else a for a in args]
        if not aliases[which].requires_grad:
            aliases[which] = aliases[which].detach().requires_grad_()
        outputs = steps(*aliases)
        if isinstance(outputs, Tensor):
            outputs, grads = (outputs,), grads if isinstance(grads, (list, tuple)) else (grads,)
        pairs = [(o, g) for o, g in zip(outputs, grads) if g is not None and o.requires_grad]
        if not pairs:
            return None
        return gradient_of([o for o, _ in pairs], [aliases[which]], [g for _, g in pairs], create_graph=True,
                           allow_unused=True)[0]
