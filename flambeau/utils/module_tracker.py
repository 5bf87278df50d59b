"""Which modules are being called right now, by name, forward and backward."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..autograd.engine import current_task
from ..autograd.graph import register_multi_grad_hook
from ..nn import hooks as _hooks
from ..nn.module import Module
from ..tensors.tensor import Tensor
from ._pytree import tree_leaves

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Within a `with` block, `parents` holds the names of the modules whose forward is going on, and "Global".

    In a backward pass a module counts from when the gradients of its outputs are there until those of its inputs are. As in
    PyTorch one whose inputs want no gradient counts until the pass ends.
    """

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: weakref.WeakKeyDictionary[Module, str] = weakref.WeakKeyDictionary()
        self._handles: list[Any] = []
        self._awaited: Any = None  # the pass at whose end nothing is going on any more

    @property
    def is_bw(self) -> bool:
        """Whether a backward pass is going on."""
        return current_task() is not None

    def _name(self, module: Module) -> str:
        """The path from the outermost module that was called; its class's name stands for that one."""
        if module not in self._names:
            self._names[module] = type(module).__name__
        here = self._names[module]
        for name, inner in module.named_children():
            self._names[inner] = f"{here}.{name}"
        return here

    def _enter(self, module: Module, inputs: Any) -> None:
        name = self._name(module)
        self.parents.add(name)
        self._when_done(inputs, lambda grads: self.parents.discard(name))

    def _leave(self, module: Module, inputs: Any, output: Any) -> None:
        name = self._name(module)
        self.parents.discard(name)
        self._when_done(output, lambda grads: self._backward_begins(name))

    def _when_done(self, values: Any, then: Callable[[Any], None]) -> None:
        """Calls a function when the gradients of all tensors among some values are there."""
        tensors = [t for t in tree_leaves(values) if isinstance(t, Tensor) and t.requires_grad]
        if tensors:
            register_multi_grad_hook(tensors, then)

    def _backward_begins(self, name: str) -> None:
        task = current_task()
        if task is not None and self._awaited is not task:
            self._awaited = task
            task.callbacks.append(self._backward_ends)
        self.parents.add(name)

    def _backward_ends(self) -> None:
        self.parents, self._awaited = {"Global"}, None

    def __enter__(self) -> ModuleTracker:
        self._handles = [_hooks.register_module_forward_pre_hook(self._enter),
                         _hooks.register_module_forward_hook(self._leave, always_call=True)]
        return self

    def __exit__(self, *exc: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self.parents = {"Global"}
