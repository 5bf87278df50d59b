"""Schemas of operations: `add.Tensor(Tensor self, Tensor other, *, Scalar alpha=1) -> Tensor`, and how calls fit to them."""

from __future__ import annotations

import ast
import functools
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from ...tensors.device import device as device_class
from ...tensors.dtypes import dtype as dtype_class
from ...tensors.tensor import Tensor

_NUMBERS = (int, float, bool, complex)
# Functions whose Python numbers may stand where the schema says Tensor, without becoming an overload of their own.
_NUMBERS_AS_TENSORS = frozenset([n + e for n in ("add", "sub", "mul", "div", "divide", "multiply", "subtract", "true_divide",
                                                 "floor_divide", "copy") for e in ("", "_")])


class NoFit(TypeError):
    """A call that does not fit to a schema."""


class Argument(NamedTuple):
    """An argument, or a result, of an operation."""

    name: str
    type: str                # "Tensor", "int[]", "Scalar"
    optional: bool = False
    kwarg_only: bool = False
    has_default: bool = False
    default_value: Any = None
    alias: str | None = None  # the letter of the memory that it shows
    is_write: bool = False
    is_out: bool = False

    @property
    def alias_info(self) -> Any:
        return None if self.alias is None else _Alias(self.alias, self.is_write)

    def __str__(self) -> str:
        word = self.type if self.alias is None else self.type.replace(
            "Tensor", f"Tensor({self.alias}{'!' * self.is_write})", 1)
        shown = f"{word}{'?' * self.optional} {self.name}".rstrip()
        return shown if not self.has_default else f"{shown}={_written(self.default_value)}"


class _Alias(NamedTuple):
    letter: str
    is_write: bool

    @property
    def before_set(self) -> set[str]:
        return {f"alias::{self.letter}"}

    after_set = before_set


