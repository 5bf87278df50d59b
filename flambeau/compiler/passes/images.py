"""Images of a program on a CUDA device lie channels last where convolutions gain by it.

The matrix units read channels; cuDNN turns images that lie otherwise around, at every convolution, and turns its results back.
So temporaries that hold images are laid channels last, all of those together that meet in one operation: a pointwise kernel
over two orders would have to jump in one of them. What the caller sees stays as it is, and so does an image that some operation
might read in the order of its memory (a draw, a window of another shape). Kernels take arrays in any order.
"""

from __future__ import annotations

from collections.abc import Iterable

from ...backends.facts import COPIES, FOLDS, IMAGES, POINTWISE
from ...backends.flags import cudnn
from ...backends.strides import CHANNEL_ORDER, ordered_strides
from ..ir.parts import TEMPORARY, Op, Value

_LAST = CHANNEL_ORDER["channels_last"]


def channels_last(ops: list[Op], brought: set[int]) -> None:
    """Lays images of the operations anew. brought: storages that the caller sees."""
    likes = [op for op in ops if IMAGES.get(op.kernel) == "likes" and any(map(_on_matrix_units, op.writes))]
    if not likes:
        return
    stay, met = set(brought), _Sets()
    for op in ops:
        values = [v for v in (*op.reads, *op.writes) if v.storage.device]
        stay |= {v.storage.id for v in values if not _is_image(v) or not _takes(op)}
        if IMAGES.get(op.kernel) != "likes" and not _copies(op):  # these may have images in two orders
            for shape in {v.shape for v in values if _is_image(v)}:
                met.join([v.storage.id for v in values if v.shape == shape and v.covers_storage])
    stuck = {met.of(i) for i in stay}
    wanted = {met.of(v.storage.id) for op in likes for v in (*op.reads, *op.writes) if _is_image(v)} - stuck
    copies = [{met.of(v.storage.id) for v in (*op.reads, *op.writes) if _is_image(v)} for op in ops if _copies(op)]
    while more := [ends for ends in copies if ends & wanted and ends - wanted - stuck]:
        wanted.update(*more)
        wanted -= stuck
    for op in ops:
        if any([_is_image(v) and met.of(v.storage.id) in wanted for v in (*op.reads, *op.writes)]):
            op.rewire(lambda v: _turned(v) if _is_image(v) and met.of(v.storage.id) in wanted else v)


def _turned(v: Value) -> Value:
    return Value(v.storage, v.offset, v.shape, tuple(ordered_strides(v.shape, _LAST)), v.dtype)


def _is_image(v: Value) -> bool:
    """Whether a window is a whole temporary that could lie otherwise."""
    s = v.storage
    return (s.kind is TEMPORARY and s.device and s.init is None and len(v.shape) == 4 and v.shape[1] > 1
            and v.shape[2] * v.shape[3] > 1 and not v.offset and v.contiguous and v.covers_storage)


def _takes(op: Op) -> bool:
    """Whether an operation means the same whichever way its arrays lie."""
    return op.inner is None and (_copies(op) or any([op.kernel in column for column in (IMAGES, POINTWISE, FOLDS)]))


def _copies(op: Op) -> bool:
    return op.kernel in ("cast", "copy_into") or op.kernel in COPIES


def _on_matrix_units(v: Value) -> bool:
    return v.dtype.itemsize == 2 or (v.dtype.char == "f" and cudnn.allow_tf32)


class _Sets:
    """Storages, by their numbers, that go together."""

    def __init__(self) -> None:
        self._next: dict[int, int] = {}

    def of(self, i: int) -> int:
        while i in self._next:
            i = self._next[i]
        return i

    def join(self, some: Iterable[int]) -> None:
        ends = {self.of(i) for i in some}
        first = min(ends, default=0)
        self._next.update(dict.fromkeys(ends - {first}, first))
