"""Followed calls leave nothing behind: memory, finalizers, interrupts, and which way is taken in the end."""

import contextlib
import gc
import itertools
import sys
import weakref

import numpy as np
import pytest
from followed import agree, batch, follow, stepped, task

import flambeau as torch
from flambeau import optim
from flambeau.autograd.state import FOLLOW, state
from flambeau.compiler.follow.matching import native
from flambeau.compiler.follow.paths import Pace, Paths

pytestmark = pytest.mark.skipif(native() is None, reason="needs a C compiler")


# ------------------------------------------------------------------------------------------------------------ limits
def test_nothing_is_left_behind():
    """No array stays a promise, no memory stays alive, however a call ends."""
    kept = []

    def f(x, fails):
        y = (x * 2).relu()
        kept.append(weakref.ref(y))
        view = y[1:]
        x.add_(1)
        if fails:
            raise ValueError
        return view

    g = follow(f)
    for n in range(8):
        x = torch.arange(4.0)
        with contextlib.suppress(ValueError):
            assert type(g(x, n % 3 == 2)._array) is np.ndarray
        assert type(x._array) is np.ndarray and state.follower is None
    gc.collect()
    assert all(r() is None for r in kept)


@pytest.mark.parametrize("threshold", [1, 2, 3, 5, 7, 11])
def test_finalizers_that_compute(threshold):
    """The collector may run Python at any time, also while a kernel call is being compared or written down."""
    done = []

    class Loop:
        def __init__(self):
            self.me = self

        def __del__(self):
            done.append((torch.ones(3) * 2 + 1).sum().item())

    def f(x):
        for _ in range(4):
            Loop()
            x = (x * 2).tanh() + 1
        return x

    def build():
        net, opt = task(kind=optim.SGD, momentum=0.9)

        def step(x, y):
            Loop()
            loss = stepped(net, opt, f(x), y)
            Loop()
            return loss
        return step, batch, net, opt
    g, before = follow(f), gc.get_threshold()
    gc.collect()
    gc.set_threshold(threshold)
    try:
        for n in range(30):
            x = torch.arange(3.0) + n
            assert torch.allclose(g(x), f(x))
        agree(build, calls=12)
    finally:
        gc.set_threshold(*before)
    gc.collect()
    assert done == [9.0] * (240 + 2 * 12 * 6) and g.paths.runs


def test_an_interrupt_leaves_what_it_leaves_in_eager_mode():
    """KeyboardInterrupt at every line of the follower in turn: each kernel call has happened, or it has not."""
    files = ("follower.py", "recording.py", "steps.py")
    weight, state_of = torch.zeros(3), []

    def f(x):
        for n in range(3):
            state_of.append(n)
            weight.add_(x)
            state_of.append("added")
        return weight * 2
    g = follow(f)
    for _ in range(3):
        g(torch.ones(3))
    left = [0]

    def trace(frame, event, arg):
        if frame.f_code.co_filename.endswith(files):
            if event == "line":
                left[0] -= 1
                if left[0] == 0:
                    raise KeyboardInterrupt
            return trace
        return None
    for n in itertools.count(1):
        weight.zero_()
        state_of.clear()
        left[0] = n
        sys.settrace(trace)
        try:
            g(torch.ones(3))
            finished = True
        except KeyboardInterrupt:
            finished = False
        finally:
            sys.settrace(None)
        added = state_of.count("added")
        assert type(weight._array) is np.ndarray and not state.mode & FOLLOW and state.follower is None
        assert weight[0].item() in (added, state_of.count(0) + state_of.count(1) + state_of.count(2)), (n, weight, state_of)
        assert weight[0].item() == weight[2].item()
        if finished:
            break
    assert n > 100
    assert g(torch.ones(3))[0].item() == 2 * weight[0].item()


def test_programs_go_away_with_their_function():
    f = follow(lambda x: x * 2 + 1)
    for n in range(4):
        f(torch.ones(n % 2 + 2))
    programs = [weakref.ref(end.program) for end in f.paths.segments]
    gc.disable()
    try:
        del f
        assert programs and all(p() is None for p in programs)
    finally:
        gc.enable()


def test_calls_that_never_repeat_are_left_to_eager_with_one_warning(monkeypatch):
    monkeypatch.setattr("flambeau.compiler.follow.paths._STEPS", 20)
    f = follow(lambda x: x * 2 + 1)
    with pytest.warns(RuntimeWarning, match="runs eagerly") as caught:
        for n in range(20):
            assert f(torch.ones(n + 1)).shape == (n + 1,)
    assert len(caught) == 1 and f.paths.steps <= 22


def test_the_quicker_way_is_taken():
    for quick in (True, False):
        pace, taken = Pace(), []
        for _ in range(400):
            eager = pace.eager()
            taken.append(eager)
            pace.took(1.0 if eager is quick else 2.0)
        assert sum(way is quick for way in taken) > 320 and {*taken} == {True, False}


def test_calls_that_are_quicker_eagerly_go_straight_to_the_function():
    calls = []

    def f(x):
        calls.append(len(calls))
        return x + 1
    g = torch.compile(f)
    made, x = g._compiled, torch.ones(2)
    made.followed, made.paths.pace.way, made.paths.pace.left = 1000, True, 50
    assert g(x).tolist() == [2, 2] and made.straight == 48
    for n in range(48):
        assert g(x).tolist() == [2, 2] and made.straight == 47 - n
    assert made.paths.pace.left == 1 and g(x).tolist() == [2, 2] and made.paths.pace.left == 0  # the ways are compared again
    made.straight = 10
    torch.compiler.reset()
    assert made.straight == 0 and calls == [*range(50)]


def test_calls_that_always_meet_something_new_are_run_eagerly():
    paths, ran = Paths(lambda x, n: torch.ones(n) * x, "f", False, False, False), []
    paths.function = lambda x, n: ran.append(state.mode & FOLLOW) or (torch.ones(n) * x).sum()
    for n in range(60):
        assert paths.call((torch.ones(1), n + 1), {}).item() == n + 1
    assert ran[0] and sum(map(bool, ran)) < 40 and not ran[-1]


def test_following_leaves_the_process_alone():
    before = gc.isenabled(), gc.get_freeze_count(), torch.Tensor.__dict__["_array"]
    inside = []

    def f(x):
        inside.append((gc.isenabled(), gc.get_freeze_count(), torch.Tensor.__dict__["_array"]))
        return x * 2
    g = follow(f)
    for _ in range(3):
        g(torch.ones(2))
    assert all(found == before for found in inside)
