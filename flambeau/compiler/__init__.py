"""`torch.compile` and `torch.compiler`: whole functions, training steps above all, as native programs.

The way of a program: capture.py notes kernel calls -> ir.py -> passes.py -> fusion.py -> arena.py -> dialects/ (C) ->
program.py; plan.py and joint.py call it where witness.py has proved that the Python need not run; else follow.py runs the
Python and takes the kernels from a program.
"""

from __future__ import annotations

import contextlib
import functools
import warnings
from collections.abc import Callable
from typing import Any

from ..nn.module import Module
from . import config

__all__ = ["OptimizedModule", "allow_in_graph", "assume_constant_result", "compile", "config", "cudagraph_mark_step_begin",
           "disable", "explain", "get_default_backend", "is_compiling", "is_dynamo_compiling", "is_exporting",
           "keep_portable_guards_unsafe", "keep_tensor_guards_unsafe", "list_backends", "load_cache_artifacts",
           "load_compiled_function", "nested_compile_region", "reset", "save_cache_artifacts", "set_default_backend",
           "set_enable_guard_collectives", "set_stance", "skip_all_guards_unsafe", "skip_guard_on_all_nn_modules_unsafe",
           "skip_guard_on_globals_unsafe", "skip_guard_on_inbuilt_nn_modules_unsafe", "substitute_in_graph", "wrap_numpy"]

_MODES = (None, "default", "exact", "lite", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
_EAGER = ("eager", "eager_noexcept", "aot_eager", "aot_eager_decomp_partition")  # backends that compile nothing
_default_backend: str | Callable[..., Any] = "inductor"


class InvalidBackend(RuntimeError):
    """There is no compiler of that name."""


class OptimizedModule(Module):
    """A module that was given to `compile`: the state_dict's keys begin with `_orig_mod.`, everything else is passed on.

    >>> compiled = torch.compile(nn.Linear(2, 3))
    >>> isinstance(compiled, torch.compiler.OptimizedModule), compiled(torch.ones(1, 2)).shape
    (True, torch.Size([1, 3]))
    """

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

    @property
    def dynamo_ctx(self) -> Any:
        """What runs the model's calls; by this name programs tell a compiled module."""
        return self.__dict__.get("_compiled")

    def train(self, mode: bool = True) -> OptimizedModule:
        self.training = mode
        self._orig_mod.train(mode)
        return self

    def __getattr__(self, name: str) -> Any:
        modules = self.__dict__.get("_modules", {})
        if "_orig_mod" not in modules:  # not yet: this is a copy being made
            raise AttributeError(f"'{type(self).__name__}' object has no attribute '{name}'")
        return modules["_orig_mod"] if name == "_orig_mod" else getattr(modules["_orig_mod"], name)

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
            backend: str | Callable[..., Any] | None = None, mode: str | None = None,
            options: dict[str, Any] | None = None, name: str | None = None, disable: bool = False,
            recompile_limit: int | None = None, isolate_recompiles: bool = False, shapes_spec: Any = None) -> Any:
    """A function or module whose calls run as native programs; also a decorator.

    A compiled call does what the plain call would: results, gradients, parameters, random numbers, and every effect of the
    Python. Where it is proved that the Python would do the same again, it does not run (skip); else it runs, and only the
    kernels come from a program (follow). `compiler.explain` tells which.

    fullgraph: no branch of the Python may depend on a value (`if loss > 1`); such a call raises. dynamic: None makes sizes and
    floats run-time numbers of a program when they are seen to change, True from the start, False never. mode: "exact" keeps
    every bit of eager's results; the others give the same programs. recompile_limit bounds the number of programs. backend:
    "inductor" is the compiler there is; "eager" and the like compile nothing.
    """
    if mode is not None and options is not None:
        raise RuntimeError("Either mode or options can be specified, but both can't be specified at the same time.")
    if mode not in _MODES:
        raise RuntimeError(f"Unrecognized mode={mode}, should be one of: {', '.join(_MODES[1:])}")
    if dynamic not in (None, True, False):
        raise RuntimeError(f"compile: dynamic must be None, True or False, got {dynamic!r}")
    _check_options(options)
    if shapes_spec is not None:
        raise NotImplementedError("compile: shapes_spec is missing; use dynamic=True or mark_dynamic")
    if model is None:
        return functools.partial(compile, fullgraph=fullgraph, dynamic=dynamic, backend=backend, mode=mode, options=options,
                                 name=name, disable=disable, recompile_limit=recompile_limit,
                                 isolate_recompiles=isolate_recompiles)
    if not callable(model):
        raise RuntimeError(f"compile: expected a function or a module, got {type(model).__name__}")
    backend = _checked(_default_backend if backend is None else backend)
    if disable or backend in _EAGER or getattr(model, "_flambeau_disabled", False):
        return model
    from .run.function import CompiledFunction
    compiled = CompiledFunction(model, fullgraph, mode, recompile_limit, dynamic=dynamic, name=name)
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


