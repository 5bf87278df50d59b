"""What may run at the same time inside of a CUDA graph.

A capture writes operations down one behind the other. Here each comes to wait only for those whose memory it touches: what it
reads they must have written, what it writes they must have read or written. Memory is known by address, so it does not matter
whose a piece is, or that one is used again for something else.
"""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from .driver import machine

Ranges = "set[tuple[int, int]]"


class Part(NamedTuple):
    """An operation in a graph: its nodes, one behind the other, and (address, bytes) of the memory that it touches."""

    nodes: list[int]
    reads: Ranges
    writes: Ranges


def waits(parts: list[Part]) -> list[list[int]]:
    """For each part the earlier ones that it has to wait for, without those for which these wait themselves."""
    records = [(at, at + size, i, written) for i, part in enumerate(parts)
               for written, ranges in ((False, part.reads), (True, part.writes)) for at, size in ranges]
    start, end, owner = (np.array([r[k] for r in records], np.int64) for k in range(3))
    written = np.array([r[3] for r in records], bool)
    found, before = [], []  # before: of each part all that ends before it begins, as bits
    known = 0               # records of earlier parts
    for i in range(len(parts)):
        touched = np.zeros(known, bool)
        mine = known
        while mine < len(records) and records[mine][2] == i:
            hit = (start[:known] < end[mine]) & (end[:known] > start[mine])
            touched |= hit if written[mine] else hit & written[:known]
            mine += 1
        earlier, kept = 0, []
        for j in sorted(set(owner[:known][touched].tolist()), reverse=True):
            if not earlier >> j & 1:
                kept.append(j)
                earlier |= before[j] | 1 << j
        found.append(kept)
        before.append(earlier)
        known = mine
    return found


def untie(graph: int, parts: list[Part]) -> None:
    """Lets the parts of a captured graph, which wait for one another in turn, wait for what they need alone."""
    parts = [part for part in parts if part.nodes]
    cut: list[Any] = []
    tied: list[Any] = []
    for i, needed in enumerate(waits(parts)):
        first = parts[i].nodes[0]
        if i and i - 1 not in needed:
            cut.append((parts[i - 1].nodes[-1], first))
        tied += [(parts[j].nodes[-1], first) for j in needed if j != i - 1]
    machine().rewire(graph, cut, tied)
