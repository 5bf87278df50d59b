"""Which way a compiled call goes: what has to be followed because its Python has effects or looks at values, and how captured
calls are seen."""

from __future__ import annotations

import gc
import sys
import warnings
import weakref

import pytest
from compiled import agree, programs, same_seen, seen, way, why

import flambeau as torch
import flambeau.nn.functional as F
from flambeau import nn
from flambeau.compiler.capture import watch
from flambeau.compiler.run.function import CompiledFunction

KEPT: list = []


def item(x):
    return x * x.sum().item()


def branch(x):
    if x.sum() > 0:
        return x * 2
    return x * 3


def printed(x):
    print(x)
    return x * 2


def as_numpy(x):
    return x * float((x.numpy() + 1).sum())


def tolist(x):
    return x * len([v for v in x.tolist() if v > 0])


def nonzero(x):
    return x[x.nonzero().flatten()] * 2


def mask(x):
    return x[x > 0] * 2


def number(x):
    return x * int(x.abs().sum())


def unique(x):
    return torch.unique(x) * 2


def equal(x):
    return x if torch.equal(x, x * 2) else x * 5


def looped(x):
    while x.abs().max() < 100:
        x = x * 2
    return x


def text(x):
    return x * len(f"{x.sum():.3f}")


def contains(x):
    return x * (3 if 1.0 in x else 4)


def repeats(x):
    return x.repeat_interleave(x.abs().long()) * 2


@pytest.mark.parametrize("function", [item, branch, printed, as_numpy, tolist, nonzero, mask, number, unique, equal, looped,
                                      text, contains, repeats])
def test_functions_that_look_at_values_are_followed(function, capsys):
    inputs = [torch.tensor([1.0, -2.0, 3.0]), torch.tensor([-1.0, -2.0, 0.5]), torch.tensor([4.0, 2.0, -3.0])] * 4
    fn = torch.compile(function)
    shown = []
    for call in (function, fn):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            shown.append([*[seen(call(x.clone())) for x in inputs], capsys.readouterr().out])
    same_seen(*shown)
    assert way(fn) == "follow" and programs(fn) == 0, why(fn)
    first = function.__code__.co_firstlineno
    assert __file__ in fn._compiled.reasons[0]
    assert first < int(fn._compiled.reasons[0].rpartition("line ")[2].rstrip(")")) <= first + 4
    whole = torch.compile(function, fullgraph=True)
    for n, x in enumerate(inputs[:4]):
        if function in (branch, looped):  # what decides about the Python's way is refused, as by PyTorch
            with pytest.raises(RuntimeError, match=r"fullgraph=True.*a branch depends.*test_compile_ways.py"):
                whole(x)
        else:
            same_seen(shown[0][n], seen(whole(x.clone())))
    x = torch.ones(2)
    assert type(x._array).__name__ == "ndarray" and x.sum().item() == 2  # the failed capture left nothing behind


def kept(x):
    KEPT.append(x * 2)
    return x + 1


class Counting(nn.Module):
    def __init__(self):
        super().__init__()
        self.calls, self.last, self.seen = 0, None, []

    def forward(self, x):
        self.calls += 1
        return x * self.calls


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.last = None

    def forward(self, x):
        self.last = x * 2
        return x + 1


def test_a_tensor_kept_in_a_global_list():
    fn = torch.compile(kept)
    KEPT.clear()
    for i in range(7):
        fn(torch.full((2,), float(i)))
    assert [t[0].item() for t in KEPT] == [0, 2, 4, 6, 8, 10, 12]
    assert way(fn) == "follow", why(fn)
    KEPT.clear()


def test_a_number_kept_in_a_list():
    """A plain Python side effect without tensors must not be lost."""
    log = []

    def f(x):
        log.append(len(x))
        return x * 2
    fn = torch.compile(f)
    for _ in range(7):
        fn(torch.ones(3))
    assert log == [3] * 7 and way(fn) == "follow", why(fn)


