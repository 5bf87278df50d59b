"""`torch.jit`: decorators and helpers that leave Python code as it is. flambeau runs Python; it has no second language.

`script` and `trace` give back what they got, so a program that only wants speed from them runs unchanged; saving and
loading TorchScript files is not implemented.
"""

from __future__ import annotations

import contextlib
import typing
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from .futures import Future
from .missing import refusal
from .nn.module import Module

__path__: list[str] = []  # private modules below it are found by name (internals.py)

T = TypeVar("T")


class Attribute(typing.NamedTuple):
    """A value with the type that TorchScript would give it."""

    value: Any
    type: Any


ScriptFunction = ()  # nothing is an instance of it
CompilationUnit = refusal("jit.CompilationUnit", "TorchScript is not implemented")


class TracerWarning(Warning):
    """A warning of tracing, for filters: nothing is traced, so it is never given."""


class Error(RuntimeError):
    """An error in TorchScript: never raised."""


class ScriptModule(Module):
    """A Module: old programs derive from it; nothing else is an instance.

    >>> class Twice(torch.jit.ScriptModule):
    ...     def forward(self, x):
    ...         return x * 2
    >>> Twice()(torch.ones(2))
    tensor([2., 2.])
    """


def script(obj: T, optimize: Any = None, _frames_up: int = 0, _rcb: Any = None, example_inputs: Any = None) -> T:
    """Does nothing: gives back the object, which runs as Python."""
    if isinstance(obj, Module):
        _check_initialized(obj)
    return obj


def _check_initialized(module: Any) -> None:
    from . import typename
    from .nn.parameter import is_lazy
    for kind in ("parameters", "buffers"):
        for name, value in getattr(module, f"named_{kind}")():
            if is_lazy(value):
                raise RuntimeError(f"'{typename(type(module))}' has uninitialized {kind} {name}. Did you forget to run a "
                                   "forward pass?")


def trace(func: Callable[..., Any], example_inputs: Any = None, *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Does nothing: gives back the function or module, which runs as Python."""
    return func


def trace_module(mod: T, inputs: Any, *args: Any, **kwargs: Any) -> T:
    """Does nothing: gives back the module, which runs as Python."""
    return mod


def script_if_tracing(fn: T) -> T:
    """Does nothing: gives back the function, which runs as Python."""
    return fn


_script_if_tracing = script_if_tracing


def freeze(mod: T, *args: Any, **kwargs: Any) -> T:
    """Does nothing: gives back the module, which runs as Python."""
    return mod


def optimize_for_inference(mod: T, *args: Any, **kwargs: Any) -> T:
    """Does nothing: gives back the module, which runs as Python."""
    return mod


def ignore(drop: Any = False, **kwargs: Any) -> Any:
    """Does nothing: a decorator for TorchScript, which is not implemented."""
    return drop if callable(drop) else lambda fn: fn


def script_method(fn: T) -> T:
    """Does nothing: a decorator for TorchScript, which is not implemented."""
    return fn


def unused(fn: T) -> T:
    """Does nothing: a decorator for TorchScript, which is not implemented."""
    return fn


def export(fn: T) -> T:
    """Does nothing: a decorator for TorchScript, which is not implemented."""
    return fn


def interface(obj: T) -> T:
    """Does nothing: a decorator for TorchScript, which is not implemented."""
    return obj


def _overload(func: T) -> T:
    """Does nothing: a decorator for signatures that TorchScript chooses from. Python runs the last definition."""
    return func


_overload_method = _copy_to_script_wrapper = _overload


def is_scripting() -> bool:
    """False: code always runs as Python."""
    return False


def is_tracing() -> bool:
    """False: code always runs as Python."""
    return False


def annotate(the_type: Any, the_value: T) -> T:
    """Does nothing: gives back the value."""
    return the_value


def isinstance(obj: Any, target_type: Any) -> bool:
    """Python's isinstance, for containers by their outer type."""
    import builtins
    kinds = target_type if builtins.isinstance(target_type, tuple) else (target_type,)
    return builtins.isinstance(obj, tuple(typing.get_origin(k) or k for k in kinds))


def fork(func: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Calls the function now; `wait` on the result gives what it returned.

    >>> torch.jit.wait(torch.jit.fork(torch.add, torch.ones(2), 1))
    tensor([2., 2.])
    """
    from .futures import Future
    future: Future = Future()
    future.set_result(func(*args, **kwargs))
    return future


def wait(future: Any) -> Any:
    """The value of a future.

    >>> torch.jit.wait(torch.jit.fork(torch.add, 1, torch.ones(2)))
    tensor([2., 2.])
    """
    return future.wait()


@contextlib.contextmanager
def fuser(name: str) -> Iterator[None]:
    """Does nothing: TorchScript's fusers are not implemented."""
    yield


@contextlib.contextmanager
def optimized_execution(should_optimize: bool) -> Iterator[None]:
    """Does nothing: TorchScript is not implemented."""
    yield


def enable_onednn_fusion(enabled: bool) -> None:
    """Does nothing: TorchScript is not implemented."""


def set_fusion_strategy(strategy: Any) -> None:
    """Does nothing: TorchScript is not implemented."""


_get_trace_graph = refusal("jit._get_trace_graph", "there is no tracer that writes TorchScript graphs")
save = refusal("jit.save", "TorchScript files are not implemented")
load = refusal("jit.load", "TorchScript files are not implemented")

__all__ = ["Attribute", "Final", "annotate", "export", "fork", "freeze", "fuser", "ignore", "interface", "is_scripting",
           "is_tracing", "isinstance", "load", "optimize_for_inference", "save", "script", "script_if_tracing",
           "script_method", "ScriptModule", "trace", "trace_module", "unused", "wait"]
