"""Hypothesis writes programs over Python state, and a compiled call must do what the plain call does.

worlds.py writes the text: objects, containers, closures, classes, iterators, functions, modules, optimizers and aliases of
tensors; a function over them with reads, branches, effects and training steps; changes between its calls. The text runs twice
in namespaces of its own, once eagerly and once compiled, and after each act everything is compared: the result or the
exception, what was printed, the whole world; in the end the random numbers to come and the settings of the process.

Every run writes other programs. A failure prints the smallest program that was found, and the seed:
    FLAMBEAU_SEED=123 pytest tests/test_compile_state.py        the same programs again
    FLAMBEAU_PROGRAMS=5000 pytest tests/test_compile_state.py   more of them
"""

from __future__ import annotations

import itertools
import linecache
import os
import random

import pytest
from hypothesis import HealthCheck, Phase, given, seed, settings
from observed import difference, watched
from observed import settings as process_settings
from worlds import Programs

import flambeau as torch

SEED = int(os.environ.get("FLAMBEAU_SEED", random.SystemRandom().randrange(10 ** 9)))
PROGRAMS = int(os.environ.get("FLAMBEAU_PROGRAMS", 60))
numbers = itertools.count()


def run(program, wrap):
    """What the program shows after each act."""
    file = f"<program {next(numbers)}>"
    if program.sourced:  # inspect finds the source here
        linecache.cache[file] = len(program.text), None, program.text.splitlines(True), file
    space = {"__name__": "world"}
    try:
        with watched() as shown:
            exec(compile(program.text, file, "exec"), space)
            acts, show = space["make"](wrap)
            for what, act in acts:
                try:
                    shown.add([what, act()])
                except Exception as error:
                    shown.add([what, type(error).__name__, str(error).partition("\n")[0].replace(file, "<program>")])
                shown.add(show())
        return list(shown)
    finally:
        linecache.cache.pop(file, None)


def memo(f):
    """As wrong as a compiler can be: it gives the first result for ever."""
    made = []
    return lambda *args: made[0] if made else made.append(f(*args)) or made[0]


quiet = settings(deadline=None, database=None, print_blob=True, suppress_health_check=list(HealthCheck),
                 phases=[Phase.generate, Phase.shrink])


@seed(SEED)
@settings(quiet, max_examples=PROGRAMS)
@given(program=Programs())
def test_compiled_as_eager(program):
    before = process_settings()
    found = difference(run(program, lambda f: f), run(program, torch.compile))
    if found:
        pytest.fail(f"FLAMBEAU_SEED={SEED}: {found}")
    assert process_settings() == before


def test_programs_can_fail():
    """Programs show the same when they run again, and most of them catch a compiler that repeats its first result."""
    caught = []

    @seed(SEED)
    @settings(quiet, max_examples=60)
    @given(program=Programs())
    def check(program):
        want = run(program, lambda f: f)
        assert not difference(want, run(program, lambda f: f)), f"FLAMBEAU_SEED={SEED}"
        caught.append(difference(want, run(program, memo)) is not None)
    check()
    assert sum(caught) > 0.7 * len(caught)
