"""What a program takes for granted about Python: each place that was read, and what was there.

witness.py makes a `Read` at each read, so a list of them is complete by construction: if every one of them gives what it
gave, the Python goes the same way again. A value that cannot change (a number, a string, a tuple of such) is compared by type
and value, to the bit; anything else by identity, because what was read *of* it has reads of its own.
"""

from __future__ import annotations

import struct
import sys
from collections import OrderedDict, defaultdict
from collections.abc import Callable
from types import FunctionType
from typing import Any

import numpy as np

from ...autograd.node import AccumulateGrad
from ...autograd.views import outdated
from ...backends.pending import bits
from ...tensors.device import device
from ...tensors.dtypes import dtype
from ...tensors.tensor import Size, Tensor
from .symbolic import SymFloat

MISSING = type("Missing", (), {"__repr__": lambda self: "<missing>"})()
SCALARS = (int, float, complex, bool, str, bytes, type(None))
# Values that cannot change, and containers that can be looked through.
PLAIN = frozenset((*SCALARS, tuple, range, slice, Size, SymFloat, type(...), type(NotImplemented), dtype, device, frozenset))
CONTAINERS = frozenset((list, dict, set, OrderedDict, defaultdict))
# What flambeau itself puts on tensors, where it differs from the class's default.
OWN = frozenset(sys.intern(name) for name, value in vars(Tensor).items()
                if name[0] == "_" != name[1] and isinstance(value, (bool, int, type(None))))


_bits = struct.Struct("dd").pack


def by_value(kind: type) -> bool:
    """Whether values of a type are compared by what they are: which object holds them is not known then."""
    return kind in (float, complex, int, bool, str, bytes, tuple, Size, slice) or issubclass(kind, (np.generic, SymFloat))


def same(now: Any, then: Any) -> bool:
    """Whether a value is what it was."""
    if now is then:
        return True
    kind = type(then)
    if type(now) is not kind:
        return False
    if kind is float:
        return _bits(now, 0.0) == _bits(then, 0.0)  # tells 0.0 from -0.0, and knows nan
    if kind is complex:
        return _bits(now.real, now.imag) == _bits(then.real, then.imag)
    if kind in (int, bool, str, bytes):
        return now == then
    if kind is tuple or kind is Size:
        return len(now) == len(then) and all(map(same, now, then))
    if issubclass(kind, np.generic):
        return now.dtype == then.dtype and now.tobytes() == then.tobytes()
    return kind is slice and all(same(getattr(now, n), getattr(then, n)) for n in ("start", "stop", "step"))


class Read:
    """One place and what was there. (`owner`: the object that must stay alive for the place to mean anything.)"""

    __slots__ = ("name", "owner", "value")

    def __init__(self, owner: Any, name: Any, value: Any):
        self.owner, self.name, self.value = owner, name, value

    def now(self) -> Any:
        raise NotImplementedError

    def holds(self) -> bool:
        return same(self.now(), self.value)

    def values(self) -> Any:
        """What was found, for those who look for tensors."""
        return (self.value,)

    def __repr__(self) -> str:
        return f"{_short(self.owner)}.{self.name} = {_short(self.value)}"


class Entry(Read):
    """An entry of a dict: a global, an attribute of an object or module, a key."""

    __slots__ = ()

    def now(self) -> Any:
        return dict.get(self.owner, self.name, MISSING)

    def __repr__(self) -> str:
        return f"{self.name if isinstance(self.name, str) else _short(self.name)} = {_short(self.value)}"


class Variable(Read):
    """A variable of an enclosing function."""

    __slots__ = ()

    def now(self) -> Any:
        try:
            return self.owner.cell_contents
        except ValueError:
            return MISSING

    def __repr__(self) -> str:
        return f"{self.name} = {_short(self.value)}"


class Slot(Read):
    """An attribute that has a slot, or the table of an object's attributes (`__dict__`)."""

    __slots__ = ()

    def now(self) -> Any:
        return getattr(self.owner, self.name, MISSING)


class Kind(Read):
    """The class of an object."""

    __slots__ = ()

    def now(self) -> Any:
        return type(self.owner)


_bases, _table = type.__dict__["__mro__"].__get__, type.__dict__["__dict__"].__get__  # whatever a metaclass makes of them


class Inherited(Read):
    """What a class and its bases have under a name, before any descriptor is asked; None: the bases themselves."""

    __slots__ = ()

    def now(self) -> Any:
        return _bases(self.owner) if self.name is None else inherited(self.owner, self.name)


def inherited(kind: type, name: str) -> Any:
    for base in _bases(kind):
        found = _table(base).get(name, MISSING)
        if found is not MISSING:
            return found
    return MISSING


_flags, _HEAP = type.__dict__["__flags__"].__get__, 1 << 9


def changeable(kind: type) -> bool:
    """Whether a class was made by a class statement: it can be given other methods."""
    return bool(_flags(kind) & _HEAP)


