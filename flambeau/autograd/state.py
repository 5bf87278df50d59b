"""The thread's mode, read once by every operation.

`state.mode` is 0 in the default mode and 1 under `no_grad`: both are the fast path. Every other way of running an
operation (inference mode, saved-tensor hooks, forward-mode duals, anomaly detection, capture, following, function overrides,
profiling, dispatch modes) sets a further bit, so that one comparison, `mode < 2`, tells the fast path that nothing special is
going on.
"""

from __future__ import annotations

import os
import threading
from typing import Any

from ..backends.cpu import errors, memory

NO_GRAD = 1
INFERENCE = 2
SAVED_HOOKS = 4
FORWARD_AD = 8
ANOMALY = 16
OVERRIDE = 32
CAPTURE = 64
AUTOCAST = 128
FOLLOW = 256
BATCHED = 512  # inside vmap, or in a backward pass that may meet its arrays
PROFILE = 1024
DISPATCH = 2048  # a TorchDispatchMode is entered
FOLLOWED = frozenset((FOLLOW, FOLLOW | NO_GRAD))  # following, and nothing else special
CASTING = frozenset((AUTOCAST, AUTOCAST | NO_GRAD))  # inside autocast, and nothing else special
CASTS: set[str] = set()  # names of functions whose arguments autocast casts, on any device


_FIRST = ANOMALY if os.environ.get("FLAMBEAU_DETECT_ANOMALY", "0") not in ("", "0") else 0
anomaly_was_on = bool(_FIRST)  # on any thread, ever: what is quicker to ask than a thread's mode


class _State(threading.local):
    def __init__(self):
        self.mode = _FIRST
        self.saved_hooks = []        # stack of (pack, unpack)
        self.saved_hooks_off = None  # message of disable_saved_tensors_hooks
        self.forward_level = 0
        self.anomaly_check_nan = True
        self.function_modes = []     # stack of TorchFunctionMode
        self.probing = False         # a tangent is being computed from formulas of gradients (forward_mode.py)
        self.dispatch_modes = []     # stack of TorchDispatchMode (ops/dispatch/calls.py)
        self.dispatch_off = 0        # blocks in which nobody is asked about operations below autograd
        self.below = 0               # handlers of __torch_dispatch__ that are running
        self.running = []            # nodes whose backward is being evaluated (innermost last)
        self.transforms = []         # calls of func.grad and its kin that are under way, innermost last (func/derivatives.py)
        self.levels = []             # calls of vmap that are under way (backends/batched/arrays.py), innermost last
        self.recorder = None         # notes the kernel calls while a call is captured (compiler/capture/tracing.py)
        self.witness = None          # hears of all that the Python of a captured call reads (compiler/capture/witness.py)
        self.follower = None         # takes the kernel calls while a compiled call is followed (compiler/follow/follower.py)
        self.profiler = None         # notes operations while a profiler runs (autograd/profiler/recorder.py)
        errors.silence()             # NumPy's floating-point warnings are per thread


state = _State()


def grad_enabled() -> bool:
    return not state.mode & NO_GRAD


def looked_at(array: Any, what: str, writing: bool = False, refused: bool = False) -> None:
    """Somebody is about to read an array's elements outside of a kernel, perhaps to write to them: what is pending runs first.

    writing: others may be changed or shown along with them. refused: a function that is to be one program (fullgraph=True) may
    not do it. An array may be what a followed call of another thread promised.
    """
    array = getattr(array, "window", array)  # of one with a conjugate or negative bit (backends/pending.py)
    if state.recorder is not None:
        state.recorder.look(array, what, writing, refused)
    if state.mode & FOLLOW:
        state.follower.look(None if writing else array, what, refused)
    if memory.settle is not None and type(array) is memory.promised:
        memory.settle(array, what)


def not_repeatable(reason: str, refused: bool = False) -> None:
    """Ends a capture: the function does something that cannot be repeated. It goes on, without being noted; or raises, if it is
    `refused` to a function that is to be one program (fullgraph=True)."""
    if state.recorder is not None:
        state.recorder.fail(reason, refused)
    if refused and state.mode & FOLLOW:
        state.follower.refuse(reason)


class mode_bits:
    """Sets and clears bits of the mode for a `with` block."""

    __slots__ = ("before", "clear", "set")

    def __init__(self, set: int = 0, clear: int = 0):
        self.set, self.clear = set, clear

    def __enter__(self):
        self.before = state.mode
        state.mode = (self.before | self.set) & ~self.clear
        return self

    def __exit__(self, *exc):
        # Only our own bits go back: a bit that was changed inside for good (say by set_grad_enabled) is not ours.
        changed = self.set | self.clear
        state.mode = (state.mode & ~changed) | (self.before & changed)
