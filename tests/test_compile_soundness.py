"""Every program in soundness/ sees the same whether its functions are compiled or not.

What is compared: each piece that the program yields, what was printed and warned meanwhile, and at the end the random numbers
that would come next and the settings of the process. Floats agree to 1e-4, everything else exactly, the order of keys and the
sign of zero included. To look at one program: pytest tests/test_compile_soundness.py -k family-program
"""

from __future__ import annotations

import contextlib
import enum
import gc
import importlib
import io
import math
import pathlib
import random
import re
import sys
import threading
import warnings

import numpy as np
import pytest

import flambeau as torch

FAMILIES = sorted(p.stem for p in (pathlib.Path(__file__).parent / "soundness").glob("[a-z]*.py") if p.stem != "world")
ROUGH = {"torch.float16": 1e-2, "torch.bfloat16": 2e-2}


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


# ------------------------------------------------------------------------------------------------------------- what is seen
def plain(value):
    """A copy that later calls cannot change, made of lists, numbers and text; containers say their type."""
    if isinstance(value, torch.Tensor):
        v = value.detach().to_dense() if value.is_sparse else value.detach()
        v = torch.view_as_real(v.resolve_conj()) if v.is_complex() else v
        return [type(value).__name__, str(value.dtype), list(value.shape), value.requires_grad, v.flatten().tolist()]
    if isinstance(value, np.ndarray):
        return [type(value).__name__, str(value.dtype), list(value.shape), value.ravel().tolist()]
    if isinstance(value, enum.Enum):
        return str(value)
    if isinstance(value, dict):
        return [type(value).__name__, [[plain(k), plain(v)] for k, v in value.items()]]
    if isinstance(value, (set, frozenset)):
        return [type(value).__name__, *sorted(map(repr, value))]
    if isinstance(value, (bool, int, float, complex, str, bytes, bytearray, type(None))):
        return value if type(value) in (bool, int, float, str, type(None)) else [type(value).__name__, repr(value)]
    if hasattr(value, "__iter__") and hasattr(value, "__len__"):
        return [type(value).__name__, *map(plain, value)]
    return type(value).__name__


def settings():
    """What a capture must leave as it was."""
    return dict(collecting=gc.isenabled(), frozen=gc.get_freeze_count(), thresholds=gc.get_threshold(),
                profiler=sys.getprofile(), tracer=sys.gettrace(), thread_profiler=threading.getprofile(),
                recursion=sys.getrecursionlimit(), interval=sys.getswitchinterval(), grad=torch.is_grad_enabled(),
                inference=torch.is_inference_mode_enabled(), dtype=str(torch.get_default_dtype()),
                threads=torch.get_num_threads(), excepthook=sys.excepthook, displayhook=sys.displayhook)


def ours(warning):
    """Is it the compiler that warns?"""
    return "flambeau.compile" in str(warning.message)


def run(program, compile):
    """What the program shows: a list of (piece, printed text), and what is left behind."""
    torch.compiler.reset()
    torch.manual_seed(0), random.seed(0), np.random.seed(0)
    shown, printed = [], io.StringIO()
    with (warnings.catch_warnings(record=True) as warned, contextlib.redirect_stdout(printed),
          contextlib.redirect_stderr(printed)):
        warnings.simplefilter("always")
        for piece in program(compile):
            shown.append([plain(piece), printed.getvalue()])
            printed.seek(0), printed.truncate()
    shown.append(["printed at the end", printed.getvalue()])
    shown.append(["warned", [str(w.message) for w in warned if not ours(w)]])
    shown.append(["next random numbers", torch.rand(2).tolist(), random.random(), float(np.random.rand())])
    return shown


def difference(want, got, rtol=1e-4):
    """Where and how two plain values differ, or None."""
    if type(want) is not type(got):
        return f"{short(got)} instead of {short(want)}"
    if isinstance(want, list):
        if len(want) != len(got):
            return f"{len(got)} items instead of {len(want)}: {short(got)} instead of {short(want)}"
        rtol = ROUGH.get(want[1], rtol) if len(want) == 5 and isinstance(want[1], str) else rtol
        return next((f"[{i}] {d}" for i, (w, g) in enumerate(zip(want, got)) if (d := difference(w, g, rtol))), None)
    if isinstance(want, float):
        close = math.isclose(want, got, rel_tol=rtol, abs_tol=1e-5) or (want != want and got != got)
        same = close and (want != 0 or got != 0 or math.copysign(1, want) == math.copysign(1, got))
    elif isinstance(want, str) and want != got:  # printed numbers are floats too
        same = alike(want, got, rtol)
    else:
        same = want == got
    return None if same else f"{short(got)} instead of {short(want)}"


def alike(want, got, rtol, number=re.compile(r"-?\d+\.\d+(?:e[+-]?\d+)?")):
    """Do texts agree but for the last digits of their decimal fractions?"""
    if number.sub("#", want) != number.sub("#", got):
        return False
    pairs = zip(map(float, number.findall(want)), map(float, number.findall(got)))
    return all(math.isclose(w, g, rel_tol=rtol, abs_tol=1e-4) for w, g in pairs)


def short(value):
    text = repr(value)
    return text if len(text) < 100 else text[:97] + "..."


# ---------------------------------------------------------------------------------------------------------------- the tests
@pytest.mark.parametrize("program", list(programs()))
def test_compiled_as_eager(program):
    before = settings()
    want = run(program, lambda f: f)
    assert settings() == before, "the program does not put the process back as it was"
    got = run(program, torch.compile)
    found = difference(want, got)
    assert not found, f"{found}\n(piece, value 0 or printed text 1, then the way into it)"
    assert settings() == before, "the process is not as it was"


@pytest.mark.parametrize("program", list(programs()))
def test_program_can_fail(program):
    """Run twice it shows the same, and a compiler that repeats its first result is caught."""
    want = run(program, lambda f: f)
    assert not difference(want, run(program, lambda f: f))
    try:
        got = run(program, memo)
    except Exception:
        return
    assert difference(want, got)
