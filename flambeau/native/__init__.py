"""Native kernels: C sources beside this file, built on first use and cached on disk (toolchain.py).

`library("softmax")` gives the functions of softmax.c, or None where there is no C compiler: callers then use NumPy.
Every exported C function starts with `fl_` and takes raw pointers, `long` sizes and doubles; Python hands pointers over with
`pointer(array)`. Calls release the interpreter lock.
"""

from __future__ import annotations

import ctypes
import threading
import warnings
from typing import Any

_libraries: dict[str, Any] = {}
_lock = threading.RLock()
_at = ctypes.c_void_p.from_address
_DATA = object.__basicsize__  # a NumPy array's data pointer comes right after the object header


def pointer(array: Any) -> int | None:
    """The address of an array's first element (None for a null pointer). Four times as fast as `array.ctypes.data`."""
    return _at(id(array) + _DATA).value


class Library:
    """The functions of one C source as attributes, with the argument types that `signatures` gives them."""

    def __init__(self, handle: ctypes.CDLL, signatures: dict[str, str]):
        kinds = {"p": ctypes.c_void_p, "l": ctypes.c_long, "d": ctypes.c_double, "f": ctypes.c_float, "i": ctypes.c_int}
        for name, letters in signatures.items():
            function = getattr(handle, name)
            result, _, arguments = letters.rpartition(":")
            function.argtypes = [kinds[k] for k in arguments]
            function.restype = kinds[result] if result else None
            setattr(self, name, function)
        self.handle = handle


def library(name: str) -> Library | None:
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


def _load(name: str) -> Library | None:
    with _lock:
        if name in _libraries:
            return _libraries[name]
        made = None
        from . import toolchain  # only here: importing flambeau takes a blink, and many programs never get here
        if toolchain.compiler() is None:
            toolchain.hint()
        else:
            try:
                made = _build(name)
            except (toolchain.BuildError, OSError) as error:
                warnings.warn(f"flambeau's native '{name}' kernels could not be built; NumPy does their work.\n{error}",
                              RuntimeWarning, stacklevel=3)
        _libraries[name] = made
        return made


def signatures(source: str) -> dict[str, str]:
    """Of each exported function "result:arguments" in letters (p pointer, l long, d double, f float, i int), from the comments
    before them: `//: fl_f(ppld)`, or `//: l fl_f(ppld)` with a result."""
    found = {}
    for line in source.splitlines():
        if line.startswith("//: "):
            what, _, rest = line[4:].partition("(")
            result, _, name = what.strip().rpartition(" ")
            found[name] = f"{result}:{rest.partition(')')[0]}"
    return found


def _build(name: str) -> Library:
    """Builds `name`.c."""
    if name != "runtime":
        library("runtime")
    from . import toolchain
    source = (toolchain.HERE / f"{name}.c").read_text()
    made = Library(toolchain.load(toolchain.build(source, name)), signatures(source))
    if name == "runtime":
        from . import threads
        threads.attach(made)
    return made
