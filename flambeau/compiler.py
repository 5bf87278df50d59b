"""`torch.compile` and `torch.compiler`. There is no compiler yet: what is "compiled" runs as it is, and says so once."""

from __future__ import annotations

import contextlib
import warnings
from collections.abc import Callable, Iterator
from typing import Any

from .nn.module import Module

__all__ = ["OptimizedModule", "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin",
           "disable", "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "reset",
           "set_stance", "substitute_in_graph"]

_MODES = (None, "default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_warned = False


class OptimizedModule(Module):
    """A module that was given to `compile`: the state_dict's keys begin with `_orig_mod.`, everything else is passed on."""

    def __init__(self, model: Module):
        super().__init__()
        self._orig_mod = model
        self.training = model.training

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self._orig_mod(*args, **kwargs)

    def train(self, mode: bool = True) -> OptimizedModule:
        self.training = mode
        self._orig_mod.train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        if name == "_orig_mod":
            return self._modules["_orig_mod"]
        return getattr(self._orig_mod, name)

    def __setattr__(self, name: str, value: Any) -> None:
        modules = self.__dict__.get("_modules", {})
        if "_orig_mod" in modules and name not in ("training", "_orig_mod") and name not in self.__dict__:
            setattr(modules["_orig_mod"], name, value)
        else:
            super().__setattr__(name, value)

    def __len__(self) -> int:
        return len(self._orig_mod)

    def __dir__(self) -> list[str]:
        return sorted({*super().__dir__(), *dir(self._orig_mod)})


def compile(model: Callable[..., Any] | None = None, *, fullgraph: bool = False, dynamic: bool | None = None,
            backend: str | Callable[..., Any] = "inductor", mode: str | None = None,
            options: dict[str, Any] | None = None, disable: bool = False, **kwargs: Any) -> Any:
    """A function or module that runs as it did: flambeau has no compiler yet, and warns of it once."""
    if mode is not None and options is not None:
        raise RuntimeError("compile: give either mode or options, not both")
    if mode not in _MODES:
        raise RuntimeError(f"compile: unknown mode {mode!r}, expected one of {_MODES[1:]}")
    if model is None:
        return lambda model: compile(model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
                                     options=options, disable=disable)
    if not callable(model):
        raise RuntimeError(f"compile: expected a function or a module, got {type(model).__name__}")
    if disable:
        return model
    global _warned
    if not _warned:
        _warned = True
        warnings.warn("flambeau.compile runs the program eagerly: the compiler is not implemented yet", stacklevel=2)
    return OptimizedModule(model) if isinstance(model, Module) else model


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Marks what is never to be compiled: nothing is, so it comes back unchanged. Also a decorator with arguments."""
    return (lambda fn: fn) if fn is None else fn


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


assume_constant_result = allow_in_graph


def substitute_in_graph(original_fn: Any, **kwargs: Any) -> Any:
    """A decorator that changes nothing."""
    return lambda fn: fn


def is_compiling() -> bool:
    """False: code always runs as Python."""
    return False


is_dynamo_compiling = is_exporting = is_compiling


def reset() -> None:
    """Forgets all that was compiled: nothing."""


def cudagraph_mark_step_begin() -> None:
    """Accepted; there are no CUDA graphs."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names of the compilers there are: none."""
    return []


@contextlib.contextmanager
def _stance() -> Iterator[None]:
    yield


def set_stance(stance: str = "default", **kwargs: Any) -> Any:
    """Accepted; what runs is always eager."""
    return _stance()
