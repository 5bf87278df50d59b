"""Rows whose derivatives are made all at once: attention and recurrent layers.

A plain backward pass calls `together`, one kernel for the gradients of all arguments. When the pass is itself recorded
(create_graph=True) the formulas of the row are used instead, which repeat the forward pass in small operations.
"""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from ...autograd.node import freed_error
from ...autograd.state import NO_GRAD, state
from ...tensors.tensor import Tensor
from .row import Row, RowNode, unpack


class Joint(Row):
    """A row with one function for all its gradients.

    steps(*args): the forward pass in differentiable operations, one tensor per output that carries a gradient.
    together(grads, needs, *values): gradients in the order of `wanted`; values are those named in `keeps`.
    """

    def __init__(self, name: str, args: str, *, wanted: str, keeps: str, together: Callable, steps: Callable,
                 **options: Any):
        self.together, self.steps, self.wanted, self.keeps = together, steps, wanted.split(), keeps.split()
        formulas = {target: _Formula(self, args.split(), target) for target in self.wanted}
        super().__init__(name, args, backward=formulas, **options)

    def _node_class(self, name: str) -> type:
        made = super()._node_class(name)
        made.apply = _apply
        return made


def _apply(self: RowNode, grads: Any) -> Any:
    if not state.mode & NO_GRAD:
        return RowNode.apply(self, grads)
    if self.saved is None:
        raise freed_error(self)
    row = self.row
    values = dict(zip(row.slots, [unpack(self, i) for i in range(len(self.saved))]))
    numbers = [row.args.index(name) for name in row.wanted]
    needs = [self.next[n] is not None for n in numbers]
    made = row.together(grads, needs, *[values[name] for name in row.keeps])
    results: list[Any] = [None] * len(self.next)
    for number, need, gradient in zip(numbers, needs, made):
        if need:
            results[number] = gradient
    return results


class _Formula:
    """A formula as `_plan` reads them: the names of its arguments, found in `__code__`, are what is saved."""

    def __init__(self, row: Joint, args: list[str], target: str):
        self.row, self.args, self.which = row, args, args.index(target)
        names = ("grads", *row.keeps)
        self.__code__ = SimpleNamespace(co_varnames=names, co_argcount=len(names))

    def __call__(self, grads: Any, *values: Any) -> Any:
        known = dict(zip(self.row.keeps, values))
        return repeated(self.row.steps, [known.get(a) for a in self.args], self.which, grads)


def repeated(steps: Callable, args: list[Any], which: int, grads: Any) -> Tensor | None:
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
