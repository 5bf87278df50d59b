"""How a process of a group ends: in peace it says farewell and leaves MPI; after a failure it tells those who started it."""

from __future__ import annotations

import json
import multiprocessing.util
import os
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["at_end", "write_error"]
_steps: list[Callable[[bool], None]] = []  # each is told whether the process failed
_failed = False
_process = 0


def at_end(step: Callable[[bool], None]) -> None:
    """Has a function called when the process ends, with whether it ended because of an error; the last one first."""
    global _process
    _steps.append(step)
    if _process == os.getpid():
        return
    _process, before = os.getpid(), sys.excepthook

    def note(kind: type[BaseException], error: BaseException, trace: Any) -> None:
        global _failed
        _failed = True
        before(kind, error, trace)
        write_error("".join(traceback.format_exception(kind, error, trace)))

    sys.excepthook = note
    multiprocessing.util.Finalize(None, _finish, exitpriority=-100)  # runs in children of multiprocessing, too; atexit does not


def _finish() -> None:
    if os.getpid() != _process:
        return
    leaving = sys.exc_info()[1]  # in a child of multiprocessing: what it ends with
    failed = _failed or (leaving is not None and getattr(leaving, "code", 1) not in (0, None))
    while _steps:
        _steps.pop()(failed)


def write_error(text: str) -> None:
    """Leaves a traceback for the launcher, where there is one (agent.py)."""
    path = os.environ.get("TORCHELASTIC_ERROR_FILE")
    if path and not os.path.exists(path):
        with open(path, "w") as file:
            json.dump({"message": text, "time": time.time(), "rank": os.environ.get("RANK")}, file)
