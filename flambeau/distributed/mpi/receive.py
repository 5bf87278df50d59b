"""Receiving a message: from whom, and whether it was the one that was expected."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ...tensors.tensor import Tensor
from ..work import Work
from .requests import Pending

if TYPE_CHECKING:
    from .engine import MpiEngine

__all__ = ["Receive"]


class Receive(Work):
    """A message to come, from one rank of the group or from any (source None)."""

    def __init__(self, engine: MpiEngine, tensor: Tensor, source: int | None, tag: int):
        MPI = engine.MPI
        self._engine, self._tensor = engine, tensor
        self._from = MPI.ANY_SOURCE if source is None else source
        self._tag = engine._tag(tag, tensor)
        buffer, back = engine._received(tensor)
        self._status = MPI.Status()
        request = engine.communicator.Irecv(engine._raw(buffer), self._from, self._tag)
        whom = "any rank" if source is None else f"rank {engine.group.ranks[source]}"
        super().__init__(engine.group, f"recv from {whom}", Pending([request], (buffer, tensor), self._status), back, [tensor])

    def _finish(self) -> None:
        got = self._status.Get_count(self._engine.MPI.BYTE)
        wanted = self._tensor.numel() * self._tensor.element_size()
        if got != wanted:
            self._after = None
            raise self._group.wrong("recv", f"rank {self._source_rank()} sent {got // self._tensor.element_size()} elements, "
                                            f"expected {self._tensor.numel()} of shape {tuple(self._tensor.shape)}")
        super()._finish()

    def _source_rank(self) -> int:
        """The rank that the message came from, in the world."""
        return self._group.ranks[self._status.Get_source()]

    def source_rank(self) -> int:
        self.wait()
        return self._source_rank()

    def look(self) -> None:
        """Has the sender sent another dtype? That message has another tag, and waits in vain."""
        from .engine import _DTYPE_CODES, _TAG_STEP
        status, own = self._engine.MPI.Status(), self._tag // _TAG_STEP
        for dtype, code in _DTYPE_CODES.items():
            tag = own * _TAG_STEP + code
            if tag != self._tag and self._engine.communicator.Iprobe(self._from, tag, status):
                raise self._group.wrong("recv", f"rank {self._group.ranks[status.Get_source()]} sent a tensor of {dtype}, "
                                                f"expected {self._tensor.dtype}")
