"""Zero-dim state of optimizers (step counts, products) as numbers, and what rules do with them besides arithmetic."""

from __future__ import annotations

from typing import Any

from ..autograd.state import state
from ..tensors.tensor import Tensor


def step_number(value: Tensor) -> Any:
    """The number in a zero-dim tensor of state. All rules ask here, so that a captured program can read it at each run."""
    return value.item() if state.recorder is None else state.recorder.loaded(value)


def larger(a: Any, b: Any) -> Any:
    """max(a, b); a captured program takes it at each run."""
    return max(a, b) if state.recorder is None else state.recorder.extreme("max", a, b)


def smaller(a: Any, b: Any) -> Any:
    """min(a, b), likewise."""
    return min(a, b) if state.recorder is None else state.recorder.extreme("min", a, b)


def counted(states: dict[str, Any], key: str) -> Any:
    """The next value of a count that is a Python number; a captured program counts on at each run."""
    if state.recorder is not None:
        return state.recorder.counted(states, key)
    states[key] += 1
    return states[key]
