"""Small conversions on a CUDA device that are done together: weights in half precision before the first product that needs one,
gradients in single precision before the optimizer does. By itself each of them would take as long as its launch.
"""

from __future__ import annotations

from collections.abc import Callable

from ...backends.cuda.pointwise import COMPUTED
from ..ir.parts import INPUT, Op, Value
from .narrow import CASTS, Uses, is_fresh

_SMALL = 1 << 18  # elements up to which one is small


def gathered(ops: list[Op], brought: set[int], single: Callable[[Op], bool]) -> list[Op]:
    """The operations with groups of conversions. single: whether an operation has to stay as it is."""
    small = {id(op) for op in ops if _is_small(op) and not single(op)}
    left: list[Op] = []
    waiting: list[Op] = []
    for op in _parameters_first(ops, small):
        touched, written = {v.storage.id for v in (*op.reads, *op.writes)}, {w.storage.id for w in op.writes}
        if any([w.outs[0].storage.id in touched or w.args[0].storage.id in written for w in waiting]):
            left += _together(waiting)
            waiting = []
        if id(op) in small:
            waiting.append(op)
        else:
            left.append(op)
    return [*left, *_together(waiting)]


def _is_small(op: Op) -> bool:
    if op.kernel not in CASTS or len(op.writes) != 1 or len(op.outs) != 1 or op.args[0].__class__ is not Value:
        return False
    source, out = op.args[0], op.outs[0]
    return (COMPUTED.get(source.dtype) == COMPUTED.get(out.dtype) == "f32" and source.dtype != out.dtype
            and source.storage.device and out.storage.device and 0 < out.size <= _SMALL and source.size == out.size
            and source.contiguous and out.contiguous)


def _parameters_first(ops: list[Op], small: set[int]) -> list[Op]:
    """The same with conversions of what was there before the program, and has not changed, where the first of them is."""
    uses = Uses(ops)
    early = [op for op in ops if id(op) in small and op.args[0].storage.kind is INPUT and is_fresh(op.outs[0].storage) and (
        uses[op.outs[0].storage.id][0] is op) and not any([
            uses.place[id(o)] < uses.place[id(op)] for o in uses.writers(op.args[0].storage)])]
    moved = {id(op) for op in early}
    first = uses.place[id(early[0])] if early else 0
    return [*ops[:first], *early, *[op for op in ops[first:] if id(op) not in moved]]


def _together(casts: list[Op]) -> list[Op]:
    kinds: dict[tuple[str, str], list[Op]] = {}
    for op in casts:
        kinds.setdefault((op.args[0].dtype.char, op.outs[0].dtype.char), []).append(op)
    return [made for some in kinds.values() for made in (some if len(some) == 1 else [
        Op("casts", [[op.args[0] for op in some]], [op.outs[0] for op in some], [], some[0].where)])]
