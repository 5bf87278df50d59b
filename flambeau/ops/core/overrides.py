"""`__torch_function__`: tensor subclasses, tensor-like objects and modes that take part in operations.

`active` stays False until a subclass with its own behaviour is defined or a mode is entered, so that programs without
either pay one global read per call. Then `dispatch` asks, for every call, the innermost mode first, and after it the
arguments: subclasses before their superclasses, otherwise from left to right.
"""

from __future__ import annotations

import contextlib
import functools
import inspect
import sys
import types as _types
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from ...autograd.state import AUTOCAST, DISPATCH, OVERRIDE, PROFILE, state
from ...tensors.parameter import Buffer, Parameter
from ...tensors.tensor import Tensor

active = False


_for_good = False       # a subclass or a mode was seen
_asking = 0             # blocks of `asked` that are entered
_cast: Any = None       # amp's cast_call, while an autocast block is entered
_dispatcher: Any = None  # ops/dispatch's offer, once there was a __torch_dispatch__


def activate() -> None:
    global active, _for_good
    if not _for_good:
        active = _for_good = True
        _let_methods_ask()


@contextlib.contextmanager
def always_asked() -> Iterator[None]:
    """Inside, every call asks for overrides; afterwards as before (for tracers, whose stand-ins do not outlive them)."""
    global active, _asking
    active, _asking = True, _asking + 1
    try:
        yield
    finally:
        _asking -= 1
        active = _for_good or _cast is not None or _asking > 0


def autocast(cast: Any) -> None:
    """amp says that calls are to be offered to it (or, with None, no longer)."""
    global active, _cast
    _cast = cast
    active = _for_good or cast is not None or _asking > 0


def dispatching(begins: bool) -> None:
    """A mode below autograd is entered or left."""
    global active, _asking, _dispatcher
    if _dispatcher is None:
        load_dispatcher()
    _asking += 1 if begins else -1
    active = _for_good or _cast is not None or _asking > 0


def load_dispatcher() -> None:
    """From now on calls that nobody took over are offered to modes and subclasses below autograd."""
    global _dispatcher
    from ..dispatch.calls import offer
    _dispatcher = offer


