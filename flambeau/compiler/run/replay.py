"""Repeated calls in one native step: checking guards, filling in addresses, running the program, leaving its traces.

`Plan.holds` and `Plan.run` say in Python what a call has to check and do. Most calls find everything exactly as the call
before left it: the same objects in the same places. A `Replay` is a list of those places, written down after a call that went
the long way; native/replay.c compares them word by word and goes on to run the program. Whatever differs, however slightly,
sends the call the long way again, which decides.

The tables hold addresses of Python objects. `keep` holds on to all of them, except gradients: whether somebody else
holds on to those is one of the things to check.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import sysconfig
import time
import weakref
from collections import OrderedDict
from types import CellType
from typing import Any

from numpy import ndarray

from ... import settings
from ...autograd.node import AccumulateGrad, VersionCounter
from ...backends import flags, registry
from ...native import pointer, toolchain
from ...native.calls import builtin, offset_of
from ...tensors import dtypes
from ...tensors.tensor import Tensor
from ..capture.optimizers import NUMERIC
from ..capture.reads import (
    MISSING,
    OWN,
    Behaviour,
    Content,
    Entry,
    Function,
    Inherited,
    Kind,
    Metadata,
    Read,
    Reads,
    Slot,
    Variable,
)
from ..capture.symbolic import evaluate
from ..capture.trees import LEAF
from .plan import Output, counted

UNDONE = object()  # what `Replay.run` returns when the program met an error and everything is as it was
MISS = object()  # what `Replay.run` returns when the call has to go the long way
_new = object.__new__
_HEADER = object.__basicsize__
_IMMUTABLE = (int, float, complex, bool, str, bytes, type(None))
_P, _L = ctypes.c_void_p, ctypes.c_long
_PYTHON = ("PyDict_GetItem", "PyDict_Size", "PyDict_Next", "PyList_Size", "PyList_GetItem", "PyTuple_Size", "PyTuple_GetItem",
           "PyObject_GetAttr", "PyObject_SetAttr", "Py_DecRef", "PyFloat_AsDouble", "PyLong_AsLong", "PyLong_FromLong",
           "PyErr_Occurred", "PyErr_Clear", "PyEval_SaveThread", "PyEval_RestoreThread")


def _structure(**fields: Any) -> type[ctypes.Structure]:
    return type("Part", (ctypes.Structure,), {"_fields_": list(fields.items())})


# As in native/replay.c.
_WORD, _ITEM, _ENTRIES, _LIST, _ATTRIBUTE, _TAG, _VERSION = range(7)
_Rule = _structure(kind=_L, object=_P, name=_P, value=_P, names=_P, values=_P, count=_L)
_Window = _structure(object=_P, type=_P, node=_P, dtype=_P, dimensions=_L, extent=_P, first=_L, place=_L, delta=_L, nbytes=_L,
                     view=_L, last=_L)
_Undo = _structure(place=_L, saved=_P, nbytes=_L)
_Number = _structure(container=_P, name=_P, index=_L, type=_P)
_Gradient = _structure(leaf=_P, tensor=_P, array=_P, memory=_P, attributes=_P, present=_L, version=_L)
_Table = _structure(
    program=_P, table=_P, numbers=_P, header=_L, array_slot=_L, node_slot=_L, counter_slot=_L, value_slot=_L,
    weak_slot=_L, dict_slot=_L, none=_P, no=_P, array_type=_P, name_grad=_P, name_base=_P, name_inference=_P, name_counter=_P,
    name_dict=_P, name_hooks=_P, leaf_type=_P, float_type=_P, double_type=_P, int_type=_P,
    private=_P, n_private=_L, rules=_P, n_rules=_L, arguments=_P, n_arguments=_L, found=_P, n_found=_L,
    reads=_P, n_reads=_L, gradients=_P, n_gradients=_L, fresh=_P, n_fresh=_L, dropped=_P, n_dropped=_L,
    counters=_P, n_counters=_L, held=_P, n_held=_L, spans=_P, n_spans=_L, undo=_P, n_undo=_L,
    steps=_P, n_steps=_L)
_SLOTS = ("_array", "_node", "_counter")
_NAMES = ("_grad", "_base", "_inference", "_counter", "__dict__", "hooks")


class Unsuitable(Exception):
    """The plan depends on something that has no fixed place, or does what replay.c does not know."""


@functools.cache
def _native() -> Any:
    """The C function, or None: then every call goes the long way."""
    if sysconfig.get_config_var("Py_GIL_DISABLED") or ctypes.sizeof(_L) != ctypes.sizeof(_P):
        return None
    try:
        made = ctypes.PyDLL(str(toolchain.build((toolchain.HERE / "replay.c").read_text(), "replay")))
        functions = (_P * len(_PYTHON))(*toolchain.interpreter(*_PYTHON))
    except (toolchain.BuildError, OSError, AttributeError):
        return None
    made.fl_replay_attach(functions)
    sizes = (_L * 7)()
    made.fl_replay_sizes(sizes)
    if list(sizes) != [ctypes.sizeof(t) for t in (_Rule, _Window, _Number, _Gradient, _Undo, _Table, _P)]:
        raise RuntimeError("native/replay.c and compiler/run/replay.py do not agree on their tables")
    return builtin(made, "fl_replay_call")


def _slot(kind: type, name: str) -> int:
    """Where instances of a class keep a slot."""
    found = offset_of(kind, name)
    if found is None:
        raise Unsuitable
    return found


_TAG_AT = 384  # where CPython keeps a class's version, which every change of the class or its bases changes


@functools.cache
def _tags() -> bool:
    """Whether a class's version is where it is thought to be: tried on a class."""
    base = type("Base", (), {})
    kind = type("Kind", (base,), {})
    seen = []
    for change in (lambda: None, lambda: setattr(kind, "a", 1), lambda: setattr(base, "b", 2), lambda: delattr(kind, "a"),
                   lambda: setattr(kind, "__bases__", (base,))):
        change()
        seen.append(_tag(kind))
    return 0 not in seen and len(set(seen)) == len(seen) and _tag(kind) == _tag(kind)