class Behaviour(Read):
    """What a class and its bases say about operators, builtins and attributes: all that has a name like `__this__`."""

    __slots__ = ()

    def __init__(self, kind: type):
        super().__init__(kind, "__class__", self._of(kind))

    @staticmethod
    def _of(kind: type) -> tuple[Any, ...]:
        return tuple([part for base in _bases(kind) if changeable(base) for name, value in _table(base).items()
                      if name.startswith("__") for part in (base, name, value)])

    def now(self) -> Any:
        return self._of(self.owner)

    def values(self) -> Any:
        return ()


class Content(Read):
    """All that a list, dict or set holds, and in which order."""

    __slots__ = ()

    def now(self) -> Any:
        return content(self.owner)

    def holds(self) -> bool:
        now, then = content(self.owner), self.value
        return len(now) == len(then) and all(map(same, now, then))

    def values(self) -> Any:
        return self.value

    def __repr__(self) -> str:
        return f"what {_short(self.owner)} holds"


def content(owner: Any) -> list[Any]:
    if isinstance(owner, OrderedDict):
        return [x for pair in owner.items() for x in pair]
    if isinstance(owner, dict):
        return [x for pair in dict.items(owner) for x in pair]
    return list(owner)


class Function(Read):
    """The code and the defaults of a function."""

    __slots__ = ()

    def __init__(self, function: FunctionType):
        super().__init__(function, "__code__", self._parts(function))

    @staticmethod
    def _parts(function: FunctionType) -> tuple[Any, ...]:
        more = function.__kwdefaults__
        return function.__code__, function.__defaults__, None if more is None else (*more, *more.values())

    def now(self) -> Any:
        return self._parts(self.owner)

    def values(self) -> Any:
        _, defaults, more = self.value
        return (*(defaults or ()), *(more or ()))

    def __repr__(self) -> str:
        return f"the code of {self.owner.__name__}"


class Metadata(Read):
    """Shape, strides, dtype and place in the graph of a tensor that is there before the call."""

    __slots__ = ()

    def __init__(self, tensor: Any):
        super().__init__(tensor, "shape", self._of(tensor))

    @staticmethod
    def _of(tensor: Any) -> tuple[Any, ...]:
        array, node, base = tensor._array, tensor._node, tensor._base
        return (tensor.__class__, array.shape, array.strides, array.dtype.num, bits(array),
                None if node is None else node.__class__ is AccumulateGrad,
                None if base is None else (base._node is None, outdated(tensor)))

    def now(self) -> Any:
        return self._of(self.owner)

    def holds(self) -> bool:
        return self._of(self.owner) == self.value

    def values(self) -> Any:
        return (self.owner,)


def added(tensor: Any) -> tuple[str, ...]:
    """The names of attributes that the user has put on a tensor: they may hide methods of its class."""
    table = tensor.__dict__
    return tuple([name for name in table if name not in OWN]) if table else ()


class Setting(Read):
    """A setting of flambeau's that a function gives."""

    __slots__ = ()

    def __init__(self, ask: Callable[[], Any]):
        super().__init__(ask, getattr(ask, "__name__", "setting"), ask())

    def now(self) -> Any:
        return self.owner()


class Reads:
    """All reads of one captured call."""

    def __init__(self) -> None:
        self.by_place: dict[Any, Read] = {}

    def add(self, kind: type[Read], owner: Any, name: Any, value: Any) -> None:
        place = kind, id(owner), name if name.__class__ is str else (name.__class__, name)
        if place not in self.by_place:
            self.by_place[place] = kind(owner, name, value)

    def once(self, kind: Callable[[Any], Read], owner: Any) -> None:
        """A kind of read that finds out for itself what is there."""
        if (kind, id(owner)) not in self.by_place:
            self.by_place[kind, id(owner)] = kind(owner)

    def seal(self) -> None:
        """The capture is over: the list is what counts from here on."""
        self.list = list(self.by_place.values())
        self.by_place = {}

    def hold(self) -> bool:
        return all([read.holds() for read in self.list])

    def replaced(self) -> list[Any]:
        """Objects that were found in places where another one is now."""
        return [read.value for read in self.list if changeable(type(read.value)) and read.now() is not read.value]

    def times(self, value: Any) -> int:
        """How often an object is referred to here."""
        return sum([(read.owner is value) + (read.value is value) for read in self.list])

    def broken(self) -> str | None:
        """What differs now, in words."""
        return next((repr(read).partition(" = ")[0] for read in self.list if not read.holds()), None)

    def tensors(self) -> set[int]:
        """The ids of the tensors that the call reaches without its arguments."""
        return {id(v) for read in self.list for v in read.values() if issubclass(type(v), Tensor)}

    def describe(self) -> list[str]:
        return [repr(read) for read in self.list]


def _short(value: Any) -> str:
    if issubclass(type(value), Tensor):
        return f"tensor {list(value.shape)}"
    if type(value) in SCALARS:
        text = repr(value)
    else:  # no __repr__ of the user's: it may do anything
        name = getattr(value, "__name__", None) if type(value) in (FunctionType, type) else None
        text = name or f"<{type(value).__name__}>"
    return text if len(text) < 60 else text[:57] + "..."
