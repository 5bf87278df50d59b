"""The unpickler of weights_only=True: an interpreter of a few harmless pickle instructions.

It can build numbers, strings and containers, tensors over the file's own storages, and the classes that the user
allowed by name. It never imports anything, never looks up attributes, and checks everything it is told to call.
Every length is compared with what is left of the data before memory is taken.
"""

from __future__ import annotations

import io
import pickle
import struct
from _compat_pickle import IMPORT_MAPPING, NAME_MAPPING
from collections import Counter, OrderedDict
from collections.abc import Callable
from pickle import UnpicklingError
from typing import Any

from ..tensors.parameter import Parameter
from ..tensors.tensor import Tensor
from .rebuild import LegacyTensor, set_attributes, set_legacy_state
from .safe_globals import BLOCKED_MODULES, DEFAULT, GUARDED, Budget, check_key, user_globals

_MARK = object()


class Unpickler:
    """Reads one pickle from a file of known length."""

    def __init__(self, file: Any, *, encoding: str = "ASCII", length: int | None = None,
                 persistent_load: Callable[[Any], Any] | None = None):
        self.file, self.encoding = file, encoding
        self.length = _length(file) if length is None else length
        if persistent_load is not None:
            self.persistent_load = persistent_load
        self.memo: dict[int, Any] = {}
        self.stack: list[Any] = []
        self.budget = Budget(self.length)
        self.allowed = {**user_globals(), **DEFAULT}
        self.user = frozenset(id(value) for name, value in user_globals().items() if name not in DEFAULT)

    def persistent_load(self, pid: Any) -> Any:
        raise UnpicklingError("unsupported persistent id encountered")

    def load(self) -> Any:
        """The object, or UnpicklingError / EOFError."""
        try:
            while True:
                code = self.read(1)
                step = _STEPS.get(code[0])
                if step is None:
                    raise UnpicklingError(f"Unsupported operand {code[0]}")
                if step is _STOP:
                    return self.pop()
                step(self)
        except (UnpicklingError, EOFError, NotImplementedError):
            raise
        except (TypeError, ValueError, IndexError, KeyError, AttributeError, OverflowError, struct.error,
                RecursionError) as error:
            raise UnpicklingError(f"the data is malformed: {type(error).__name__}: {error}") from error

    # ------------------------------------------------------------------------------------------------------ input
    def read(self, count: int) -> bytes:
        if count > self.length:
            raise EOFError(f"the pickle ended early: {count} more bytes were expected")
        data = self.file.read(count)
        if len(data) != count:
            raise EOFError(f"the pickle ended early: {count} more bytes were expected, {len(data)} came")
        return data

    def line(self) -> str:
        data = self.file.readline(1024)
        if not data.endswith(b"\n"):
            raise EOFError("the pickle ended in the middle of a name")
        return data[:-1].decode("utf-8")

    def sized(self, form: str) -> bytes:
        return self.read(self.number(form))

    def number(self, form: str) -> int:
        value = struct.unpack(form, self.read(struct.calcsize(form)))[0]
        if value < 0:
            raise UnpicklingError(f"a length in the pickle is negative: {value}")
        return value

    # ------------------------------------------------------------------------------------------------------ stack
    def pop(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise UnpicklingError("the pickle takes more from the stack than is there")
        return self.stack.pop()

    def top(self) -> Any:
        if not self.stack or self.stack[-1] is _MARK:
            raise UnpicklingError("the pickle takes more from the stack than is there")
        return self.stack[-1]

    def pop_to_mark(self) -> list[Any]:
        stack = self.stack
        for at in range(len(stack) - 1, -1, -1):
            if stack[at] is _MARK:
                items = stack[at + 1:]
                del stack[at:]
                return items
        raise UnpicklingError("the pickle closes a group that it did not open")

    def push(self, value: Any) -> None:
        self.stack.append(value)

    # ---------------------------------------------------------------------------------------- what could be risky
    def find(self, module: str, name: str) -> Any:
        if (module, name) in NAME_MAPPING:  # the names of Python 2, which protocol 2 writes
            module, name = NAME_MAPPING[module, name]
        else:
            module = IMPORT_MAPPING.get(module, module)
        full = f"{module}.{name}"
        if module.partition(".")[0] in BLOCKED_MODULES:
            raise UnpicklingError(f"Trying to load unsupported GLOBAL {full} whose module {module} is blocked.")
        if full not in self.allowed:
            shown = name if module == "builtins" else full
            raise UnpicklingError(
                f"Unsupported global: GLOBAL {shown} was not an allowed global by default. Please use "
                f"`torch.serialization.add_safe_globals([{shown}])` or the "
                f"`torch.serialization.safe_globals([{shown}])` context manager to allowlist this "
                "global if you trust this class/function.")
        return self.allowed[full]

    def user_allowed(self, obj: Any) -> bool:
        return id(obj) in self.user

    def call(self, function: Any, args: Any) -> Any:
        if type(args) is not tuple:
            raise UnpicklingError(f"a call needs a tuple of arguments, got {type(args).__name__}")
        if self.user_allowed(function):
            return function(*args)
        guarded = _GUARDED.get(id(function))
        if guarded is not None:
            return guarded(self.budget, *args)
        if not _is_default(function) or (function is Tensor and args) or (function is Parameter and len(args) > 2):
            raise UnpicklingError(f"Trying to call reduce for unrecognized function {_shown(function)}")
        if function is Parameter and not (args and isinstance(args[0], Tensor)):
            raise UnpicklingError("a Parameter needs a tensor")
        return function(*args)

    def reduce(self) -> None:
        args = self.pop()
        self.push(self.call(self.pop(), args))

    def new_object(self) -> None:
        args = self.pop()
        self.make(self.pop(), args, {})

    def new_object_ex(self) -> None:
        kwargs, args = self.pop(), self.pop()
        self.make(self.pop(), args, kwargs)

    def make(self, cls: Any, args: Any, kwargs: Any) -> None:
        if type(args) is not tuple or type(kwargs) is not dict:
            raise UnpicklingError("a new object needs a tuple of arguments")
        if isinstance(cls, type) and self.user_allowed(cls):
            self.push(cls.__new__(cls, *args, **kwargs))
        elif not kwargs and (cls is Parameter or isinstance(cls, LegacyTensor) or id(cls) in _GUARDED):
            self.push(self.call(cls, args))
        else:
            raise UnpicklingError("Can only create new object for nn.Parameter or classes allowlisted via "
                                  f"`add_safe_globals` but got {_shown(cls)}")

    def build(self) -> None:
        state, made = self.pop(), self.top()
        kind = type(made)
        if self.user_allowed(kind):
            _set_state(made, state)
        elif kind is Tensor:
            set_legacy_state(made, state)
        elif kind is Parameter:
            set_attributes(made, state)
        elif kind is OrderedDict and type(state) is dict:
            made.__dict__.update(state)
        else:
            raise UnpicklingError("Can only build Tensor, Parameter, OrderedDict or types allowlisted via "
                                  f"`add_safe_globals`, but got {kind}")

    def persistent(self) -> None:
        pid = self.pop()
        if type(pid) is not tuple:
            raise UnpicklingError(f"persistent_load id must be tuple or int, but got {type(pid)}")
        if not pid or pid[0] not in ("storage", b"storage"):
            raise UnpicklingError(f"Only persistent_load of storage is allowed, but got {type(pid[0]) if pid else pid}")
        self.push(self.persistent_load(pid))

    # ------------------------------------------------------------------------------------------------- containers
    def append(self) -> None:
        item = self.pop()
        self.container(list, "append to").append(item)

    def extend(self) -> None:
        items = self.pop_to_mark()
        self.container(list, "extend").extend(items)

    def add_items(self) -> None:
        items = self.pop_to_mark()
        goal = self.container(set, "add to")
        for item in items:
            check_key(item)
            goal.add(item)

    def container(self, kind: type, what: str) -> Any:
        found = self.top()
        if type(found) is not kind:
            raise UnpicklingError(f"Can only {what} {kind.__name__}s, but got {type(found)}")
        return found

    def set_items(self, items: list[Any], opcode: str) -> None:
        goal = self.top()
        if type(goal) not in (dict, OrderedDict, Counter):
            raise UnpicklingError(f"Can only {opcode} for dict, collections.OrderedDict, collections.Counter, but got "
                                  f"{type(goal)}")
        if len(items) % 2:
            raise UnpicklingError("a dict's keys and values do not come in pairs")
        for at in range(0, len(items), 2):
            check_key(items[at])
            goal[items[at]] = items[at + 1]

    def set_item(self) -> None:
        value, key = self.pop(), self.pop()
        self.set_items([key, value], "SETITEM")

    def tuple_of(self, count: int) -> None:
        items = [self.pop() for _ in range(count)]
        self.push(tuple(reversed(items)))

    # ------------------------------------------------------------------------------------------------------- memo
    def get(self, index: int) -> None:
        if index not in self.memo:
            raise UnpicklingError(f"Memo value not found at index {index}")
        self.push(self.memo[index])

    def put(self, index: int) -> None:
        self.memo[index] = self.top()

    def stack_global(self) -> None:
        name, module = self.pop(), self.pop()
        if type(name) is not str or type(module) is not str:
            raise UnpicklingError("STACK_GLOBAL requires str")
        self.push(self.find(module, name))

    def old_string(self, data: bytes) -> None:
        self.push(data if self.encoding == "bytes" else data.decode(self.encoding, "strict"))

    def protocol(self) -> None:
        version = self.read(1)[0]
        if version > pickle.HIGHEST_PROTOCOL:
            raise UnpicklingError(f"unsupported pickle protocol: {version}")


# Looked up by identity: the hash of what a file puts here could be made to take forever.
_GUARDED = {id(function): guarded for function, guarded in GUARDED.items()}
_DEFAULT = frozenset(map(id, DEFAULT.values()))


def _is_default(function: Any) -> bool:
    return callable(function) and id(function) in _DEFAULT


def _set_state(made: Any, state: Any) -> None:
    """What pickle's BUILD does, for classes that the user trusts."""
    own = getattr(made, "__setstate__", None)
    if own is not None:
        own(state)
        return
    slots = None
    if isinstance(state, tuple) and len(state) == 2:
        state, slots = state
    if state:
        made.__dict__.update(state)
    for name, value in (slots or {}).items():
        setattr(made, name, value)


def _shown(value: Any) -> str:
    """A class or function by name; of anything else only the type, as its repr may be endless."""
    name = getattr(value, "__qualname__", None)
    return f"{getattr(value, '__module__', '?')}.{name}" if isinstance(name, str) else f"a {type(value).__name__}"


def _length(file: Any) -> int:
    here = file.tell()
    end = file.seek(0, 2)
    file.seek(here)
    return (file.tell() if end is None else end) - here


def _text(data: bytes) -> str:
    return str(data, "utf-8", "surrogatepass")


def _STOP(u: Unpickler) -> None:
    """Marks the end; never called."""


def _op(code: bytes) -> int:
    return code[0]


# instruction -> what it does
_STEPS: dict[int, Callable[[Unpickler], Any]] = {_op(code): step for code, step in {
    pickle.PROTO: Unpickler.protocol,
    pickle.FRAME: lambda u: u.read(8),  # only a hint for reading ahead
    pickle.STOP: _STOP,
    pickle.GLOBAL: lambda u: u.push(u.find(u.line(), u.line())),
    pickle.STACK_GLOBAL: Unpickler.stack_global,
    pickle.REDUCE: Unpickler.reduce,
    pickle.NEWOBJ: Unpickler.new_object,
    pickle.NEWOBJ_EX: Unpickler.new_object_ex,
    pickle.BUILD: Unpickler.build,
    pickle.BINPERSID: Unpickler.persistent,
    pickle.MARK: lambda u: u.push(_MARK),
    pickle.NONE: lambda u: u.push(None),
    pickle.NEWTRUE: lambda u: u.push(True),
    pickle.NEWFALSE: lambda u: u.push(False),
    pickle.BININT: lambda u: u.push(struct.unpack("<i", u.read(4))[0]),
    pickle.BININT1: lambda u: u.push(u.read(1)[0]),
    pickle.BININT2: lambda u: u.push(struct.unpack("<H", u.read(2))[0]),
    pickle.LONG1: lambda u: u.push(int.from_bytes(u.sized("<B"), "little", signed=True)),
    pickle.LONG4: lambda u: u.push(int.from_bytes(u.sized("<i"), "little", signed=True)),
    pickle.BINFLOAT: lambda u: u.push(struct.unpack(">d", u.read(8))[0]),
    pickle.BINUNICODE: lambda u: u.push(_text(u.sized("<I"))),
    pickle.SHORT_BINUNICODE: lambda u: u.push(_text(u.sized("<B"))),
    pickle.BINUNICODE8: lambda u: u.push(_text(u.sized("<Q"))),
    pickle.BINSTRING: lambda u: u.old_string(u.sized("<i")),
    pickle.SHORT_BINSTRING: lambda u: u.old_string(u.sized("<B")),
    pickle.BINBYTES: lambda u: u.push(u.sized("<I")),
    pickle.SHORT_BINBYTES: lambda u: u.push(u.sized("<B")),
    pickle.BINBYTES8: lambda u: u.push(u.sized("<Q")),
    pickle.BYTEARRAY8: lambda u: u.push(bytearray(u.sized("<Q"))),
    pickle.EMPTY_TUPLE: lambda u: u.push(()),
    pickle.TUPLE1: lambda u: u.tuple_of(1),
    pickle.TUPLE2: lambda u: u.tuple_of(2),
    pickle.TUPLE3: lambda u: u.tuple_of(3),
    pickle.TUPLE: lambda u: u.push(tuple(u.pop_to_mark())),
    pickle.EMPTY_LIST: lambda u: u.push([]),
    pickle.LIST: lambda u: u.push(u.pop_to_mark()),
    pickle.APPEND: Unpickler.append,
    pickle.APPENDS: Unpickler.extend,
    pickle.EMPTY_DICT: lambda u: u.push({}),
    pickle.SETITEM: Unpickler.set_item,
    pickle.SETITEMS: lambda u: u.set_items(u.pop_to_mark(), "SETITEMS"),
    pickle.EMPTY_SET: lambda u: u.push(set()),
    pickle.ADDITEMS: Unpickler.add_items,
    pickle.POP: lambda u: u.stack.pop() if u.stack else u.pop(),
    pickle.POP_MARK: lambda u: u.pop_to_mark(),
    pickle.BINGET: lambda u: u.get(u.number("<B")),
    pickle.LONG_BINGET: lambda u: u.get(u.number("<I")),
    pickle.BINPUT: lambda u: u.put(u.number("<B")),
    pickle.LONG_BINPUT: lambda u: u.put(u.number("<I")),
    pickle.MEMOIZE: lambda u: u.put(len(u.memo)), }.items()}
# instruction -> the length of what follows it, for reading over it (a text form means a length comes first)
_SIZES: dict[int, int | str] = {_op(code): size for code, size in {
    pickle.PROTO: 1, pickle.FRAME: 8, pickle.BININT: 4, pickle.BININT1: 1, pickle.BININT2: 2, pickle.BINFLOAT: 8,
    pickle.BINGET: 1, pickle.LONG_BINGET: 4, pickle.BINPUT: 1, pickle.LONG_BINPUT: 4, pickle.LONG1: "<B",
    pickle.LONG4: "<i", pickle.BINUNICODE: "<I", pickle.SHORT_BINUNICODE: "<B", pickle.BINUNICODE8: "<Q",
    pickle.BINSTRING: "<i", pickle.SHORT_BINSTRING: "<B", pickle.BINBYTES: "<I", pickle.SHORT_BINBYTES: "<B",
    pickle.BINBYTES8: "<Q", pickle.BYTEARRAY8: "<Q"}.items()}


def globals_in(data: bytes) -> set[str]:
    """The full names of all classes and functions that a pickle mentions. Nothing is built."""
    reader, found, texts, memo = Unpickler(io.BytesIO(data)), set(), [], {}
    memoized = 0
    while True:
        code = reader.read(1)
        if code == pickle.STOP:
            return found
        if code == pickle.GLOBAL:
            found.add(_full_name(reader.line(), reader.line()))
        elif code == pickle.STACK_GLOBAL and len(texts) > 1:
            found.add(_full_name(*texts[-2:]))
        elif code in (pickle.SHORT_BINUNICODE, pickle.BINUNICODE, pickle.BINUNICODE8):
            texts.append(_text(reader.sized(_SIZES[code[0]])))
        elif code in (pickle.BINGET, pickle.LONG_BINGET):
            index = reader.number("<B" if code == pickle.BINGET else "<I")
            if index in memo:
                texts.append(memo[index])
        elif code == pickle.MEMOIZE:
            if texts:
                memo[memoized] = texts[-1]
            memoized += 1
        elif code[0] in _STEPS:
            size = _SIZES.get(code[0], 0)
            reader.sized(size) if isinstance(size, str) else reader.read(size)
        else:
            raise UnpicklingError(f"Unsupported operand {code[0]}")


def _full_name(module: str, name: str) -> str:
    module, name = NAME_MAPPING.get((module, name), (IMPORT_MAPPING.get(module, module), name))
    return f"{module}.{name}"
