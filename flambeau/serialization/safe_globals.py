"""Which classes and functions a file may use when it is loaded with weights_only=True."""

from __future__ import annotations

import codecs
from collections import Counter, OrderedDict
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

from .names import SAFE, torch_name

BLOCKED_MODULES = frozenset(("sys", "os", "posix", "nt"))
_user: dict[Any, None] = {}  # in the order in which they were added


def add_safe_globals(safe_globals: list[Callable | tuple[Callable, str]]) -> None:
    """Marks classes and functions as safe for weights_only=True; (object, "full.name") marks one under another name.

    Only add what can do no harm whatever its arguments are: a file may call it.
    """
    for entry in safe_globals:
        _names(entry)  # refuses what cannot be named
    _user.update(dict.fromkeys(safe_globals))


def get_safe_globals() -> list[Callable | tuple[Callable, str]]:
    """What was added with add_safe_globals."""
    return list(_user)


def clear_safe_globals() -> None:
    _user.clear()


class safe_globals:
    """`with safe_globals([MyClass]):` marks them as safe inside the block only."""

    def __init__(self, safe_globals: list[Callable | tuple[Callable, str]]):
        self.safe_globals = safe_globals

    def __enter__(self) -> None:
        self.added = [entry for entry in self.safe_globals if entry not in _user]
        add_safe_globals(self.safe_globals)

    def __exit__(self, *exc: Any) -> None:
        for entry in self.added:
            _user.pop(entry, None)


def _names(entry: Any) -> list[str]:
    """The full names under which a file can mean an entry: flambeau's own and PyTorch's."""
    if isinstance(entry, tuple):
        if len(entry) != 2:
            raise ValueError("Expected tuple of length 2 (global, str of callable full path), but got tuple of length: "
                             f"{len(entry)}")
        if type(entry[1]) is not str:
            raise TypeError(f"Expected second item in tuple to be str of callable full path, but got: {type(entry[1])}")
        return [entry[1]]
    try:
        names = [f"{entry.__module__}.{entry.__qualname__}"]
    except AttributeError:
        raise TypeError(f"a safe global must be a class or a function, got {type(entry).__name__}") from None
    known = torch_name(entry)
    return [*names, ".".join(known)] if known else names


def user_globals() -> dict[str, Any]:
    """Full name -> what the user allowed."""
    return {name: entry[0] if isinstance(entry, tuple) else entry for entry in _user for name in _names(entry)}


# ------------------------------------------------------------------------------------------------------ Python's own
class Budget:
    """How much copying a file can ask for: a large list that is stored once could be turned into a set a million times.
    An honest file copies each of its elements about once."""

    def __init__(self, length: int):
        self.left = 4 * length + 1000

    def charge(self, count: int) -> None:
        self.left -= count
        if self.left < 0:
            raise UnpicklingError("the file makes more objects than it has data for: it is built to fill the memory")


def _check_arguments(what: str, kinds: tuple[type, ...], args: tuple, most: int = 1) -> None:
    if len(args) > most or not all(type(a) in kinds for a in args):
        raise UnpicklingError(f"{what} was called with {[type(a).__name__ for a in args]}, which no honest file does")


def _encode(budget: Budget, *args: Any) -> bytes:
    _check_arguments("_codecs.encode", (str,), args, 2)
    if not args or args[1:] not in ((), ("latin1",), ("latin-1",), ("ascii",), ("utf-8",)):
        raise UnpicklingError(f"bytes in the encoding {args[1:]} are not supported")
    budget.charge(len(args[0]))
    return codecs.encode(*args)


def _bytearray(budget: Budget, *args: Any) -> bytearray:
    _check_arguments("bytearray", (bytes, bytearray) if len(args) == 1 else (str,), args, 2)
    budget.charge(sum(map(len, args)))
    return bytearray(_encode(budget, *args)) if len(args) == 2 else bytearray(*args)


def _set(budget: Budget, *args: Any) -> set:
    _check_arguments("set", (list, tuple), args)
    for items in args:
        budget.charge(len(items))
        for item in items:
            check_key(item)
    return set(*args)


def _complex(budget: Budget, *args: Any) -> complex:
    _check_arguments("complex", (int, float), args, 2)
    return complex(*args)


def _ordered_dict(budget: Budget, *args: Any) -> OrderedDict:
    _check_arguments("OrderedDict", (list, tuple, dict, OrderedDict), args)
    made = OrderedDict()
    for items in args:
        budget.charge(len(items))
        for key, value in items.items() if isinstance(items, dict) else items:
            check_key(key)
            made[key] = value
    return made


def _counter(budget: Budget, *args: Any) -> Counter:
    _check_arguments("Counter", (dict, Counter), args)
    for items in args:
        budget.charge(len(items))
    return Counter(*args)


def _size(budget: Budget, *args: Any) -> Any:
    _check_arguments("torch.Size", (list, tuple, SAFE["torch.Size"]), args)
    budget.charge(sum(map(len, args)))
    return SAFE["torch.Size"](*args)


def _device(budget: Budget, *args: Any) -> Any:
    _check_arguments("torch.device", (str, int), args, 2)
    return SAFE["torch.device"](*args)


# What a file may call -> what is called instead: the same, with its arguments checked.
GUARDED: dict[Any, Callable] = {codecs.encode: _encode, bytearray: _bytearray, set: _set, complex: _complex,
                                OrderedDict: _ordered_dict, Counter: _counter, SAFE["torch.Size"]: _size,
                                SAFE["torch.device"]: _device}
PYTHON: dict[str, Any] = {"collections.OrderedDict": OrderedDict, "collections.Counter": Counter,
                          "_codecs.encode": codecs.encode, "builtins.bytearray": bytearray, "builtins.set": set,
                          "builtins.complex": complex}
DEFAULT: dict[str, Any] = {**SAFE, **PYTHON}

_SIMPLE = frozenset((str, int, bytes, float, bool, type(None), complex))
_KEY_NODES = 10_000


def check_key(key: Any) -> None:
    """Refuses keys whose hash would take forever or overflow the stack: tuples nested deeply or into each other."""
    if type(key) in _SIMPLE or not isinstance(key, tuple):
        return
    nodes, level = 0, [key]
    for _ in range(50):
        level = [item for part in level for item in part if isinstance(item, tuple)]
        nodes += len(level)
        if not level:
            return
        if nodes > _KEY_NODES:
            break
    raise UnpicklingError("a dict key or set element is a tuple that is nested too deeply")
