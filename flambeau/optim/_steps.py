"""Zero-dim state of optimizers (step counts, products) as numbers, and what rules do with them besides arithmetic."""

from __future__ import annotations

from typing import Any

from ..autograd.state import CAPTURE, state
from ..tensors.tensor import Tensor


def step_number(value: Tensor) -> Any:
    """The number in a zero-dim tensor of state. All rules ask here, so that a captured program can read it at each run."""
    if state.mode & CAPTURE:
        from ..compiler.capture.tracing import loaded
        return loaded(value)
    return value.item()


def larger(a: Any, b: Any) -> Any:
    """max(a, b); a captured program takes it at each run."""
    return _extreme("max", a, b) if state.mode & CAPTURE else max(a, b)


def smaller(a: Any, b: Any) -> Any:
    """min(a, b), likewise."""
    return _extreme("min", a, b) if state.mode & CAPTURE else min(a, b)


def _extreme(which: str, a: Any, b: Any) -> Any:
    from ..compiler.capture.symbolic import extreme
    return extreme(which, a, b)


def counted(states: dict[str, Any], key: str) -> Any:
    """The next value of a count that is a Python number; a captured program counts on at each run."""
    if state.mode & CAPTURE:
        from ..compiler.capture.optimizers import counted as captured
        return captured(states, key)
    states[key] += 1
    return states[key]
