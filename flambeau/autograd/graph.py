"""`torch.autograd.graph`: nodes, gradient edges, hooks on saved tensors and on groups of gradients."""

from __future__ import annotations

import abc
import contextlib
import functools
import threading
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

from ..tensors.tensor import Tensor, wrap
from . import node as _node
from .engine import current_task
from .function_context import BackwardCFunction
from .function_tools import DelayedError, UndefinedGrad
from .hooks import RemovableHandle
from .node import Edge, GradientEdge, VersionCounter, bump, shown_node, start_counter
from .state import SAVED_HOOKS, looked_at, state
from .views import history_of


class Node(abc.ABC):
    """What every `grad_fn` is: `isinstance(x.grad_fn, Node)`.

    >>> y = torch.ones(2, requires_grad=True) * 2
    >>> isinstance(y.grad_fn, torch.autograd.graph.Node)
    True
    >>> [node.name() for node, _ in y.grad_fn.next_functions if node]
    ['torch::autograd::AccumulateGrad']
    """

    @abc.abstractmethod
    def name(self) -> str:
        """The name, such as "MulBackward0"."""

    @property
    @abc.abstractmethod
    def next_functions(self) -> tuple[tuple[Node | None, int], ...]:
        """For each input: the node its gradient goes to, and the number of that node's output."""

    @abc.abstractmethod
    def metadata(self) -> dict[str, Any]:
        """Room for notes."""

    @abc.abstractmethod
    def register_hook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls fn(grad_inputs, grad_outputs) after the node has run."""

    @abc.abstractmethod
    def register_prehook(self, fn: Callable[..., Any]) -> RemovableHandle:
        """Calls fn(grad_outputs) before the node runs."""


Node.register(_node.Node)
for _kind in (BackwardCFunction, DelayedError, UndefinedGrad):
    Node.register(_kind)


def get_gradient_edge(tensor: Tensor) -> GradientEdge:
    """The edge at which this tensor's gradient arrives.

    >>> x = torch.ones(2, requires_grad=True)
    >>> torch.autograd.graph.get_gradient_edge(x).output_nr
    0
    """
    edge = history_of(tensor)
    if edge is None:
        raise RuntimeError("It is not possible to get the gradient edge for a Tensor that does not require gradients")
    node, nr = (edge.node, edge.nr) if edge.__class__ is Edge else (edge, 0)
    return GradientEdge(shown_node(node), nr, None if node.ctx is None else node)


def increment_version(tensor: Tensor | Iterable[Tensor]) -> None:
    """Tells autograd that the tensors were written to by means that it cannot see.

    >>> x = torch.ones(2)
    >>> torch.autograd.graph.increment_version(x)
    >>> x._version
    1
    """
    if not isinstance(tensor, (Tensor, Iterable)):
        raise RuntimeError("increment_version expect a Iterable[Tensor] as input")
    for t in [tensor] if isinstance(tensor, Tensor) else tensor:
        if not t._inference:
            bump(t)


# ------------------------------------------------------------------------------------------------ saved tensors
class saved_tensors_hooks:
    """Saves pack_hook(tensor) instead of each tensor, and calls unpack_hook on it when backward needs the tensor.

    The hooks are this thread's, and the innermost pair counts.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.autograd.graph.saved_tensors_hooks(lambda t: t.half(), lambda t: t.float()):
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 2.])
    """

    def __init__(self, pack_hook: Callable[[Tensor], Any], unpack_hook: Callable[[Any], Tensor]):
        self.pack_hook, self.unpack_hook = pack_hook, unpack_hook

    def __enter__(self) -> None:
        if state.saved_hooks_off is not None:
            raise RuntimeError(state.saved_hooks_off)
        state.saved_hooks.append((self.pack_hook, self.unpack_hook))
        state.mode |= SAVED_HOOKS

    def __exit__(self, *exc: Any) -> None:
        state.saved_hooks.pop()
        if not state.saved_hooks:
            state.mode &= ~SAVED_HOOKS


class save_on_cpu(saved_tensors_hooks):
    """Keeps saved tensors in main memory, and brings them back to their device for backward.

    >>> x = torch.ones(2, requires_grad=True)
    >>> with torch.autograd.graph.save_on_cpu():
    ...     y = (x * x).sum()
    >>> y.backward()
    >>> x.grad
    tensor([2., 2.])
    """

    def __init__(self, pin_memory: bool = False, device_type: str = "cuda"):
        def pack(tensor: Tensor) -> Any:
            return tensor.device, tensor.cpu()

        def unpack(packed: Any) -> Tensor:
            device, tensor = packed
            return tensor.to(device, non_blocking=pin_memory)

        super().__init__(pack, unpack)


@contextlib.contextmanager
def disable_saved_tensors_hooks(error_message: str) -> Iterator[None]:
    """Makes saved_tensors_hooks fail with this message inside the block.

    >>> with torch.autograd.graph.disable_saved_tensors_hooks("not here"):
    ...     with torch.autograd.graph.save_on_cpu():
    ...         pass
    Traceback (most recent call last):
        ...
    RuntimeError: not here
    """
    if state.saved_hooks:
        raise RuntimeError(error_message)
    before, state.saved_hooks_off = state.saved_hooks_off, error_message
    try:
        yield
    finally:
        state.saved_hooks_off = before


class _Kept:
    """A saved tensor that is copied if someone is about to write to it."""

    __slots__ = ("__weakref__", "tensor")

    def __init__(self, tensor: Tensor):
        self.tensor = tensor


class _AllowMutationOnSavedContext:
    """What was saved inside the block, by version counter (all views of one storage share one).

    tid_to_weakhandle: the saved tensors, by memory and version; cloned: those that have been copied since.
    """

    def __init__(self) -> None:
        self.kept: dict[VersionCounter, list[weakref.ref]] = {}
        self.tid_to_weakhandle: weakref.WeakValueDictionary[Any, _Kept] = weakref.WeakValueDictionary()
        self.cloned: weakref.WeakKeyDictionary[_Kept, Tensor] = weakref.WeakKeyDictionary()

    def keep(self, tensor: Tensor) -> _Kept:
        place = tensor.data_ptr(), tensor._version, tensor.dtype, tuple(tensor.shape), tensor.stride()
        kept = self.tid_to_weakhandle.get(place)
        if kept is None:
            kept = self.tid_to_weakhandle[place] = _Kept(wrap(tensor._array))
            counter = tensor._counter if tensor._counter is not None else start_counter(tensor)
            self.kept.setdefault(counter, []).append(weakref.ref(kept))
        return kept

    def before_write(self, tensor: Tensor) -> None:
        """Called by check_inplace: whoever saved this storage gets a copy first."""
        for reference in self.kept.pop(tensor._counter, ()):
            kept = reference()
            if kept is not None:
                looked_at(kept.tensor._array, "a saved tensor was copied before a change")
                kept.tensor = self.cloned[kept] = wrap(kept.tensor._array.copy())

    def clear(self) -> None:
        self.kept.clear()
        self.tid_to_weakhandle.clear()
        self.cloned.clear()


_mutation_contexts = threading.local()


def before_write(tensor: Tensor) -> None:
    context = getattr(_mutation_contexts, "current", None)
    if context is not None:
        context.before_write(tensor)


class allow_mutation_on_saved_tensors:
    """Inside, tensors saved for backward may be changed in place: they are copied first.

    Backward must also run inside the block.

    >>> x = torch.tensor([3.0], requires_grad=True)
    >>> with torch.autograd.graph.allow_mutation_on_saved_tensors():
    ...     y = x.clone()
    ...     z = y ** 2
    ...     _ = y.zero_()
    ...     z.backward()
    >>> x.grad
    tensor([6.])
    """

    def __enter__(self) -> _AllowMutationOnSavedContext:
        if getattr(_mutation_contexts, "current", None) is not None:
            raise RuntimeError("allow_mutation_on_saved_tensors contexts cannot be nested")
        context = _mutation_contexts.current = _AllowMutationOnSavedContext()

        def unpack(kept: _Kept) -> Tensor:
            if getattr(_mutation_contexts, "current", None) is not context:
                raise AssertionError("Trying to backward outside of the 'allow_mutation_on_saved_tensors' context in "
                                     "which the graph was originally recorded.")
            return kept.tensor

        self.hooks = saved_tensors_hooks(context.keep, unpack)
        self.hooks.__enter__()
        return context

    def __exit__(self, *exc: Any) -> None:
        self.hooks.__exit__()
        _mutation_contexts.current.clear()
        _mutation_contexts.current = None

    def __call__(self, function: Callable) -> Callable:
        @functools.wraps(function)
        def inside(*args, **kwargs):
            with allow_mutation_on_saved_tensors():
                return function(*args, **kwargs)

        return inside


# ------------------------------------------------------------------------------------------- several gradients at once
class _MultiHandle(RemovableHandle):
    """Takes all hooks of a group away."""

    def __init__(self, handles: Sequence[RemovableHandle]):
        self.handles = tuple(handles)

    def remove(self) -> None:
        for handle in self.handles:
            handle.remove()

    def __getstate__(self) -> Any:
        return self.handles

    def __setstate__(self, saved: Any) -> None:
        self.handles = saved


def register_multi_grad_hook(tensors: Sequence[Tensor], fn: Callable[..., None], *,
                             mode: str = "all") -> RemovableHandle:
    """Calls fn once per backward pass: with the list of all gradients when all have been computed (None where a tensor
    gets none in this pass), or with mode="any" with the first one computed.

    >>> x = torch.ones(2, requires_grad=True)
    >>> handle = torch.autograd.graph.register_multi_grad_hook([x], lambda grads: print(grads))
    >>> (x * 2).sum().backward()
    [tensor([2., 2.])]
    """
    if mode not in ("all", "any"):
        raise ValueError(f"Expects mode to be one of ('all', 'any') but got {mode}")
    tensors = tuple(tensors)
    passes: weakref.WeakKeyDictionary = weakref.WeakKeyDictionary()
    lock = threading.Lock()
    if mode == "any":
        def first(grad: Tensor) -> None:
            with lock:
                key = _pass()
                if key in passes:
                    return
                passes[key] = True
            fn(grad)
        return _MultiHandle([t.register_hook(first) for t in tensors])
    ends = [_end(t) for t in tensors]

    def hook_of(i: int) -> Callable[[Tensor], None]:
        def seen(grad: Tensor) -> None:
            with lock:
                key = _pass()
                if key not in passes:
                    coming = _coming(ends)
                    passes[key] = [sum(coming), [None] * len(tensors)]
                record = passes[key]
                record[0] -= 1
                record[1][i] = grad
                done = record[0] == 0
            if done:
                fn(record[1])
        return seen

    return _MultiHandle([t.register_hook(hook_of(i)) for i, t in enumerate(tensors)])


def _end(tensor: Tensor) -> Any:
    edge = history_of(tensor)
    if edge is None:
        raise RuntimeError("cannot register a hook on a tensor that doesn't require gradient")
    return weakref.ref(edge.node if edge.__class__ is Edge else edge)


def _pass() -> Any:
    return current_task()


def _coming(ends: list[Any]) -> list[bool]:
    """Which of the nodes the current backward pass will reach."""
    task = _pass()
    found = []
    for end in ends:
        node = end()
        reached = node is not None and (task.reached is None or node in task.reached)
        if reached and task.captures is not None:
            reached = node in task.needed or node in task.captures
        found.append(reached)
    return found


def _get_grad_fn_or_grad_acc(tensor: Tensor | GradientEdge) -> Any:
    if isinstance(tensor, GradientEdge):
        return tensor.node
    return get_gradient_edge(tensor).node


def region_activation_memory_budget(*args: Any, **kwargs: Any) -> Any:
    raise NotImplementedError("region_activation_memory_budget belongs to PyTorch's compiler and has no counterpart here")


__all__ = ["saved_tensors_hooks", "save_on_cpu", "disable_saved_tensors_hooks", "register_multi_grad_hook",
           "allow_mutation_on_saved_tensors", "Node", "GradientEdge", "get_gradient_edge", "increment_version"]
