"""Calls that native/replay.c repeats: it must notice whatever `Plan.holds` would, and leave behind what `Plan.run` would."""

from __future__ import annotations

import gc
import sys
import threading
import weakref
from collections import namedtuple

import numpy as np
import pytest
from compiled import same_seen, seen

import flambeau as torch
from flambeau import nn, optim
from flambeau.compiler.capture.trees import flatten
from flambeau.compiler.run.plan import Plan
from flambeau.compiler.run.replay import builder

SCALE = 1.5
NESTED = {"a": [1.0, (2.0, [3.0])]}


class Settings:
    factor = 2.0

    def __init__(self):
        self.offset = 0.5


SETTINGS = Settings()


@pytest.fixture
def long_way(monkeypatch):
    """Calls of plans that were not repetitions."""
    taken = []
    run = Plan.run
    monkeypatch.setattr(Plan, "run", lambda self, leaves: taken.append(1) or run(self, leaves))
    return taken


class Trainer:
    """A model with its optimizer, and a step over them as people write it."""

    def __init__(self, compiled, make=lambda p: optim.Adam(p, lr=0.01), zero_inside=True, back=True):
        torch.manual_seed(3)
        self.model = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.BatchNorm1d(5), nn.Linear(5, 2)).double()
        self.optimizer = make(self.model.parameters())
        self.zero_inside = zero_inside

        def step(x, y):
            if zero_inside:
                self.optimizer.zero_grad()
            loss = ((self.model(x) - y) ** 2).mean() * SCALE * NESTED["a"][1][1][0] * SETTINGS.factor + SETTINGS.offset
            if back:
                loss.backward()
                self.optimizer.step()
            return loss
        self.step = torch.compile(step) if compiled else step
        self.draws = np.random.default_rng(0)

    def batch(self, n=6):
        return (torch.from_numpy(self.draws.standard_normal((n, 4))),
                torch.from_numpy(self.draws.standard_normal((n, 2))))

    def seen(self):
        versions = [p._version for p in self.model.parameters()]
        return seen([self.model, self.optimizer, versions])


def pair(**options):
    return Trainer(False, **options), Trainer(True, **options)


def in_step(eager, compiled, calls=5):
    for _ in range(calls):
        same_seen(seen(eager.step(*eager.batch())), seen(compiled.step(*compiled.batch())))
        same_seen(eager.seen(), compiled.seen())


OPTIMIZERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.05), "momentum": lambda p: optim.SGD(p, lr=0.05, momentum=0.9, nesterov=True),
    "Adam": lambda p: optim.Adam(p, lr=0.01), "AdamW amsgrad": lambda p: optim.AdamW(p, lr=0.01, amsgrad=True),
    "RMSprop": lambda p: optim.RMSprop(p, lr=0.01, centered=True), "Adagrad": lambda p: optim.Adagrad(p, lr=0.01),
    "NAdam": lambda p: optim.NAdam(p, lr=0.01), "RAdam": lambda p: optim.RAdam(p, lr=0.01),
}


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_are_repeated_and_equal_eager(name, long_way):
    eager, compiled = pair(make=OPTIMIZERS[name])
    in_step(eager, compiled, 8)
    if name != "RAdam":  # whose first steps are other programs
        before = len(long_way)
        in_step(eager, compiled, 5)
        assert len(long_way) == before


def test_running_numbers_are_no_reason_for_the_long_way(long_way):
    eager, compiled = pair()
    in_step(eager, compiled)
    before = len(long_way)
    for lr in (0.1, 0.03, 1, 1e-3):
        for t in (eager, compiled):
            t.optimizer.param_groups[0]["lr"] = lr
            t.optimizer.param_groups[0]["betas"] = (0.9 - lr / 10, 0.99)
        in_step(eager, compiled, 2)
    assert len(long_way) == before


@pytest.mark.parametrize("to_none", [True, False])
def test_gradients_cleared_outside(to_none, long_way):
    eager, compiled = pair(zero_inside=False)
    for i in range(10):
        if i == 8:
            before = len(long_way)
        for t in (eager, compiled):
            t.optimizer.zero_grad(set_to_none=to_none)
        in_step(eager, compiled, 1)
    assert len(long_way) == before


