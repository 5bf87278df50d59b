"""Followed calls and memory: what is kept, shared, aliased, or seen by NumPy."""

import copy
import io
import itertools
import pickle

import numpy as np
import pytest
from followed import agree, batch, follow, history, stepped, task

import flambeau as torch
from flambeau.compiler.follow.matching import native
from flambeau.compiler.follow.promises import Promise

pytestmark = pytest.mark.skipif(native() is None, reason="needs a C compiler")


# ------------------------------------------------------------------------------------------------------------- memory
def test_kept_activations():
    def build():
        net, opt = task()
        kept, calls = [], itertools.count()

        def step(x, y):
            hidden = net[1](net[0](x))
            if next(calls) % 4 == 1:
                kept.append(hidden.detach())
            opt.zero_grad()
            loss = ((net[2](hidden) - y) ** 2).mean()
            loss.backward()
            opt.step()
            return loss
        return step, batch, net, lambda: list(kept)
    agree(build, calls=14, runs=8)


def test_what_is_kept_for_good_is_kept_from_then_on():
    def build():
        kept = []
        return lambda x: kept.append((x * 2).relu()) or kept[-1] + 1, lambda n: (torch.arange(4.0) - n,), lambda: list(kept)
    agree(build, builds=1, runs=7)


def test_results_have_memory_of_their_own():
    def build():
        kept = []
        return lambda x: x * 2 + 1, lambda n: (torch.arange(400_000.0) - n,), lambda: kept
    _, fn = history(build, 3, follow)
    results = [fn(torch.full((1000,), float(n))) for n in range(5)]
    assert [r[0].item() for r in results] == [2.0 * n + 1 for n in range(5)]
    assert len({r.data_ptr() for r in results}) == 5 and all(type(r._array) is np.ndarray for r in results)


def test_a_result_of_which_only_a_view_is_left_keeps_its_pages():
    """Also in the call that is written down, where the pages of dead results go back."""
    def build():
        calls = itertools.count()

        def f(x):
            next(calls)
            turned = x.t().reshape(-1)                   # a view of a copy, to which nothing else refers
            first, *_ = (x + 1).unbind(0)
            for _ in range(6):                           # megabytes of dead results
                (x + 1).mul(2).sum()
            return turned.sum(), first.sum()
        return f, lambda n: (torch.full((256, 1024), 1.0 + n),), list
    agree(build, calls=3, runs=1)


def test_arguments_that_share_memory_are_told_apart_each_time():
    def build():
        store = torch.zeros(12)

        def f(x, y):
            x.add_(1)
            y.mul_(2)
            return x + y

        def args(n):
            return [(store[:4], store[4:8]), (store[:4], store[:4]), (store[:4], store[2:6]), (store[4:8], store[:4])][n % 4]
        return f, args, store
    agree(build, calls=24, runs=8)


def test_aliases_of_what_is_changed():
    def build():
        weight = torch.arange(6.0)
        view, bare, turned = weight[2:4], weight.detach(), weight.view(2, 3).t()

        def f(x):
            weight.mul_(0.5)
            a = view + x[:2]
            bare.add_(1)
            b = turned.sum(1) + weight.view(2, 3)[0]
            view.copy_(a)
            return a, b, bare * 2
        return f, lambda n: (torch.arange(3.0) + n,), weight, view
    agree(build, builds=1, runs=7)


def test_a_parameter_that_gets_other_memory():
    def build():
        net, opt = task()
        calls = itertools.count()

        def step(x, y):
            if next(calls) == 4:
                net[0].weight.data = net[0].weight.data.clone() * 0.5
            return stepped(net, opt, x, y)
        return step, batch, net
    agree(build, builds=1, runs=6)


@pytest.mark.parametrize("write", ["rows", "one of each", "around", "one after the other"])
def test_windows_onto_fresh_memory_that_are_written_one_by_one(write):
    """The second window is a promise already, as the first one is to be written: the call is no new one for that."""
    def build():
        def f(x):
            made = x.new_zeros(4, 3)
            if write == "rows":
                made[0], made[1], made[3] = x, x * 2, x + 1
            elif write == "one of each":  # as labels are shifted for a decoder
                made[:, 1:] = x[:2]
                made[:, 0] = 7
            elif write == "around":
                made[1:3] = x
                made[0], made[3] = made[1] + 1, made[2] * 3
            else:
                made[:2].add_(x)
                made[1:].mul_(2).add_(x)
            return made * 2, made.sum(0)
        return f, lambda n: (torch.arange(3.0) + n,)
    agree(build, builds=1, interpreted=0, runs=6)


