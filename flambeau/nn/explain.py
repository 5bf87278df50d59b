"""Which module of a model an error came from, and what does not fit there: notes on an exception that passes `Module.__call__`.

Everything is read off the stack and the traceback when something has gone wrong; calls that go well know nothing of it. An
exception's own text stays as the operation wrote it (programs match on it); what is found becomes a note, which Python prints
below the text.
"""

from __future__ import annotations

from types import FrameType
from typing import TYPE_CHECKING

from ..autograd.frames import is_ours, location, raised_in
from ..autograd.state import AUTOCAST, state
from ..tensors.tensor import Tensor

if TYPE_CHECKING:
    from .module import Module

_OURS = (RuntimeError, ValueError, TypeError, IndexError, AssertionError, NotImplementedError)  # what operations raise


def explain(error: BaseException) -> None:
    """Adds a note to an error that one of flambeau's operations raised in a module: path, line, and what should change."""
    if error.__class__ not in _OURS or hasattr(error, "_explained"):
        return
    error._explained = True  # outer modules see it pass, too
    try:
        note = _note(error)
    except Exception:  # a model of the user's may do anything when it is looked at; the error itself matters more
        return
    if note:
        error.add_note(note)


def _note(error: BaseException) -> str:
    trace = raised_in(error.__traceback__)
    if not is_ours(trace[-1][0]):  # the user's own code raised it
        return ""
    frames = [*_callers(trace[0][0]), *trace]
    calls = [(at, module) for at, (frame, _) in enumerate(frames) if (module := _forward_of(frame)) is not None]
    if not calls:
        return ""
    at, failed = calls[-1]
    # A layer of flambeau's was called by a line of the user's; a module of the user's failed at one of its own lines.
    users = [(f.f_code, i) for f, i in (frames if not is_ours(frames[at][0]) else frames[:at]) if not is_ours(f)]
    outer, path = path_of(failed, [module for _, module in calls])
    name = path or type(failed).__name__
    note = f"In `{path}` of {type(outer).__name__}: {shown(failed)}" if path else f"In {shown(failed)}"
    if users:
        note += f", called at {location(users[-1])}"
    return "\n".join([note, *_mismatches(failed, frames[at][0], name)])


def _callers(frame: FrameType) -> list[tuple[FrameType, int]]:
    found = []
    while frame.f_back is not None:
        frame = frame.f_back
        found.append((frame, frame.f_lasti))
    return found[::-1]


def _forward_of(frame: FrameType) -> Module | None:
    """The module whose `forward` a frame runs."""
    code = frame.f_code
    if code.co_name != "forward" or not code.co_argcount:
        return None
    from .module import Module
    module = frame.f_locals.get(code.co_varnames[0])
    return module if isinstance(module, Module) else None


def path_of(module: Module, outers: list[Module]) -> tuple[Module, str]:
    """The outermost of some modules that holds a module, and the module's path in it, as in its state_dict's keys."""
    for outer in outers:
        for path, inner in outer.named_modules():
            if inner is module:
                if path.startswith("_orig_mod"):  # compile's own wrapper
                    outer, path = outer._orig_mod, path.removeprefix("_orig_mod").removeprefix(".")
                return outer, path
    return module, ""


def shown(module: Module) -> str:
    """A module in one line."""
    return f"{type(module).__name__}({'...' if module._modules else module.extra_repr()})"


# ------------------------------------------------------------------------------------------------- what does not fit
def _mismatches(module: Module, frame: FrameType, name: str) -> list[str]:
    """What the input of one of flambeau's layers and its parameters disagree about: the device, what the layer's class says in
    `_mismatch`, or the dtype. Of a module of the user's nobody knows what fits."""
    code = frame.f_code
    inputs = [x for n in code.co_varnames[1:code.co_argcount] if isinstance(x := frame.f_locals.get(n), Tensor)]
    if not inputs or not is_ours(frame):
        return []
    x, parameters = inputs[0], [p for p in module._parameters.values() if p is not None]
    if parameters and x.device != parameters[0].device:
        place = parameters[0].device
        return [f"Its input is on {x.device} and its parameters are on {place}: move one of them, with x.to('{place}') or "
                f"model.to('{x.device}')."]
    mismatch = getattr(module, "_mismatch", None)
    text = mismatch(x, name) if mismatch is not None else ""
    if not text and parameters and not state.mode & AUTOCAST:
        text = _other_dtype(module, x, parameters[0])
    return [text] if text else []


def _other_dtype(module: Module, x: Tensor, p: Tensor) -> str:
    if x.dtype is p.dtype or getattr(module, "_takes_numbers_of_rows", False):
        return ""
    return (f"Its input is {x.dtype} and its parameters are {p.dtype}: convert the input with x.to({p.dtype})"
            + (f", or the model with model.to({x.dtype})." if x.dtype.is_floating_point else "."))


def wrong_size(x: Tensor, dim: int, wanted: int, argument: str, name: str, advice: str = "",
               weight: Tensor | None = None) -> str:
    """The text of a layer whose input has another size than it was made for; empty if it has that size."""
    got = x.shape[dim] if -x.ndim <= dim < x.ndim else None
    if got == wanted:
        return ""
    shapes = f"Its input has shape {list(x.shape)}" + ("" if weight is None else f" and its weight {list(weight.shape)}")
    if got is None:
        return f"{shapes}; the input has no dimension {dim}, which should be {wanted} ({argument}). {advice}".strip()
    return (f"{shapes}: dimension {dim} of the input is {got} and should be {wanted} ({argument}). "
            + (advice or f"Write {argument}={got} where `{name}` is made, or give it an input with {wanted} there."))
