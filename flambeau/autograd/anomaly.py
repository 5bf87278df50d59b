"""Anomaly detection: every node remembers where it was recorded, and backward stops at the first NaN.

When a backward formula fails or gives NaN, a warning shows the forward line that recorded the node.
"""

from __future__ import annotations

import functools
import traceback
import warnings
from typing import Any

from ..backends.batched.arrays import BatchedArray, innermost
from ..backends.registry import ARRAY_TYPES
from ..tensors.tensor import wrap
from . import cuts
from . import state as _state
from .engine import _pre_hooks, current_task
from .frames import location, place, user_frame
from .node import Edge, Node, SavedOutput
from .state import ANOMALY, state


def is_anomaly_enabled() -> bool:
    return bool(state.mode & ANOMALY)


def is_anomaly_check_nan_enabled() -> bool:
    """Whether anomaly detection raises at the first NaN of a backward pass.

    >>> torch.is_anomaly_check_nan_enabled()
    True
    """
    return state.anomaly_check_nan


def _set(mode: bool, check_nan: bool) -> None:
    _state.anomaly_was_on = _state.anomaly_was_on or mode
    state.mode = state.mode | ANOMALY if mode else state.mode & ~ANOMALY
    state.anomaly_check_nan = check_nan


def set_anomaly_enabled(mode: bool, check_nan: bool = True) -> None:
    """Turns anomaly detection on or off on this thread.

    >>> torch.set_anomaly_enabled(False)
    """
    _set(mode, check_nan)


class detect_anomaly:
    """A `with` block (or decorator) with anomaly detection on. For debugging: it slows everything down.

    >>> x = torch.tensor([0.0], requires_grad=True)
    >>> with torch.autograd.detect_anomaly():
    ...     (torch.sqrt(x) * 0).backward()
    Traceback (most recent call last):
        ...
    RuntimeError: Function 'SqrtBackward0' returned nan values in its 0th output....
    """

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
    """Turns anomaly detection on or off: at once, and back at the end of the block if used with `with`.

    >>> with torch.autograd.set_detect_anomaly(True):
    ...     torch.is_anomaly_enabled()
    True
    """

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
        notes["forward_line"] = location(place(frame))
    running = getattr(state, "running", None)
    if running:
        notes["parent_"] = running[-1] if running[-1].ctx is None else running[-1].ctx


def watch(row: Any, args: tuple[Any, ...], results: tuple[Any, ...], mode: int) -> None:
    """After an operation: notes where a graph is cut, and where NaN appears that was in none of the inputs."""
    tensors = {name: a for name, a in zip(row.args, args) if hasattr(a, "_array")}
    for name, a in zip(row.args, args):
        if a.__class__ in (list, tuple):
            tensors.update({f"{name}[{i}]": t for i, t in enumerate(a) if hasattr(t, "_array")})
    cuts.watch(row.name, row.node is not None, list(tensors.values()), results, mode)
    if state.anomaly_check_nan and any([_has_nan(r) for r in results if r.dtype.is_floating_point or r.dtype.is_complex]):
        edge = results[0]._node
        node = edge.node if edge.__class__ is Edge else edge
        if node is not None and not any([_has_nan(t) for t in tensors.values()]):
            node.metadata["made_nan"] = [f"{row.name} of", *[describe(f"`{name}`", t) for name, t in tensors.items()]]


def evaluate(node: Node, grads: Any) -> Any:
    """Runs a node (with its pre-hooks); a failure or a NaN is reported with the forward line of the node."""
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
                    raise RuntimeError(_nan_text(node, grads, i))
    finally:
        state.running.pop()
    if not current_task().keep_graph:
        node.metadata["freed_line"] = location(place(user_frame()))
    return results


# ------------------------------------------------------------------------------------------------ where NaN comes from
def _nan_text(node: Node, grads: Any, output: int) -> str:
    """Which node gave NaN, what it was given, its line, and the operation of the forward pass that made NaN first."""
    lines = [f"Function '{node.name()}' returned nan values in its {output}th output."]
    for i, g in enumerate(grads if grads.__class__ is list else [grads]):
        if g is not None:
            lines.append(describe("The gradient that came in" + (f" for output {i}" if grads.__class__ is list else ""), g))
    lines += [describe(f"What it saved as `{name}`", t) for name, t in _saved_tensors(node)]
    if "forward_line" in node.metadata:
        lines.append(f"{node.name()} was recorded at {node.metadata['forward_line']}")
    given = [*(grads if grads.__class__ is list else [grads]), *[t for _, t in _saved_tensors(node)]]
    if not any([_has_nan(t) for t in given if t is not None]):
        lines.append("There is no NaN in what it was given: its derivative is not finite there, or infinite times zero.")
    return "\n".join([*lines, *_first_nan()])


def _first_nan() -> list[str]:
    """The operation of the forward pass that first made NaN of inputs without any, if one did."""
    made = [n for n in current_task().reached if n._metadata and "made_nan" in n._metadata]
    if not made:
        return []
    first = min(made, key=lambda n: n.sequence)
    what, *inputs = first.metadata["made_nan"]
    return [f"The first NaN of the forward pass was made by {what}", *inputs, f"at {first.metadata['forward_line']}"]


def _saved_tensors(node: Node) -> list[tuple[str, Any]]:
    row, found = getattr(node, "row", None), []
    for slot, value in zip(row.slots if row is not None else (), node.saved or ()):
        if value.__class__ is SavedOutput:
            value = value.array
        if type(value) in ARRAY_TYPES:
            value = wrap(value)
        if hasattr(value, "_array"):
            found.append((slot, value))
    return found


def describe(what: str, t: Any) -> str:
    """A tensor's shape and range, and how much of it is not finite."""
    text = f"  {what}: shape {list(t.shape)}, {t.dtype}"
    if not t.numel() or t.is_meta or t.is_sparse:
        return text
    mode = state.mode
    state.mode = 1
    try:
        t = _bare_values(t)
        values = t.abs() if t.dtype.is_complex else t.double() if t.dtype.is_floating_point else t
        good = values[values.isfinite()]
        text += f", from {good.min().item():.6g} to {good.max().item():.6g}" if good.numel() else ", nothing finite"
        for word, count in (("nan", int(values.isnan().sum())), ("infinite", int(values.isinf().sum()))):
            text += f", {count} of {t.numel()} {word}" if count else ""
        return text
    finally:
        state.mode = mode


def _has_nan(g: Any) -> bool:
    if g.is_meta:
        return False
    mode = state.mode
    state.mode = 1  # plain no_grad: the check itself is nobody's business
    try:
        g = _bare_values(g)
        return bool((g != g).any())
    finally:
        state.mode = mode


def _bare_values(t: Any) -> Any:
    """A tensor's values without what its class or a call of vmap would add to their use: all examples at once."""
    if t.is_sparse:
        return t
    return wrap(innermost(t._array) if type(t._array) is BatchedArray else t._array)


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