# What PyTorch's options say about this compiler. (isolate_recompiles is as it always is: each function counts its own.)
_OPTIONS = {"epilogue_fusion": True, "max_autotune": False, "fallback_random": True, "shape_padding": False,
            "triton.cudagraphs": False, "trace.enabled": False, "trace.graph_diagram": False}


def _check_options(options: dict[str, Any] | None) -> None:
    for key, value in (options or {}).items():
        if key not in _OPTIONS:
            raise RuntimeError(f"Unexpected optimization option {key}, known options are {list(_OPTIONS)}")
        if value != _OPTIONS[key]:
            raise NotImplementedError(f"compile: options={{{key!r}: {value!r}}} is missing; here it is always "
                                      f"{_OPTIONS[key]!r}")


def _checked(backend: str | Callable[..., Any]) -> str:
    if callable(backend):
        warnings.warn("compile: there is no FX graph to hand to a backend of your own; flambeau's compiler is used",
                      UserWarning, stacklevel=3)
        return "inductor"
    if backend not in (*list_backends(), *_EAGER):
        raise InvalidBackend(f"Invalid backend: {backend!r}, see `torch._dynamo.list_backends()` for available backends: "
                             f"{', '.join((*list_backends(), *_EAGER))}")
    return backend


def explain(fn: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """What `compile` makes of fn(*args, **kwargs): what was captured, fused, guarded, and how long each part takes.

    Runs fn for real, a few times. Print the result.

    >>> report = torch.compiler.explain(torch.compile(nn.Linear(2, 3)), torch.ones(4, 2))
    """
    from .run.report import explain as made
    return made(fn, args, kwargs)


def disable(fn: Any = None, recursive: bool = True, *, reason: str | None = None) -> Any:
    """Marks what is never to be compiled: inside a captured call it ends the capture. Also a decorator with arguments.

    >>> @torch.compiler.disable
    ... def plain(x):
    ...     return x + 1
    >>> torch.compile(plain)(torch.ones(2))
    tensor([2., 2.])
    """
    if fn is None:
        return lambda fn: disable(fn, recursive, reason=reason)
    if isinstance(fn, Module):
        made = OptimizedModule(fn)
        object.__setattr__(made, "_compiled", disable(fn.__call__, reason=reason))
        made.__dict__["_flambeau_disabled"] = True
        return made

    @functools.wraps(fn)
    def eager(*args: Any, **kwargs: Any) -> Any:
        from ..autograd.state import not_repeatable
        not_repeatable(reason or f"'{getattr(fn, '__name__', fn)}' is marked by compiler.disable", refused=True)
        return fn(*args, **kwargs)

    eager._flambeau_disabled = True
    return eager


def allow_in_graph(fn: Any) -> Any:
    """Does nothing: gives back the function, whose kernel calls are part of the program anyway.

    >>> torch.compiler.allow_in_graph(torch.sin) is torch.sin
    True
    """
    return fn


assume_constant_result = allow_in_graph


def substitute_in_graph(original_fn: Any, **kwargs: Any) -> Any:
    """Does nothing: a decorator; the function runs as Python while a call is captured.

    >>> @torch.compiler.substitute_in_graph(abs)
    ... def my_abs(x):
    ...     return x if x > 0 else -x
    >>> my_abs(-2)
    2
    """
    return lambda fn: fn


def is_compiling() -> bool:
    """Whether a call is being captured.

    >>> torch.compiler.is_compiling()
    False
    """
    from ..autograd.state import CAPTURE, state
    return bool(state.mode & CAPTURE)


is_dynamo_compiling = is_compiling


def is_exporting() -> bool:
    """False: there is no export.

    >>> torch.compiler.is_exporting()
    False
    """
    return False


def reset() -> None:
    """Forgets all that was compiled.

    >>> torch.compiler.reset()
    """
    from .run.function import reset as forget
    forget()


def cudagraph_mark_step_begin() -> None:
    """Does nothing: there are no CUDA graphs.

    >>> torch.compiler.cudagraph_mark_step_begin()
    """


def list_backends(exclude_tags: Any = ("debug", "experimental")) -> list[str]:
    """The names of the compilers there are.

    >>> torch.compiler.list_backends()
    ['inductor']
    """
    return ["inductor"]


def get_default_backend() -> str | Callable[..., Any]:
    """The backend of `compile` calls that name none.

    >>> torch.compiler.get_default_backend()
    'inductor'
    """
    return _default_backend


def set_default_backend(backend: str | Callable[..., Any] | None) -> None:
    """Sets the backend of `compile` calls that name none; None: the usual one.

    >>> torch.compiler.set_default_backend("eager")
    >>> torch.compiler.set_default_backend(None)
    """
    global _default_backend
    if backend is not None and not callable(backend):
        _checked(backend)
    _default_backend = "inductor" if backend is None else backend


class set_stance(contextlib.ContextDecorator):
    """What compiled functions do at a call: from now on, in a `with` block, or (as a decorator) in a function.

    "force_eager" runs no program, "eager_on_recompile" makes no new one, "fail_on_recompile" raises where one is needed.

    >>> double = torch.compile(lambda x: x * 2)
    >>> with torch.compiler.set_stance("force_eager"):
    ...     double(torch.ones(2))
    tensor([2., 2.])
    """

    def __init__(self, stance: str = "default", *, skip_guard_eval_unsafe: bool = False, force_backend: Any = None):
        known = ("default", "eager_then_compile", "aot_eager_then_compile", "force_eager", "eager_on_recompile",
                 "fail_on_recompile")
        if stance not in known:
            raise RuntimeError(f"set_stance: unknown stance {stance!r}, expected one of {known}")
        if force_backend is not None and stance != "default":
            raise RuntimeError("set_stance: force_backend goes with the stance 'default' only")
        self.stance = stance
        self.before = _exchange_stance(stance)

    def __call__(self, fn: Any) -> Any:
        _exchange_stance(self.before)
        return super().__call__(fn)

    def __enter__(self) -> None:
        _exchange_stance(self.stance)

    def __exit__(self, *exc: Any) -> None:
        _exchange_stance(self.before)


def _exchange_stance(stance: str) -> str:
    from .run import function
    before, function.stance = function.stance, stance
    return before


# ------------------------------------------------------------------------------------- accepted, without any effect
def nested_compile_region(fn: Any = None, **kwargs: Any) -> Any:
    """Does nothing: repeated parts of a program need no mark.

    >>> torch.compiler.nested_compile_region(torch.sin) is torch.sin
    True
    """
    return (lambda fn: fn) if fn is None else fn


def set_enable_guard_collectives(enabled: bool) -> None:
    """Does nothing: processes do not wait for each other's compilers.

    >>> torch.compiler.set_enable_guard_collectives(True)
    """


def save_cache_artifacts() -> None:
    """Does nothing: built programs are kept on disk already (FLAMBEAU_CACHE names the folder).

    >>> torch.compiler.save_cache_artifacts()
    """


def load_cache_artifacts(serialized_artifacts: bytes) -> None:
    """Does nothing: see save_cache_artifacts.

    >>> torch.compiler.load_cache_artifacts(b"")
    """


def load_compiled_function(file: Any, *, f_globals: Any = None, external_data: Any = None) -> Any:
    """Not available: programs refer to the tensors of the process that made them."""
    raise NotImplementedError("compiler.load_compiled_function: programs cannot be saved to a file; compile again, the C "
                              "compiler's work is kept in the cache folder")


def _keep_guards(guard_entries: Any, keep_parameters: bool = False) -> list[bool]:
    """Does nothing: options={"guard_filter_fn": ...} keeps every guard, as checking them costs little.

    >>> torch.compiler.keep_portable_guards_unsafe([1, 2])
    [True, True]
    """
    return [True] * len(guard_entries)


keep_portable_guards_unsafe = keep_tensor_guards_unsafe = skip_all_guards_unsafe = skip_guard_on_globals_unsafe = _keep_guards
skip_guard_on_all_nn_modules_unsafe = skip_guard_on_inbuilt_nn_modules_unsafe = _keep_guards


def wrap_numpy(fn: Callable[..., Any]) -> Callable[..., Any]:
    """A function of NumPy arrays as one of tensors. It looks at values, so a compiled function that calls it runs eagerly.

    >>> import numpy as np
    >>> torch.compiler.wrap_numpy(np.cumsum)(torch.arange(3))
    tensor([0, 1, 3])
    """
    from ..tensors.interop import from_numpy
    from ..tensors.tensor import Tensor
    from .capture.trees import flatten, unflatten

    @functools.wraps(fn)
    def call(*args: Any, **kwargs: Any) -> Any:
        leaves: list[Any] = []
        shape = flatten([list(args), kwargs], leaves)
        given = unflatten(shape, iter([a.numpy() if isinstance(a, Tensor) else a for a in leaves]))
        results: list[Any] = []
        shape = flatten(fn(*given[0], **given[1]), results)
        return unflatten(shape, iter([from_numpy(r) if hasattr(r, "__array_interface__") else r for r in results]))

    return call
