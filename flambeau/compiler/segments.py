"""The end of a segment: the program that runs its kernel calls at once, or each by itself where there is none.

A program is right if the inputs that it writes share no memory with its other inputs beyond what was known when it was made.
That is decided by addresses, each time.
"""

from __future__ import annotations

from typing import Any

from .ir import Storage
from .program import Program, array_at, run_kernel
from .steps import Inputs, Step, operations


class End:
    """What runs the steps of a segment that ends at one of them."""

    def __init__(self, steps: list[Step], kept: tuple[int, ...], exact: bool, timed: bool):
        self.kept = kept
        self.epoch = self.generation = -1
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
        self.count = steps[-1].numbers
        self.program = program = Program(ops, list(storages.values()), [], self.count, exact, timed)
        self.fills = [(program.place[over.id], i, offset) for i, (over, offset) in inputs.of.items() if over.id in program.place]
        self.fills += [(program.place[i], i, 0) for i in storages]
        spans = {s.id: (s.start, s.nbytes) for step in steps for s in step.inputs}
        self.spans = [(i, nbytes, i in inputs.written) for i, (_, nbytes) in spans.items()] if inputs.written else []
        self.owner = {s.id: some[0].id for some in inputs.tied for s in some}
        self.checked: list[int] | None = None   # addresses of the inputs that were found to be apart

    def apart(self, base: list[int]) -> bool:
        """Whether what is written shares no memory with anything else."""
        if not self.spans:
            return True
        places = [base[i] for i, _, _ in self.spans]
        if places == self.checked:
            return True
        owner = self.owner
        windows = sorted([(at, at + nbytes, owner.get(i, i), written) for at, (i, nbytes, written) in zip(places, self.spans)])
        ends: dict[int, int] = {}     # of owners: how far they reach, of those that may still reach further
        writers: set[int] = set()
        for start, end, group, written in windows:
            for other, reach in list(ends.items()):
                if reach <= start:
                    del ends[other]
                elif other != group and (written or other in writers):
                    return False
            ends[group] = max(ends.get(group, 0), end)
            if written:
                writers.add(group)
        self.checked = places
        return True

    def run(self, base: list[int], numbers: list[float]) -> None:
        program = self.program
        with program.lock:
            table = program.table
            for place, i, offset in self.fills:
                table[place] = base[i] - offset
            if numbers:
                program.numbers[:len(numbers)] = numbers
            program.run()


def interpreted(steps: list[Step], base: list[int], numbers: list[float]) -> None:
    """Runs the kernels one after the other, on the memory that their results were promised in."""
    def array(v: Any) -> Any:
        return array_at(base[v.storage.id] + v.offset, v)

    for step in steps:
        if step.op is not None:
            run_kernel(step.op, array, numbers)
