"""From functions over tensors to what users call: `flambeau.name`, `Tensor.name`, `Tensor.name_` and `out=`.

`public` exports a function and handles overrides and `out=` around it. An in-place form computes its result, then writes
value and history into the target (`store`).
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from sys import getrefcount
from typing import Any

from ...autograd import state as _state
from ...autograd.node import Edge, Node, SavedOutput, saved_result, start_counter
from ...autograd.state import FOLLOW, FORWARD_AD, SAVED_HOOKS, state
from ...autograd.views import check_creation, check_inplace, edge_of, set_history, written
from ...backends import registry
from ...backends.cpu.memory import owner
from ...backends.references import HANDED_ON, NAMED
from ...tensors.dtypes import can_cast
from ...tensors.tensor import Tensor, wrap
from . import examples as _examples
from . import overrides as _overrides

ndarray = registry.CPU_ARRAY
_PACKAGE = __name__.partition(".")[0]
FUNCTIONS: dict[str, Any] = {}  # what becomes flambeau.<name>
NO_RECORD = _state.NO_GRAD | _state.INFERENCE
_HELD_BY_CALLERS = NAMED + HANDED_ON  # references to an alias that nobody saved: the in-place method's, handed to store
_SEQUENCES = (list, tuple)


# What is said of functions where they are defined, by name; `fact` enters it.
# Rules of out= beyond type promotion: _OUT_RULES, "apart" (from the arguments' memory), "castable" (linalg's words for it).
OUT: dict[str, frozenset[str]] = {}
AUTOCAST: dict[str, str] = {}        # the precision inside autocast: "lower", "float32" or "widest"
FOREACH: dict[str, int] = {}         # with a form over lists of tensors (ops/lists/foreach.py): of how many lists


def fact(name: str, *, out: bool | str = True, autocast: str | None = None, foreach: int = 0) -> None:
    """Enters what is true of a function beyond what it computes."""
    if out.__class__ is str:
        OUT[name] = frozenset(out.split())
    if autocast is not None:
        AUTOCAST[name] = autocast
        _state.CASTS.add(name)
    if foreach:
        FOREACH[name] = foreach


def autocast_as(precision: str) -> Callable:
    """Decorates a function that asks for overrides itself: its precision inside autocast."""
    def decorate(function: Callable) -> Callable:
        AUTOCAST[function.__name__] = precision
        _state.CASTS.add(function.__name__)
        return function

    return decorate


def public(function: Callable | None = None, *, name: str | None = None, method: bool = True, inplace: bool | str = False,
           out: bool | str = True, aliases: tuple[str, ...] = (), also: dict[str, str] | None = None, **options: Any) -> Any:
    """Exports a function over tensors; handles overrides and `out=` around it.

    inplace: whether there is an in-place form; "function": as a function too, "buffered": it reads all before it writes.
    also: further names of its arguments. out and other options: as in `export` and `fact`.
    """
    if function is None:
        return functools.partial(public, name=name, method=method, inplace=inplace, out=out, aliases=aliases, also=also,
                                 **options)
    name = name or function.__name__.rstrip("_")
    renames = {**other_names(function), **(also or {})}

    def wrapper(*args, **kwargs):
        if _overrides.active:
            done, value = _overrides.dispatch(wrapper, args, kwargs)
            if done:
                return value
        if kwargs and not renames.keys().isdisjoint(kwargs):
            kwargs = {renames.get(k, k): value for k, value in kwargs.items()}
        if "out" in kwargs and out:
            target = kwargs.pop("out")
            if target is not None:
                return write_out(name, target, function(*args, **kwargs), args, kwargs)
        try:
            return function(*args, **kwargs)
        except (TypeError, AttributeError, ValueError) as error:  # perhaps a tensor-like object of a foreign class
            done, value = _overrides.late(wrapper, args, kwargs)
            if done:
                return value
            if error.__class__ is AttributeError:
                check_arguments(name, function, args, kwargs, error)
            raise

    functools.update_wrapper(wrapper, function)
    wrapper.__name__ = name
    if out.__class__ is str:
        options["out"] = out
    export(name, wrapper, method=method, aliases=aliases, **options)
    if inplace:
        export_inplace(name, wrapper, aliases, inplace, method)
    return wrapper


def check_arguments(name: str, function: Callable, args: tuple[Any, ...], kwargs: dict[str, Any],
                    error: AttributeError) -> None:
    """Raises the TypeError that an AttributeError stands for: an argument without an attribute that all tensors have."""
    code = getattr(function, "__wrapped__", function).__code__
    names = code.co_varnames[:code.co_argcount]
    given = [*itertools.zip_longest(names[:len(args)], args, fillvalue="tensors"), *kwargs.items()]
    for position, (argument, value) in enumerate(given, 1):
        value = error.obj if value.__class__ in _SEQUENCES and any(v is error.obj for v in value) else value
        if value is error.obj and not isinstance(value, Tensor) and hasattr(Tensor, error.name):
            raise TypeError(f"{name}(): argument '{argument}' (position {position}) must be Tensor, not "
                            f"{type(value).__name__}") from None


# "axis means dim": other names of arguments, NumPy's most of all, which PyTorch takes in place of its own.
_OTHER_NAMES = (("axis", "dim"), ("keepdims", "keepdim"), ("input", "self"), ("self", "input"),
                ("x", "input"), ("a", "input"), ("x1", "input"), ("x2", "other"))


def other_names(function: Callable) -> dict[str, str]:
    """Further names of a function's arguments, and the argument that each stands for."""
    code = getattr(function, "__wrapped__", function).__code__
    own = code.co_varnames[:code.co_argcount + code.co_kwonlyargcount]
    return {other: real for other, real in _OTHER_NAMES if real in own and other not in own}


