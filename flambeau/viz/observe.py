"""A backward pass, watched: in which order nodes ran, what gradients came and went, and what memory was held meanwhile.

The pass is one of `autograd.grad`'s kind: no `.grad` is touched, and the graph is kept, so that the user's own pass can follow.
"""

from __future__ import annotations

import math
from contextlib import ExitStack
from typing import Any, NamedTuple

from ..autograd.engine import Task, run
from ..autograd.node import Node
from ..autograd.passes import _roots
from ..tensors.tensor import Tensor
from .graph import Graph

BINS = 24


class Pass(NamedTuple):
    """What was seen. gradients: by vertex, one per output; sent: by link, the norm of what went along it."""

    order: list[int]
    gradients: dict[int, list[dict[str, Any] | None]]
    sent: dict[int, float]


def watch(graph: Graph, outputs: list[Tensor], gradient: Any) -> Pass:
    """Runs the backward pass from the outputs with a hook before and behind every node."""
    seen = Pass([], {}, {})
    links: dict[tuple[int, int], int] = {(link.head, link.slot): i for i, link in enumerate(graph.links)
                                         if graph.vertices[link.tail].kind in ("op", "leaf")}
    nodes = [v.node for v in graph.vertices if v.node is not None]
    leaves = [n for n in nodes if n.is_leaf_node]
    with ExitStack() as stack:
        for node in nodes:
            stack.callback(_as_it_was(node))
        for node in nodes:
            if not node.is_leaf_node:
                _hook(node, graph.number[node], links, seen)
        task = Task(True, False, [(leaf, 0) for leaf in leaves], False)
        found = run(_roots(tuple(outputs), gradient), task)
    for leaf in leaves:
        arrived = found.get((leaf, 0))
        if arrived is not None:
            seen.gradients[graph.number[leaf]] = [statistics(arrived)]
    return seen


def _hook(node: Node, number: int, links: dict[tuple[int, int], int], seen: Pass) -> None:
    def before(grads: tuple[Any, ...]) -> None:
        seen.order.append(number)
        seen.gradients[number] = [None if g is None else statistics(g) for g in grads]

    def after(sent: tuple[Any, ...], grads: tuple[Any, ...]) -> None:
        for slot, g in enumerate(sent):
            link = links.get((number, slot))
            if link is not None and g is not None:
                found = statistics(g, histogram=False)
                if found is not None:
                    seen.sent[link] = found["norm"]

    node.register_prehook(before)
    node.register_hook(after)


def _as_it_was(node: Node) -> Any:
    """Puts back what a pass changes: our own hooks go, retained gradients and tensors that are handed out once come back."""
    hooks, ctx = node.hooks, node.ctx
    tables = None if hooks is None else (set(hooks.pre), set(hooks.post))
    retained = [] if hooks is None else [(t, t._grad) for t in [ref() for ref in hooks.retain.values()] if t is not None]
    handed_out = None if ctx is None or not ctx._forward_cls.clear_saved_tensors_on_access else (ctx._saved, ctx._handed_out)

    def restore() -> None:
        if hooks is None:
            node.hooks = None
            if ctx is not None:
                ctx._shared_hooks = None
        else:
            for table, before in zip((hooks.pre, hooks.post), tables):
                for key in set(table) - before:
                    del table[key]
        for tensor, grad in retained:
            tensor._grad = grad
        if handed_out is not None:
            ctx._saved, ctx._handed_out = handed_out
    return restore


def statistics(tensor: Tensor, histogram: bool = True) -> dict[str, Any] | None:
    """Count, range, mean, deviation, norm, zeros, what is not finite, and a histogram. None for a tensor without elements."""
    values = tensor.detach()
    if values.device.type == "meta":
        return None
    if values.is_sparse:
        values = values.coalesce().values()
    if values.is_complex():
        values = values.abs()
    values = values.reshape(-1)
    if values.dtype.itemsize < 4:
        values = values.float()
    count = values.numel()
    finite = values.isfinite()
    bad = count - int(finite.sum())
    if bad:
        values = values[finite]
    if not values.numel():
        return dict(count=count, bad=bad, norm=0.0) if count else None
    if not histogram:
        return dict(norm=_number(values.norm()))
    low, high = float(values.min()), float(values.max())
    bins: list[int] = []
    if 1e-290 < high - low < math.inf:
        shares = (values.double() - low) / (high - low)  # of the way from low to high: subnormal ranges have no bins otherwise
        bins = [int(n) for n in shares.histc(BINS, 0, 1).tolist()]
    return dict(count=count, bad=bad, min=_short(low), max=_short(high), mean=_number(values.mean()),
                std=_number(values.std(correction=0)), norm=_number(values.norm()), zeros=int((values == 0).sum()), bins=bins)


