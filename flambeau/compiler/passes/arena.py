"""Where temporaries live: one arena, in which memory is used again once nobody reads it any more."""

from __future__ import annotations

from typing import Any

from ..ir.parts import TEMPORARY, Storage
from .cleanup import reads_of

_ALIGN = 64


def lifetimes(groups: list[Any]) -> dict[int, tuple[Storage, int, int]]:
    """For each temporary the first and the last group that touches it."""
    found: dict[int, tuple[Storage, int, int]] = {}
    for at, group in enumerate(groups):
        for op in group.ops:
            for v in (*reads_of(op), *op.writes):
                s = v.storage
                if s.kind is TEMPORARY:
                    first = found[s.id][1] if s.id in found else at
                    found[s.id] = s, first, at
    return found


def arena(groups: list[Any], elsewhere: set[int], registers: set[int]) -> tuple[dict[int, int], int, int]:
    """(offset of each temporary, bytes of the arena, bytes if nothing were reused).

    elsewhere: storages that have memory of their own. registers: those that never reach memory.
    """
    lives = [life for i, life in lifetimes(groups).items() if i not in elsewhere and i not in registers and life[0].nbytes]
    offsets, top, total = laid_out([(storage.nbytes, first, last) for storage, first, last in lives], _ALIGN)
    return {life[0].id: at for life, at in zip(lives, offsets)}, top, total


def laid_out(lives: list[tuple[int, int, int]], align: int) -> tuple[list[int], int, int]:
    """Places for pieces of memory, (bytes, first and last time of use) each: (their offsets, bytes of all, bytes if nothing
    were reused)."""
    order = sorted(range(len(lives)), key=lambda k: (-lives[k][0], lives[k][1]))  # the largest first: the hardest to place
    placed: list[tuple[int, int, int, int]] = []  # offset, end, first, last
    offsets = [0] * len(lives)
    total = top = 0
    for k in order:
        nbytes, first, last = lives[k]
        size = (nbytes + align - 1) // align * align
        total += size
        busy = sorted([(o, e) for o, e, f, to in placed if not (to < first or f > last)])
        at = 0
        for o, e in busy:
            if o - at >= size:
                break
            at = max(at, e)
        offsets[k] = at
        placed.append((at, at + size, first, last))
        top = max(top, at + size)
    return offsets, top, total
