"""The builtins, and the classes, that a captured call may use without being seen from inside: what they read, what they make.

Each is here because its result is decided by what it is given. A builtin that is not here (`print`, `open`, `id`, `input`,
those of modules written in C) may do or read anything: it ends what the witness can promise.
"""

from __future__ import annotations

import abc
import dataclasses
import functools
import itertools
import math
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, MethodDescriptorType, MethodType
from typing import Any

from ...tensors.parameter import Parameter
from ...tensors.tensor import Size, Tensor
from .files import TRUSTED
from .reads import CONTAINERS, MISSING, SCALARS, Function, Inherited, Kind, Setting, changeable, inherited
from .symbolic import SymFloat, checked, expression_of, settled

_SIMPLE = (abs, round, divmod, pow, ord, chr, int, float, bool, complex, str, bytes, repr, bin, hex, oct, format, slice, range)
_FOLDS = (sum, min, max, any, all, sorted)            # their items are added or compared
_GOING = (enumerate, zip, itertools.chain, itertools.islice, itertools.product, itertools.zip_longest, itertools.count,
          itertools.pairwise, itertools.cycle)
_MAKING = (list, tuple, set, frozenset)
_READS = {list: ("index", "count", "copy", "__len__", "__contains__", "__getitem__"),
          set: ("issubset", "issuperset", "union", "intersection", "difference", "isdisjoint", "copy",
                "symmetric_difference", "__contains__", "__len__")}
_OF_DICTS = ("get", "keys", "values", "items", "copy", "__contains__", "__getitem__", "__len__")
_CHANGES = frozenset("append extend insert pop remove clear sort reverse update setdefault popitem add discard __setitem__ "
                     "__delitem__ difference_update intersection_update symmetric_difference_update move_to_end".split())
_DIGITS = 600  # of a number that Python may refuse to read
_FROZEN = (*SCALARS, tuple, range, slice, Size, frozenset)


def builtin(w: Any, f: Any) -> Any:
    """What to call in place of a builtin function."""
    return _as_itself(f, _builtin(w, f))


def _as_itself(f: Any, seen: Any) -> Any:
    """The builtin says itself what is wrong with the arguments of a call."""
    if seen is f:
        return f

    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return seen(*args, **kwargs)
        except TypeError as error:
            if error.__traceback__.tb_next is None:
                f(*args, **kwargs)
            raise
    call.__module__, call.__qualname__ = "builtins", f.__qualname__
    return call


def _builtin(w: Any, f: Any) -> Any:
    if type(f) is MethodDescriptorType:  # list.index(some, 1)
        return lambda *args, **kwargs: _builtin(w, f.__get__(args[0]))(*args[1:], **kwargs) if args else f(**kwargs)
    owner = getattr(f, "__self__", None)
    if f in _HANDLED:
        return functools.partial(_HANDLED[f], w)
    if f in _SIMPLE:
        return _checked(w, f)
    if f in _FOLDS:
        return functools.partial(_fold, w, f)
    if owner is math:
        return functools.partial(_math, w, f)
    if getattr(f, "__module__", None) == "_operator":
        return _operator(w, f)
    if owner is itertools.chain and f.__name__ == "from_iterable":
        return lambda parts: w.made(f(map(w.iterable, w.iterable(parts))))
    kind = type(owner)
    if issubclass(type(owner), (str, bytes)) and f.__name__ == "join":
        return functools.partial(_join, w, f)
    if kind in _FROZEN:
        return _checked(w, f)
    if kind in (dict, OrderedDict, defaultdict) or kind in _READS:
        return _container(w, f, owner, kind)
    if id(owner) in w.born and f.__name__ in ("send", "close", "__next__"):
        return f
    if kind is type and f.__name__ == "fromkeys":
        return lambda keys, *value: w.made(f(w.iterable(keys), *value))
    w.fail(f"'{getattr(f, '__qualname__', f.__name__)}' is called")
    return f


def _checked(w: Any, f: Callable[..., Any]) -> Callable[..., Any]:
    """f with arguments whose content is all that counts."""
    shows = f in (str, repr, format) or f.__name__ in ("format", "format_map")
    if f.__name__ == "format" and "n}" in str(getattr(f, "__self__", "")):
        w.fail("a number is shown as the locale wants it")
    searched = getattr(f, "__self__", None) if f.__name__ in ("index", "count") else None

    def call(*args: Any, **kwargs: Any) -> Any:
        for a in (*args, *kwargs.values()):
            w.operand(a, f"'{f.__name__}'")
            if f not in (int, float, bool):
                w.by_numpy(a)
            if shows:
                w.shown(a)
            if type(a) in (str, bytes) and ((f is int and len(a) > _DIGITS) or (f is format and a[-1:] in ("n", b"n"))):
                w.fail("settings of Python or of the locale say how a number is read or shown")
            if type(searched) is tuple:
                w._contains(searched, a)
        return f(*(args if f in (abs, pow) else settled(args)), **settled(kwargs))
    return call


