"""The end of a segment: the program that runs its kernel calls at once, or each by itself where there is none.

A program is right if the inputs that it writes share no memory with its other inputs, beyond what was known when it was made.
That is decided by addresses, each time.
"""

from __future__ import annotations

import ctypes
from typing import Any

import numpy as np

from ...native import pointer
from ..ir.parts import Storage
from ..render.template import Family
from ..run import pages
from ..run.program import Program, array_at, run_kernel
from .matching import native as _native
from .steps import Inputs, Step, operations


class End:
    """What runs the steps of a segment that ends at one of them."""

    def __init__(self, steps: list[Step], kept: tuple[int, ...], exact: bool, family: Family | None = None):
        self.kept = kept
        self.epoch, self.changes = -1, changes_of(steps)
        self.started = False  # the program, in this run
        inputs = Inputs(steps)
        ops = operations(steps, inputs)
        survivors = set(kept)
        storages: dict[int, Storage] = {}
        for op in ops:
            for v in op.writes:
                if v.storage.id in survivors:
                    storages[v.storage.id] = v.storage
        for step in steps:  # one that no operation writes: a kernel that returned memory as it found it
            for m in step.made:
                if m.survives and m.id not in storages:
                    storages[m.id] = Storage(m.id, m.storage.kind, 0, m.nbytes, None)
        count = sum([len(step.counted) for step in steps])
        self.program = program = Program(ops, list(storages.values()), [], count, exact, family)
        fills = [(program.place[over.id], i, offset) for i, (over, offset) in inputs.of.items() if over.id in program.place]
        fills += [(program.place[i], i, 0) for i in storages]
        self.fills = np.array(fills, np.int64).reshape(-1, 3).T.copy()  # places in the program's table, storages, offsets
        self._separate(steps, inputs)

    def _separate(self, steps: list[Step], inputs: Inputs) -> None:
        """What has to be apart: the inputs of each owner that is written, and all others."""
        first_input: dict[int, tuple[int, int]] = {}  # storage of the program -> an input in it, offset
        for i, (over, offset) in inputs.of.items():
            first_input.setdefault(over.id, (i, offset))
        sizes = {over.id: over.nbytes for over, _ in inputs.of.values()}
        written = {inputs.of[i][0].id for i in inputs.written}
        rows = [(n, i, offset, sizes[over], over in written) for n, (over, (i, offset)) in enumerate(first_input.items())]
        self.spans = np.array(rows if written else [], np.int64).reshape(-1, 5).T.copy()
        self.starts = np.zeros(len(self.spans[0]), np.int64)
        self.fine = False  # whether these were found to be apart

    def apart(self, base: int) -> bool:
        """Whether what is written shares no memory with anything else. base: the address of the places of all storages."""
        *_, sizes, written = self.spans
        starts = self.starts
        if not _native().place(pointer(starts), pointer(self.spans), len(starts), base) and self.fine:
            return True
        order = np.argsort(starts, kind="stable")
        first, last, writes = starts[order], (starts + sizes)[order], written[order] != 0
        reach = np.maximum.accumulate(last)[:-1]                               # of all that begin before
        writer = np.maximum.accumulate(np.where(writes, last, 0))[:-1]        # of those that are written
        self.fine = not ((first[1:] < writer) | (writes[1:] & (first[1:] < reach))).any()
        return self.fine

    def run(self, base: int, numbers: list[float]) -> None:
        program = self.program
        with program.lock:
            _native().place(ctypes.addressof(program.table), pointer(self.fills), len(self.fills[0]), base)
            if numbers:
                program.numbers[:len(numbers)] = numbers
            self.started = True  # from here on nothing can come between
            status = program.entry(*program._arguments)
            if status:
                program.failed(status)


_LARGE = 1 << 16  # bytes of a result that are worth a system call once it is dead


def changes_of(steps: list[Step]) -> int:
    return sum([step.changes for step in steps])


def interpreted(steps: list[Step], base: list[int], numbers: list[Any], alive: set[int], progress: list[int]) -> None:
    """Runs the kernels one after the other, on the memory that their results were promised in. Of results that are not alive
    nothing is left. progress: how many have run; after an interrupt it goes on from there."""
    def array(v: Any) -> Any:
        return array_at(base[v.storage.id] + v.offset, v)

    last = {v.storage.id: step for step in steps if step.op is not None for v in (*step.op.reads, *step.op.writes)}
    large = [m for step in steps for m in step.made if m.nbytes >= _LARGE and m.id not in alive]
    dying: dict[Any, list[Any]] = {}
    for made in large:
        dying.setdefault(last.get(made.id), []).append(made)
    for n, step in enumerate(steps[progress[0]:], progress[0] + 1):
        op = step.op
        if op is not None:
            if len(op.writes) > len(op.outs):
                progress[0] = n  # not twice, whatever happens
            run_kernel(op, array, numbers[n - 1])
            progress[0] = n
            for made in dying.get(step, ()):
                pages.give_back(base[made.id], made.nbytes)
