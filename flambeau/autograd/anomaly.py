"""Anomaly detection: every node remembers where it was recorded, and backward stops at the first NaN.

When a backward formula fails or gives NaN, a warning shows the forward line that recorded the node.
"""

from __future__ import annotations

import functools
import traceback
import warnings
from typing import Any

from ..backends.batched.arrays import BatchedArray, innermost
from .frames import location, place, user_frame
from .node import Node
from .state import ANOMALY, state


def is_anomaly_enabled() -> bool:
    return bool(state.mode & ANOMALY)


def is_anomaly_check_nan_enabled() -> bool:
    return state.anomaly_check_nan


def _set(mode: bool, check_nan: bool) -> None:
    state.mode = state.mode | ANOMALY if mode else state.mode & ~ANOMALY
    state.anomaly_check_nan = check_nan


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Turns anomaly detection on or off on this thread."""
    _set(mode, check_nan)


class detect_anomaly:
    """A `with` block (or decorator) with anomaly detection on. For debugging: it slows everything down."""

    def __init__(self, check_nan: bool = True):
        self.check_nan = check_nan
        warnings.warn("Anomaly Detection has been enabled. This mode will increase the runtime and should only be "
                      "enabled for debugging.", stacklevel=2)

    def __enter__(self) -> None:
        self.before = is_anomaly_enabled(), state.anomaly_check_nan
        _set(True, self.check_nan)

    def __exit__(self, *exc: Any) -> None:
        _set(*self.before)

    def __call__(self, function: Any) -> Any:
        @functools.wraps(function)
        def inside(*args: Any, **kwargs: Any) -> Any:
            with self:
                return function(*args, **kwargs)

        return inside


class set_detect_anomaly:
    """Turns anomaly detection on or off: at once, and back at the end of the block if used with `with`."""

    def __init__(self, mode: bool, check_nan: bool = True):
        self.before = is_anomaly_enabled(), state.anomaly_check_nan
        _set(mode, check_nan)

    def __enter__(self) -> None:
        pass

    def __exit__(self, *exc: Any) -> None:
        _set(*self.before)


def remember(node: Node) -> None:
    """Notes in the node's metadata the user's lines that recorded it (called while recording)."""
    notes = node.metadata
    frame = user_frame()
    notes["traceback_"] = traceback.format_stack(frame)
    if frame is not None:
        notes["forward_line"] = location((frame.f_code, frame.f_lasti))
    running = getattr(state, "running", None)
    if running:
        notes["parent_"] = running[-1] if running[-1].ctx is None else running[-1].ctx


def evaluate(node: Node, grads: Any) -> Any:
    """Runs a node (with its pre-hooks); a failure or a NaN is reported with the forward line of the node."""
    from .engine import _pre_hooks
    if node.hooks is not None and node.hooks.pre:
        grads = _pre_hooks(node, grads)
    state.running.append(node)
    try:
        try:
            results = node.apply(grads)
        except Exception:
            report(node)
            raise
        if state.anomaly_check_nan:
            for i, g in enumerate(results):
                if g is not None and _has_nan(g):
                    report(node)
                    raise RuntimeError(f"Function '{node.name()}' returned nan values in its {i}th output.")
    finally:
        state.running.pop()
    return results


def _has_nan(g: Any) -> bool:
    mode = state.mode
    state.mode = 1  # plain no_grad: the check itself is nobody's business
    try:
        if type(g._array) is BatchedArray:  # all examples at once
            from ..tensors.tensor import wrap
            g = wrap(innermost(g._array))
        return bool((g != g).any())
    finally:
        state.mode = mode


def report(node: Any) -> None:
    """Warns with the forward traceback of a node, and those of the nodes whose backward recorded it."""
    notes = node.metadata
    if "traceback_" not in notes:
        _warn(f"Error detected in {node.name()}. No forward pass information available. Enable detect anomaly during "
              "forward pass for more information.")
        return
    _warn(f"Error detected in {node.name()}. Traceback of forward call that caused the "
          "error:\n" + "".join(notes["traceback_"]))
    parent = notes.get("parent_")
    while parent is not None:
        notes = parent.metadata
        _warn(f"\n\nPrevious calculation was induced by {parent.name()}. Traceback of forward call that induced the "
              "previous calculation:\n" + "".join(notes.get("traceback_", ["(not recorded)\n"])))
        parent = notes.get("parent_")


def _warn(text: str) -> None:
    try:
        warnings.warn(text, stacklevel=4)
    except Warning as raised:  # warnings are errors here: the error on its way matters more
        import sys
        print(f"{type(raised).__name__}: {text}", file=sys.stderr)


__all__ = ["detect_anomaly", "set_detect_anomaly"]