def test_a_counter_of_a_module():
    net = Counting()
    fn = torch.compile(net)
    assert [fn(torch.ones(1)).item() for _ in range(8)] == [1, 2, 3, 4, 5, 6, 7, 8] and net.calls == 8
    assert fn._compiled.paths.calls == 6 and "calls" in fn._compiled.reasons[0]


def test_a_counter_of_another_object_and_of_a_global():
    class Count:
        n = 0
    count = Count()

    def f(x):
        count.n += 1
        return x * count.n
    fn = torch.compile(f)
    assert [fn(torch.ones(1)).item() for _ in range(7)] == [1, 2, 3, 4, 5, 6, 7]


def test_a_tensor_kept_by_a_module():
    net = Remembering()
    fn = torch.compile(net)
    for i in range(7):
        fn(torch.full((1,), float(i)))
        assert net.last.item() == 2 * i
    assert way(fn) == "follow", why(fn)


def test_buffer_replaced_by_the_call():
    class Average(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("mean", torch.zeros(1))

        def forward(self, x):
            self.mean = self.mean * 0.5 + x * 0.5
            return self.mean * 1

    def build():
        net = Average()
        return net.forward, net
    agree(build, [(torch.full((1,), float(i)),) for i in range(7)], goes="follow")


def test_random_numbers_of_python():
    import random

    def f(x):
        return x * random.random()
    fn = torch.compile(f)
    random.seed(1)
    expected = [f(torch.ones(1)).item() for _ in range(6)]
    random.seed(1)
    assert [fn(torch.ones(1)).item() for _ in range(6)] == pytest.approx(expected, rel=1e-6)


def test_disable_inside():
    @torch.compiler.disable
    def outside(x):
        return x * 3
    fn = torch.compile(lambda x: outside(x) + 1)
    for i in range(7):
        assert fn(torch.full((1,), float(i))).item() == 3 * i + 1
    assert programs(fn) == 0 and "disable" in fn._compiled.reasons[0]
    with pytest.raises(RuntimeError, match="disable"):
        torch.compile(lambda x: outside(x), fullgraph=True)(torch.ones(1))


def test_backward_through_a_graph_from_outside():
    w = torch.ones(3, requires_grad=True)
    fn = torch.compile(lambda loss: loss.backward())
    for i in range(7):
        fn((w * 2).sum())
        assert w.grad[0].item() == 2 * (i + 1)
    assert way(fn) == "follow", why(fn)


def test_many_values_of_an_argument_do_not_pile_up():
    for kind, most in ((float, 2), (int, 4)):  # floats are run-time numbers; of an int that counts, few values have programs
        fn = torch.compile(lambda x, n: x * n)
        for i in range(12):
            assert fn(torch.ones(2), kind(i))[0].item() == i
        assert 1 <= programs(fn) <= most


def test_loss_functions_that_branch_are_still_captured():
    """Checks inside the library on shapes and dtypes must not end a capture."""
    def f(x):
        return [F.smooth_l1_loss(x, x * 2), F.huber_loss(x, x + 1), F.binary_cross_entropy(x.sigmoid(), x.sigmoid()),
                F.kl_div(x.log_softmax(0), (-x).softmax(0), reduction="sum"), F.mse_loss(x, x * 2), F.l1_loss(x, x * 3),
                F.cosine_similarity(x, x + 1, 0)]
    fn = torch.compile(f, fullgraph=True)
    for _ in range(2):
        same_seen(seen(f(torch.arange(3.0))), seen(fn(torch.arange(3.0))))
    assert programs(fn) == 1


# ------------------------------------------------------------------------------------------------- how calls are seen
def scaled(x, by=3.0):
    return x * by


@pytest.mark.parametrize("native", [True, False])
def test_calls_are_seen(monkeypatch, native):
    """By the C function and, where there is none, by Python: a default of a function that is called is guarded."""
    if not native:
        monkeypatch.setattr(watch, "_native", type(None))
    elif watch._native() is None:
        pytest.skip("native/watch.c could not be built here")
    compiled = torch.compile(lambda x: scaled(x) + 1)
    x = torch.arange(4.0)
    assert compiled(x).tolist() == compiled(x).tolist() == [1, 4, 7, 10]
    monkeypatch.setattr(scaled, "__defaults__", (5.0,))
    assert compiled(x).tolist() == [1, 6, 11, 16]
    assert sys.getprofile() is None


def test_another_profiler_is_put_back():
    seen = []

    def profiler(frame, event, argument):
        seen.append(frame.f_code.co_name)
    sys.setprofile(profiler)
    try:
        torch.compile(lambda x: scaled(x))(torch.ones(2))
        seen.clear()
        scaled(torch.ones(2))
    finally:
        sys.setprofile(None)
    assert "scaled" in seen


def trained(fullgraph=False, inner=None, wrap=torch.compile):
    torch.manual_seed(0)
    model = torch.nn.Linear(3, 2)
    optimizer = torch.optim.Adam(model.parameters())

    def step(x):
        optimizer.zero_grad()
        loss = model(x).square().mean()
        if inner is not None:
            loss = loss + inner(loss)
        loss.backward()
        optimizer.step()
        return loss
    return wrap(step, fullgraph=fullgraph)


def test_the_step_that_makes_the_state_is_not_captured(monkeypatch):
    captures = []
    original = CompiledFunction.capture
    monkeypatch.setattr(CompiledFunction, "capture", lambda self, *a: captures.append(self.name) or original(self, *a))
    step, x = trained(), torch.ones(4, 3)
    step(x)
    assert captures == []
    for _ in range(3):
        step(x)
    assert captures == ["step"]


def test_first_steps_call_other_compiled_functions():
    step = trained(inner=torch.compile(lambda v: v * 2))
    eager = trained(inner=lambda v: v * 2, wrap=lambda f, fullgraph: f)
    for _ in range(4):
        torch.testing.assert_close(step(torch.ones(4, 3)), eager(torch.ones(4, 3)))


def test_whole_graphs_are_asked_for_at_the_first_step():
    with pytest.raises(RuntimeError, match="a branch depends on a tensor's value"):
        trained(fullgraph=True, inner=lambda v: v if v > 0 else -v)(torch.ones(4, 3))


# ------------------------------------------------------------------------------------------------------- what is kept alive
class Settings:
    scale = 2.0


def made(kind):
    """An argument, and something that must live no longer than it."""
    tensor, leaf, settings = torch.ones(2), torch.ones(2, requires_grad=True), Settings()
    return {"tensor": (tensor, tensor), "leaf": (leaf, leaf), "list": ([tensor, 1.0], tensor), "dict": ({"a": leaf}, leaf),
            "object": (settings, settings), "set": ({settings}, settings), "iterator": (iter([settings]), settings)}[kind]


@pytest.mark.parametrize("kind, goes", [("tensor", "skip"), ("leaf", "skip"), ("list", "skip"), ("dict", "skip"),
                                        ("object", "follow"), ("set", "follow"), ("iterator", "follow")])
def test_arguments_are_let_go(kind, goes):
    fn = torch.compile(lambda x, other: x * (other.scale if kind == "object" else 2))
    for _ in range(7):
        argument, inside = made(kind)
        gone = weakref.ref(inside)
        assert fn(torch.ones(3), argument).tolist() == [2.0] * 3
        del argument, inside
        gc.collect()
        assert gone() is None
    assert way(fn) == goes, why(fn)


def test_the_function_and_its_world_are_let_go():
    def make():
        net = nn.Linear(2, 2)
        return torch.compile(lambda x: net(x)), weakref.ref(net)
    for calls in (1, 3, 8):
        fn, net = make()
        for _ in range(calls):
            fn(torch.ones(2))
        del fn
        gc.collect()
        assert net() is None


# ------------------------------------------------------------------------------------------------------------ warnings
def test_an_operation_that_warns_warns_at_each_call():
    fn = torch.compile(lambda x, y: F.mse_loss(x, y))
    for shape in ((3,), (3, 1)):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            for _ in range(6):
                fn(torch.ones(3, 1), torch.ones(shape))
        assert ["different to the input size" in str(w.message) for w in caught] == [True] * (6 if shape == (3,) else 0)
    assert way(fn) == "skip and follow" and "warning" in fn._compiled.reasons[0], why(fn)
