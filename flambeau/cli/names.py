"""What flambeau has of a name of PyTorch's: there, partial, refused or missing, as its own module of that name says."""

from __future__ import annotations

import functools
import importlib
from types import FunctionType, ModuleType
from typing import Any, NamedTuple

THERE, PARTIAL, REFUSED, MISSING = "there", "partial", "refused", "missing"
_OPEN = ("torch.ops", "torch.classes")  # filled by libraries when they run: what is in them cannot be known before
_WITHOUT_EFFECT = ("Accepted", "Does nothing", "Not supported here")  # how docstrings of such functions begin
_MODULES = {"torch.jit": "nothing is compiled by it: functions and modules stay Python"}
_UNKNOWN = object()


class Status(NamedTuple):
    """word: one of the four above. reason: what the user should know."""

    word: str
    reason: str = ""


@functools.cache
def status(name: str) -> Status:
    """Of a dotted name that begins with `torch`."""
    if name.startswith(_OPEN):
        return Status(THERE)
    parts = name.split(".")
    value, at = _package(), "torch"
    for part in parts[1:]:
        if _says_refused(value) and part not in vars(value):  # a module may refuse all but some names
            break
        value, error = _inner(value, at, part)
        if error is not None:
            return Status(MISSING, f"flambeau has no {at}.{part}" if f"{at}.{part}" != name else "")
        if value is _UNKNOWN:
            return Status(THERE)
        at = f"{at}.{part}"
    return _judged(value, name)


def _judged(value: Any, name: str) -> Status:
    first = (getattr(value, "__doc__", None) or "").strip().partition("\n")[0]
    if _says_refused(value):
        return Status(REFUSED, first.removeprefix("Not available: ").rstrip("."))
    if _is_missing_dtype(value):
        return Status(REFUSED, "it can be named, but no tensor has this dtype")
    if not isinstance(value, type) and first.startswith(_WITHOUT_EFFECT):
        return Status(PARTIAL, "it has no effect: " + first.rstrip("."))
    for module, reason in _MODULES.items():
        if name == module or (name.startswith(module + ".") and isinstance(value, FunctionType)):
            return Status(PARTIAL, reason)
    return Status(THERE)


def _inner(value: Any, at: str, part: str) -> tuple[Any, Exception | None]:
    """The attribute of a module, class or object; what is behind a function is not known."""
    if isinstance(value, FunctionType):
        return _UNKNOWN, None
    try:
        return getattr(value, part), None
    except (AttributeError, NotImplementedError, ImportError) as error:
        if not isinstance(value, ModuleType):
            return None, error
    try:
        return importlib.import_module(f"flambeau{at.removeprefix('torch')}.{part}"), None
    except ImportError as error:
        return None, error


def returns_tensor(name: str) -> bool:
    """Whether a function is known to give one plain tensor: it says so itself."""
    if "sparse" in name:  # tensors with methods of their own
        return False
    value = _package()
    for part in name.split(".")[1:]:
        value = getattr(value, part, None)
    return value is _package().Tensor or getattr(value, "__annotations__", {}).get("return") in ("Tensor", _package().Tensor)


def _says_refused(value: Any) -> bool:
    return (getattr(value, "__doc__", None) or "").startswith("Not available")


def _is_missing_dtype(value: Any) -> bool:
    from ..missing import MissingDtype
    return isinstance(value, MissingDtype)


def _package() -> Any:
    return importlib.import_module("flambeau")
