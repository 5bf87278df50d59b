"""Calls: what a captured call may call, and what is called in its place.

The user's own Python and flambeau's layers run rewritten, flambeau's operations run as they are after a look at their
arguments, builtins as builtins_known.py says. Anything else may do or read what nobody hears of, and ends the proof.
"""

from __future__ import annotations

import functools
from types import BuiltinFunctionType, CellType, FunctionType, MethodDescriptorType, MethodType
from typing import Any

from ...autograd.function import Function as AutogradFunction
from ...nn import hooks as module_hooks
from ...nn.module import Module
from ...optim import optimizer as optimizers
from ...tensors.parameter import Parameter
from ...tensors.tensor import Size, Tensor
from .builtins_known import builtin, construct
from .control import HANDLERS
from .files import where
from .reads import MISSING, Entry, Inherited, Kind, Slot, inherited
from .rewrite import REWRITTEN, Unsupported, rewritten
from .traced import active

# Operations that change Python state, or give a value that their arguments do not decide.
_EFFECTS = frozenset(("register_hook", "register_post_accumulate_grad_hook", "retain_grad", "share_memory_", "set_", "resize_",
                      "resize_as_", "manual_seed", "seed", "use_deterministic_algorithms", "apply_", "map_", "swap_tensors",
                      "get_rng_state", "get_state", "__setstate__", "untyped_storage",
                      "storage", "data_ptr", "numpy", "__array__"))
# Operations that give a Python value, decided by the shapes and dtypes of their arguments.
_VALUES = frozenset(("size", "dim", "ndimension", "numel", "nelement", "stride", "is_floating_point", "is_complex", "is_signed",
                     "is_contiguous", "element_size", "get_device", "is_tensor", "is_grad_enabled", "get_default_dtype",
                     "broadcast_shapes", "result_type", "promote_types", "can_cast", "is_inference_mode_enabled", "is_nonzero_",
                     "is_inference", "__len__", "is_same_size", "backward", "zero_grad", "is_autocast_enabled",
                     "get_autocast_dtype", "get_autocast_cpu_dtype", "is_autocast_cpu_enabled", "is_set_to", "is_storage",
                     "clip", "is_dense", "_none_or_dtype", "wrap_dim", "item", "tolist"))  # (the last two: of constants only)


_MODULE_CALL = Module.__call__  # as it is; somebody may put another in its place


def callee(w: Any, f: Any) -> Any:
    """What to call in place of f."""
    kind = type(f)
    if kind is FunctionType:
        return _function(w, f)
    if kind is MethodType:
        return _bound_method(w, f)
    if kind is BuiltinFunctionType or kind is MethodDescriptorType:
        return builtin(w, f)
    if issubclass(type(f), type):
        return construct(w, f)
    if kind is functools.partial:
        for name in ("func", "args", "keywords"):
            w.note(Slot, f, name, getattr(f, name)) if id(f) not in w.born else None
        w.content(f.keywords)
        inner = w.call(f.func)
        return functools.partial(inner, *f.args, **f.keywords)
    if issubclass(type(f), Module):
        return _module(w, f, kind)
    ask = inherited(kind, "__call__")
    if type(ask) is FunctionType:
        return w.call(w._method(f, kind, "__call__", ask))
    w.fail(f"a '{kind.__name__}' is called")
    return f


def _function(w: Any, f: FunctionType) -> Any:
    code = f.__code__
    if code in REWRITTEN:
        return _generating(w, f, f)
    compiled = f.__dict__.get("_compiled")
    if compiled is not None:
        w.note(Entry, f.__dict__, "_compiled", compiled)
        return w.call(compiled.function)
    home = where(code.co_filename)
    if home == "operation":
        return _operation(w, f)
    control = HANDLERS.get(f.__name__) if f.__dict__.get("_controls") else None
    if control is not None and active() is not None:
        return functools.partial(control, w, _rewritten(w, f))
    if home == "foreign":
        if f.__name__ == "cast" and f.__module__ == "typing":
            return f
        w.fail(f"'{f.__module__}.{f.__name__}' is called")
        return f
    if f.__dict__.get("_flambeau_disabled"):
        w.fail(f"'{f.__name__}' is marked by compiler.disable")
        return f
    return _rewritten(w, f)


def _rewritten(w: Any, f: FunctionType) -> Any:
    try:
        new = w.unwatched(rewritten, f, w.helpers)
    except Unsupported as error:
        w.fail(f"'{f.__name__}' cannot be followed: {error}")
        return f
    w.function_read(f)
    return _generating(w, f, new)


def _generating(w: Any, f: FunctionType, new: FunctionType) -> Any:
    if not f.__code__.co_flags & 0x20:  # no generator function
        return new
    return lambda *args, **kwargs: w.made(new(*args, **kwargs))


