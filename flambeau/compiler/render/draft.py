"""A list of operations, planned, laid out in memory and written as text: all of a program but the building and running.

A general draft has the same form for all sizes (but for some special ones: none, one): decisions that depend on them are taken
when the program runs, or as they suit large ones. See template.py for what that is good for.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

from ..ir.parts import CONSTANT, INPUT, TEMPORARY, Op, Storage, new_numbers
from ..passes.arena import arena, lifetimes
from ..passes.cleanup import reads_of, simplified
from ..passes.control import inside
from ..passes.epilogues import Product, with_epilogues
from ..passes.expand import expanded
from ..passes.fusion import Control, Single, grouped
from ..passes.recompute import recomputed
from .dialects.c_program import Renderer
from .lower import lowered

listeners: list[Callable[[str, list[Any]], None]] = []  # are told a pass's name and what it made (docs/compiler.md shows it)


def _after(name: str, made: list[Any]) -> list[Any]:
    for listener in listeners:
        listener(name, made)
    return made


def prepared(ops: list[Op], kept: set[int], exact: bool) -> list[Op]:
    """What all drafts of a program begin with."""
    new_numbers.restart(False)
    _after("capture", ops)
    made = _after("cleanup", simplified(ops if exact else _after("expand", expanded(ops)), kept))
    for op in made:
        if op.inner is not None:
            inside(op, lambda body, seen: simplified(body if exact else expanded(body), seen))
    return made


class Draft:
    """ops: `prepared`; given, kept: see `Program`; timed: the program is to take the times of its groups."""

    def __init__(self, ops: list[Op], kept: list[Storage], given: list[Storage], exact: bool, timed: bool, general: bool):
        kept_ids = {s.id for s in (*kept, *given)}
        self.exact, self.general, self.images = exact, general, []
        self.ops = self._recomputed(ops, kept_ids, exact, general)
        self.groups = _after("fusion", grouped(self.ops, _never if exact else lowered, exact))
        if not exact:
            self.groups = _after("epilogues", with_epilogues(self.groups, kept_ids))
        self.lives = lifetimes(self.groups)
        self._slots(kept, given)
        slots = {i: (n, 0) for i, n in self.place.items()}
        stored = self._placed(kept_ids, kept_ids, slots, 0, 0)
        self.renderer = Renderer(self.groups, slots, stored, self._inits(kept, given, slots), timed, general)
        self._bodies(slots, 0)
        self.template = self.renderer.template()

    def _placed(self, kept: set[int], elsewhere: set[int], slots: dict[int, tuple[int, int]], number: int,
                start: int) -> set[int]:
        """Enters the places of temporaries, behind an address of the table; returns which storages reach memory at all.

        kept: those that are looked at afterwards; elsewhere: those that have a place already.
        """
        registers = self._registers(kept)
        shared = {g.op.outs[0].storage.id: g.inside.id for g in self.groups if g.__class__ is Product}
        self.arena_offsets, self.arena_bytes, self.unshared_bytes = arena(self.groups, elsewhere, registers | shared.keys())
        slots |= {i: (number, start + at) for i, at in self.arena_offsets.items()}
        slots |= {i: slots[inside] for i, inside in shared.items()}
        return set(self.lives) - registers

    def _bodies(self, slots: dict[int, tuple[int, int]], start: int) -> None:
        """Plans what is inside of branches and loops; start: of the scratch memory that is free for it."""
        for group in self.groups:
            if group.__class__ is Control:
                inner = group.op.inner
                parts = [[body] for body in inner.bodies] if inner.test is None else [inner.bodies]  # of a loop: one turn
                group.bodies = [Body(self, group.op, part, slots, start) for part in parts]

    def text(self, lifted: frozenset[int], numbers: int) -> tuple[tuple[str, list[str]], list[tuple[str, str]]]:
        """The whole C file and the native functions that it calls, and the numbers that it reads behind those of a call."""
        text, own = self.template.source(lifted, numbers)
        return self.renderer.complete(text), own

    def _recomputed(self, ops: list[Op], kept: set[int], exact: bool, general: bool) -> list[Op]:
        new_numbers.restart(True)
        ops = [op.copy() for op in ops]  # there may be another draft of them
        for op in ops:
            op.general = general
        return ops if exact else _after("recompute", recomputed(ops, kept))

    # ------------------------------------------------------------------------------------------------- layout
    def _slots(self, kept: list[Storage], given: list[Storage]) -> None:
        """Numbers in the table of addresses: 0 the arena, 1 scratch memory, 2 the way back into Python, then all that lives
        elsewhere."""
        self.place: dict[int, int] = {}
        self.inputs: list[Storage] = []
        self.constants: list[Storage] = []
        for op in self.ops:
            for v in (*reads_of(op), *op.writes):
                s = v.storage
                if s.id not in self.place and s.kind in (INPUT, CONSTANT):
                    self.place[s.id] = 3 + len(self.place)
                    (self.inputs if s.kind is INPUT else self.constants).append(s)
        for s in (*kept, *given):
            if s.id not in self.place and s.kind is TEMPORARY:
                self.place[s.id] = 3 + len(self.place)
        self.written = {w.storage.id for op in self.ops for w in op.writes if w.storage.kind is INPUT}

    def _registers(self, kept: set[int]) -> set[int]:
        """Temporaries that live and die inside one loop: they never reach memory."""
        products = {g.op.outs[0].storage.id for g in self.groups if g.__class__ is Product}
        where: dict[int, set[int]] = {}
        for at, group in enumerate(self.groups):
            for i in group.touched:
                where.setdefault(i, set()).add(at)
        return {i for i, (s, _, _) in self.lives.items() if i not in kept and s.init is None and len(where[i]) == 1
                and i not in products and self.groups[next(iter(where[i]))].__class__ not in (Single, Control)}

    def _inits(self, kept: list[Storage], given: list[Storage], slots: dict[int, Any]) -> dict[int, list[Any]]:
        """Temporaries that are to be filled with what they held before their first write, where that is not overwritten; and
        the place of an image of it in the table, None for zeros.

        By the group before which that happens; -1: what no operation touches, but the caller looks at. What the caller brings
        has been filled already: another program wrote it.
        """
        made: dict[int, list[tuple[Storage, int | None]]] = {}
        brought = {s.id for s in given}
        untouched = [(s, -1, -1) for s in {s.id: s for s in kept}.values() if s.id not in self.lives]
        for storage, first, _ in (*self.lives.values(), *untouched):
            if storage.init is None or storage.id in brought or storage.id not in slots or (
                    first >= 0 and _overwritten(storage, self.groups[first])):
                continue
            number = None
            if any(storage.init):
                self.images.append(ctypes.create_string_buffer(storage.init, storage.nbytes))
                number = self.place["image", len(self.images) - 1] = 3 + len(self.place)
            made.setdefault(first, []).append((storage, number))
        return made


class Body(Draft):
    """The inside of a branch or a loop. What is its own lives in scratch memory of the operation around it."""

    def __init__(self, around: Draft, op: Op, parts: list[list[Op]], slots: dict[int, tuple[int, int]], start: int):
        inner, self.start = op.inner, start
        self.exact, self.general, self.images, self.place = around.exact, around.general, around.images, around.place
        self.slots = {s.id: slots[v.storage.id] for s, v in (*zip(inner.params, op.args), *zip(inner.results, op.writes))
                      if v.size}
        for part in inner.slices:
            self.slots[part.storage.id] = self.place.setdefault(("slice", part.storage.id), 3 + len(self.place)), 0
        outside = [*inner.params, *inner.results, *[part.storage for part in inner.slices]]
        known = {s.id for s in outside} | ({inner.test.storage.id} if inner.test is not None else set())
        parts = [self._grouped([o.copy() for o in ops], known) for ops in parts]  # each by itself: a loop may end in between
        self.groups, self.turn = [g for part in parts for g in part], len(parts[0])
        self.ops = [o for g in self.groups for o in g.ops]
        self.lives = lifetimes(self.groups)
        self.stored = self._placed(known, {s.id for s in outside}, self.slots, 1, start)
        self.inits = self._inits([], outside, self.slots)
        self.free = start + self.arena_bytes
        self._bodies(self.slots, self.free)

    def _grouped(self, ops: list[Op], kept: set[int]) -> list[Any]:
        for op in ops:
            op.general = self.general
        groups = grouped(ops, _never if self.exact else lowered, self.exact)
        return groups if self.exact else with_epilogues(groups, kept)


def _overwritten(storage: Storage, group: Any) -> bool:
    """Whether the first operation that touches a storage writes all of it without reading it."""
    for op in group.ops:
        if any(v.storage is storage for v in reads_of(op) if not any(v is w for w in op.writes)):
            return False
        for w in op.writes:
            if w.storage is storage:
                return w.covers_storage and (op.kernel == "copy_into" or w in op.outs)
    return False


def _never(op: Op) -> None:
    return None
