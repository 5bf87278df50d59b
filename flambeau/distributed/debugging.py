"""A debugger on one of several processes."""

from __future__ import annotations

import datetime
import pdb
import sys
from typing import Any

from .collectives import barrier
from .groups import _groups, get_rank

__all__ = ["breakpoint"]

_passed: dict[tuple[str, int], int] = {}  # how often a line has been passed


class _Pdb(pdb.Pdb):
    """Reads from the terminal, which processes that a launcher or `spawn` started do not have as their standard input."""

    def interaction(self, *args: Any, **kwargs: Any) -> None:
        before = sys.stdin
        with open("/dev/stdin") as terminal:
            sys.stdin = terminal
            try:
                super().interaction(*args, **kwargs)
            finally:
                sys.stdin = before


def breakpoint(rank: int = 0, skip: int = 0, timeout_s: float | None = 3600) -> None:
    """Stops one process in the debugger; the others wait until it goes on.

    skip: how often this line is passed before it stops. timeout_s: how long the others wait, here and from here on.
    """
    frame = sys._getframe(1)
    place = frame.f_code.co_filename, frame.f_lineno
    _passed[place] = _passed.get(place, 0) + 1
    if _passed[place] <= skip:
        return
    if timeout_s is not None:
        for group in _groups.values():
            group.timeout = datetime.timedelta(seconds=timeout_s)
    if get_rank() == rank:
        debugger = _Pdb()
        debugger.message(f"\nRank {rank} is in the debugger, the others wait. 'up' leads to the line that called it, 'c' "
                         "lets all of them go on.\n")
        debugger.set_trace()
    barrier()