def _bound_method(w: Any, f: MethodType) -> Any:
    inner, owner = f.__func__, f.__self__
    if issubclass(type(owner), optimizers.Optimizer) and type(inner) is FunctionType and (
            inner.__name__ in ("step", "zero_grad") or getattr(inner, "hooked", False)) and (
            where(inner.__code__.co_filename) == "flambeau"):
        _optimizer(w, owner)
        return f
    if inner is AutogradFunction.apply.__func__:
        for name in ("forward", "backward", "setup_context", "vjp", "jvp", "apply"):
            w.note(Inherited, owner, name, inherited(owner, name))
        return lambda *args, **kwargs: _result(w, "apply", f(*[a for a in args if w.operand(a) or True], **kwargs))
    new = w.call(inner)
    if type(new) is FunctionType and new is not inner:
        return MethodType(new, owner)
    return f if new is inner else functools.partial(new, owner)


def _operation(w: Any, f: FunctionType) -> Any:
    """A function of flambeau's: it looks at its arguments only."""
    name, inner = f.__name__, f.__dict__.get("__wrapped__")
    if inner is not None and where(getattr(getattr(inner, "__code__", None), "co_filename", "")) != "operation":
        return _decorated(w, f, inner)
    if name in _EFFECTS or name.startswith("set_"):
        w.fail(f"'{name}' is called")
        return f

    def operation(*args: Any, **kwargs: Any) -> Any:
        for a in (*args, *kwargs.values()):
            if type(a) is not Tensor and type(a) is not Parameter:
                w.operand(a, f"'{name}'")
            elif name in _VALUES:
                w.metadata(a)
        return _result(w, name, f(*args, **kwargs))
    return operation


def _decorated(w: Any, f: FunctionType, inner: Any) -> Any:
    """A function of somebody else's inside one of flambeau's decorators, such as @no_grad(): a copy of the decorator's
    function calls the rewritten one."""
    cells = {n: c for n, c in zip(f.__code__.co_freevars, f.__closure__ or ())}
    place = next((n for n, c in cells.items() if c.cell_contents is inner), None)
    if place is None:
        w.fail(f"'{f.__name__}' is decorated")
        return f
    w.note(Entry, f.__dict__, "__wrapped__", inner)
    cells[place] = CellType(w.call(inner))
    made = FunctionType(f.__code__, f.__globals__, f.__name__, f.__defaults__, tuple(cells.values()))
    made.__kwdefaults__ = f.__kwdefaults__
    return made


def _result(w: Any, name: str, made: Any) -> Any:
    if issubclass(type(made), Tensor) or made is None:
        return made
    if type(made) is list:
        w.made(made)
    parts = made if issubclass(type(made), (list, tuple)) and type(made) is not Size else (made,)
    if name not in _VALUES and any([not isinstance(p, (Tensor, list, tuple, type(None))) for p in parts]) and (
            made is not NotImplemented):
        w.fail(f"'{name}' gives a Python value")
    return made


def _module(w: Any, f: Any, kind: type) -> Any:
    """A call of a module without hooks is a call of its forward."""
    ask = inherited(kind, "__call__")
    compiled = f.__dict__.get("_compiled")
    if ask is not _MODULE_CALL and compiled is not None and "_orig_mod" in f.__dict__.get("_modules", ()):
        return w.call(w.note(Entry, f.__dict__["_modules"], "_orig_mod", f.__dict__["_modules"]["_orig_mod"]))
    w.note(Inherited, kind, "__call__", ask)
    w.note(Kind, f, None, kind)
    if ask is not _MODULE_CALL:
        return w.call(MethodType(ask, f)) if type(ask) is FunctionType else f
    own = f.__dict__
    if id(f) not in w.born:
        w.note(Slot, f, "__dict__", own)
    tables = [module_hooks.calls]
    for name in ("_forward_hooks", "_forward_pre_hooks", "_backward_hooks", "_backward_pre_hooks"):
        table = own.get(name, MISSING)
        if table is MISSING:
            return f
        w.note(Entry, own, name, table)
        tables.append(table)
    w.note(Entry, own, "_compiled_call_impl", own.get("_compiled_call_impl", MISSING))
    for table in tables:
        w.content(table)
    if any(tables) or "_compiled_call_impl" in own:
        w.fail(f"a '{kind.__name__}' has hooks")
        return f
    return w.call(w.attribute(f, "forward"))


def _optimizer(w: Any, o: Any) -> None:
    """What an optimizer's own methods read: its groups, their parameters and hooks (the rest: optimizers.py)."""
    own = o.__dict__
    w.note(Kind, o, None, type(o))
    groups = w.note(Entry, own, "param_groups", own["param_groups"])
    w.content(groups)
    for group in groups:
        w.content(w.note(Entry, group, "params", group["params"]))
    for table in (optimizers._global_pre_hooks, optimizers._global_post_hooks, own["_optimizer_step_pre_hooks"],
                  own["_optimizer_step_post_hooks"]):
        w.content(table)
        if table:
            w.fail("an optimizer has hooks")