def _element(w: Any, value: Any) -> Any:
    """An item that is compared, added or hashed."""
    if type(value) not in SCALARS:
        w.compared(value)
        w.by_numpy(value)
    return value


def _fold(w: Any, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if kwargs.get("key") is not None:
        kwargs["key"] = w.call(kwargs["key"])
    if len(args) == 1 or (args and f in (sum, any, all, sorted)):
        for start in args[1:] if f is not sum else (*args[1:], *kwargs.values()):
            w.operand(start, f"'{f.__name__}'")
        first = map(functools.partial(_element, w), w.collected(args[0]) if f is sorted else w.iterable(args[0]))
        made = f(first, *args[1:], **kwargs)
    else:
        for a in args:
            w.operand(a, f"'{f.__name__}'")
        made = f(*args, **kwargs)
    return w.made(made) if type(made) is list else made


def _join(w: Any, f: Callable[..., Any], parts: Any) -> Any:
    parts = w.collected(parts)
    return f(parts if type(parts) in (int, float, bool, type(None)) else map(functools.partial(_element, w), parts))


def _math(w: Any, f: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    if any(issubclass(type(a), SymFloat) for a in args):
        if f is math.sqrt:
            return checked(lambda: f(args[0]), ("sqrt", args[0].expression))
        if f is math.pow:
            return checked(lambda: f(*args), ("**", *map(expression_of, args)))
        args = settled(args)
    if f in (math.fsum, math.dist, getattr(math, "sumprod", None)):  # they take the floats in what they are given
        args = tuple([list(map(settled, w.iterable(a))) for a in args])
    for a in (*args, *kwargs.values()):
        w.operand(a, f"'math.{f.__name__}'")
    return f(*args, **kwargs)


def _operator(w: Any, f: Any) -> Any:
    name = f.__name__.strip("_")
    for known in (name, f"{name}_"):
        if known in ("add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "lshift", "rshift", "or_", "xor",
                     "and_"):
            return functools.partial(w.binary, known)
    if name in ("lt", "le", "gt", "ge", "eq", "ne"):
        return functools.partial(w.compare, name)
    if name in ("neg", "pos", "invert"):
        return functools.partial(w.unary, name)
    if name == "index":
        return _checked(w, f)
    if name == "getitem":
        return w.item
    w.fail(f"'operator.{f.__name__}' is called")
    return f


def _container(w: Any, f: Any, owner: Any, kind: type) -> Any:
    name = f.__name__
    if name in _CHANGES:
        if id(owner) not in w.born:
            w.fail(f"a {kind.__name__} is changed by '{name}'")
            return f
        return functools.partial(_change, w, f)
    if name not in (_READS.get(kind) or _OF_DICTS):
        w.fail(f"'{kind.__name__}.{name}' is called")
        return f
    if name in ("get", "__getitem__", "__contains__") and issubclass(type(owner), dict):
        def entry(key: Any, *default: Any) -> Any:
            w.identity(key)
            if w.reason is not None or not w._contains(owner, key):
                return f(key, *default)
            return w.item(owner, key) if name != "__contains__" else True
        return entry

    def read(*args: Any) -> Any:
        w.content(owner)
        for a in args:
            w.operand(a, f"'{name}'")
            w.identity(a)
            if name in ("index", "count"):
                w._contains(owner, a)
        made = f(*args)
        return made if type(made) in SCALARS else w.made(made)
    return read


def _change(w: Any, f: Any, *args: Any, **kwargs: Any) -> Any:
    """A change of a container that the call made."""
    if type(f.__self__) is not list or f.__name__ == "remove":
        w.identity(args)
    if f.__name__ in ("remove", "sort") and type(f.__self__) is list:
        for value in f.__self__:
            _element(w, value)
    if f.__name__ in ("extend", "update", "difference_update", "intersection_update"):
        take = functools.partial(_pairs, w) if issubclass(type(f.__self__), dict) else w.collected
        args = tuple(map(take, args))
    if f.__name__ == "sort" and kwargs.get("key") is not None:
        kwargs["key"] = w.call(kwargs["key"])
    return f(*args, **kwargs)


# ------------------------------------------------------------------------------------------------------- one by one
def _len(w: Any, value: Any) -> int:
    kind = type(value)
    if issubclass(type(value), Tensor):
        w.metadata(value)
        w._method_of(value, "__len__")
        return len(value)
    if issubclass(kind, tuple) and kind not in _FROZEN:
        w.behaviour(kind)
    if kind in _FROZEN or issubclass(type(value), tuple) or (id(value) in w.born and kind.__module__ == "builtins"):
        return len(value)
    if kind in (list, dict, set, OrderedDict, defaultdict):
        return len(w.content(value))
    found = inherited(kind, "__len__")
    if type(found) is FunctionType:
        return w.call(w._method(value, kind, "__len__", found))()
    w.fail(f"the length of a '{kind.__name__}' is asked")
    return len(value)


def _class_of(w: Any, value: Any) -> None:
    if issubclass(type(value), Tensor):  # of those among the arguments it is part of the signature
        if id(value) in w.known and id(value) not in w.arguments:
            w.note(Kind, value, None, type(value))
    elif type(value) not in _FROZEN and id(value) not in w.born:
        w.note(Kind, value, None, type(value))


def _bases_of(w: Any, kind: Any) -> None:
    if isinstance(kind, type) and changeable(kind) and not kind.__module__.startswith("flambeau"):
        w.note(Inherited, kind, None, kind.__mro__)


def _plain_class(w: Any, kinds: Any, value: Any) -> None:
    for kind in kinds if isinstance(kinds, tuple) else (kinds,):
        if isinstance(kind, tuple):
            _plain_class(w, kind, value)
        elif not isinstance(kind, type) or (
                type(kind) not in (type, abc.ABCMeta) and not kind.__module__.startswith("flambeau")):
            w.fail("a class of its own kind is asked about its instances")
        elif type(kind) is abc.ABCMeta:
            w.reads.once(Setting, abc.get_cache_token)  # other classes may be registered with it
            if not (type(value) in _FROZEN or issubclass(type(value), (list, dict, set, Tensor))):
                w.fail("an abstract class is asked about its instances")


def _isinstance(w: Any, value: Any, kinds: Any) -> bool:
    _plain_class(w, kinds, value)
    _class_of(w, value)
    _bases_of(w, type(value))
    if w.note(Inherited, type(value), "__class__", inherited(type(value), "__class__")) is not object.__dict__["__class__"]:
        w.fail(f"a '{type(value).__name__}' says of itself what class it is")
    return isinstance(value, kinds)


def _issubclass(w: Any, value: Any, kinds: Any) -> bool:
    _plain_class(w, kinds, 0)
    _bases_of(w, value)
    return issubclass(value, kinds)


def _getattr(w: Any, o: Any, name: str, *default: Any) -> Any:
    try:
        return w.attribute(o, name)
    except AttributeError:
        if default:
            return default[0]
        raise


def _hasattr(w: Any, o: Any, name: str) -> bool:
    return _getattr(w, o, name, MISSING) is not MISSING


def _callable(w: Any, value: Any) -> bool:
    kind = type(value)
    _class_of(w, value)
    w.note(Inherited, kind, "__call__", inherited(kind, "__call__"))
    return callable(value)


def _next(w: Any, iterator: Any, *default: Any) -> Any:
    if id(iterator) not in w.born:
        w.fail(f"a '{type(iterator).__name__}' is advanced")
    return next(iterator, *default)


def _iter(w: Any, *args: Any) -> Any:
    if len(args) != 1:
        w.fail("'iter' is called with a function")
        return iter(*args)
    return w.made(iter(w.iterable(args[0])))


def _setattr(w: Any, o: Any, name: str, value: Any) -> None:
    w.store_attribute(value, o, name)


def _reduce(w: Any, f: Any, items: Any, *first: Any) -> Any:
    return functools.reduce(w.call(f), w.iterable(items), *first)


_HANDLED: dict[Any, Callable[..., Any]] = {
    len: _len, isinstance: _isinstance, issubclass: _issubclass, getattr: _getattr, hasattr: _hasattr, callable: _callable,
    next: _next, iter: _iter, setattr: _setattr, functools.reduce: _reduce}


# ----------------------------------------------------------------------------------------------------------- classes
def construct(w: Any, kind: Any) -> Any:
    """What to call in place of a class."""
    return _as_itself(kind, _construct(w, kind))


def _construct(w: Any, kind: Any) -> Any:
    if kind is type:
        def class_of(*args: Any) -> Any:
            if len(args) != 1:
                w.fail("a class is made")
            else:
                _class_of(w, args[0])
                if isinstance(args[0], SymFloat):
                    return float
            return type(*args)
        return class_of
    if kind in _SIMPLE:
        return _checked(w, kind)
    if kind in _GOING:
        return lambda *args, **kwargs: w.made(kind(*[_going(w, a) for a in args], **kwargs))
    if kind is reversed:
        return functools.partial(_reversed, w)
    if kind in _MAKING:
        return lambda *args: w.made(kind(*[w.collected(a) if kind in (list, tuple) else w.iterable(a) for a in args]))
    if kind is map:
        return lambda f, *parts: w.made(map(w.call(f), *[w.iterable(p) for p in parts]))
    if kind is filter:
        return functools.partial(_filter, w)
    if kind in (dict, OrderedDict):
        return lambda *args, **kwargs: w.made(kind(*[_pairs(w, a) for a in args], **kwargs))
    if kind in (functools.partial, object, super, itertools.repeat):
        return lambda *args, **kwargs: w.made(kind(*args, **kwargs))
    return _instance(w, kind)


def _pairs(w: Any, value: Any) -> Any:
    """What a dict is made of: another one, or pairs."""
    if issubclass(type(value), dict) or hasattr(type(value), "keys"):
        return w.keywords(value)
    return value if type(value) in SCALARS else w.iterables(value)


def _filter(w: Any, f: Any, items: Any) -> Any:
    ask = w.test if f is None else (lambda item, asked=w.call(f): w.test(asked(item)))
    return w.made(filter(ask, w.iterable(items)))


def _reversed(w: Any, value: Any) -> Any:
    kind = type(value)
    ask = inherited(kind, "__reversed__")
    if type(ask) is FunctionType:
        return w.call(w._method(value, kind, "__reversed__", ask))()
    if kind in CONTAINERS or kind in _FROZEN or (id(value) in w.born and kind.__module__ == "builtins"):
        w.iterable(value)
    else:
        w.fail(f"a '{kind.__name__}' is gone through from its end")
    return w.made(reversed(value))


def _going(w: Any, value: Any) -> Any:
    return value if type(value) in SCALARS and not issubclass(type(value), (str, bytes)) else w.iterable(value)


_PLAIN_CLASSES = ("flambeau.tensor", "flambeau.device", "flambeau.tensors.dtypes", "flambeau.autograd.grad_mode",
                  "flambeau.autograd.modes", "flambeau.amp.autocast_mode", "flambeau.tensors.shapes")


def _is_plain_record(kind: Any, setup: Any) -> bool:
    """Whether it is a dataclass whose __init__ was written by Python and does nothing but set the fields."""
    fields = getattr(kind, "__dataclass_fields__", None)
    return fields is not None and type(kind) is type and kind.__base__ is object and not hasattr(kind, "__post_init__") and (
        type(setup) is FunctionType and setup.__code__.co_filename == "<string>" and kind.__setattr__ is object.__setattr__
        and all(f.default_factory in (dataclasses.MISSING, list, dict, set) for f in fields.values())
        and inherited(kind, "__del__") is MISSING)


def _record(w: Any, kind: Any, *args: Any, **kwargs: Any) -> Any:
    made = w.made(kind(*args, **kwargs))
    given = {id(a) for a in (*args, *kwargs.values())}
    for field in kind.__dataclass_fields__.values():
        if field.default_factory is not dataclasses.MISSING and id(getattr(made, field.name)) not in given:
            w.made(getattr(made, field.name))
    return made


def _instance(w: Any, kind: Any) -> Any:
    """An instance of the user's class, of an exception, or of one of flambeau's plain classes."""
    home = kind.__module__
    if (home in _PLAIN_CLASSES and kind is not Tensor) or kind is Parameter:
        return _checked(w, kind)
    if issubclass(kind, BaseException) and type(kind.__init__) is not FunctionType and (
            type(kind.__new__) is BuiltinFunctionType):
        w.behaviour(kind)
        return lambda *args, **kwargs: w.made(kind(*args, **kwargs))
    setup = inherited(kind, "__init__")
    if issubclass(kind, tuple) and getattr(kind.__new__, "__module__", "").startswith("namedtuple_") and type(kind) is type:
        w.note(Inherited, kind, "__new__", inherited(kind, "__new__"))
        w.note(Inherited, kind, "__init__", inherited(kind, "__init__"))
        w.reads.once(Function, kind.__new__)
        return kind
    if _is_plain_record(kind, setup):
        TRUSTED.add(setup.__code__)
        w.reads.once(Function, setup)
        for name in ("__init__", "__new__", "__del__", "__setattr__", *kind.__dataclass_fields__):
            w.note(Inherited, kind, name, inherited(kind, name))
        return functools.partial(_record, w, kind)
    made_plainly = type(kind) is type and kind.__new__ is object.__new__ and home != "builtins" and (
        setup is object.__init__ or type(setup) is FunctionType)
    if not made_plainly or issubclass(kind, Tensor) or inherited(kind, "__del__") is not MISSING:
        w.fail(f"a '{kind.__name__}' is made")
        return kind
    w.note(Inherited, kind, "__init__", setup)
    w.note(Inherited, kind, "__new__", inherited(kind, "__new__"))
    w.note(Inherited, kind, "__del__", MISSING)

    def make(*args: Any, **kwargs: Any) -> Any:
        made = w.made(object.__new__(kind))
        if type(setup) is FunctionType:
            w.call(MethodType(setup, made))(*args, **kwargs)
        elif args or kwargs:
            return kind(*args, **kwargs)
        return made
    return make


