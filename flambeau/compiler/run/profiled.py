"""Compiled calls while a profiler runs: one block per call, and inside of it the parts of the programs that ran.

The call goes the way that it would go anyway, by the same plans and programs; these take their times meanwhile (Program.tell).
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from ...autograd.state import state
from ...native import toolchain
from ..passes.epilogues import Product
from ..passes.fusion import Loop
from .joint import JointPlan
from .plan import Undone
from .program import Program
from .report import kernels_of, place_of


def profiled(compiled: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """What compiled(*args, **kwargs) does, noted by the thread's profiler."""
    recorder = state.profiler
    for program in _programs(compiled):
        if program.entry is program.function:
            try:
                program.tell(_noted)
            except (toolchain.BuildError, OSError):  # the call has a row all the same
                continue
            recorder.at_stop.append(lambda program=program: program.tell(None))
    with recorder.span(f"Torch-Compiled Region: {compiled.name}", 0):
        with recorder.aside():
            try:
                leaves, shape = compiled._leaves(args, kwargs)
            except RecursionError:  # a list that holds itself
                return compiled(*args, **kwargs)
            for plan in compiled.plans.get(compiled.signature(leaves, state.mode, shape, args, kwargs), ()):
                if plan.holds(leaves):  # here, not in the call: that would write down how to repeat it natively, without times
                    try:
                        return plan.run(leaves)
                    except Undone:
                        return compiled.function(*args, **kwargs)
            if not _runs_eagerly(compiled):
                return compiled(*args, **kwargs)
        return compiled.function(*args, **kwargs)  # whose operations are noted one by one


def _runs_eagerly(compiled: Any) -> bool:
    """Whether calls are not followed at present, since that takes longer."""
    pace = compiled.paths.pace
    if not compiled.followed or pace is None or not pace.eager():
        return False
    if pace.left:
        pace.passed()
    return True


def _programs(compiled: Any) -> Iterator[Program]:
    for plans in compiled.plans.values():
        for plan in plans:
            yield plan.program
            if isinstance(plan, JointPlan):
                yield plan.backward_program
    for end in list(compiled.paths.ends):
        yield end.program


def _noted(program: Program, start: int, seconds: list[float]) -> None:
    """The parts of a program that has run, one after the other."""
    recorder = state.profiler
    if recorder is None or not recorder.open:  # another thread, or the profiler has just ended
        return
    for group, spent in zip(program.groups, seconds):
        where, duration = place_of(group), round(spent * 1e9)
        kind = "loop" if group.__class__ is Loop else "product" if group.__class__ is Product else (
            "kernel" if group.code is not None else "numpy")
        line = f" ({where[0].rpartition('/')[2]}:{where[1]})" if where else ""
        recorder.inside(recorder.open[-1], f"compiled::{kind} {kernels_of(group)}{line}", start, duration, where)
        start += duration