def test_accumulation(long_way):
    eager, compiled = pair(zero_inside=False)
    for i in range(24):
        if i == 18:
            before = len(long_way)
        if i % 3 == 0:
            for t in (eager, compiled):
                t.optimizer.zero_grad()
        in_step(eager, compiled, 1)
    assert len(long_way) == before


# ------------------------------------------------------------------------------------------------------ what it must notice
def drawn(*shape, **options):
    values = np.random.default_rng(len(shape)).standard_normal(shape)
    return torch.tensor(values, dtype=torch.float64, **options)


def _global(t):
    global SCALE
    SCALE += 1


def _cell(t):
    t.zero_inside = not t.zero_inside


def _nested(t):
    NESTED["a"][1][1][0] += 1


def _key(t):
    NESTED["b"] = 1.0


def _attribute(t):
    SETTINGS.offset += 1


def _class_attribute(t):
    Settings.factor += 1


def _instance_hides_class(t):
    SETTINGS.factor = 7.0


def _whole_dict(t):
    SETTINGS.__dict__ = {"offset": SETTINGS.offset + 3}


def _other_object(t):
    del t.optimizer.state[t.model[0].weight]
    t.model[0].weight = nn.Parameter(drawn(5, 4))
    t.optimizer.param_groups[0]["params"][0] = t.model[0].weight


def _other_memory(t):
    t.model[0].weight.data = drawn(5, 4)


def _other_strides(t):
    t.model[0].weight.data = drawn(4, 5).t()


def _written(t):
    with torch.no_grad():
        t.model[0].weight.mul_(2)


def _eval(t):
    t.model.eval()


def _one_module(t):
    t.model[2].momentum = 0.5


def _no_statistics(t):
    t.model[2].track_running_stats = False


def _frozen(t):
    t.model[0].weight.requires_grad_(False)


def _forward_hook(t):
    t.model[1].register_forward_hook(lambda m, a, out: out * 2)


def _all_modules_hook(t):
    t.handle = nn.modules.module.register_module_forward_hook(lambda m, a, out: out * 1.5)


def _gradient_hook(t):
    t.model[0].weight.register_hook(lambda g: g * 3)


def _accumulation_hook(t):
    def double(p):
        p.grad.mul_(2)
    t.model[0].weight.register_post_accumulate_grad_hook(double)


def _step_hook(t):
    def hook(optimizer, args, kwargs):
        optimizer.param_groups[0]["params"][0].grad.zero_()
    t.optimizer.register_step_pre_hook(hook)


def _maximize(t):
    t.optimizer.param_groups[0]["maximize"] = True


def _less_parameters(t):
    del t.optimizer.state[t.optimizer.param_groups[0]["params"].pop()]


def _another_group(t):
    kept = t.optimizer.param_groups[0]["params"].pop()
    t.optimizer.add_param_group({"params": [kept], "lr": 0.5})


def _state_cleared(t):
    t.optimizer.state.clear()


def _one_state_replaced(t):
    p = t.model[0].weight
    t.optimizer.state[p] = {k: v.clone() for k, v in t.optimizer.state[p].items()}


def _state_tensor_replaced(t):
    t.optimizer.state[t.model[0].weight]["exp_avg"] = drawn(5, 4)


def _loaded(t):
    t.optimizer.load_state_dict(t.optimizer.state_dict())
    t.optimizer.param_groups[0]["lr"] = 0.2


def _model_loaded(t):
    t.model.load_state_dict({k: v * 0.5 for k, v in t.model.state_dict().items()}, assign=False)


CHANGES = [_global, _cell, _nested, _key, _attribute, _class_attribute, _instance_hides_class, _whole_dict, _other_object,
           _other_memory, _other_strides, _written, _eval, _one_module, _no_statistics, _frozen, _forward_hook,
           _all_modules_hook, _gradient_hook, _accumulation_hook, _step_hook, _maximize, _less_parameters, _another_group,
           _state_cleared, _one_state_replaced, _state_tensor_replaced, _loaded, _model_loaded]