def export(name: str, function: Callable, *, method: bool = True, toplevel: bool = True, aliases: tuple[str, ...] = (),
           **facts: Any) -> None:
    """Makes a function public. It says that it lives where users find it, so that it can be pickled. facts: as in `fact`."""
    if facts:
        fact(name, **facts)
    if toplevel or method:
        function.__module__, function.__qualname__ = _PACKAGE, name if toplevel else f"Tensor.{name}"
        _examples.attach_to(name if toplevel else f"Tensor.{name}", function)
    for n in (name, *aliases):
        if toplevel:
            FUNCTIONS[n] = function
        if method:
            setattr(Tensor, n, function)


def export_inplace(name: str, function: Callable, aliases: tuple[str, ...] = (), inplace: bool | str = True,
                   method: bool = True) -> Callable:
    changed = make_inplace(name, function, "buffered" in str(inplace))
    changed.__module__ = _PACKAGE
    enter_inplace(changed, name, aliases, inplace, method)
    return changed


def enter_inplace(changed: Callable, name: str, aliases: tuple[str, ...], inplace: bool | str, method: bool = True) -> None:
    """Enters an in-place form under its names, where `inplace` says so as a function too."""
    for n in (name, *aliases):
        if method:
            setattr(Tensor, n + "_", changed)
        if "function" in str(inplace):
            FUNCTIONS[n + "_"] = changed


def alias_of(tensor: Tensor) -> Tensor:
    """The same memory and history under another object: what an in-place operation saves of its own input."""
    if tensor._counter is None:
        start_counter(tensor)
    other = wrap(tensor._array)
    other._node = None if state.mode & NO_RECORD else edge_of(tensor)
    other._counter = tensor._counter
    other._inference = tensor._inference
    if tensor._tangent is not None:
        other._tangent = tensor._tangent
    return other


def make_inplace(name: str, function: Callable, buffered: bool = False) -> Callable:
    """`x.name_()` from `name(x)`: computes, then writes the result and its history into x.

    buffered: it reads all before it writes, so that its arguments may share part of x's memory (products do).
    """
    def inplace(self, *args, **kwargs):
        if _overrides.active:
            done, value = _overrides.dispatch(inplace, (self, *args), kwargs)
            if done:
                return value
        check_inplace(self)
        if not buffered:
            check_overlap(self._array, args)
        before = alias_of(self)
        return store(self, function(before, *args, **kwargs), before)

    functools.update_wrapper(inplace, function)
    inplace.__name__ = name + "_"
    inplace.__qualname__ = f"Tensor.{name}_"
    return inplace


