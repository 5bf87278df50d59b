"""Every program in soundness/ sees the same whether its functions are compiled or not.

What is compared: each piece that the program yields, what was printed and warned meanwhile, and at the end the random numbers
that would come next and the settings of the process. Floats agree to 1e-4, everything else exactly, the order of keys and the
sign of zero included. To look at one program: pytest tests/test_compile_soundness.py -k family-program
"""

from __future__ import annotations

import importlib
import pathlib

import pytest
from observed import difference, settings, watched

import flambeau as torch

FAMILIES = sorted(p.stem for p in (pathlib.Path(__file__).parent / "soundness").glob("[a-z]*.py") if p.stem != "world")


def programs():
    for family in FAMILIES:
        module = importlib.import_module(f"soundness.{family}")
        for name, made in list(vars(module).items()):
            code = getattr(made, "__code__", None)
            if code and made.__module__ == module.__name__ and code.co_varnames[:code.co_argcount] == ("compile",):
                yield pytest.param(made, id=f"{family}-{name}")


def memo(f):
    """As wrong as a compiler can be: it gives the first result for ever."""
    made = []

    def call(*args, **kwargs):
        if not made:
            made.append(f(*args, **kwargs))
        return made[0]
    return call


def run(program, compile):
    """What the program shows."""
    with watched() as shown:
        for piece in program(compile):
            shown.add(piece)
    return shown


@pytest.mark.parametrize("program", list(programs()))
def test_compiled_as_eager(program):
    before = settings()
    want = run(program, lambda f: f)
    assert settings() == before, "the program does not put the process back as it was"
    got = run(program, torch.compile)
    found = difference(list(want), list(got))
    assert not found, f"{found}\n(piece, value 0 or printed text 1, then the way into it)"
    assert settings() == before, "the process is not as it was"


@pytest.mark.parametrize("program", list(programs()))
def test_program_can_fail(program):
    """Run twice it shows the same, and a compiler that repeats its first result is caught."""
    want = list(run(program, lambda f: f))
    assert not difference(want, list(run(program, lambda f: f)))
    try:
        got = list(run(program, memo))
    except Exception:
        return
    assert difference(want, got)