@pytest.fixture
def settings_back():
    global SCALE
    before = SCALE, Settings.factor, dict(SETTINGS.__dict__)
    yield
    SCALE, Settings.factor = before[:2]
    SETTINGS.__dict__ = before[2]
    NESTED.clear()
    NESTED["a"] = [1.0, (2.0, [3.0])]


@pytest.mark.parametrize("change", CHANGES, ids=lambda c: c.__name__[1:])
def test_notices(change, settings_back):
    shared = change.__name__ in ("_global", "_nested", "_key", "_attribute", "_class_attribute", "_instance_hides_class",
                                 "_whole_dict")
    eager, compiled = pair(make=lambda p: optim.Adam(p, lr=0.01))
    in_step(eager, compiled, 6)
    assert compiled.step._compiled.replays
    try:
        for t in (compiled,) if shared else (eager, compiled):
            change(t)
        if change is _all_modules_hook:  # for all modules: one is enough
            eager.handle.remove()
        in_step(eager, compiled, 6)
    finally:
        for t in (eager, compiled):
            if hasattr(t, "handle"):
                t.handle.remove()
    in_step(eager, compiled, 2)


ARGUMENTS = {
    "shape": lambda t: t.batch(3),
    "strides": lambda t: (drawn(4, 6).t(), drawn(6, 2)),
    "dtype": lambda t: (drawn(6, 4), drawn(6, 2).float()),
    "step": lambda t: (drawn(12, 4)[::2], drawn(6, 2)),
    "broadcast": lambda t: (drawn(6, 4), drawn(1).expand(6, 2)),
    "requires a gradient": lambda t: (drawn(6, 4, requires_grad=True), drawn(6, 2)),
    "part of a graph": lambda t: (drawn(6, 4, requires_grad=True) * 2, drawn(6, 2)),
    "a number": lambda t: (drawn(6, 4), 0.5),
    "an int": lambda t: (drawn(6, 4), 1),
    "a parameter": lambda t: (drawn(6, 4), t.model[3].bias),
    "a view of a parameter": lambda t: (drawn(6, 4), t.model[3].bias.detach()[None].expand(6, 2)),
    "a state": lambda t: (drawn(6, 4), t.optimizer.state[t.model[3].bias]["exp_avg"][None].expand(6, 2)),
    "a gradient": lambda t: (drawn(6, 4), t.model[3].bias.grad),
}


@pytest.mark.parametrize("what", ARGUMENTS)
def test_notices_arguments(what):
    eager, compiled = pair()
    in_step(eager, compiled)
    for _ in range(5):
        a, b = ARGUMENTS[what](eager), ARGUMENTS[what](compiled)
        same_seen(seen(eager.step(*a)), seen(compiled.step(*b)))
        same_seen(seen([x.grad for x in a if isinstance(x, torch.Tensor) and x.is_leaf]),
                  seen([x.grad for x in b if isinstance(x, torch.Tensor) and x.is_leaf]))
        same_seen(eager.seen(), compiled.seen())
    in_step(eager, compiled)


def test_the_same_argument_twice():
    fn = torch.compile(lambda a, b: (a * 2 + b, a is b))
    a, b = torch.arange(3.0), torch.ones(3)
    for _ in range(2):
        for x, y in ((a, b), (a, a), (b, a), (b, b)):
            for _ in range(4):
                got = fn(x, y)
                assert got[0].tolist() == (x * 2 + y).tolist() and got[1] is (x is y)


def test_modes_and_default_dtype(long_way):
    fn = torch.compile(lambda x: x * torch.ones(3) + torch.tensor(0.1))
    x = torch.arange(3.0, requires_grad=True)
    for _ in range(4):
        for _ in range(4):
            assert fn(x).requires_grad
        with torch.no_grad():
            for _ in range(4):
                assert not fn(x).requires_grad
        with torch.inference_mode():
            for _ in range(4):
                assert fn(x).is_inference()
    torch.set_default_dtype(torch.float64)
    try:
        assert fn(x).dtype is torch.float64
    finally:
        torch.set_default_dtype(torch.float32)
    assert fn(x).dtype is torch.float32
    before = len(long_way)
    for _ in range(4):
        fn(x)
    assert len(long_way) == before