def store(target: Tensor, result: Tensor, before: Tensor | None = None) -> Tensor:
    """Gives an existing tensor the value and the history of a result.

    before: the alias that the result was computed from; if a node saved it, it gets a copy of the old value.
    """
    array, made = target._array, result._array
    check_writable(target)
    if made.shape != array.shape:
        raise RuntimeError(f"output with shape {list(array.shape)} doesn't match the broadcast shape {list(made.shape)}")
    if made.dtype is not array.dtype and not can_cast(result.dtype, target.dtype):
        raise RuntimeError(f"result type {result.dtype.word} can't be cast to the desired output type {target.dtype.word}")
    mode = state.mode
    if target._base is not None and result._node is not None and not mode & NO_RECORD:
        check_creation(target)
    if before is not None and result._node is not None and getrefcount(before) > _HELD_BY_CALLERS:
        before._array, before._counter = registry.backend_of(array).copy_with_layout(array, array), None
    registry.write(array, made)
    written(target)
    if not mode & NO_RECORD:
        edge = result._node
        if edge is not None:
            node = edge.node if edge.__class__ is Edge else edge
            _saved_in_place(node, made, target)
            set_history(target, edge)
        elif target._node is not None and target._base is None:
            target._node = None
    if mode & _state.FORWARD_AD:
        from ...autograd.forward_mode import store_tangent
        store_tangent(target, result)
    return target


def _saved_in_place(node: Node, made: Any, target: Tensor) -> None:
    """A result that the node saved now lives in the target's memory: later changes there must be noticed."""
    for i, v in enumerate(node.saved or ()):
        if v is made:
            v = saved_result(node, i)
        if v.__class__ is SavedOutput and v.array is made and target._array.dtype is made.dtype:
            v.array, v.counter, v.version = target._array, target._counter, target._counter.value


def check_writable(target: Tensor) -> None:
    array = target._array
    if not array.flags.c_contiguous and array.ndim and registry.backend_of(array).NAME in _ADDRESSED:
        from ...backends.cpu.arrays import has_overlap
        if has_overlap(array):
            raise RuntimeError("unsupported operation: more than one element of the written-to tensor refers to a single "
                               "memory location. Please clone() the tensor before performing the operation.")


_ADDRESSED = ("cpu", "cuda")  # backends whose arrays are memory at an address


def _in_memory(array: Any) -> bool:
    return type(array) in registry.ARRAY_TYPES and registry.backend_of(array).NAME == "cpu"


def check_overlap(target: Any, sources: Any, full: bool = False) -> None:
    """An array that is written must not share part of its memory with one that is read (nor, where told, all of it)."""
    for source in sources:
        if isinstance(source, Tensor):
            source = source._array
        elif source.__class__ in _SEQUENCES:
            check_overlap(target, source, full)
            continue
        if type(source) is ndarray is type(target):
            base = target if target.base is None else target.base
            if (source if source.base is None else source.base) is not base:
                continue
        elif state.mode & FOLLOW:
            if not _in_memory(source) or not _in_memory(target) or owner(source) is not owner(target):
                continue
        elif type(source) is not type(target) or registry.backend_of(target).NAME not in _ADDRESSED:
            continue
        from ...backends.cpu.arrays import overlap
        shared = overlap(target, source) if source is target or type(target) is ndarray else (
            overlap(target.view(ndarray), source.view(ndarray)))
        if shared == "part" or (full and shared == "full"):
            raise RuntimeError("unsupported operation: some elements of the input tensor and the written-to tensor refer "
                               "to a single memory location. Please clone() the tensor before performing the operation.")


def check_dtype(kernel: str, dtype: Any, kinds: str) -> None:
    """Whether there is a kernel for a dtype. kinds: b for bool, i for integers, f for floating types (F: but not half ones),
    c for complex ones but complex32 (h)."""
    if dtype.letter not in kinds and not ("F" in kinds and dtype.itemsize > 2 and dtype.is_floating_point):
        raise NotImplementedError(f"\"{kernel}\" not implemented for '{dtype.word}'")


def check_on_cpu(kernel: str, tensor: Tensor, kinds: str, others: str = "") -> None:
    """The same for a tensor in the host's memory: kernels of other devices serve others. others: more dtypes, by name."""
    dtype = tensor.dtype
    if dtype.letter not in kinds and dtype.name not in others.split() and tensor.device.type == "cpu":
        check_dtype(kernel, dtype, kinds)


def _type_word(d: Any) -> str:
    return d.word


def _exact(name: str, out: Tensor, result: Tensor) -> None:
    raise RuntimeError(f"{name}(): Expected out tensor to have dtype {result.dtype.c_word}, but got "
                       f"{out.dtype.c_word} instead")