class Schema:
    """What an overload takes and gives."""

    def __init__(self, text: str, namespace: str = "aten"):
        text = text.strip()
        head, _, rest = text.partition("(")
        self.namespace = namespace
        self.base_name, _, self.overload_name = head.partition("::")[2 * ("::" in head)].partition(".")
        inside, _, results = rest.rpartition("->")
        self.arguments = _arguments(inside.rstrip()[:-1])
        results = results.strip()
        parts = _split(results[1:-1]) if results.startswith("(") else [results]
        self.returns = [_argument(p, result=True) for p in parts if p]
        self.positional = [a for a in self.arguments if not a.kwarg_only]
        self.by_name = {a.name: a for a in self.arguments}

    @property
    def name(self) -> str:
        return f"{self.namespace}::{self.base_name}"

    @property
    def is_mutable(self) -> bool:
        return any([a.is_write for a in self.arguments])

    @property
    def is_view(self) -> bool:
        """Whether a result shows the memory of an argument that is not written."""
        return any([a.alias and not a.is_write for a in self.returns])

    def __str__(self) -> str:
        shown, star = [], False
        for a in self.arguments:
            if a.kwarg_only and not star:
                shown.append("*")
                star = True
            shown.append(str(a))
        results = ", ".join(map(str, self.returns))
        results = results if len(self.returns) == 1 else f"({results})"
        overload = f".{self.overload_name}" if self.overload_name else ""
        return f"{self.name}{overload}({', '.join(shown)}) -> {results}"

    __repr__ = __str__

    # ---------------------------------------------------------------------------------------------------- fitting
    def bind(self, args: tuple[Any, ...], kwargs: dict[str, Any], loosely: bool = True,
             gathering: bool = False) -> dict[str, Any]:
        """The values of the arguments that were given, by name; NoFit where the call is none of this overload.

        loosely: as Python's functions are called, with numbers for some tensors; gathering: and with sizes one by one.
        """
        args = _gathered(self.positional, args) if gathering else args
        if len(args) > len(self.positional):
            raise NoFit("too many arguments")
        found = {a.name: v for a, v in zip(self.positional, args)}
        for name, value in kwargs.items():
            name = name if name in self.by_name else _OTHER_NAMES.get(name, name)
            if name not in self.by_name or name in found:
                raise NoFit(f"unexpected argument {name}")
            found[name] = value
        for a in self.arguments:
            if a.name in found:
                found[a.name] = _fitted(a, found[a.name], self.base_name if loosely else None)
            elif not a.has_default and not a.optional:
                raise NoFit(f"missing argument {a.name}")
        return found

    def shown(self, values: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """A call as handlers get it: (args, kwargs), without what is said by default."""
        given = [a.name in values and not (a.has_default and _same(values[a.name], a.default_value)) for a in self.positional]
        last = max([i + 1 for i, wanted in enumerate(given) if wanted], default=0)
        args = tuple([values.get(a.name, a.default_value) for a in self.positional[:last]])
        kwargs = {a.name: values[a.name] for a in self.arguments
                  if a.kwarg_only and a.name in values and not (a.has_default and _same(values[a.name], a.default_value))}
        return args, kwargs


_OTHER_NAMES = {"input": "self", "axis": "dim", "keepdims": "keepdim", "x": "self", "a": "self", "x1": "self", "x2": "other",
                "self": "input"}


def _same(value: Any, default: Any) -> bool:
    if value.__class__ is list and default.__class__ is int and value:  # `int[2] padding=0`: one for all
        return all([v.__class__ is int and v == default for v in value])
    return value is default or (value.__class__ is default.__class__ and not isinstance(value, Tensor) and value == default)


def _gathered(positional: list[Argument], args: tuple[Any, ...]) -> tuple[Any, ...]:
    """x.view(2, 3) as x.view((2, 3)): loose ints become a list where the schema has one last."""
    for at, a in enumerate(positional[:len(args)]):
        if a.type.startswith(("int[", "SymInt[")) and args[at].__class__ is int and len(args) > len(positional):
            return (*args[:at], list(args[at:]))
        if a.type.startswith(("int[", "SymInt[")) and args[at].__class__ is int and at == len(positional) - 1:
            return (*args[:at], list(args[at:]))
    return args


def _fitted(a: Argument, value: Any, loose: str | None) -> Any:
    """A value as an argument's type wants it."""
    if value is None:
        if a.optional or (a.has_default and a.default_value is None) or a.type == "Generator":
            return None
        raise NoFit(f"{a.name} is None")
    kind = _BASE.match(a.type)[0]
    if "[" in a.type:
        return _fitted_list(a, kind, value)
    check = _CHECKS.get(kind)
    if check is not None and not check(value):
        if kind == "Tensor" and isinstance(value, _NUMBERS) and (loose is None or loose in _NUMBERS_AS_TENSORS):
            return value
        if kind in ("int", "SymInt") and hasattr(value, "__index__") and not isinstance(value, (bool, Tensor)):
            return value.__index__()
        raise NoFit(f"{a.name} is no {kind}")
    return value


def _fitted_list(a: Argument, kind: str, value: Any) -> Any:
    fixed = re.search(r"\[(\d+)\]", a.type)
    if isinstance(value, (list, tuple)):
        check = _CHECKS.get(kind)
        if check is not None and not all([check(v) or (v is None and "?" in a.type) or (
                kind in ("int", "SymInt") and hasattr(v, "__index__") and not isinstance(v, Tensor)) for v in value]):
            raise NoFit(f"{a.name} is no list of {kind}")
        return list(value)
    if fixed and _CHECKS[kind](value) and kind != "Tensor":
        return [value] * int(fixed[1])
    raise NoFit(f"{a.name} is no list")


def _is_int(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


_BASE = re.compile(r"\w+")
_CHECKS = {
    "Tensor": lambda v: isinstance(v, Tensor), "Scalar": lambda v: isinstance(v, _NUMBERS),
    "int": _is_int, "SymInt": _is_int, "float": lambda v: isinstance(v, (int, float)) and not isinstance(v, bool),
    "bool": lambda v: isinstance(v, bool), "str": lambda v: isinstance(v, str),
    "ScalarType": lambda v: isinstance(v, dtype_class), "Device": lambda v: isinstance(v, (device_class, str, int)),
    "Generator": lambda v: not isinstance(v, (Tensor, *_NUMBERS, str))}


# ------------------------------------------------------------------------------------------------------------ reading
def _split(text: str) -> list[str]:
    """At commas outside of brackets."""
    return [p.strip() for p in re.split(r",\s*(?![^\[(]*[\])])", text)] if text.strip() else []


def _arguments(text: str) -> list[Argument]:
    found, only = [], False
    for part in _split(text):
        if part == "*":
            only = True
        else:
            found.append(_argument(part, only))
    return found


def _argument(text: str, only: bool = False, result: bool = False) -> Argument:
    text, has_default, default = text.partition("=")
    word, _, name = text.strip().rpartition(" ")
    if result and not word:
        word, name = name, ""
    alias = re.search(r"\((\w+)(!?)(?: -> [\w*|]+)?\)", word)
    word = re.sub(r"\([^)]*\)", "", word)
    optional = word.endswith("?")
    return Argument(name, word.removesuffix("?"), optional, only, bool(has_default), _read(default) if has_default else None,
                    alias and alias[1], bool(alias and alias[2]), bool(only and alias and alias[2]))


_WORDS = {"None": None, "True": True, "False": False, "Mean": 1, "Sum": 2, "contiguous_format": None, "long": None,
          "strided": None, "inf": float("inf")}


def _read(text: str) -> Any:
    text = text.strip()
    if text in _WORDS:
        return _WORDS[text]
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def _written(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else str(value)


# ----------------------------------------------------------------------------------------------------------- the table
class Entry(NamedTuple):
    overload: str
    schema: Schema
    composite: bool
    tags: str  # what PyTorch says of it: "core pointwise"


@functools.cache
def _texts() -> dict[str, list[str]]:
    """Name -> lines of its overloads."""
    found: dict[str, list[str]] = {}
    for line in (Path(__file__).with_name("schemas.txt")).read_text().splitlines():
        found.setdefault(re.match(r"~?(\w+)", line)[1], []).append(line)
    return found


@functools.cache
def overloads_of(name: str) -> tuple[Entry, ...]:
    """The overloads of an operation; those that take tensors come before those that take numbers."""
    found = []
    for line in _texts().get(name, ()):
        text, _, tags = line.partition("  # ")
        schema = Schema(text.lstrip("~"))
        found.append(Entry(schema.overload_name or "default", schema, line.startswith("~"), tags))
    return tuple(sorted(found, key=lambda e: _rank(e.schema)))


def _rank(schema: Schema) -> tuple[int, ...]:
    kinds = [a.type for a in schema.positional]
    return any([a.is_out for a in schema.arguments]), -kinds.count("Tensor"), len(kinds)


def is_known(name: str) -> bool:
    return name in _texts()


def names() -> list[str]:
    """The operations that have a schema."""
    return list(_texts())


def resolve(name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> tuple[Entry, dict[str, Any]]:
    """The overload that a Python call means, and its arguments by name. NoFit if there is none."""
    written = kwargs.get("out") is not None
    for gathering in (False, True):
        for entry in overloads_of(name):
            if any([a.is_out for a in entry.schema.arguments]) != written:
                continue
            try:
                return entry, entry.schema.bind(tuple(args), kwargs, gathering=gathering)
            except NoFit:
                continue
    raise NoFit(f"aten::{name}: no overload takes these arguments")
