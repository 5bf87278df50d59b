"""What a forward pass says about itself while it is recorded: the user's line of every node, and the module that made it.

Lines are kept by anomaly detection, which is on inside the block without its search for NaN. Nodes are numbered in the order in
which they are recorded, so a module's call is a stretch of numbers, from one taken when it starts to one taken when it ends.
"""

from __future__ import annotations

import threading
import weakref
from typing import Any, NamedTuple

from ..autograd.anomaly import is_anomaly_check_nan_enabled, is_anomaly_enabled, set_detect_anomaly
from ..autograd.node import next_sequence
from ..nn.module import Module


class Call(NamedTuple):
    """One call of a module: its name in the model, its class, and the stretch of nodes that it recorded."""

    path: str
    kind: str
    start: int
    end: int


_calls: weakref.WeakKeyDictionary[Module, list[Call]] = weakref.WeakKeyDictionary()  # of the last recording of a model


class recording:
    """A `with` block in which a forward pass notes lines and modules for `explore`.

        with viz.recording(model):
            loss = loss_fn(model(x), y)
        viz.explore(loss, model)

    Operations take longer inside. What the block computes is what it would compute without.

    >>> net = nn.Linear(2, 1)
    >>> with torch.viz.recording(net):
    ...     loss = net(torch.ones(4, 2)).mean()
    >>> explored = torch.viz.explore(loss, net, path="step.html")
    """

    def __init__(self, model: Module | None = None):
        if model is not None and not isinstance(model, Module):
            raise TypeError(f"recording: expected a module or None, got {type(model).__name__}")
        self.model = model

    def __enter__(self) -> recording:
        self.handles: list[Any] = []
        if self.model is not None:
            calls = _calls[self.model] = []
            running = threading.local()
            for path, module in self.model.named_modules():
                self.handles += _watch(module, path, calls, running)
        check_nan = is_anomaly_enabled() and is_anomaly_check_nan_enabled()  # as before the block
        self.lines = set_detect_anomaly(True, check_nan)
        return self

    def __exit__(self, *exc: Any) -> None:
        self.lines.__exit__()
        for handle in self.handles:
            handle.remove()


def _watch(module: Module, path: str, calls: list[Call], running: Any) -> list[Any]:
    def starts(module: Module, args: Any) -> None:
        running.__dict__.setdefault("stack", []).append(next_sequence())

    def ends(module: Module, args: Any, output: Any) -> None:
        if running.__dict__.get("stack"):
            calls.append(Call(path, type(module).__name__, running.stack.pop(), next_sequence()))

    return [module.register_forward_pre_hook(starts, prepend=True), module.register_forward_hook(ends, always_call=True)]


def calls_of(model: Module | None) -> list[Call]:
    """The calls of the model's modules in its last recording, outer ones first."""
    return sorted(_calls.get(model, ()), key=lambda call: call.start) if model is not None else []