def _tag(kind: type) -> int:
    """The class's version, or 0: one that has changed a thousand times gets none."""
    getattr(kind, "a", None)  # gives it one, if it has none
    return ctypes.c_uint32.from_address(id(kind) + _TAG_AT).value


@functools.cache
def _versions() -> bool:
    """Whether a dict's version is its fourth word: tried on a dict. (In 3.13 attributes change without it.)"""
    if sys.version_info >= (3, 13):
        return False
    some: dict[str, Any] = {"a": object()}
    seen = []
    for change in (lambda: None, lambda: some.update(a=object()), lambda: some.update(b=1), lambda: some.pop("a"),
                   lambda: some.__setitem__("b", object()), lambda: some.setdefault("c", 1), lambda: some.popitem(),
                   some.clear):
        change()
        seen.append(_version(some))
    return 0 not in seen and len(set(seen)) == len(seen)


def _version(table: dict[Any, Any]) -> int:
    return ctypes.c_uint64.from_address(id(table) + 24).value


class _Rules:
    """Collects what must be as it is now."""

    def __init__(self) -> None:
        self.rules: list[Any] = []
        self.of_dicts: dict[int, tuple[Any, list[Any]]] = {}  # rules about one dict each
        self.tagged: set[int] = set()
        self.keep: list[Any] = []

    def addresses(self, objects: list[Any]) -> Any:
        self.keep += objects
        return self.block((_P * len(objects))(*map(id, objects)))

    def block(self, made: Any) -> int:
        """The address of an array of structures."""
        self.keep.append(made)
        return ctypes.addressof(made)

    def add(self, kind: int, owner: Any, name: Any = None, value: Any = MISSING) -> None:
        self.keep += [owner, name, value]
        self.rules.append(_Rule(kind, id(owner), id(name), None if value is MISSING else id(value)))

    def word(self, owner: Any, offset: int, value: Any) -> None:
        self.keep += [owner, value]
        self.rules.append(_Rule(_WORD, id(owner) + offset, None, None if value is MISSING else id(value)))

    def about(self, table: dict[Any, Any], rule: Any) -> None:
        self.of_dicts.setdefault(id(table), (table, []))[1].append(rule)

    def item(self, table: dict[Any, Any], key: Any) -> None:
        """An entry of a dict."""
        value = dict.get(table, key, MISSING)
        self.keep += [table, key, value]
        self.about(table, _Rule(_ITEM, id(table), id(key), None if value is MISSING else id(value)))

    def entries(self, value: Any) -> None:
        """That a dict or list has the entries that it has."""
        self.keep.append(value)
        if isinstance(value, list):
            self.rules.append(_Rule(_LIST, id(value), None, None, None, self.addresses(list(value)), len(value)))
        elif isinstance(value, dict) and not (value and isinstance(value, OrderedDict)):  # whose order is kept elsewhere
            self.about(value, _Rule(_ENTRIES, id(value), None, None, self.addresses(list(value)),
                                    self.addresses(list(value.values())), len(value)))
        elif not isinstance(value, tuple):
            raise Unsuitable

    def all(self) -> list[Any]:
        """The rules in the order in which they are checked. A dict that was not touched at all needs no further look."""
        made = list(self.rules)
        for table, some in self.of_dicts.values():
            if _versions() and type(table) in (dict, OrderedDict):
                made.append(_Rule(_VERSION, id(table), None, _version(table), None, None, len(some)))
            made += some
        return made

    # --------------------------------------------------------------------------------------- what a plan checks
    def python(self, reads: Reads) -> None:
        """Everything that was read."""
        for read in reads.list:
            _NATIVE.get(type(read), _unknown)(self, read)
        self.entries(settings._state)
        self.entries(dtypes._default)

    def own_dict(self, read: Read) -> None:
        """The table of an object's attributes: a word before the object, where Python keeps it there."""
        owner, found = read.owner, read.now()
        if read.name == "__dict__" and type(owner).__dictoffset__ < 0 and (
                _P.from_address(id(owner) - 24).value == id(found)):
            self.word(owner, -24, found)
        elif found is MISSING:
            raise Unsuitable
        else:
            self.add(_ATTRIBUTE, owner, read.name, found)

    def inherited(self, read: Read) -> None:
        if not issubclass(read.owner, Tensor):
            self.tag(read.owner)
            return
        if type(read) is Behaviour or read.name is None:
            raise Unsuitable
        for base in read.owner.__mro__:  # captures change the class for their time, and its tag with it
            table = gc.get_referents(base.__dict__)[0]
            self.item(table, read.name)
            if read.name in table:
                return

    def tag(self, kind: type) -> None:
        if not _tags() or not _tag(kind):
            raise Unsuitable
        if id(kind) not in self.tagged:
            self.tagged.add(id(kind))
            self.keep.append(kind)
            self.rules.append(_Rule(_TAG, id(kind) + _TAG_AT, None, _tag(kind)))

    def function(self, function: Any) -> None:
        for name in ("__code__", "__defaults__", "__kwdefaults__"):
            self.add(_ATTRIBUTE, function, name, getattr(function, name))
        if function.__kwdefaults__:
            self.entries(function.__kwdefaults__)

    def tensor(self, tensor: Any) -> None:
        self.word(tensor, _HEADER - 8, type(tensor))
        for name in ("_array", "_node"):
            self.word(tensor, _slot(Tensor, name), getattr(tensor, name))
        if tensor._base is not None:  # (whose array is another one, should it ever become a view of something else)
            if tensor._base._node is not None:
                raise Unsuitable
            self.word(tensor._base, _slot(Tensor, "_node"), None)

    def optimizer(self, optimizer: Any, kept: Any) -> None:
        for name in ("state", "param_groups"):
            self.add(_ITEM, optimizer.__dict__, name, optimizer.__dict__[name])
            self.entries(optimizer.__dict__[name])
        for table, _ in (*kept.hooks, *kept.tensors):
            self.entries(table)
        for some, key, _ in kept.mixed:
            self.item(some, key)
        for group, _, switches in kept.groups:
            for key in ("params", *switches):
                self.item(group, key)
            self.entries(group["params"])

    def held(self, sources: Any) -> None:
        """Tensors that the program reads and writes where they are."""
        for tensor in sources.tensors:
            self.tensor(tensor)
        for tensor, _ in sources.bumped:
            self.word(tensor, _slot(Tensor, "_counter"), tensor._counter)
        for node, _ in sources.marks:
            if node.hooks is not None:
                raise Unsuitable
            self.add(_ATTRIBUTE, node, "hooks", None)


