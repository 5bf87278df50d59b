"""`compiler.explain`: a compiled call in words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

from numpy import ndarray

from ..passes.epilogues import Product
from ..passes.fusion import Loop
from .program import Program

_RUNS = 5


class Explanation:
    """What became of a function. `text` (also `str`) is for people; the rest for programs."""

    def __init__(self, function: Any, plan: Any, seconds: list[float], times: list[list[float]]):
        self.times = times  # of the program's groups, for each run
        self.reasons, self.plan, self.seconds, self.paths = function.reasons, plan, seconds, function.paths
        self.way = "skip" if plan is not None else "follow" if self.paths.runs and self.paths.stopped is None else "eager"
        self.program: Program | None = None if plan is None else plan.program

    @property
    def text(self) -> str:
        if self.way == "eager":
            return "eager: " + (self.paths.stopped or "; ".join(self.reasons) or "no call was captured")
        if self.program is None:
            why = dict.fromkeys(self.reasons)
            looks = [f"segment ends: {r}" for r in self.paths.reasons]
            return "\n".join(["follow: the Python runs at each call, its kernels come from a program",
                              *[f"what keeps it from skip: {r}" for r in why], *looks])
        p, s = self.program, self.plan.seconds
        if p.ARRAY is not ndarray:
            return self._on_device(p, s)
        loops = [g if g.__class__ is Loop else g.loop for g in p.groups if g.__class__ in (Loop, Product)]
        folds = sum(step.fold is not None for g in loops for step in g.steps)
        python = Counter(op.kernel for op in p.calls)
        by_numpy = f", of which {len(p.calls)} by NumPy: " + ", ".join(f"{k} x{n}" for k, n in python.most_common())
        lines = ["skip: the Python does not run; a program answers as long as what it has read is what it was",
                 f"captured   {p.captured} kernel calls; {len(p.ops)} left after dead code, repeats and copies",
                 f"fused      {sum(len(g.steps) for g in loops) - folds} pointwise operations and {folds} reductions into "
                 f"{len(loops)} loops, {sum(g.__class__ is Product for g in p.groups)} of them inside matrix products; "
                 f"{sum(g.__class__ is not Loop for g in p.groups)} other kernels" + (by_numpy if python else ""),
                 f"memory     {p.arena_bytes / 1e6:.2f} MB for temporaries ({p.unshared_bytes / 1e6:.2f} MB without reuse)",
                 f"first call capture {s['capture'] * 1e3:.0f} ms, planning {s['plan'] * 1e3:.0f} ms, C compiler "
                 f"{s['build'] * 1e3:.0f} ms",
                 f"inputs     {len(p.inputs)} tensors, {len(self.plan.numbers)} run-time numbers"]
        lines += ["guarded    " + "; ".join(self.plan.reads.describe()[:20])] if self.plan.reads.describe() else []
        if self.times:
            lines.append("slowest parts (us per call):")
            means = [sum(spent) / len(self.times) for spent in zip(*self.times)]
            for spent, group in sorted(zip(means, p.groups), key=lambda x: -x[0])[:20]:
                where = place_of(group)
                line = f"{where[0].rpartition('/')[2]}:{where[1]}" if where else ""
                lines.append(f"  {spent * 1e6:9.1f}  {kernels_of(group)}  {line}")
        return "\n".join(lines)

    def _on_device(self, p: Any, s: dict[str, float]) -> str:
        fused = sum([op.kernel == "fused" for op in p.ops])
        if p.refused is not None:
            graph = f"none, the kernels are called one by one: {p.refused}"
        else:
            graph = "not made yet" if p.graph is None else (
                f"{p.graph.size} nodes in one launch; {sum(p.live)} operations are looked at on the host before each")
        lines = ["skip: the Python does not run; a program answers as long as what it has read is what it was",
                 f"captured   {p.captured} kernel calls; {len(p.ops)} left, {fused} of them several pointwise ones together",
                 f"graph      {graph}",
                 f"copied     {len(p.stand_ins)} inputs and results that are elsewhere at each call",
                 f"first call capture {s['capture'] * 1e3:.0f} ms, planning {s['plan'] * 1e3:.0f} ms",
                 f"inputs     {len(p.inputs)} tensors, {len(self.plan.numbers)} run-time numbers"]
        lines += ["guarded    " + "; ".join(self.plan.reads.describe()[:20])] if self.plan.reads.describe() else []
        return "\n".join(lines)

    __str__ = __repr__ = lambda self: self.text


def kernels_of(group: Any) -> str:
    """The kernels of a part of a program."""
    names = Counter(op.kernel for op in group.ops)
    return " + ".join(k if n == 1 else f"{n} {k}" for k, n in names.most_common(6))


def place_of(group: Any) -> tuple[str, int] | None:
    """The user's line (file, number) that a part of a program comes from, the first where there are several."""
    return next((op.where for op in group.ops if op.where), None)


def explain(fn: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Explanation:
    import time

    from .function import CompiledFunction
    inner = getattr(fn, "_compiled", None)
    function = CompiledFunction(inner.function if inner is not None else fn, False, None)
    for _ in range(6):
        function(*args, **kwargs)
        if function.plans:
            break
    plan = next((p for some in function.plans.values() for p in some), None)
    seconds, times = [], []
    if plan is not None:
        plan.program.tell(lambda program, start, spent: times.append(spent))
    for _ in range(_RUNS if plan is not None else 0):
        start = time.perf_counter()
        function(*args, **kwargs)
        seconds.append(time.perf_counter() - start)
    return Explanation(function, plan, seconds, times)
