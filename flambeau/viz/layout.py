"""Layered layout of a directed graph: rows from sources down, few crossings, long edges in lanes of their own.

`arrange` does the part that does not depend on sizes (which row, which order in it), `place` the part that does. The explorer's
page places groups of nodes that open and close, so it has a `place` of its own over the same rows.
"""

from __future__ import annotations

from bisect import bisect_left, insort
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

LONGEST = 400  # an edge over more rows than this gets no lane: a thousand such edges would be all lanes and no graph
SWEEPS = 8


class Rows(NamedTuple):
    """Which item is in which row. An item is a number, or ("lane", source, row): the way of an edge past a row."""

    rows: list[list[Any]]
    links: list[list[tuple[int, int]]]  # between row r and row r + 1: pairs of positions
    ranks: list[int]


def rank(count: int, edges: Iterable[tuple[int, int]]) -> list[int]:
    """The row of each item: below all it comes from; what comes from nothing stands right above its first reader.

    Edges that close a circle do not count.
    """
    after: list[list[int]] = [[] for _ in range(count)]
    missing = [0] * count
    for a, b in edges:
        if a != b:
            after[a].append(b)
            missing[b] += 1
    sources = [i for i in range(count) if not missing[i]]
    ranks, order, ready, done = [0] * count, [], sources[::-1], [False] * count
    left = iter(range(count))
    while len(order) < count:
        if not ready:  # a circle: cut at the first of those that are left
            ready.append(next(i for i in left if not done[i]))
        item = ready.pop()
        if done[item]:
            continue
        done[item] = True
        order.append(item)
        for other in after[item]:
            missing[other] -= 1
            if not done[other]:
                ranks[other] = max(ranks[other], ranks[item] + 1)
                if not missing[other]:
                    ready.append(other)
    for item in sources:
        below = [ranks[b] for b in after[item]]
        if below:
            ranks[item] = max(min(below) - 1, 0)
    return ranks


def arrange(count: int, edges: Sequence[tuple[int, int]],
            ways: Sequence[tuple[Any, int | None, int | None]] | None = None) -> Rows:
    """Rows of `count` items, by their edges.

    ways: (name of a source, the item that it is in, the item that it goes to), where None is beyond the border. The ways of one
    source share a lane. Without them every edge is one.
    """
    ranks = rank(count, edges)
    depth = max(ranks, default=-1) + 1
    spans: dict[Any, tuple[int, int | None, dict[Any, None]]] = {}  # of a source: its row and item, where it goes to
    for name, a, b in [(a, a, b) for a, b in edges] if ways is None else ways:
        start = -1 if a is None else ranks[a]
        end = depth if b is None else ranks[b]
        if end > start:  # else it closes a circle
            spans.setdefault(name, (start, a, {}))[2][end, b] = None
    rows: list[list[Any]] = [[] for _ in range(depth)]
    for item in range(count):
        rows[ranks[item]].append(item)
    pairs: list[list[tuple[Any, Any]]] = [[] for _ in range(max(depth - 1, 0))]
    for name, (start, a, ends) in spans.items():
        far = max(end for end, _ in ends)
        if far - start > LONGEST:
            ends = {(end, b): None for end, b in ends if end - start == 1}
            far = start + 1
        previous = a
        for row in range(start + 1, far):
            lane = ("lane", name, row)
            rows[row].append(lane)
            if previous is not None:
                pairs[row - 1].append((previous, lane))
            previous = lane
        for end, b in ends:
            if 0 < end < depth:
                above = a if end == start + 1 else ("lane", name, end - 1)
                if above is not None and b is not None:
                    pairs[end - 1].append((above, b))
    return Rows(*order(rows, pairs), ranks)


def order(rows: list[list[Any]], pairs: list[list[tuple[Any, Any]]]) -> tuple[list[list[Any]], list[list[tuple[int, int]]]]:
    """Sorts each row by where its neighbours stand, back and forth; keeps the order with the fewest crossings."""
    above: dict[Any, list[Any]] = {item: [] for row in rows for item in row}
    below: dict[Any, list[Any]] = {item: [] for row in rows for item in row}
    for level in pairs:
        for a, b in level:
            below[a].append(b)
            above[b].append(a)
    at = {item: i for row in rows for i, item in enumerate(row)}
    best, fewest = [list(row) for row in rows], _crossings(pairs, at)
    for sweep in range(SWEEPS):
        if not fewest:
            break
        down = sweep % 2 == 0
        for row in rows if down else reversed(rows):
            near = above if down else below
            if len(row) > 1:
                wish = {i: sum([at[n] for n in near[i]]) / len(near[i]) if near[i] else at[i] for i in row}
                row.sort(key=wish.__getitem__)
                for i, item in enumerate(row):
                    at[item] = i
        now = _crossings(pairs, at)
        if now < fewest:
            best, fewest = [list(row) for row in rows], now
    at = {item: i for row in best for i, item in enumerate(row)}
    return best, [[(at[a], at[b]) for a, b in level] for level in pairs]


def _crossings(pairs: list[list[tuple[Any, Any]]], at: dict[Any, int]) -> int:
    total = 0
    for level in pairs:
        ends: list[int] = []
        for _, b in sorted([(at[a], at[b]) for a, b in level]):
            total += len(ends) - bisect_left(ends, b + 1)
            insort(ends, b)
    return total


def place(rows: Rows, widths: list[list[float]], gap: float) -> list[list[float]]:
    """The middle of each item, row by row, as near to its neighbours' as the widths allow."""
    x = []
    for row in widths:
        at, line = 0.0, []
        for w in row:
            line.append(at + w / 2)
            at += w + gap
        x.append([v - at / 2 for v in line])
    near: list[list[list[tuple[int, int]]]] = [[[] for _ in row] for row in rows.rows]
    for r, level in enumerate(rows.links):
        for a, b in level:
            near[r][a].append((r + 1, b))
            near[r + 1][b].append((r, a))
    straight = [[4.0 if item.__class__ is tuple else 1.0 for item in row] for row in rows.rows]
    for sweep in range(SWEEPS):
        numbers = range(len(x)) if sweep % 2 == 0 else range(len(x) - 1, -1, -1)
        for r in numbers:
            wish = []
            for i, around in enumerate(near[r]):
                side = [n for n in around if (n[0] < r) == (sweep % 2 == 0)] or around
                wish.append(sum([x[q][j] for q, j in side]) / len(side) if side else x[r][i])
            x[r] = spread(wish, widths[r], straight[r], gap)
    left = min([v - w / 2 for line, row in zip(x, widths) for v, w in zip(line, row)], default=0.0)
    return [[v - left for v in line] for line in x]


def spread(wish: list[float], widths: list[float], weights: list[float], gap: float) -> list[float]:
    """The places nearest to the wishes (least squares) at which neighbours do not overlap.

    With the least distances taken off, the places only must not fall: those that would are pooled at their mean.
    """
    offsets, at = [], 0.0
    for i, w in enumerate(widths):
        at += 0 if i == 0 else (widths[i - 1] + w) / 2 + gap
        offsets.append(at)
    pools: list[list[float]] = []  # weight, mean, how many
    for want, offset, weight in zip(wish, offsets, weights):
        pools.append([weight, want - offset, 1])
        while len(pools) > 1 and pools[-2][1] > pools[-1][1]:
            w, mean, n = pools.pop()
            last = pools[-1]
            last[1] = (last[0] * last[1] + w * mean) / (last[0] + w)
            last[0] += w
            last[2] += n
    means = [mean for _, mean, n in pools for _ in range(int(n))]
    return [m + o for m, o in zip(means, offsets)]