def _offer(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """A call that is an operation on plain tensors: a profiler may take it over, autocast, or what listens below autograd."""
    if state.mode & PROFILE:
        done, value = state.profiler.call(function, args, kwargs)
        if done:
            return True, value
    cast = _cast
    if cast is not None and state.mode & AUTOCAST:
        done, value = cast(function, args, kwargs)
        if done:
            return True, value
    return (False, None) if _dispatcher is None else _dispatcher(function, args, kwargs)


def _disabled_torch_function_impl(*args: Any, **kwargs: Any) -> Any:
    """As a class's `__torch_function__`: the class takes no part, and results are plain tensors."""
    return NotImplemented


# ------------------------------------------------------------------------------ methods that are no operations
_OF_PYTHON = frozenset("""__init__ __hash__ __iter__ __str__ __dir__ __setstate__ __deepcopy__ __copy__ __reduce_ex__ __array__
    has_names""".split())  # the language's own ways with objects


def _let_methods_ask() -> None:
    """Methods that ask a tensor something, or tell it, and compute nothing: from now on they ask for overrides first. Until
    somebody can be asked they are what the class has, at full speed."""
    package = __name__.partition(".")[0]
    homes = tuple([f"{package}.{part}" for part in ("tensors.", "missing", "autograd.")])
    for name, function in list(vars(Tensor).items()):
        if isinstance(function, _types.FunctionType) and function.__module__.startswith(homes) and name not in _OF_PYTHON:
            setattr(Tensor, name, _asking_method(name, function))


def _asking_method(name: str, function: Callable) -> Callable:
    @functools.wraps(function)
    def method(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not self._without_overrides or state.function_modes:
            off = getattr(state, "override_off", 0)
            if off < 2 and (state.function_modes or (not off and not self._answers_itself and _takes_part(self))):
                return dispatch(method, (self, *args), kwargs, (self,))[1]
        return function(self, *args, **kwargs)

    method.__name__ = name
    return method


# ------------------------------------------------------------------------------------------------- who is asked
def _takes_part(value: Any) -> bool:
    """Whether an argument has its own say: not a plain tensor, and its class has `__torch_function__`."""
    kind = value.__class__
    if kind is Tensor:
        return False
    if isinstance(value, Tensor):
        return not kind._without_overrides and not (
            kind._dispatches and kind.__torch_function__ is _disabled_torch_function_impl)
    return kind not in _PLAIN and hasattr(kind, "__torch_function__") and kind is not type and (
        kind.__torch_function__ is not _disabled_torch_function_impl)


_PLAIN = {int, float, bool, complex, str, tuple, list, dict, type(None), slice}


def _overloaded(values: Iterable[Any]) -> list[Any]:
    """The arguments to ask, one per type, in order."""
    found: list[Any] = []
    for value in values:
        if value.__class__ in (tuple, list):
            found_in = value
        elif _takes_part(value):
            found_in = (value,)
        else:
            continue
        for v in found_in:
            if _takes_part(v) and all(type(v) is not type(o) for o in found):
                place = next((i for i, o in enumerate(found) if issubclass(type(v), type(o))), len(found))
                found.insert(place, v)
    return found


STAND_INS: dict[Any, Any] = {}  # a function -> the quicker one that users see in its place (ops/core/generate_calls.py)


def dispatch(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any],
             relevant: Iterable[Any] | None = None) -> tuple[bool, Any]:
    """(True, result) if a mode or an argument took over this call, else (False, None)."""
    while function in STAND_INS:  # one may stand in front of another
        function = STAND_INS[function]
    modes = state.function_modes
    off = getattr(state, "override_off", 0)
    if off >= 2:
        return _offer(function, args, kwargs)
    overloaded = [] if off else _overloaded((*args, *kwargs.values()) if relevant is None else relevant)
    if not overloaded and not modes:
        return _offer(function, args, kwargs)
    kinds = tuple([type(a) for a in overloaded])
    if modes:
        with _without_innermost() as mode:
            result = mode.__torch_function__(function, kinds, args, kwargs)
        if result is not NotImplemented:
            return True, result
        if not overloaded:
            raise _nobody(function, [type(mode)])
    for a in overloaded:
        result = type(a).__torch_function__(function, kinds, args, kwargs)
        if result is not NotImplemented:
            return True, result
    if not overloaded:
        return _offer(function, args, kwargs)
    raise _nobody(function, kinds)


def _nobody(function: Any, kinds: Iterable[type]) -> TypeError:
    names = ", ".join(f"{k.__module__}.{k.__qualname__}" for k in kinds)
    return TypeError(f"no implementation found for '{resolve_name(function) or function}' on types that implement "
                     f"__torch_function__: [{names}]")


def late(function: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[bool, Any]:
    """Asked after a call failed while nothing was active: was there a tensor-like object of a foreign class?"""
    if active or not _overloaded((*args, *kwargs.values())):
        return False, None
    activate()
    return dispatch(function, args, kwargs)


@contextlib.contextmanager
def _without_innermost() -> Iterator[Any]:
    """The innermost mode, which does not see the calls that its own handler makes."""
    modes = state.function_modes
    mode = modes.pop()
    bits = state.mode
    if not modes:
        state.mode &= ~OVERRIDE
    try:
        yield mode
    finally:
        modes.append(mode)
        state.mode = (state.mode & ~OVERRIDE) | (bits & OVERRIDE)


# -------------------------------------------------------------------------------------------- Tensor's own behaviour
def _torch_function(cls: type, func: Any, types: Iterable[type], args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
    """Runs the operation as if on plain tensors, and gives the results the subclass."""
    if not all(issubclass(cls, t) for t in types):
        return NotImplemented
    with DisableTorchFunctionSubclass():
        result = func(*args, **(kwargs or {}))
    return result if func in get_default_nowrap_functions() else _convert(result, cls)


_default = classmethod(_torch_function)
Tensor.__torch_function__ = _default
Parameter.__torch_function__ = Buffer.__torch_function__ = _disabled_torch_function_impl


def _convert(value: Any, cls: type) -> Any:
    if cls is Tensor:
        return value
    if isinstance(value, Tensor):
        return value if isinstance(value, cls) else retype(value, cls)
    if isinstance(value, (tuple, list)):
        made = [_convert(v, cls) for v in value]
        return type(value)(*made) if hasattr(value, "_fields") else type(value)(made)
    return value


def retype(tensor: Tensor, cls: type) -> Tensor:
    """The same tensor (memory, history, counter) as an object of a subclass."""
    made = object.__new__(cls)
    made.__dict__.update(tensor.__dict__)
    made._array, made._node, made._counter = tensor._array, tensor._node, tensor._counter
    return made


def as_subclass(self: Tensor, cls: type) -> Tensor:
    """This tensor as an object of a subclass, sharing memory; gradients flow through.

    >>> class Mine(torch.Tensor):
    ...     pass
    >>> type(torch.ones(2).as_subclass(Mine)).__name__
    'Mine'
    """
    if not (isinstance(cls, type) and issubclass(cls, Tensor)):
        raise TypeError("Creating a Tensor subclass from a class that does not inherit from Tensor is not possible. Make sure "
                        "your class inherits from Tensor.")
    with DisableTorchFunctionSubclass():
        alias = self.view_as(self) if self._array.ndim else self.view(())
    return retype(alias, cls)


@staticmethod
def _make_subclass(cls: type, data: Tensor, require_grad: bool = False, *, dispatch_sizes_strides_policy: Any = None,
                   dispatch_device: bool = False, dispatch_layout: bool = False) -> Tensor:
    """A new leaf of the subclass over the same memory."""
    made = object.__new__(cls)
    made._array, made._node, made._counter = data._array, None, data._counter
    if require_grad:
        made.requires_grad_(True)
    return made


@staticmethod
def _make_wrapper_subclass(cls: type, size: Any, strides: Any = None, storage_offset: int | None = None,
                           memory_format: Any = None, dtype: Any = None, layout: Any = None, device: Any = None,
                           pin_memory: bool = False, requires_grad: bool = False, dispatch_sizes_strides_policy: Any = None,
                           dispatch_device: bool = False, dispatch_layout: bool = False, **more: Any) -> Tensor:
    """A tensor of a subclass that has a shape but no memory: its `__torch_dispatch__` says what operations do."""
    from ..dispatch.wrappers import make
    return make(cls, size, strides, storage_offset, memory_format, dtype, layout, device, requires_grad)


Tensor.as_subclass = as_subclass
Tensor._make_subclass = _make_subclass
Tensor._make_wrapper_subclass = _make_wrapper_subclass


def finish() -> None:
    """Once all operations are on Tensor: properties that give tensors keep the subclass; names are PyTorch's."""
    for name in ("T", "mT", "H", "mH", "real", "imag", "data"):
        made = vars(Tensor).get(name)
        if isinstance(made, property):
            setattr(Tensor, name, property(_keeping(name, made.fget), made.fset, made.fdel, made.__doc__))
    for name in ("__getitem__", "__setitem__"):
        vars(Tensor)[name].__name__ = name


def _keeping(name: str, get: Callable[[Tensor], Any]) -> Callable[[Tensor], Any]:
    def read(self: Tensor) -> Any:
        if active and (state.mode & DISPATCH or self._dispatches):
            from ..dispatch.lowering import PROPERTIES
            if name in PROPERTIES:
                return PROPERTIES[name](self)
        if self._without_overrides:
            return get(self)
        with DisableTorchFunctionSubclass():
            return _convert(get(self), type(self))

    return read


class DisableTorchFunctionSubclass:
    """Inside, subclasses count as plain tensors (modes still take part).

    >>> class Loud(torch.Tensor):
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return "caught"
    >>> x = torch.ones(2).as_subclass(Loud)
    >>> with torch._C.DisableTorchFunctionSubclass():
    ...     print(type(torch.add(x, 1)).__name__)
    Tensor
    """

    level = 1

    def __enter__(self) -> None:
        self.before = getattr(state, "override_off", 0)
        state.override_off = max(self.before, self.level)

    def __exit__(self, *exc: Any) -> None:
        state.override_off = self.before


class DisableTorchFunction(DisableTorchFunctionSubclass):
    """Inside, neither subclasses nor modes take part.

    >>> class Loud(torch.Tensor):
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         return "caught"
    >>> x = torch.ones(2).as_subclass(Loud)
    >>> torch.add(x, 1)
    'caught'
    >>> with torch._C.DisableTorchFunction():
    ...     print(type(torch.add(x, 1)).__name__)
    Tensor
    """

    level = 2


class _EnableTorchFunction:
    """Turns the protocol on again inside a disabled block."""

    def __enter__(self) -> None:
        self.before = getattr(state, "override_off", 0)
        state.override_off = 0

    def __exit__(self, *exc: Any) -> None:
        state.override_off = self.before


# ----------------------------------------------------------------------------------------------------------- modes
class TorchFunctionMode:
    """A `with` block in which every operation goes through this object's `__torch_function__`."""

    inner: TorchFunctionMode

    def __torch_function__(self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (),
                           kwargs: Any = None) -> Any:
        raise NotImplementedError

    def __enter__(self) -> TorchFunctionMode:
        activate()
        state.function_modes.append(self)
        state.mode |= OVERRIDE
        return self

    def __exit__(self, *exc: Any) -> None:
        state.function_modes.pop()
        if not state.function_modes:
            state.mode &= ~OVERRIDE

    @classmethod
    def push(cls, *args: Any, **kwargs: Any) -> TorchFunctionMode:
        return cls(*args, **kwargs)


class BaseTorchFunctionMode(TorchFunctionMode):
    """A mode that changes nothing."""

    def __torch_function__(self, func: Any, types: Iterable[type], args: tuple[Any, ...] = (),
                           kwargs: Any = None) -> Any:
        return func(*args, **(kwargs or {}))


def _get_current_function_mode() -> Any:
    return state.function_modes[-1] if state.function_modes else None


def _get_current_function_mode_stack() -> list[Any]:
    return list(state.function_modes)


def _is_torch_function_mode_enabled() -> bool:
    return bool(state.function_modes)


@contextlib.contextmanager
def _pop_mode_temporarily() -> Iterator[Any]:
    with _without_innermost() as mode:
        yield mode


@contextlib.contextmanager
def enable_reentrant_dispatch() -> Iterator[None]:
    with _EnableTorchFunction():
        yield


# ---------------------------------------------------------------------------------------- for libraries built on top
def has_torch_function(relevant_args: Iterable[Any]) -> bool:
    """Whether one of the arguments, or a mode, would take over."""
    if getattr(state, "redispatching", False):
        state.redispatching = False
        return False
    if getattr(state, "override_off", 0) >= 2:
        return False
    return bool(state.function_modes) or (not getattr(state, "override_off",
                                                      0) and any(_takes_part(a) for a in relevant_args))


def has_torch_function_unary(arg: Any) -> bool:
    return has_torch_function((arg,))


def has_torch_function_variadic(*args: Any) -> bool:
    return has_torch_function(args)


def handle_torch_function(public_api: Callable, relevant_args: Iterable[Any], *args: Any, **kwargs: Any) -> Any:
    """Hands a call of public_api to the modes and arguments that override it."""
    done, value = dispatch(public_api, args, kwargs, tuple(relevant_args))
    if not done:
        raise _nobody(public_api, [type(a) for a in relevant_args])
    return value


def wrap_torch_function(dispatcher: Callable) -> Callable:
    """Decorator: makes a function overridable by the arguments that dispatcher(*args, **kwargs) names."""
    def decorate(function: Callable) -> Callable:
        @functools.wraps(function)
        def wrapped(*args: Any, **kwargs: Any) -> Any:
            relevant = dispatcher(*args, **kwargs)
            if has_torch_function(relevant):
                return handle_torch_function(wrapped, relevant, *args, **kwargs)
            return function(*args, **kwargs)

        return wrapped

    return decorate


def is_tensor_like(inp: Any) -> bool:
    """Whether inp is a Tensor or takes part in `__torch_function__`."""
    return type(inp) is Tensor or hasattr(inp, "__torch_function__")


@functools.cache
def get_default_nowrap_functions() -> frozenset[Any]:
    """Functions whose results the default `__torch_function__` leaves as they are."""
    return frozenset({Tensor.grad.fget, Tensor.grad.__get__})


def redispatch_function(func: Callable, types: Iterable[type], args: tuple[Any, ...], kwargs: Any) -> Any:
    """Inside a `__torch_function__`: runs a function whose own calls are handed to the handlers again; the call of the
    function itself is not. An operation of the framework's runs as on plain tensors.

    >>> class Loud(torch.Tensor):
    ...     @classmethod
    ...     def __torch_function__(cls, func, types, args=(), kwargs=None):
    ...         print(func.__name__)
    ...         return torch.overrides.redispatch_function(func, types, args, kwargs)
    >>> (torch.ones(1).as_subclass(Loud) * 2).shape
    mul
    torch.Size([1])
    """
    if resolve_name(func) is None:  # a function of the user's, which begins with has_torch_function
        state.redispatching = True
        try:
            return func(*args, **(kwargs or {}))
        finally:
            state.redispatching = False
    with DisableTorchFunction():
        return func(*args, **(kwargs or {}))


# ------------------------------------------------------------------------------------------------ what can be overridden
@functools.cache
def get_ignored_functions() -> set[Callable]:
    """Public functions that cannot be overridden: those that make tensors from nothing, and what handlers stand on."""
    from ...creation import factories, legacy, literals
    from ..random import factories as draws
    from .export import FUNCTIONS
    homes = {module.__file__ for module in (factories, legacy, literals, draws)}
    made = {f for f in FUNCTIONS.values() if getattr(inspect.unwrap(f), "__code__", None) and (
        inspect.unwrap(f).__code__.co_filename in homes and "input" not in inspect.signature(f).parameters)}
    return made | {Tensor.as_subclass, Tensor._make_subclass, Tensor._make_wrapper_subclass, Tensor.__init__, Tensor.__hash__,
                   handle_torch_function, has_torch_function}


def _spaces() -> Iterator[tuple[str, Any]]:
    """Where functions that can be overridden are found, by their public names."""
    package = sys.modules[__name__.partition(".")[0]]
    yield "torch", package
    yield "torch.nn.functional", package.nn.functional
    yield "torch.nn.init", package.nn.init
    yield "torch.Tensor", Tensor
    for name in ("linalg", "fft", "special"):
        yield f"torch.{name}", getattr(package, name)


_NOT_ASKED = {"torch.fft": {"fftfreq", "rfftfreq"}, "torch.Tensor": {"__new__", "__array_namespace__", *_OF_PYTHON}}
_ASKED = {"torch.nn.init": {"uniform_", "normal_", "constant_", "kaiming_uniform_"}}


@functools.cache
def _overridable() -> dict[str, dict[str, Callable]]:
    """Every function that asks `__torch_function__`, by the names of its place and of itself."""
    from .export import FUNCTIONS
    activate()  # methods are then what handlers will be given
    ignored = get_ignored_functions()
    found: dict[str, dict[str, Callable]] = {}
    for place, space in _spaces():
        names = FUNCTIONS if place == "torch" else vars(Tensor) if space is Tensor else (
            _ASKED.get(place) or [n for n in dir(space) if not n.startswith("_") and "torch_function" not in n])
        functions = {n: getattr(space, n, None) for n in names if n not in _NOT_ASKED.get(place, ())}
        found[place] = {n: f for n, f in functions.items() if isinstance(f, _types.FunctionType) and f not in ignored}
    return found


def get_overridable_functions() -> dict[Any, list[Callable]]:
    """Every function that asks `__torch_function__`, by the namespace it is found in."""
    spaces = dict(_spaces())
    return {spaces[place]: list(functions.values()) for place, functions in _overridable().items()}


def get_testing_overrides() -> dict[Callable, Callable]:
    """A dummy with the arguments of each function that can be overridden; it gives -1.

    >>> import inspect
    >>> inspect.signature(torch.overrides.get_testing_overrides()[torch.nn.functional.relu])
    <Signature (input, inplace=False)>
    """
    def dummy(function: Callable) -> Callable:
        made = lambda *args, **kwargs: -1
        own = inspect.signature(function, follow_wrapped=False)
        made.__signature__ = own.replace(parameters=[p.replace(annotation=p.empty) for p in own.parameters.values()],
                                         return_annotation=own.empty)
        return made

    return {f: dummy(f) for functions in _overridable().values() for f in functions.values()}


@functools.cache
def _names() -> dict[Any, str]:
    names: dict[Any, str] = {}
    for place, functions in _overridable().items():
        for name, function in functions.items():
            names.setdefault(function, f"{place}.{name}")
    return names


def resolve_name(f: Any) -> str | None:
    """The public name of an overridable function: torch.add, torch.Tensor.add_..."""
    return f if isinstance(f, str) else _names().get(f)


def is_tensor_method_or_property(func: Any) -> bool:
    return any(v is func for v in vars(Tensor).values()) or getattr(func, "__name__", "") == "__get__"


__all__ = ["get_ignored_functions", "get_overridable_functions", "get_testing_overrides", "handle_torch_function",
           "has_torch_function", "resolve_name", "is_tensor_like", "is_tensor_method_or_property",
           "wrap_torch_function", "redispatch_function", "enable_reentrant_dispatch", "TorchFunctionMode",
           "BaseTorchFunctionMode"]


for _public in (TorchFunctionMode, BaseTorchFunctionMode):
    _public.__module__ = "flambeau.overrides"  # where users find it