# ------------------------------------------------------------------------------------------- gradients that somebody sees
SEEING = {
    "the tensor": lambda p: p.grad, "a detached view": lambda p: p.grad.detach(), "NumPy's array": lambda p: p.grad.numpy(),
    "a slice": lambda p: p.grad[1:], "the data": lambda p: p.grad.data,
}


@pytest.mark.parametrize("what", SEEING)
@pytest.mark.parametrize("drop", [False, True])
def test_a_gradient_that_is_seen_is_left_alone(what, drop):
    eager, compiled = pair(zero_inside=not drop)
    for t in (eager, compiled):
        t.optimizer.zero_grad()
    in_step(eager, compiled, 6)
    held = SEEING[what](compiled.model[0].weight)
    before = np.array(held.numpy() if isinstance(held, torch.Tensor) else held)
    for _ in range(3):
        if drop:
            for t in (eager, compiled):
                t.optimizer.zero_grad()
        in_step(eager, compiled, 1)
        np.testing.assert_array_equal(held.numpy() if isinstance(held, torch.Tensor) else held, before)


def test_a_gradient_that_was_given_other_memory():
    eager, compiled = pair()
    in_step(eager, compiled, 6)
    for t in (eager, compiled):
        t.model[0].weight.grad.data = drawn(5, 4)
    in_step(eager, compiled, 4)


# ---------------------------------------------------------------------------------------------------------------- the rest
def test_errors_of_the_program():
    table = torch.arange(12.0).reshape(4, 3)
    fn = torch.compile(lambda i: table[i] * 2)
    for _ in range(4):
        assert fn(torch.tensor([1, 2])).tolist() == [[6.0, 8.0, 10.0], [12.0, 14.0, 16.0]]
    for _ in range(3):
        with pytest.raises(IndexError):
            fn(torch.tensor([1, 9]))
    assert fn(torch.tensor([0, 1])).tolist() == [[0.0, 2.0, 4.0], [6.0, 8.0, 10.0]]


def test_nothing_is_leaked_or_lost():
    t = Trainer(True)
    x, y = t.batch()
    for _ in range(6):
        t.step(x, y)
    gc.collect()  # what other tests left
    watched = [None, False, x, y, x._array, *t.model.parameters()]
    counts = [sys.getrefcount(w) for w in watched]
    for _ in range(300):
        t.step(x, y)
    after = [sys.getrefcount(w) for w in watched]
    assert max(abs(a - b) for a, b in zip(counts, after)) < 60, (counts, after)
    assert counts[2:] == after[2:]


def test_a_model_goes_away_with_its_step():
    t = Trainer(True)
    for _ in range(6):
        t.step(*t.batch())
    alive = weakref.ref(t.model), weakref.ref(t.step._compiled)
    del t
    gc.collect()
    assert alive[0]() is None and alive[1]() is None


def test_threads_share_one_function():
    weight = torch.arange(1000.0)
    fn = torch.compile(lambda x: (x * weight).sum() + x[0])
    for _ in range(4):
        fn(torch.ones(1000))
    wrong = []

    def work(n):
        for i in range(200):
            x = torch.full((1000,), float(n + i))
            if fn(x).item() != float((x * weight).sum() + x[0]):
                wrong.append((n, i))
    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not wrong


Pair = namedtuple("Pair", "a b")


@pytest.mark.parametrize("tree", [1, (), (1,), [1, (2, [])], {"a": 1, 5: (2, {"b": [3]})}, Pair(1, (2,)), [Pair(1, 2), ()]])
def test_results_are_put_together(tree):
    leaves: list = []
    shape = flatten(tree, leaves)
    assert builder(shape)(leaves) == tree
    assert type(builder(shape)(leaves)) is type(tree)


def test_without_the_native_part_every_call_goes_the_long_way(monkeypatch, long_way):
    from flambeau.compiler.run import replay
    monkeypatch.setattr(replay, "_native", lambda: None)
    eager, compiled = pair()
    in_step(eager, compiled, 6)
    assert len(long_way) >= 4 and not compiled.step._compiled.replays