def _of_one_type(name: str, out: Tensor, result: Tensor) -> None:
    raise RuntimeError(f"Expected object of scalar type {result.dtype.word} but got scalar type "
                       f"{out.dtype.word} for argument 'out'")


def _joined(name: str, out: Tensor, result: Tensor) -> None:
    if not can_cast(result.dtype, out.dtype):
        raise TypeError(f"torch.cat(): input types can't be cast to the desired output type {out.dtype.word}")


def _double(name: str, out: Tensor, result: Tensor) -> None:
    raise RuntimeError(f"the output given to {name} has dtype {out.dtype.word} but the operation's result requires dtype "
                       f"{result.dtype.word}")


def _positions(name: str, out: Tensor, result: Tensor) -> None:
    raise RuntimeError(f"{name}: Expected out tensor to have scalar type Long but got scalar type {out.dtype.word}")


# What is asked of an out= that has another dtype than the result; without such a rule type promotion decides.
_OUT_RULES = {"exact": _exact, "strict": _of_one_type, "joined": _joined, "double": _double, "long": _positions}


def write_out(name: str, out: Any, result: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Puts results into the tensors given as out=."""
    rules = OUT.get(name, ())
    apart = "apart" in rules
    for o in out if out.__class__ in _SEQUENCES else (out,):
        if isinstance(o, Tensor) and o._array.size:
            if apart:
                check_writable(o)
            check_overlap(o._array, (*args, *kwargs.values()), full=apart)
    if isinstance(result, tuple):
        if not isinstance(out, (tuple, list)):
            raise TypeError(f"{name}(): argument 'out' must be a tuple of {len(result)} Tensors, not {type(out).__name__}")
        if len(out) != len(result):
            raise TypeError(f"{name}(): expected {len(result)} tensors in 'out', got {len(out)}")
        for o, r, field in zip(out, result, getattr(result, "_fields", ("result",) * len(out))):
            _write_one(name, o, r, rules, field)
        return type(result)(*out) if hasattr(result, "_fields") else tuple(out)
    if isinstance(out, (tuple, list)) and len(out) == 1:
        out = out[0]
    _write_one(name, out, result, rules)
    return out


def _refuse_dual(name: str, out: Tensor, result: Tensor) -> None:
    from ...autograd.forward_mode import tangent_of
    if tangent_of(out) is not None or tangent_of(result) is not None:
        raise NotImplementedError(f"Trying to use forward AD with {name}_out that does not support it because it is an out= "
                                  "function")


def _write_one(name: str, out: Tensor, result: Tensor, rules: Any, field: str = "result") -> None:
    if not isinstance(out, Tensor):
        raise TypeError(f"{name}(): argument 'out' must be Tensor, not {type(out).__name__}")
    if not state.mode & NO_RECORD and (result._node is not None or out._node is not None):
        which = "one of the arguments requires grad" if result._node is not None else "the output requires grad"
        raise RuntimeError(f"{name}(): functions with out=... arguments don't support automatic differentiation, but "
                           f"{which}.")
    if state.mode & FORWARD_AD and (out._tangent is not None or result._tangent is not None):
        _refuse_dual(name, out, result)
    if state.mode & SAVED_HOOKS:
        from ...autograd.graph import before_write
        before_write(out)
    if out._inference:
        check_inplace(out)
    if out.device != result.device:
        raise RuntimeError(f"{name}(): expected out on device {result.device}, got {out.device}")
    if out.dtype is not result.dtype:
        for rule in rules:
            if rule in _OUT_RULES:
                _OUT_RULES[rule](name, out, result)
        if "castable" in rules and not can_cast(result.dtype, out.dtype):
            raise RuntimeError(f"torch.{name.replace('_', '.', 1)}: Expected {field} to be safely castable from "
                               f"{result.dtype.word} dtype, but got {field} with dtype {out.dtype.word}")
        if not can_cast(result.dtype, out.dtype):
            raise RuntimeError(f"result type {result.dtype.word} can't be cast to the desired output type {out.dtype.word}")
    if out._array.shape != result._array.shape:
        from ...backends.cpu.arrays import is_dense
        from ..shape.joining import resize_out
        array = result._array
        dense = registry.backend_of(array).NAME == "cpu" and not array.flags.c_contiguous and is_dense(array)
        resize_out(out, result.shape, result.stride() if dense else None)
    check_writable(out)
    registry.write(out._array, result._array)
    written(out)
