"""Nodes that fail or pass nothing on, and walks through nested values: PyTorch's own names beside `Function`."""

from __future__ import annotations

from typing import Any

from ..tensors.tensor import Tensor
from .node import Edge, Node, next_sequence
from .views import edge_of


class DelayedError:
    """Makes tensors that look differentiable, and fail with the message when a gradient reaches them."""

    def __init__(self, message: str, num_inputs: int = 1):
        self.message = message

    def __call__(self, *values: Any) -> Any:
        """The values, as outputs of the failing node (a single one not in a tuple)."""
        node = Error(self.message)
        node.next = tuple([edge_of(v) if isinstance(v, Tensor) else None for v in values])
        node.sequence = next_sequence()
        node.outputs = [(v._array.shape, v._array.dtype) if isinstance(v, Tensor) else None for v in values]
        made = []
        for nr, v in enumerate(values):
            if isinstance(v, Tensor):
                v = v.detach()
                v._node = Edge(node, nr)
            made.append(v)
        return made[0] if len(made) == 1 else tuple(made)


class Error(Node):
    """Fails when it is reached in a backward pass."""

    def __init__(self, message: str):
        self.message = message

    def apply(self, grads: Any) -> Any:
        raise RuntimeError(self.message)


class UndefinedGrad:
    """An identity whose backward passes no gradient on (PyTorch's own tests ask for it)."""

    def __call__(self, *inputs: Tensor) -> Any:
        made = []
        for x in inputs:
            node = UndefinedGradBackward()
            node.next = (edge_of(x),)
            node.sequence = next_sequence()
            node.shape, node.dtype = x._array.shape, x._array.dtype
            y = x.detach().clone()
            y._node = node
            made.append(y)
        return made[0] if len(made) == 1 else tuple(made)


class UndefinedGradBackward(Node):
    def apply(self, grads: Any) -> Any:
        return (None,)


def _iter_tensors(value: Any) -> Any:
    """The tensors in nested tuples, lists and dicts, in order (PyTorch's private name)."""
    from .finite_differences import iter_tensors
    return iter_tensors(value)


_iter_tensors_permissive = _iter_tensors


def _nested_map(condition: Any, fn: Any, condition_msg: str | None = None) -> Any:
    """A function that applies `fn` to what meets the condition inside nested tuples, lists and dicts."""
    def mapped(value: Any) -> Any:
        if condition(value):
            return fn(value)
        if isinstance(value, (list, tuple)):
            made = [mapped(v) for v in value]
            return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
        if isinstance(value, dict):
            return {key: mapped(v) for key, v in value.items()}
        if value is None:
            return None
        raise ValueError(f"Auto nesting doesn't know how to process an input object of type {type(value).__name__}"
                         + (f". Accepted types: {condition_msg}, or lists/tuples of them" if condition_msg else ""))

    return mapped
