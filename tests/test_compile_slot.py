"""What stands in front of `Tensor._array` while a call is captured: the capturing thread's business alone (capture/slot.py)."""

from __future__ import annotations

import threading
import weakref

import pytest

import flambeau as torch
from flambeau.compiler.capture import slot

native = pytest.mark.skipif(slot._native() is None, reason="no native code for this machine or Python: a property stands in")


class InFront:
    """Counts who comes by."""

    def __init__(self):
        self.threads = []

    def read(self, tensor):
        self.threads.append(threading.get_ident())
        return slot.SLOT.__get__(tensor)

    def write(self, tensor, array):
        self.threads.append(threading.get_ident())
        slot.SLOT.__set__(tensor, array)

    def __enter__(self):
        self.functions = self.read, self.write
        slot.put_in_front(*self.functions)
        return self

    def __exit__(self, *error):
        assert slot.take_away() and not slot.take_away()
        self.functions = None
        assert torch.Tensor.__dict__["_array"] is slot.SLOT


def elsewhere(function):
    made = []
    thread = threading.Thread(target=lambda: made.append(function()))
    thread.start()
    thread.join()
    return made[0]


@native
def test_other_threads_find_the_slot_itself():
    a = torch.arange(4.0, requires_grad=True)

    def work():
        loss = (a * a + 1).sum()
        loss.backward()
        return loss

    with InFront() as seen:
        loss = elsewhere(work)
        assert seen.threads == []
        mine = a * 2
        assert set(seen.threads) == {threading.get_ident()}
        assert slot.made_abroad(loss) and slot.made_abroad(a.grad) and not slot.made_abroad(a) and not slot.made_abroad(mine)
    assert not slot.made_abroad(loss)
    assert loss.item() == 18 and a.grad.tolist() == [0, 2, 4, 6] and mine.tolist() == [0, 2, 4, 6]


@native
def test_nothing_is_kept_alive():
    with InFront() as seen:
        gone = elsewhere(lambda: weakref.ref(torch.ones(3) + 1))
        assert gone() is None
        t = elsewhere(lambda: torch.ones(2))
        elsewhere(lambda: setattr(t, "data", torch.zeros(2)))
        assert t.tolist() == [0, 0]
    watched = weakref.ref(seen)
    del seen
    assert watched() is None


def test_a_thread_that_computes_while_others_capture():
    done, wrong = threading.Event(), []

    def work():
        x = torch.arange(6.0).reshape(2, 3).requires_grad_()
        while not done.is_set():
            y = (x.t() @ x).sum()
            (g,) = torch.autograd.grad(y, x)
            if y.item() != 153 or g.tolist() != [[6.0, 6.0, 6.0], [24.0, 24.0, 24.0]]:
                wrong.append((y, g))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        for n in range(20):
            w = torch.full((3,), float(n), requires_grad=True)
            step = torch.compile(lambda x, w=w: (x * w).sum())
            assert step(torch.ones(3)).item() == step(torch.ones(3)).item() == 3 * n
    finally:
        done.set()
        thread.join()
    assert not wrong
