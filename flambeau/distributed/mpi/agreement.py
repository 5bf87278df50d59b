"""Do all ranks of a group do the same? With each collective, on a communicator of their own, they compare one number.

The comparison travels beside the data and costs a few microseconds. It tells of calls that differ in kind, order, dtype or
number of elements, which MPI would answer with wrong values or never.
With TORCH_DISTRIBUTED_DEBUG=DETAIL it is waited for before any data are sent, and includes shapes.
"""

from __future__ import annotations

import time
import zlib
from array import array
from typing import Any

from .requests import Pending
from .start import module

__all__ = ["Agreement", "Check"]
_PATIENCE = 3.0  # seconds that a rank which found a difference waits for the others to say what they did
_sums: dict[tuple[Any, ...], int] = {}


class Agreement:
    """The comparisons of a group."""

    def __init__(self, group: Any, communicator: Any):
        self.group, self.communicator, self.count = group, communicator, 0
        self.facts: tuple[Any, ...] = ()
        self.MPI = module()
        self.most = self.MPI.MAX

    def start(self, *facts: Any) -> Check:
        self.count += 1
        self.facts = facts
        number = _sums.get(facts)
        if number is None:
            if len(_sums) > 10_000:  # sizes that never come again
                _sums.clear()
            number = _sums[facts] = zlib.crc32(repr(facts).encode())
        return Check(self, facts, number + (self.count << 32))


    @property
    def last(self) -> str:
        """The operation that was started last."""
        return _text(self.facts, self.count)


def _text(facts: tuple[Any, ...], count: int) -> str:
    name, *rest = facts
    return f"{name}({', '.join(map(str, rest))}), operation {count} of the group"


class Check:
    """One comparison under way."""

    __slots__ = ("agreement", "facts", "found", "number", "request", "sent")

    def __init__(self, agreement: Agreement, facts: tuple[Any, ...], number: int):
        self.agreement, self.facts, self.number = agreement, facts, number
        self.sent, self.found = array("q", (number, -number)), array("q", (0, 0))
        self.request = agreement.communicator.Iallreduce(self.sent, self.found, agreement.most)
        if agreement.group.careful:
            self._before_data()

    def _before_data(self) -> None:
        pending = Pending([self.request], self)
        start, limit = time.monotonic(), self.agreement.group.timeout.total_seconds()
        while not pending.wait(0.2):
            self.agreement.group.look(None)
            if time.monotonic() - start > limit:
                raise self.agreement.group.timed_out(self, limit)
        self.compare()

    def finished(self) -> bool:
        return self.request == self.agreement.MPI.REQUEST_NULL

    def settle(self) -> None:
        """The data were refused: perhaps because the ranks did different things."""
        try:
            if self.finished() or Pending([self.request], self).wait(_PATIENCE):
                self.compare()
        except self.agreement.MPI.Exception:
            pass

    def compare(self) -> None:
        """Raises where the ranks did different things; the comparison must be finished."""
        if self.found[0] != self.number or self.found[1] != -self.number:
            raise self._difference()

    def describe(self) -> str:
        return _text(self.facts, self.number >> 32)

    def _difference(self) -> Exception:
        """Says by rank what each did. Each rank that gets here writes it into the store; some may not."""
        group = self.agreement.group
        said = group.tell(f"differ/{self.found[0]}", self.describe(), _PATIENCE)
        return group.wrong(self.facts[0], "ranks do different things:\n" + "\n".join(
            f"  rank {rank}: {text}" for rank, text in said.items()))