def _unknown(rules: _Rules, read: Read) -> None:
    raise Unsuitable


_NATIVE: dict[type, Any] = {
    Entry: lambda rules, read: rules.item(read.owner, read.name), Slot: _Rules.own_dict,
    Variable: lambda rules, read: rules.word(read.owner, _cell_slot(), read.now()),
    Kind: lambda rules, read: rules.word(read.owner, _HEADER - 8, type(read.owner)),
    Inherited: _Rules.inherited, Behaviour: _Rules.inherited, Content: lambda rules, read: rules.entries(read.owner),
    Function: lambda rules, read: rules.function(read.owner), Metadata: lambda rules, read: rules.tensor(read.owner)}


@functools.cache
def _cell_slot() -> int:
    mark = object()
    cell = CellType(mark)
    if _P.from_address(id(cell) + _HEADER).value != id(mark):
        raise Unsuitable
    return _HEADER


@functools.cache
def _weak_slot() -> int:
    """Where a tensor keeps its weak references: tried on a tensor."""
    made = _new(Tensor)
    place = _P.from_address(id(made) + Tensor.__weakrefoffset__)
    before, some = place.value, weakref.ref(made)
    if before is not None or place.value is None or some() is not made:
        raise Unsuitable
    return Tensor.__weakrefoffset__


