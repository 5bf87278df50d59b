"""Calls that never look alike: no program is made that is not used, and what is quicker without one runs without."""

from __future__ import annotations

import pytest
from compiled import programs

import flambeau as torch
from flambeau import nn
from flambeau.compiler.run import function

X = torch.arange(6.0)


class Thing:
    k = 1.0


def attribute(value):
    held = Thing()

    def args(n):
        held.k = value(n)
        return (X,)
    return lambda x: x * (held.k if isinstance(held.k, (int, float)) else len(held.k)), args


def longer_list():
    held = []

    def args(n):
        held.append(1.0)
        return (X,)
    return lambda x: x * len(held), args


def other_tensor():
    held = Thing()

    def args(n):
        held.t = torch.full((6,), float(n))
        return (X,)
    return lambda x: x * held.t, args


CASES = {
    "a float": lambda: attribute(lambda n: n * 0.5), "an int": lambda: attribute(lambda n: n),
    "a text": lambda: attribute(lambda n: "a" * n), "a list": longer_list, "a tensor": other_tensor,
    "an argument that is a text": lambda: (lambda x, s: x * len(s), lambda n: (X, "a" * n)),
    "a dict with a text": lambda: (lambda d: d["x"] * len(d["s"]), lambda n: ({"x": X, "s": "a" * n},)),
    "a float that decides": lambda: (lambda x, p: nn.functional.dropout(x, p, training=True), lambda n: (X, n / 100)),
}


@pytest.mark.parametrize("case", CASES)
def test_few_programs_for_what_never_stays(case):
    f, args = CASES[case]()
    compiled = torch.compile(f)
    for n in range(40):
        given = args(n)
        torch.manual_seed(n)
        want = f(*given)
        torch.manual_seed(n)
        assert torch.equal(compiled(*given), want), n
    assert programs(compiled) <= 9


def test_what_stays_after_all_has_a_program():
    held = Thing()
    compiled = torch.compile(lambda x: x * held.k)
    for n in range(300):
        held.k = min(n, 20) * 0.5
        compiled._compiled.straight, compiled._compiled.untimed = 0, 10  # as if programs were the quicker way
        assert torch.equal(compiled(X), X * held.k)
    assert any(plan.used for plans in compiled._compiled.plans.values() for plan in plans)


def test_shapes_that_come_again_have_programs():
    compiled = torch.compile(lambda x: (x * 2).sin())
    for n in range(60):
        x = torch.arange(float(3 + n % 15))
        compiled._compiled.untimed = 10
        assert torch.allclose(compiled(x), (x * 2).sin(), rtol=1e-6)
    assert programs(compiled) == 15


def decided(ours, plain):
    """What comes of a comparison whose other calls took so many seconds: (calls without a program, calls with one)."""
    compiled = torch.compile(lambda x: x + 1)
    held = compiled._compiled
    for _ in range(function._UNTIMED):
        compiled(X)
    assert held.trial == ([], []) and held.straight == 0
    held.trial = [ours] * function._TRIALS, [plain] * (function._TRIALS - 1)
    assert torch.equal(compiled(X), X + 1)
    return held.straight, held.untimed


def test_a_function_that_is_quicker_runs_as_it_is():
    without, _ = decided(ours=9e-4, plain=1e-6)
    assert without > 0


def test_a_program_that_is_quicker_stays():
    without, among_programs = decided(ours=1e-12, plain=1.0)
    assert without == 0 and among_programs > 0


def test_a_call_that_takes_long_is_never_compared_again():
    without, among_programs = decided(ours=1.0, plain=1.0)
    assert without == 0 and among_programs > 10 ** 9


def test_no_call_is_timed_where_values_must_not_be_looked_at():
    compiled = torch.compile(lambda x: x + 1, fullgraph=True)
    for _ in range(2 * function._UNTIMED):
        compiled(X)
    assert compiled._compiled.trial == ([], []) and compiled._compiled.straight == 0
