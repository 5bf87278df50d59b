"""Hooks on tensors, and the handle that takes any hook away again.

A tensor's hooks live on the node that its gradient arrives at: the operation that made it, or the leaf's
AccumulateGrad. The engine runs them in the order of registration, and after them stores the gradient of tensors that
`retain_grad()`.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from ..tensors.tensor import Tensor
from .node import AccumulateGrad, Edge, HookTable, Node
from .views import history_of

changes = [0]  # counts hooks that were taken away, and changes of modules (nn/hooks.py): compiled programs ask


class RemovableHandle:
    """Takes a hook away: by `remove()`, or at the end of a `with` block."""

    next_id = 0

    def __init__(self, hooks_dict: Any, hook: Any = None, *, extra_dict: Any = None):
        self.hooks_dict_ref = weakref.ref(hooks_dict)
        self.id = RemovableHandle.next_id
        RemovableHandle.next_id += 1
        extra = extra_dict if isinstance(extra_dict, list) else [] if extra_dict is None else [extra_dict]
        self.extra_dict_ref = tuple(weakref.ref(d) for d in extra)
        if hook is not None:
            hooks_dict[self.id] = hook

    def remove(self) -> None:
        """Takes the hook away; harmless when it is gone already."""
        changes[0] += 1
        for reference in (self.hooks_dict_ref, *self.extra_dict_ref):
            table = reference()
            if table is not None:
                table.pop(self.id, None)

    def __enter__(self) -> RemovableHandle:
        return self

    def __exit__(self, *exc: Any) -> None:
        self.remove()

    def __getstate__(self) -> Any:
        return self.hooks_dict_ref(), self.id, tuple(r() for r in self.extra_dict_ref)

    def __setstate__(self, saved: Any) -> None:
        table = saved[0] if saved[0] is not None else HookTable()
        self.hooks_dict_ref = weakref.ref(table)
        self.id = saved[1]
        RemovableHandle.next_id = max(RemovableHandle.next_id, self.id + 1)
        extra = saved[2] if len(saved) > 2 else ()
        self.extra_dict_ref = tuple(weakref.ref(d if d is not None else HookTable()) for d in extra)


def _end_of(tensor: Tensor) -> tuple[Node, int] | None:
    """Where the tensor's gradient arrives: (node, output number)."""
    edge = history_of(tensor)
    if edge is None:
        return None
    return (edge.node, edge.nr) if edge.__class__ is Edge else (edge, 0)


def register_hook(self: Tensor, hook: Callable[[Any], Any]) -> RemovableHandle:
    """Calls hook(grad) whenever this tensor's gradient is computed; a tensor it returns replaces the gradient."""
    end = _end_of(self)
    if end is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    node, nr = end
    handle = RemovableHandle(node._hooks().tensor)
    node.hooks.tensor[handle.id] = (nr, hook)
    return handle


def register_post_accumulate_grad_hook(self: Tensor, hook: Callable[[Tensor], None]) -> RemovableHandle:
    """Calls hook(tensor) after each addition to this leaf's `.grad`.

    >>> x = torch.ones(2, requires_grad=True)
    >>> handle = x.register_post_accumulate_grad_hook(lambda leaf: print(leaf.grad))
    >>> (x * 3).sum().backward()
    tensor([3., 3.])
    """
    end = _end_of(self)
    if end is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    if end[0].__class__ is not AccumulateGrad:
        raise RuntimeError("post accumulate grad hooks cannot be registered on non-leaf tensors")
    return RemovableHandle(end[0]._hooks().accumulated, hook)


def retain_grad(self: Tensor) -> None:
    """Makes backward passes fill this non-leaf's `.grad`, as they do for leaves."""
    end = _end_of(self)
    if end is None:
        raise RuntimeError("can't retain_grad on Tensor that has requires_grad=False")
    if end[0].__class__ is not AccumulateGrad:
        self._retains = True
        retain(self)


def retain(tensor: Tensor) -> None:
    """Asks the node at the tensor's end of the graph to store the gradient in it (again, after an in-place change)."""
    node, nr = _end_of(tensor)
    retained = node._hooks().retain
    for kept, reference in list(retained.items()):
        if reference() is None:
            del retained[kept]
    retained[nr] = weakref.ref(tensor)


Tensor.register_hook = register_hook
Tensor.register_post_accumulate_grad_hook = register_post_accumulate_grad_hook
Tensor.retain_grad = retain_grad


def _kept(name: str) -> property:
    """An attribute that may be read and set, and whose deletion is refused, as PyTorch refuses it."""
    def get(self: Tensor) -> Any:
        return self.__dict__.get(name)

    def put(self: Tensor, value: Any) -> None:
        self.__dict__[name] = value

    def refuse(self: Tensor) -> None:
        raise RuntimeError(f"cannot delete {name} of a tensor")

    return property(get, put, refuse)


Tensor._backward_hooks = _kept("_backward_hooks")


def _refuse(name: str) -> Callable[[Tensor], None]:
    def delete(self: Tensor) -> None:
        raise RuntimeError(f"cannot delete {name} of a tensor")

    return delete


Tensor.data = Tensor.data.deleter(_refuse("data"))
Tensor.requires_grad = Tensor.requires_grad.deleter(_refuse("requires_grad"))
Tensor._grad_fn = property(Tensor.grad_fn.fget, None, _refuse("_grad_fn"))