def _number(scalar: Tensor) -> float | None:
    return _short(float(scalar))


def _short(value: float) -> float | None:
    return float(f"{value:.6g}") if math.isfinite(value) else None  # JSON has no infinity


# --------------------------------------------------------------------------------------------------------- time, memory
class Story(NamedTuple):
    """The step as a film. steps: (kind, vertex) of "forward", "seed", "backward" and "accumulate"; the rest: by step."""

    steps: list[tuple[str, int]]
    kept: list[int]        # bytes that nodes keep for the backward pass
    moving: list[int]      # bytes of gradients under way
    gathered: list[int]    # bytes of leaves' gradients
    lives: list[tuple[int, int]]  # per storage: the step it is first kept at, and the step after which it is free


def tell(graph: Graph, seen: Pass) -> Story:
    """The order of events, and what is held after each of them if the pass frees as it goes (as backward() does)."""
    steps = _events(graph, seen)
    made, ran, seeds = [{number: at for at, (kind, number) in enumerate(steps, 1) if kind in kinds}
                        for kinds in (("forward",), ("backward", "accumulate"), ("seed",))]
    end = len(steps) + 1
    lives = [(min([made.get(h, 1) for h in s.holders]), max([ran.get(h, end) for h in s.holders])) if s.holders else (end, end)
             for s in graph.storages]
    kept, moving, gathered = ([0] * (end + 1) for _ in range(3))
    for storage, life in zip(graph.storages, lives):
        if not storage.leaf:  # a leaf is there before and after
            _hold(kept, *life, storage.bytes)
    arrives: dict[int, int] = {}  # when the first gradient comes
    for link in graph.links:
        at = seeds.get(link.head) or ran.get(link.head)
        if at is not None and link.tail in ran:
            arrives[link.tail] = min(at, arrives.get(link.tail, at))
    for number, at in arrives.items():
        vertex = graph.vertices[number]
        _hold(moving, at, ran[number], vertex.bytes)
        if vertex.kind == "leaf":
            _hold(gathered, ran[number], end, vertex.bytes)
    return Story(steps, *[_summed(line)[:end] for line in (kept, moving, gathered)], lives)


def _events(graph: Graph, seen: Pass) -> list[tuple[str, int]]:
    """What happens, in order. A leaf accumulates as soon as the last of its gradients has come."""
    vertices, runs = graph.vertices, set(seen.order)
    steps = [("forward", i) for i, v in enumerate(vertices) if v.kind == "op"]
    steps += [("seed", i) for i, v in enumerate(vertices) if v.kind == "output"]
    waiting = [0] * len(vertices)
    sends: dict[int, list[int]] = {}  # to which leaves a node sends gradients
    for link in graph.links:
        if link.head in runs and vertices[link.tail].kind == "leaf":  # a node that no gradient comes to sends none
            waiting[link.tail] += 1
            sends.setdefault(link.head, []).append(link.tail)
    for number in seen.order:
        steps.append(("backward", number))
        for leaf in sends.get(number, ()):
            waiting[leaf] -= 1
            if not waiting[leaf] and leaf in seen.gradients:
                steps.append(("accumulate", leaf))
    return steps


def _hold(line: list[int], start: int, stop: int, size: int) -> None:
    """Adds `size` to the steps from start up to, not including, stop (as differences)."""
    line[start] += size
    line[min(stop, len(line) - 1)] -= size


def _summed(line: list[int]) -> list[int]:
    total, out = 0, []
    for change in line:
        total += change
        out.append(total)
    return out