@functools.cache
def _dict_slot() -> int:
    """Where a tensor keeps the table of its attributes; 0: it has to be asked."""
    made = _new(Tensor)
    return -24 if Tensor.__dictoffset__ < 0 and _P.from_address(id(made) - 24).value != id(made.__dict__) == (
        _P.from_address(id(made) - 24).value) else 0


class Replay:
    """One plan's calls, as long as everything stays where it is. mode: the grad mode in which they are made."""

    def __init__(self, plan: Any, args: tuple[Any, ...], mode: int):
        self.call = _native()
        sources = plan.sources
        grads = {id(leaf): more for leaf, more in sources.bumped_grads}
        if any(grads.get(id(leaf)) != 1 for leaf, _, _ in sources.from_grads) or len(grads) != len(sources.from_grads):
            raise Unsuitable
        changed = sources.bumped_args or any(writes for _, _, writes in sources.brought[:len(sources.from_args)])
        if plan.program.ARRAY is not ndarray and registry.cuda_count() > 1:  # whose arrays are of one type
            raise Unsuitable
        if self.call is None or changed or plan.shared or sources.inner or sources.placed or not sources.sound:
            raise Unsuitable
        self.plan, self.mode = plan, mode
        rules = _Rules()
        rules.python(plan.reads)
        for table in (*flags.TABLES, flags.chosen) if plan.program.ARRAY is not ndarray else ():
            rules.entries(table)
        for optimizer, kept in plan.optimizers:
            rules.optimizer(optimizer, kept)
        rules.held(plan.sources)
        for leaf, node, mark in plan.leaf_nodes:
            if mark:
                raise Unsuitable
            rules.tensor(leaf)
            rules.add(_ATTRIBUTE, node, "hooks", None) if node is not None else None
        self.checked_numbers: list[float] | None = None
        self.defined = [guard for guard in plan.number_guards if guard[0][0] == "defined"]  # may be asked of any number
        if len(self.defined) != len(plan.number_guards):
            for container, key, _ in plan.numbers:
                rules.item(container, key)
        table = self._table(rules, plan)
        self._arguments(rules, table, args)
        self._gradients(rules, table)
        _fill(rules, table, "rules", _Rule, rules.all())
        self.keep, self.address = rules.keep, rules.block(table)
        self.lock, self.empty = plan.program.lock, plan.program.empty
        self.fresh = [(shape, dtype) for _, _, shape, dtype in plan.fresh_places]
        self.simple = None if plan.counts or plan.sparse else self._simple()
        self.build = builder(plan.shape)
        self.since = time.perf_counter()

    # ------------------------------------------------------------------------------------------------ writing it down
    def _table(self, rules: _Rules, plan: Any) -> Any:
        program = plan.program
        made = _Table(ctypes.cast(program.function, _P).value, ctypes.addressof(program.table),
                      ctypes.addressof(program.numbers), _HEADER, *[_slot(Tensor, name) for name in _SLOTS],
                      _slot(VersionCounter, "value"), _weak_slot(), _dict_slot(), id(None), id(False), id(program.ARRAY),
                      *map(id, _NAMES), id(AccumulateGrad), *map(id, NUMERIC))
        made.private, made.n_private = rules.addresses(list(OWN)), len(OWN)
        _fill(rules, made, "fresh", _L, [place for _, place, _, _ in plan.fresh_places])
        reads = []
        for n, (container, key, index) in enumerate(plan.numbers):
            if not isinstance(container, dict):
                raise Unsuitable
            rules.keep += [container, key]
            kind = id(float) if n in plan.asked else None
            reads.append(_Number(id(container), id(key), -1 if index is None else index, kind))
        _fill(rules, made, "reads", _Number, reads)
        counters = [t._counter for t, _ in plan.sources.bumped]
        _fill(rules, made, "steps", _L, [more for _, more in plan.sources.bumped])
        made.counters, made.n_counters = rules.addresses(counters), len(counters)
        held = plan.sources.tensors if plan.others else []
        made.held, made.n_held = rules.addresses(held), len(held)
        _fill(rules, made, "spans", _L, [x for start, end, writes in plan.sources.spans if writes for x in (start, end)])
        rules.keep += [saved for _, saved in plan.undo]
        _fill(rules, made, "undo", _Undo, [_Undo(place, pointer(saved), saved.nbytes) for place, saved in plan.undo])
        return made

    def _arguments(self, rules: _Rules, table: Any, args: tuple[Any, ...]) -> None:
        sources = self.plan.sources
        size = {number: nbytes for number, nbytes, _ in sources.brought} if sources.writes else {}
        places = {i: (number, delta, size.get(number, 0)) for i, number, delta in sources.from_args}
        known = dict(self.plan.same)
        first: dict[int, int] = {}
        made = []
        for n, a in enumerate(args):
            if isinstance(a, Tensor):
                number, delta, nbytes = places.get(n, (-1, 0, 0))
                w = self._window(rules, a, number, delta)
                w.nbytes = nbytes
                w.object = id(a) if n in known else None
                w.first = first.setdefault(id(a), n)
            elif n in self.plan.brought:
                w = _Window(place=-1)  # any float: `run` puts it where it is read
            elif isinstance(a, _IMMUTABLE):
                w = _Window(object=id(a), place=-1)
                rules.keep.append(a)
            else:
                raise Unsuitable
            made.append(w)
        _fill(rules, table, "arguments", _Window, made)

    def _window(self, rules: _Rules, tensor: Any, place: int, delta: int) -> Any:
        array, node, base = tensor._array, tensor._node, tensor._base
        if array.__class__ is not self.plan.program.ARRAY or (base is not None and base._node is not None):
            raise Unsuitable
        extent = (_L * (2 * array.ndim))(*array.shape, *array.strides)
        rules.keep += [tensor.__class__, node.__class__, array.dtype]
        return _Window(None, id(tensor.__class__), None if node is None else id(node.__class__), id(array.dtype), array.ndim,
                       rules.block(extent), 0, place, delta, 0, base is not None)

    def _gradients(self, rules: _Rules, table: Any) -> None:
        plan = self.plan
        leaves = [g.leaf for g in plan.grads] + plan.dropped + [leaf for leaf, _ in plan.grad_guards]
        leaves += [leaf for leaf, _, _ in plan.sources.from_grads] + [leaf for leaf, *_ in plan.sparse]
        if any(leaf.__class__ is int for leaf in leaves):  # of an argument
            raise Unsuitable
        rules.keep += leaves
        made = []
        for g in plan.grads:
            t = g.tensor
            made.append(_Gradient(id(g.leaf), id(t), id(t._array), id(g.memory), id(t.__dict__), g.present, g.version))
        if made:  # those are not kept: with others in their place, the addresses mean nothing
            rules.keep.append(plan.remade)
            rules.rules.append(_Rule(_WORD, ctypes.addressof(plan.remade), None, plan.remade.value))
        _fill(rules, table, "gradients", _Gradient, made)
        places = {id(leaf): (number, delta) for leaf, number, delta in plan.sources.from_grads}
        found = []
        for leaf, meta in plan.grad_guards:
            if meta is None:
                rules.add(_ATTRIBUTE, leaf, "_grad", None)
            else:
                if leaf._grad is None or any(leaf is g.leaf for g in plan.grads):
                    raise Unsuitable
                w = self._window(rules, leaf._grad, *places.pop(id(leaf), (-1, 0)))
                w.nbytes = leaf._grad._array.nbytes
                w.object = id(leaf)
                found.append(w)
        if places:
            raise Unsuitable
        _fill(rules, table, "found", _Window, found)
        table.dropped, table.n_dropped = rules.addresses(plan.dropped), len(plan.dropped)

    def _simple(self) -> list[tuple[int, Any, int]] | None:
        """(number among the fresh memory, history, version) of each result, where all of them are just that."""
        at = {place[0]: n for n, place in enumerate(self.plan.fresh_places)}
        found = []
        for out in self.plan.results:
            if out.__class__ is not Output or out.inference or out.base is not None or out.graph is not None or (
                    out.value.storage.id not in at):
                return None
            n = at[out.value.storage.id]
            if self.fresh[n] != (out.value.shape, out.value.dtype):
                return None
            found.append((n, out.node, out.version))
        return found

    # ----------------------------------------------------------------------------------------------------- running
    def run(self, args: tuple[Any, ...]) -> Any:
        """The result of a call, or MISS."""
        for n in self.plan.brought:
            if n >= len(args) or type(args[n]) is not float or args[n] != args[n]:
                return MISS
        if self.defined:
            numbers = self.plan._read_numbers(args)
            if numbers != self.checked_numbers and any([evaluate(e, numbers) != outcome for e, outcome in self.defined]):
                return MISS
            self.checked_numbers = numbers  # those for which all was well
        raws = [self.empty(shape, dtype) for shape, dtype in self.fresh]
        with self.lock:
            for n in self.plan.brought:
                self.plan.brought[n] = args[n]
            status = self.call(self.address, args, raws)
            if self.simple is None:  # results may depend on them
                numbers = self.plan.program.numbers[:len(self.plan.numbers)]
            if status:
                if status == -1:
                    return MISS
                if status == -2:
                    raise SystemError("a replay could not leave its traces")
                error, self.plan.program.error = self.plan.program.error, None
                if not self.plan.program.undoes:
                    raise error
                return UNDONE
        if self.simple is None:
            plan = self.plan
            leaves, by_id = list(args), {place[0]: raw for place, raw in zip(plan.fresh_places, raws)}
            plan.leave(leaves, by_id)
            return plan.result(leaves, by_id, numbers)
        made = []
        for n, node, version in self.simple:
            t = _new(Tensor)
            t._array = raws[n]
            t._counter = counted(version) if version else None
            t._node = node
            made.append(t)
        return self.build(made)


def _fill(rules: _Rules, table: Any, name: str, kind: Any, parts: list[Any]) -> None:
    setattr(table, name, rules.block((kind * len(parts))(*parts)))
    setattr(table, f"n_{name}", len(parts))


def builder(shape: Any) -> Any:
    """A function that puts a list of leaves together as `trees.unflatten` does, without a walk at every call."""
    names: dict[str, Any] = {}
    count = 0

    def named(value: Any) -> str:
        name = f"c{len(names)}"
        names[name] = value
        return name

    def text(part: Any) -> str:
        nonlocal count
        if part is LEAF:
            count += 1
            return f"leaves[{count - 1}]"
        kind, parts = part
        if kind is dict:
            return "{" + ", ".join([f"{named(k)}: {text(s)}" for k, s in parts]) + "}"
        inner = "".join([text(s) + "," for s in parts])
        return f"[{inner}]" if kind is list else f"({inner})" if kind is tuple else f"{named(kind)}({inner})"
    return eval(f"lambda leaves: {text(shape)}", names)
