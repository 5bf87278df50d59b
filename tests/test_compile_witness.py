"""What a captured call may do to be skipped later (capture/witness.py): one row for each thing that keeps it from that,
with the words in which it is said, and one for each that does not."""

from __future__ import annotations

import functools
import re
import sys

import pytest
from compiled import same_seen, seen
from provable import NUMBERS, PROVABLE, UNPROVABLE, X, helper

import flambeau as torch
from flambeau.compiler.capture.watch import present, watching
from flambeau.compiler.capture.witness import Witness


def witnessed(function):
    """Why a call of the function is not provable, or None; and the compiled function."""
    fn = torch.compile(function)
    torch.manual_seed(0)
    fn(X)
    return next(iter(fn._compiled.reasons), None), fn


@pytest.mark.parametrize("name", PROVABLE)
def test_provable(name):
    why, fn = witnessed(PROVABLE[name])
    assert why is None and fn._compiled.plans, why
    for _ in range(3):
        torch.manual_seed(0)
        expected = seen(PROVABLE[name](X))
        torch.manual_seed(0)
        same_seen(expected, seen(fn(X)))


@pytest.mark.filterwarnings("ignore:Using a target size")
@pytest.mark.parametrize("name", UNPROVABLE)
def test_not_provable(name, capsys):
    function, said = UNPROVABLE[name]
    why, fn = witnessed(function)
    assert why is not None and not fn._compiled.plans
    assert re.search(said, why), why
    if function(X) is not NUMBERS:
        for _ in range(5):
            same_seen(seen(function(X)), seen(fn(X)))
    assert fn._compiled.paths.stopped is None


# ----------------------------------------------------------------------------------------------------------- the witness itself
def test_the_line_is_told():
    fn = torch.compile(lambda x: printing(x))
    fn(X)
    assert re.search(rf"test_compile_witness.py, line {printing.__code__.co_firstlineno + 2}\)", fn._compiled.reasons[0])


def printing(x):
    y = x * 2
    print("", end="")
    return y


def test_there_is_one_witness_at_a_time_and_none_afterwards():
    assert present() is None
    with Witness(helper, [], [], {}) as outer:
        assert present() is outer
        with Witness(helper, [], [], {}) as inner:
            assert present() is inner
            inner.fail("enough")
            assert present() is None and inner.reason.startswith("enough")
            inner.fail("again")
            assert inner.reason.startswith("enough")
        assert present() is outer and outer.reason is None
    assert present() is None


def test_python_that_starts_unseen_is_noticed():
    """As a net below the rewritten code: whatever Python function starts that is neither rewritten nor an operation."""
    def hidden(*args):
        return 1
    for unseen in (lambda: sorted([2, 1], key=functools.cmp_to_key(lambda a, b: hidden())), lambda: list(map(hidden, [1]))):
        witness = Witness(helper, [], [], {})
        with witness, watching(witness):
            unseen()
        assert "from outside of what can be followed" in witness.reason
    assert sys.getprofile() is None
