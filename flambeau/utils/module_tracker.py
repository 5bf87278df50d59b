"""Which modules are being called right now, by name."""

from __future__ import annotations

import weakref
from typing import Any

from ..nn import hooks as _hooks
from ..nn.module import Module

__all__ = ["ModuleTracker"]


class ModuleTracker:
    """Within a `with` block, `parents` holds the names of the modules whose forward is going on, and "Global"."""

    def __init__(self) -> None:
        self.parents: set[str] = {"Global"}
        self._names: weakref.WeakKeyDictionary[Module, str] = weakref.WeakKeyDictionary()
        self._stack: list[str] = []
        self._handles: list[Any] = []

    def _name(self, module: Module) -> str:
        """The path from the outermost module that was called; its class's name stands for that one."""
        if module not in self._names:
            self._names[module] = type(module).__name__
        here = self._names[module]
        for name, inner in module.named_children():
            self._names[inner] = f"{here}.{name}"
        return here

    def _enter(self, module: Module, inputs: Any) -> None:
        self._stack.append(self._name(module))
        self.parents.add(self._stack[-1])

    def _leave(self, module: Module, inputs: Any, output: Any) -> None:
        name = self._stack.pop()
        if name not in self._stack:
            self.parents.discard(name)

    def __enter__(self) -> ModuleTracker:
        self._handles = [_hooks.register_module_forward_pre_hook(self._enter),
                         _hooks.register_module_forward_hook(self._leave, always_call=True)]
        return self

    def __exit__(self, *exc: Any) -> None:
        for handle in self._handles:
            handle.remove()
        self._stack, self.parents = [], {"Global"}