def test_windows_that_are_another_time_those_of_others():
    """Windows that were of one tensor when the call was written down, or of two, are the other way round later."""
    def build():
        one, other = torch.zeros(2, 4), torch.zeros(2, 4)

        def f(x, a, b):
            a.mul_(0.5).add_(x)
            b.add_(a)
            return a + b
        pairs = [(one[0], one[1]), (one[0], other[1]), (other[1], other[0]), (one[0], one[0])]
        return f, lambda n: (torch.arange(4.0) + n, *pairs[n // 3 % 4]), one, other
    agree(build, calls=24)


def test_slices_that_move():
    def build():
        data = torch.arange(200.0)
        calls = itertools.count()

        def f(x):
            n = next(calls)
            return torch.stack([data[7 * n:7 * n + 4], data[3 * n + 90:3 * n + 94]]) * x
        return f, lambda n: (torch.full((4,), 0.5),)
    agree(build, builds=1, runs=7)


def test_memory_that_numpy_sees():
    def build():
        outside = np.arange(4, dtype=np.float32)
        shared, own = torch.from_numpy(outside), torch.arange(4.0)
        window = own.numpy()

        def f(x):
            a = shared * x
            outside[0] += 1           # between two reads
            b = shared * x
            c = own + x
            window[1] += 1
            d = own + x
            shared.add_(1)
            return a, b, c, d, float(outside.sum())
        return f, lambda n: (torch.full((4,), float(n)),), lambda: outside.copy(), own
    agree(build, runs=7)


def test_numpy_in_the_middle():
    def build():
        def f(x):
            y = (x * 2).tanh()
            z = torch.from_numpy(np.cumsum(y.numpy()))
            return z * y + np.float32(0.5)
        return f, lambda n: (torch.arange(4.0) - n,)
    agree(build, runs=12)


def test_a_numpy_index_that_changes():
    def build():
        at = np.array([0, 1])

        def f(x):
            a = (x * 2)[at]
            at[:] = (at + 1) % 4
            return a + (x * 3)[at]
        return f, lambda n: (torch.arange(4.0),), lambda: at.copy()
    agree(build)


@pytest.mark.parametrize("look", [
    lambda t: t.item(), lambda t: float(t), lambda t: bool(t > 0), lambda t: t.tolist(), lambda t: str(t), lambda t: f"{t:.3f}",
    lambda t: t.numpy().tolist(), lambda t: np.asarray(t).tolist(), lambda t: pickle.loads(pickle.dumps(t)).item(),
    lambda t: copy.deepcopy(t).item(), lambda t: t.untyped_storage().tolist(), lambda t: t.data_ptr() != 0, lambda t: int(t),
    lambda t: torch.equal(t, t), lambda t: t.is_nonzero(), lambda t: sum(map(float, t.reshape(1))), lambda t: t in t.reshape(1),
    lambda t: len(t.reshape(1).nonzero()), lambda t: np.from_dlpack(t).tolist(), lambda t: np.sqrt(np.abs(t.numpy())).item(),
    lambda t: torch.save(t, io.BytesIO()), lambda t: t.reshape(1)[torch.tensor([True])].item(),
    lambda t: memoryview(t.numpy())[()]], ids=range(23))
def test_looks(look):
    def build():
        total = torch.zeros(())

        def f(x):
            loss = (x * 2).sum()
            total.add_(loss)
            first = look(loss), look(total)
            total.mul_(0.5)
            return first, look(total), loss + 1
        return f, lambda n: (torch.arange(3.0) + n,), total
    agree(build, calls=5, runs=6)


def test_elements_that_are_not_there_are_never_shown():
    """Arrays that are handed out stay promises to NumPy until the program has run."""
    outcome = []

    def f(x):
        y = (x * 2).relu()
        assert type(y._array) is Promise
        window = y._array[1:]
        outcome.append((y._array + 0).tolist())
        assert type(y._array) is np.ndarray is type(window)
        z = x + 1
        outcome.append([memoryview(z._array.data).tolist(), np.sqrt(y._array * y._array).tolist()])
        return y

    g = follow(f)
    for n in range(4):
        g(torch.tensor([n, n + 1.0]))
    assert outcome[-2:] == [[6.0, 8.0], [[4.0, 5.0], [6.0, 8.0]]]
