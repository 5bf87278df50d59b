"""`Paths`: compiled calls in which the Python runs and the kernels do not.

This is always right: nothing about the Python is taken for granted. See follower.py for how, and function.py for when.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ..autograd.state import AUTOCAST, FOLLOW, INFERENCE, NO_GRAD, state
from ..backends import registry
from ..native import toolchain, waiting
from . import following, promises
from .follower import Follower
from .matching import native
from .promises import Reserved
from .segments import End
from .steps import Step

_MODES = NO_GRAD | INFERENCE | AUTOCAST
_LITERALS = 4096  # distinct numbers that are told apart
_first = threading.Lock()


class Paths:
    """All that is known about following a function's calls."""

    def __init__(self, function: Callable[..., Any], name: str, exact: bool, fullgraph: bool, timed: bool):
        self.function, self.name, self.exact, self.fullgraph, self.timed = function, name, exact, fullgraph, timed
        self.root = Step(None, "")
        self.busy = threading.Lock()
        self.epoch = 0             # goes up when a storage is found to survive
        self.generation = 0        # goes up when programs have to be made anew
        self.steps = self.builds = self.interpreted = self.runs = self.calls = 0
        self.reserved: Reserved | None = None
        self.reasons: list[str] = []
        self.stopped: str | None = None  # why calls are not followed any more
        self._literals: dict[Any, ndarray] = {}
        self._numbers: dict[int, ndarray] = {}

    # ------------------------------------------------------------------------------------------------------- calls
    def call(self, args: tuple[Any, ...], kwargs: dict[str, Any], tensors: Any = ()) -> Any:
        """Does what function(*args, **kwargs) does."""
        if state.mode & ~_MODES or self.stopped is not None or native() is None or not self.busy.acquire(blocking=False):
            return self.function(*args, **kwargs)
        try:
            with waiting(not self.exact and self.calls < 2):
                return self._followed(args, kwargs)
        finally:
            self.busy.release()

    def _followed(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        self.calls += 1
        follower = Follower(self)
        with _followed(follower):
            try:
                return self.function(*args, **kwargs)
            finally:
                follower.settle()
                self.runs += follower.runs

    # ------------------------------------------------------------------------------------------ what a follower asks
    def end_of(self, follower: Follower) -> End | None:
        """The program of a segment that ends where the follower is; None: not the first time."""
        step = follower.at
        step.seen += 1
        if step.seen == 1:
            return None
        end = step.end
        if end is None or end.epoch != self.epoch or end.generation != self.generation:
            kept = tuple([m.id for s in follower.steps for m in s.made if m.survives])
            if end is None or end.generation != self.generation or end.kept != kept:
                end = self._built(follower.steps, kept)
                step.end = end
            if end is not None:
                end.epoch, end.generation = self.epoch, self.generation
        return end

    def _built(self, steps: list[Step], kept: tuple[int, ...]) -> End | None:
        try:
            made = End(steps, kept, self.exact, self.timed)
        except (toolchain.BuildError, OSError) as error:
            self.stopped = f"a program could not be built: {error}"
            return None
        self.builds += 1
        return made

    def region(self) -> Reserved:
        if self.reserved is None:
            self.reserved = Reserved(1 << 36)
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


@contextlib.contextmanager
def _followed(follower: Follower) -> Any:
    """The block's kernel calls go to the follower."""
    with _first:
        promises.followers.append(follower)
        registry.following = following.here
    state.follower = follower
    state.mode |= FOLLOW
    try:
        yield
    finally:
        state.mode &= ~FOLLOW
        state.follower = None
        with _first:
            promises.followers.remove(follower)
            if not promises.followers:
                registry.following = None


def _before_fork() -> None:
    if state.follower is not None:
        state.follower.settle()


def _after_fork() -> None:
    """A child goes on eagerly."""
    state.follower = None
    state.mode &= ~FOLLOW
    promises.followers.clear()
    registry.following = None


if hasattr(os, "register_at_fork"):
    os.register_at_fork(before=_before_fork, after_in_child=_after_fork)
