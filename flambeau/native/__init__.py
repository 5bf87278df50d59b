"""Native kernels: C sources beside this file, built on first use and cached on disk (toolchain.py).

`library("softmax")` gives the functions of softmax.c, or None where there is neither a C compiler nor a built library in the
wheel (prebuilt.py): callers then use NumPy.
Every exported C function starts with `fl_` and takes raw pointers, `long` sizes and doubles; Python hands pointers over with
`pointer(array)`. Calls release the interpreter lock.

A source is built in parts (`parts`), so that nobody waits for what he does not use. While a call is captured nothing is built:
NumPy does the work, and the finished program asks for all its functions at once (`prepare`), which keeps every core busy.
Lines of a source that begin with `//!` say what is special about it: `flags` for the compiler, other families that it `uses`,
or that it is built `now`, in a capture too, since without it other things would be captured.
"""

from __future__ import annotations

import ctypes
import re
import threading
import warnings
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from pathlib import Path

Request = tuple[str, str, tuple[str, ...]]  # what toolchain.build is called with: source, name, flags
_libraries: dict[str, Any] = {}
_families: dict[str, Family] = {}
_lock = threading.RLock()
_local = threading.local()
_at = ctypes.c_void_p.from_address
_DATA = object.__basicsize__  # a NumPy array's data pointer comes right after the object header


def pointer(array: Any) -> int | None:
    """The address of an array's first element (None for a null pointer). Four times as fast as `array.ctypes.data`."""
    return _at(id(array) + _DATA).value


class _Address(ctypes.c_void_p):
    """An argument given as an array, as an address, or as None."""

    @classmethod
    def from_param(cls, value: Any) -> ctypes.c_void_p:
        return ctypes.c_void_p(value if value is None or value.__class__ is int else pointer(value))


class Library:
    """Functions of a library as attributes, with the argument types that `signatures` gives them."""

    def __init__(self, handle: ctypes.CDLL, signatures: dict[str, str]):
        from .calls import direct
        kinds = {"p": _Address, "l": ctypes.c_long, "d": ctypes.c_double, "f": ctypes.c_float, "i": ctypes.c_int}
        for name, letters in signatures.items():
            function = getattr(handle, name)
            result, _, arguments = letters.rpartition(":")
            function.argtypes = [kinds[k] for k in arguments]
            function.restype = ctypes.c_void_p if result == "p" else kinds[result] if result else None
            setattr(self, name, direct(name, function, result, arguments))
        self.handle = handle


class Family(Library):
    """The functions of one C source as attributes; the part that a function belongs to is built when it is first asked for."""

    def __init__(self, name: str):
        from . import toolchain
        self.name, self.source = name, (toolchain.HERE / f"{name}.c").read_text()
        self.signatures = signatures(self.source)
        undivided = name == "runtime" or not toolchain.in_parts()  # runtime.c has more to give than what Python calls
        self.parts = [tuple(self.signatures)] if undivided else parts(self.source)
        said = dict(re.findall(r"^//! (\w+) ?(.*)$", self.source, re.M))  # what the source asks for
        self.flags = (*said.get("flags", "").split(), *(() if undivided else ("-fwhole-program",)))
        self.uses = said.get("uses", "").split()
        self.now = "now" in said  # even during a capture
        self.loaded: set[tuple[str, ...]] = set()

    def __getattr__(self, function: str) -> Any:
        if function not in self.__dict__.get("signatures", ()):
            raise AttributeError(f"there is no native function '{function}'")
        try:
            prepare([(self.name, function)])
        except (RuntimeError, OSError):
            _libraries[self.name] = None  # the next call goes to NumPy
            raise
        return self.__dict__[function]

    def request(self, part: tuple[str, ...]) -> Request:
        """What to build for a part: the whole source, from which the compiler drops what the part's functions do not need."""
        seen = "".join(f"extern __typeof({f}) {f} __attribute__((externally_visible));\n" for f in part)
        return self.source + seen if "-fwhole-program" in self.flags else self.source, self.name, self.flags

    def missing(self, function: str) -> Iterator[tuple[Family, tuple[str, ...]]]:
        """The part that holds a function, after those that it uses, where they are not loaded."""
        part = next(p for p in self.parts if function in p)
        if part not in self.loaded:
            for other in map(_family, self.uses):
                for f in other.signatures:
                    if _element(f) == _element(function):
                        yield from other.missing(f)
            yield self, part

    def load(self, part: tuple[str, ...], path: Path) -> None:
        from . import toolchain
        super().__init__(toolchain.load(path), {f: self.signatures[f] for f in part})
        self.loaded.add(part)


