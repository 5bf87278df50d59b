"""`Paths`: compiled calls in which the Python runs and the kernels do not.

This is always right: nothing about the Python is taken for granted. See follower.py for how, and function.py for when. It is
not always quicker: the Python costs what it costs in eager mode, and a small kernel costs little more than being noted. So both
ways are timed now and then, and calls go the quicker one.
"""

from __future__ import annotations

import os
import sys
import threading
import time
import warnings
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ...autograd.state import AUTOCAST, FOLLOW, INFERENCE, NO_GRAD, state
from ...backends import registry
from ...native import waiting
from ..render.template import Family
from . import following, promises
from .follower import Follower
from .matching import native, obstacles
from .promises import Reserved
from .segments import End, changes_of
from .steps import Step

_MODES = NO_GRAD | INFERENCE | AUTOCAST
_LITERALS = 4096   # distinct numbers that are told apart
_STEPS = 50_000    # kernel calls that are remembered
_BUILDS = 64       # programs
_RESERVED = 1 << 30  # bytes of addresses to begin with
_PATIENCE = 12     # calls that meet something new before their time counts
_TRIALS = 4        # calls of each way before they are compared
_RAREST = 4096     # calls between two comparisons, at most
_first = threading.Lock()


class Paths:
    """All that is known about following a function's calls."""

    def __init__(self, function: Callable[..., Any], name: str, exact: bool, fullgraph: bool,
                 family: Family | None = None):
        self.function, self.name, self.exact, self.fullgraph = function, name, exact, fullgraph
        self.ends: Any = weakref.WeakSet()  # those that have a program
        self.family = family       # programs that share libraries
        self.root = Step(None, "")
        self.busy = threading.Lock()
        self.epoch = 0             # goes up when a storage is found to survive, or a number to vary
        self.most = _RESERVED      # bytes of reserved memory that the longest segment needs
        self.steps = self.builds = self.interpreted = self.runs = self.calls = 0
        self.reserved: Reserved | None = None
        self.idle: Follower | None = None  # for the next call
        self.reasons: list[str] = []     # what values were looked at for
        self.stopped: str | None = None  # why calls are not followed any more
        self.pace: Pace | None = Pace()  # None: every call is followed
        self._literals: dict[Any, ndarray] = {}
        self._numbers: dict[int, ndarray] = {}

    # ------------------------------------------------------------------------------------------------------- calls
    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Does what function(*args, **kwargs) does."""
        pace = self.pace
        if pace is not None and pace.left and pace.way:
            pace.passed()
            return self.function(*args, **kwargs)
        if native() is None:
            self.stop(next(iter(obstacles), "calls are not followed on this machine"))
        if state.mode & ~_MODES or self.stopped is not None or not self.busy.acquire(blocking=False):
            return self.function(*args, **kwargs)
        try:
            if pace is None:
                return self._followed(args, kwargs)
            if pace.eager():
                start = time.perf_counter()
                result = self.function(*args, **kwargs)
                pace.took(time.perf_counter() - start)
                return result
            before = self.steps, self.builds, self.interpreted
            start = time.perf_counter()
            result = self._followed(args, kwargs)
            pace.took(time.perf_counter() - start, before != (self.steps, self.builds, self.interpreted))
            return result
        finally:
            self.busy.release()

    def _followed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.calls += 1
        try:
            follower, self.idle = self.idle or Follower(self), None
        except OSError as error:
            self.stop(f"no memory can be reserved: {error}")
            return self.function(*args, **kwargs)
        follower.paths = self
        with waiting(not self.exact and self.calls < 3):
            try:
                _enter(follower)
                return self.function(*args, **kwargs)
            finally:
                try:
                    self._settled(follower)
                finally:
                    _leave(follower)
                follower.paths = None  # no cycles
                self.idle = follower

    def _settled(self, follower: Follower) -> None:
        """The end of a call, however it comes about."""
        try:
            follower.settle()
        except KeyboardInterrupt:
            follower.settle()
            raise
        finally:
            follower.let_go()

    def straight(self) -> int:
        """How many of the next calls shall be eager, and need not come here."""
        pace = self.pace
        if self.stopped is not None:
            return sys.maxsize
        if pace is None or not pace.way or pace.left < 2:
            return 0
        calls, pace.left = pace.left - 1, 1
        return calls

    def stop(self, reason: str) -> None:
        """The next calls are eager."""
        if self.stopped is None:
            self.stopped = reason
            warnings.warn(f"flambeau.compile: '{self.name}' runs eagerly: {reason}", RuntimeWarning, stacklevel=2)

    @property
    def segments(self) -> list[End]:
        """The programs that there are."""
        found, left = [], [self.root]
        while left:
            step = left.pop()
            left += step.next
            if step.end is not None:
                found.append(step.end)
        return found

    # ------------------------------------------------------------------------------------------ what a follower asks
    def end_of(self, follower: Follower) -> End | None:
        """The program of a segment that ends where the follower is; None the first time, and where there is none."""
        step = follower.at
        step.seen += 1
        if step.seen == 1 or self.stopped is not None:
            return None
        end = step.end
        if end is None or end.epoch != self.epoch:
            steps = follower.steps
            kept = tuple([m.id for s in steps for m in s.made if m.survives])
            if end is None or end.kept != kept or end.changes != changes_of(steps):
                end = step.end = self._built(steps, kept)
            if end is not None:
                end.epoch = self.epoch
        return end

    def _built(self, steps: list[Step], kept: tuple[int, ...]) -> End | None:
        if self.builds >= _BUILDS:
            self.stop(f"it has needed {_BUILDS} programs")
            return None
        try:
            made = End(steps, kept, self.exact, self.family)
        except Exception as error:  # a defect of ours must not become the user's
            self.stop(f"a program could not be built: {type(error).__name__}: {error}")
            return None
        self.builds += 1
        self.ends.add(made)
        return made

    def noted(self, step: Step) -> None:
        """A step was recorded."""
        self.steps += 1
        self.most = max(self.most, step.reserved)
        if self.steps == _STEPS:
            self.stop(f"it makes more than {_STEPS} different kernel calls")

    def region(self) -> Reserved:
        if self.reserved is None or self.reserved.nbytes < self.most:
            self.reserved = Reserved(self.most)
        return self.reserved

    def literal(self, value: Any, dtype: np.dtype) -> ndarray:
        """A number as an array, always the same one for the same number."""
        key = value.__class__, repr(value), dtype
        found = self._literals.get(key)
        if found is None:
            found = np.asarray(value, dtype)
            if len(self._literals) < _LITERALS:
                self._literals[key] = self._numbers[id(found)] = found
        return found

    def is_literal(self, array: ndarray) -> bool:
        return id(array) in self._numbers

    def looked(self, what: str) -> None:
        if what not in self.reasons:
            self.reasons.append(what)


class Pace:
    """Whether the next call shall be followed or run eagerly: the quicker way, the other one now and then."""

    def __init__(self) -> None:
        self.times: dict[bool, list[float]] = {False: [], True: []}  # eager or not -> seconds of the last few calls
        self.way = False      # whether calls are eager at present
        self.left = 0         # calls until both are compared again
        self.wait = 16
        self.patience = _PATIENCE

    def eager(self) -> bool:
        if self.left:
            return self.way
        return len(self.times[False]) >= _TRIALS

    def took(self, seconds: float, learning: bool = False) -> None:
        """learning: something new was met in the call, so it says little about the next one; but not for ever."""
        if self.left:
            self.passed()
            return
        if learning and self.patience:
            self.patience -= 1
            return
        eager = self.eager()
        self.times[eager].append(seconds)
        if len(self.times[True]) >= _TRIALS:
            eagerly, following = min(self.times[True]), min(self.times[False])
            self.way = eagerly < following
            self.wait = min((2 if 0.8 < eagerly / following < 1.25 else 8) * self.wait, _RAREST)
            self.left = self.wait

    def passed(self) -> None:
        """A call that does not count."""
        self.left -= 1
        if not self.left:
            self.times = {False: [], True: []}
            self.patience = _PATIENCE


def _enter(follower: Follower) -> None:
    """From here on this thread's kernel calls go to the follower."""
    with _first:
        promises.followers.append(follower)
        registry.following = following.here
    state.follower = follower
    follower.native.enter(follower.address)
    state.mode |= FOLLOW


def _leave(follower: Follower) -> None:
    state.mode &= ~FOLLOW
    follower.native.enter(0)
    state.follower = None
    with _first:
        if follower in promises.followers:
            promises.followers.remove(follower)
        if not promises.followers:
            registry.following = None


def _before_fork() -> None:
    if state.follower is not None:
        state.follower.settle()


def _after_fork() -> None:
    """A child goes on eagerly."""
    if state.follower is not None:
        state.follower.native.enter(0)
    state.follower = None
    state.mode &= ~FOLLOW
    promises.followers.clear()
    registry.following = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
