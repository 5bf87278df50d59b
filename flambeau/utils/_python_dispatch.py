"""Modes and wrapper tensors below autograd, as in `torch.utils._python_dispatch`."""

from __future__ import annotations

import contextlib
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ..autograd.state import state
from ..ops.dispatch import calls
from ..tensors.tensor import Tensor
from . import _pytree as pytree

__all__ = ["BaseTorchDispatchMode", "TorchDispatchMode", "is_traceable_wrapper_subclass", "return_and_correct_aliasing",
           "transform_subclass"]


class TorchDispatchMode:
    """A `with` block in which every operation, as it is below autograd, goes through this object's `__torch_dispatch__`.

    >>> class Names(TorchDispatchMode):
    ...     def __torch_dispatch__(self, func, types, args=(), kwargs=None):
    ...         print(func)
    ...         return func(*args, **(kwargs or {}))
    >>> with Names():
    ...     y = torch.ones(2) + 1
    aten.ones.default
    aten.add.Tensor
    """

    def __init__(self, _dispatch_key: Any = None):
        if _dispatch_key is not None:
            raise NotImplementedError("TorchDispatchMode: infra modes of a dispatch key are not implemented in flambeau")

    def __torch_dispatch__(self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> Any:
        calls.enter(self)
        return self

    def __exit__(self, *exc: Any) -> None:
        calls.leave()

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> Any:
        return cls(*args, **kwargs)

    @classmethod
    def is_infra_mode(cls) -> bool:
        return False


class BaseTorchDispatchMode(TorchDispatchMode):
    """A mode that changes nothing."""

    def __torch_dispatch__(self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_dispatch_mode() -> Any:
    return state.dispatch_modes[-1] if state.dispatch_modes else None


def _get_current_dispatch_mode_stack() -> list[Any]:
    return list(state.dispatch_modes)


def is_in_torch_dispatch_mode(include_infra_modes: bool = True) -> bool:
    return bool(state.dispatch_modes)


def is_in_any_mode_without_ignore_compile_internals() -> bool:
    return bool(state.dispatch_modes)


@contextlib.contextmanager
def _pop_mode_temporarily(k: Any = None) -> Iterator[Any]:
    with calls.WithoutInnermost() as mode:
        yield mode


@contextlib.contextmanager
def _disable_current_modes() -> Iterator[list[Any]]:
    """Inside, no mode is entered; subclasses are still asked."""
    before = list(state.dispatch_modes)
    with contextlib.ExitStack() as stack:
        for _ in before:
            stack.enter_context(calls.WithoutInnermost())
        yield before


# ------------------------------------------------------------------------------------------------- wrapper subclasses
def is_traceable_wrapper_subclass(t: object) -> bool:
    """Whether a tensor is of a subclass that says of which tensors it is made (`__tensor_flatten__`)."""
    return isinstance(t, Tensor) and type(t) is not Tensor and hasattr(t, "__tensor_flatten__") and hasattr(
        type(t), "__tensor_unflatten__")


def is_traceable_wrapper_subclass_type(t: type) -> bool:
    return issubclass(t, Tensor) and t is not Tensor and hasattr(t, "__tensor_flatten__") and hasattr(t, "__tensor_unflatten__")


def transform_subclass(t: Any, callback: Callable[[str, Any], Any], outer_size: Any = None, outer_stride: Any = None) -> Any:
    """The subclass with callback(name, tensor) in place of the tensors that it is made of."""
    outer_size = outer_size if outer_size is not None else t.size()
    outer_stride = outer_stride if outer_stride is not None else t.stride()
    names, context = t.__tensor_flatten__()
    inner = {name: callback(name, getattr(t, name)) for name in names}
    made = type(t).__tensor_unflatten__(inner, context, outer_size, outer_stride)
    if made.shape != outer_size or made.stride() != outer_stride:
        raise AssertionError(f"Expected return value from {type(t)}__tensor_unflatten__() to have the sizes {outer_size} and "
                             f"strides {outer_stride}, got {made.shape} and {made.stride()}")
    return made


def return_and_correct_aliasing(func: Any, args: Any, kwargs: Any, out: Any) -> Any:
    """What a wrapper subclass returns from its handler: the arguments themselves where the operation writes to them."""
    schema = func._schema
    values = schema.bind(tuple(args), dict(kwargs or {}), loosely=False)
    written = {a.alias: values[a.name] for a in schema.arguments if a.is_write and a.name in values}
    if not written:
        return out
    results = [written.get(r.alias, o) for r, o in zip(schema.returns, out if isinstance(out, (tuple, list)) else (out,))]
    return results[0] if len(schema.returns) == 1 else type(out)(results)


def autograd_would_have_decomposed(func: Any, flat_args: Any) -> bool:
    """Whether PyTorch would have taken the operation apart above: no operation that arrives here is."""
    return False


tree_map, tree_map_only = pytree.tree_map, pytree.tree_map_only