def library(name: str) -> Any:
    """The native functions of a family, built and loaded on first use; None if that cannot be done."""
    try:
        return _libraries[name]
    except KeyError:
        return _load(name)


class off:
    """A `with` block in which no native kernel is used: the NumPy reference does all work."""

    def __enter__(self) -> None:
        global _libraries
        self.before, _libraries = _libraries, _Nothing()

    def __exit__(self, *exc: Any) -> None:
        global _libraries
        _libraries = self.before


class _Nothing(dict):
    def __missing__(self, name: str) -> None:
        return None


def _load(name: str) -> Family | None:
    """Builds the first part of a family: if that can be done, the others can."""
    from . import toolchain  # only here: importing flambeau takes a blink, and many programs never get here
    with _lock:
        if name in _libraries:
            return _libraries[name]
        if not toolchain.usable():
            toolchain.hint()
            return _libraries.setdefault(name, None)
        family = _family(name)
        if not family.now and postponed(*family.request(family.parts[0])):
            return None
        try:
            if name == "runtime" or library("runtime") is not None:
                prepare([(name, family.parts[0][0])])
        except (toolchain.BuildError, OSError) as error:
            warnings.warn(f"flambeau's native '{name}' kernels could not be built; NumPy does their work.\n{error}",
                          RuntimeWarning, stacklevel=3)
        return _libraries.setdefault(name, None)


def _family(name: str) -> Family:
    """What is known of a family, whether it is loaded or not."""
    if name not in _families:
        _families[name] = Family(name)
    return _families[name]


def prepare(functions: Iterable[tuple[str, str]], *more: Request) -> list[Path]:
    """Loads functions, each given with its family, for this process and for libraries that it loads later.

    What is not on disk is built, several parts at a time, along with further sources, whose libraries are returned.
    """
    from . import toolchain
    with _lock:
        wanted = [("runtime", "fl_set_threads"), *functions]
        for name, _ in wanted:
            if _libraries.get(name, name) is None or isinstance(_libraries, _Nothing):
                raise toolchain.BuildError(f"the native '{name}' kernels could not be built")
        missing = list(dict.fromkeys(found for name, function in wanted for found in _family(name).missing(function)))
        paths = toolchain.build_all([*more, *[family.request(part) for family, part in missing]])
        for (family, part), path in zip(missing, paths[len(more):]):
            family.load(part, path)
            if family.name == "runtime":
                from . import threads
                threads.attach(family)
        _libraries.update({name: _family(name) for name, _ in wanted})
        return paths[:len(more)]


def coming() -> bool:
    """Whether native code is used in this process, even if some of it is not built yet."""
    from . import toolchain
    return toolchain.usable() and not isinstance(_libraries, _Nothing)


class Postponed(Exception):
    """Not built now, since `postponed` said so."""


class waiting:
    """A `with` block in which this thread builds nothing: a call is captured, whose program will bring its own native code."""

    def __init__(self, really: bool = True):
        self.really = really

    def __enter__(self) -> None:
        self.before, _local.waits = getattr(_local, "waits", False), self.really

    def __exit__(self, *exc: Any) -> None:
        _local.waits = self.before


def postponed(source: str, name: str, flags: tuple[str, ...] = ()) -> bool:
    """Whether a build should wait."""
    if not getattr(_local, "waits", False):
        return False
    from . import toolchain
    return not toolchain.cached(source, name, flags)


def signatures(source: str) -> dict[str, str]:
    """Of each exported function "result:arguments" in letters (p pointer, l long, d double, f float, i int), from the comments
    before them: `//: fl_f(ppld)`, or `//: l fl_f(ppld)` with a result; `fl_f_{f32,f64}` are two functions."""
    found = {}
    for line in source.splitlines():
        if line.startswith("//: "):
            what, _, rest = line[4:].partition("(")
            result, _, name = what.strip().rpartition(" ")
            stem, _, suffixes = name.partition("{")
            for suffix in suffixes.rstrip("}").split(","):
                found[stem + suffix] = f"{result}:{rest.partition(')')[0]}"
    return found


def parts(source: str) -> list[tuple[str, ...]]:
    """The functions that are built together: those for one element type. An empty `//:` line sets what follows apart."""
    found: dict[tuple[int, str], list[str]] = {}
    for at, block in enumerate(re.split(r"^//:$", source, flags=re.M)):
        for name in signatures(block):
            found.setdefault((at, _element(name)), []).append(name)
    return list(map(tuple, found.values()))


def _element(function: str) -> str:
    """The element type, or size, that a function is for; those for any go with float32."""
    suffix = function.rpartition("_")[2]
    return suffix if suffix in ("f64", "bf16", "f16", "8", "16", "32", "64") else "f32"
