"""The net below a witness: every Python function that starts while a call is captured is looked at.

A profile function (native/watch.c) sees it: one that is neither rewritten nor an operation of flambeau's is a way around the
witness.
"""

from __future__ import annotations

import ctypes
import functools
import gc
import sys
import warnings
from collections.abc import Callable
from types import CodeType, FrameType
from typing import Any

from ...autograd.state import state
from ...native import toolchain
from .files import TOLD, TRUSTED, where
from .rewrite import REWRITTEN


def present() -> Any:
    """The `Witness` of the capture that is going on in this thread, as long as it has not failed."""
    return state.witness


class Net:
    """The part of a `Witness` that sees functions start, and fails where one is a way around it."""

    reason: str | None
    paused: bool
    fail: Callable[[str], None]

    def __call__(self, frame: FrameType, warns: Any = None) -> bool:
        """A Python function starts (or one of flambeau's warns). Whether others of the same code need not be shown."""
        if warns is not None:
            self.fail("a warning is given")
            return False
        code = frame.f_code
        if code in REWRITTEN or code in TRUSTED or str(frame.f_globals.get("__name__")).startswith("namedtuple_"):
            return True
        file = code.co_filename
        home = where(file)
        if home == "operation" or self.reason is not None or any(getattr(c, "__code__", None) is code for c in gc.callbacks):
            return True  # (the collector may run at any time: what it calls is not part of the function)
        if home == "flambeau" and (file.startswith(TOLD) or file.endswith("__init__.py")):
            return True
        if home == "foreign" or self._of_operations(frame):
            return not self._allowed(frame)
        self._around(code)
        return True

    def _of_operations(self, frame: FrameType) -> bool:
        """Whether a module is being loaded."""
        back = frame.f_back
        while back is not None and back.f_code not in REWRITTEN:
            if back.f_code.co_filename.startswith("<frozen importlib"):
                return True
            back = back.f_back
        return False

    def _allowed(self, frame: FrameType) -> bool:
        """What operations use of Python's own library is their business; so is loading a module of flambeau's."""
        caller = frame.f_back
        while caller is not None and caller.f_code not in REWRITTEN:
            home = where(caller.f_code.co_filename)
            if home == "operation" or caller.f_code.co_filename.startswith(TOLD):
                return True
            caller = caller.f_back
        if caller is not None and where(caller.f_code.co_filename) == "flambeau" and (
                frame.f_code.co_filename.startswith("<frozen importlib") or self._of_operations(frame)):
            return True
        self._around(frame.f_code)
        return False

    def _around(self, code: CodeType) -> None:
        state.witness = self if present() is self else present()
        self.fail(f"'{code.co_qualname}' runs, called from outside of what can be followed")

    def unwatched(self, function: Callable[..., Any], *args: Any) -> Any:
        """Calls a function of the compiler's own, which runs nothing of the user's."""
        native = _native()
        try:
            self.paused = True
            if native is not None:
                native.fl_watch_pause(1)
            return function(*args)
        finally:
            self.paused = False
            if native is not None:
                native.fl_watch_pause(0)

    def profile(self, frame: FrameType, event: str, builtin: Any) -> None:
        """A profile function for `sys.setprofile`."""
        if self.paused:
            return
        if event == "call":
            self(frame)
        elif event == "c_call" and builtin is warnings.warn:
            self(frame, builtin)


class watching:
    """A `with` block in which a witness sees the calls of this thread."""

    def __init__(self, witness: Net):
        self.witness = witness

    def __enter__(self) -> None:
        self.native = _native()
        if self.native is None:
            sys.setprofile(self.witness.profile)
        else:
            ctypes.pythonapi.PyEval_SetProfile(self.native.fl_watch, ctypes.py_object(self.witness))

    def __exit__(self, *exc: Any) -> None:
        if sys.getprofile() in (self.witness, self.witness.profile):  # the call may have left one of its own
            sys.setprofile(None)
        if self.native is not None:
            self.native.fl_watch_end()


@functools.cache
def _native() -> Any:
    """The library of native/watch.c, or None: then Python sorts out the calls."""
    try:
        made = ctypes.PyDLL(str(toolchain.build((toolchain.HERE / "watch.c").read_text(), "watch")))
        found = toolchain.interpreter("PyFrame_GetCode", "Py_DecRef", "PyObject_CallFunctionObjArgs", "PyObject_IsTrue")
    except (toolchain.BuildError, OSError, AttributeError):
        return None
    made.fl_watch_attach((ctypes.c_void_p * len(found))(*found), ctypes.c_void_p(id(warnings.warn)))
    return made
