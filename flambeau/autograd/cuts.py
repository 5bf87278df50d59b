"""Why a tensor has no history: where a graph was cut.

Two sources, both of them off the path of a program that goes well. Under anomaly detection every operation whose result is not
recorded although an input was notes why and where (`watch`), and what is computed from such a result inherits the note.
Otherwise the user's source is read (sources.py): from the line that called backward back through the assignments, comparing
with the variables as they are now.
"""

from __future__ import annotations

from types import FrameType
from typing import Any

from .frames import location, place, user_frame
from .state import ANOMALY, INFERENCE, NO_GRAD, state

CUT, DATA = 0, 1  # a graph ended here; or plain data came in, which never had one

_ADVICE = {
    "detach": "Use the tensor itself where a gradient is wanted; detach() is for values that are only looked at.",
    "data": "Use the tensor itself: .data is its values without the graph.",
    "no_grad": "Compute the loss outside of the block: torch.no_grad() is for evaluation.",
    "integer": "Integers have no derivative: keep floating-point numbers on the way to the loss.",
    "numpy": "NumPy keeps no graph: compute with torch functions.",
    "new": "A tensor made of numbers has no history: use the tensors that they came from (torch.stack for a list).",
    "number": "A Python number has no history: use the tensor without .item().",
    "function": "That operation has no derivative: use one that has.",
    "frozen": "Set requires_grad_(True) on the parameters that are to be trained.",
    "leaf": "Set requires_grad=True on the tensors that gradients are wanted for."}


def advice(kind: str) -> str:
    return _ADVICE[kind]


def explain(out: Any, frame: FrameType | None) -> list[str]:
    """Lines that say where the graph of a tensor without history was cut."""
    lines = []
    if state.mode & (NO_GRAD | INFERENCE):
        lines.append("Gradients are switched off at this point (torch.no_grad() or inference_mode()).")
    cut = out._cut
    if cut is not None and cut[0] == CUT:
        return [*lines, f"The graph was cut by {cut[2]} at {location(cut[3])}", _ADVICE[cut[1]]]
    from .sources import find
    found = find(frame) if frame is not None and not lines else []
    if not found and cut is not None:
        found = [f"All that it was computed from goes back to {cut[2]} at {location(cut[3])}", _ADVICE[cut[1]]]
    if not found and not lines:
        found = ["No tensor that it was computed from requires grad, or the graph was cut on the way: by detach(), .data, "
                 ".item(), NumPy, torch.no_grad() or a cast to integers."]
    if not state.mode & ANOMALY:
        from .errors import IN_ENVIRONMENT, SWITCH
        found.append(f"Hint: with {SWITCH} during the forward pass this message names the operation and line that cut the "
                     f"graph ({IN_ENVIRONMENT}).")
    return [*lines, *found]


# -------------------------------------------------------------------------------------------- under anomaly detection
def note(made: Any, kind: str, what: str, rank: int = CUT) -> Any:
    """Marks a tensor as cut off here, on the user's line."""
    made._cut = rank, kind, what, place(user_frame())
    return made


def inherit(made: Any, source: Any) -> None:
    if source._cut is not None:
        made._cut = source._cut


def watch(name: str, differentiable: bool, inputs: list[Any], results: tuple[Any, ...], mode: int) -> None:
    """After an operation: whether its results should have had a history. inputs: those of its arguments that are tensors."""
    inherited = min([t._cut for t in inputs if t._cut is not None], key=lambda cut: cut[0], default=None)
    tracked = any([t.requires_grad for t in inputs])
    for made in results:
        if made._node is not None:
            continue
        if not tracked:
            if inherited is not None:
                made._cut = inherited
        elif mode & (NO_GRAD | INFERENCE):
            note(made, "no_grad", f"`{name}` under torch.no_grad()" if mode & NO_GRAD else f"`{name}` under inference_mode()")
        elif not (made.dtype.is_floating_point or made.dtype.is_complex):
            note(made, "integer", f"`{name}`, whose result is {made.dtype},")
        elif not differentiable:
            note(made, "function", f"`{name}`, which has no derivative,")
