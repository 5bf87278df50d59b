"""`torch.compile` and `torch.compiler`: whole functions, training steps above all, as native programs.

The way of a program: capture.py notes kernel calls -> ir.py -> passes.py -> fusion.py -> plan.py -> render.py (C) ->
program.py; plan_call.py and joint.py call it, guards.py says when it still fits.
"""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Iterator
from typing import Any

from ..nn.module import Module

__all__ = ["OptimizedModule", "allow_in_graph", "assume_constant_result", "compile", "cudagraph_mark_step_begin",
           "disable", "explain", "is_compiling", "is_dynamo_compiling", "is_exporting", "list_backends", "reset",
           "set_stance", "substitute_in_graph"]

_MODES = (None, "default", "exact", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")


class OptimizedModule(Module):
    """A module that was given to `compile`: the state_dict's keys begin with `_orig_mod.`, everything else is passed on."""

    def __init__(self, model: Module):
        super().__init__()
        self._orig_mod = model
        self.training = model.training

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        if self._forward_hooks or self._forward_pre_hooks or self._backward_hooks or self._backward_pre_hooks:
            return super().__call__(*args, **kwargs)
        return self.forward(*args, **kwargs)  # hooks for all modules run for the model inside

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.__dict__.get("_compiled", self._orig_mod)(*args, **kwargs)

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
    """A function or module whose calls run as native programs; also a decorator.

    The first call with new shapes, dtypes or Python values runs the Python once and notes every kernel call, those of
    `backward()` and `optimizer.step()` included; later calls run the noted program. What cannot be noted (branching on a
    tensor's value, `.item()`...) makes the function run eagerly, with one warning; with fullgraph=True it raises.
    mode="exact" keeps every bit of eager's results. `dynamic` and `backend` are accepted: programs are made per shape.
    """
    if mode is not None and options is not None:
        raise RuntimeError("compile: give either mode or options, not both")
    if mode not in _MODES:
        raise RuntimeError(f"compile: unknown mode {mode!r}, expected one of {_MODES[1:]}")
    if model is None:
        return lambda model: compile(model, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode,
                                     options=options, disable=disable)
    if not callable(model):
        raise RuntimeError(f"compile: expected a function or a module, got {type(model).__name__}")
    if disable or backend == "eager" or getattr(model, "_flambeau_disabled", False):
        return model
    from .function import CompiledFunction
    compiled = CompiledFunction(model, fullgraph, mode)
    if isinstance(model, Module):
        made = OptimizedModule(model)
        object.__setattr__(made, "_compiled", compiled)
        return made

    @functools.wraps(model)
    def call(*args: Any, **kwargs: Any) -> Any:
        return compiled(*args, **kwargs)

    call._compiled = compiled
    call._torchdynamo_orig_callable = model
    return call


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `compile` makes of fn(*args, **kwargs): what was captured, fused, guarded, and how long each part takes.

    Runs fn for real, a few times. Print the result.
    """
    from .report import explain as made
    return made(fn, args, kwargs)


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Marks what is never to be compiled: inside a captured call it ends the capture. Also a decorator with arguments."""
    if fn is None:
        return lambda fn: disable(fn, recursive, reason=reason)

    @functools.wraps(fn)
    def eager(*args: Any, **kwargs: Any) -> Any:
        from .capture import give_up
        give_up(reason or f"'{getattr(fn, '__name__', fn)}' is marked by compiler.disable")
        return fn(*args, **kwargs)

    eager._flambeau_disabled = True
    return eager


def allow_in_graph(fn: Any) -> Any:
    """The function itself."""
    return fn


assume_constant_result = allow_in_graph


def substitute_in_graph(original_fn: Any, **kwargs: Any) -> Any:
    """A decorator that changes nothing."""
    return lambda fn: fn


def is_compiling() -> bool:
    """Whether a call is being captured."""
    from ..autograd.state import CAPTURE, state
    return bool(state.mode & CAPTURE)


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """False: there is no export."""
    return False


def reset() -> None:
    """Forgets all that was compiled."""
    from .function import reset as forget
    forget()


def cudagraph_mark_step_begin() -> None:
    """Accepted; there are no CUDA graphs."""


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names of the compilers there are."""
    return ["inductor"]


@contextlib.contextmanager
def _stance() -> Iterator[None]:
    yield


def set_stance(stance: str = "default", **kwargs: Any) -> Any:
    """Accepted; what runs is always eager."""
    return _stance()
