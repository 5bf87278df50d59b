"""Compiled models and functions in programs that are eager otherwise."""

from __future__ import annotations

import copy
import dataclasses
import threading

import pytest
from compare import same
from compiled import programs
from zoo import batches, mlp, numbers

import flambeau as torch
from flambeau import nn, optim
from flambeau.nn import functional as F


# ------------------------------------------------------------------------------------- compiled models in eager training
def fit(model, call, steps=6, make=lambda p: optim.Adam(p, lr=0.01)):
    opt, losses = make(model.parameters()), []
    for x, y in batches(steps):
        opt.zero_grad()
        loss = F.cross_entropy(call(x), y)
        loss.backward()
        opt.step()
        losses.append(loss.item())
    return losses, [p.detach().clone() for p in model.parameters()]


def fresh(*more):
    torch.manual_seed(0)
    return mlp(5, 7, 3, *more)


def test_a_model_with_its_own_compile():
    expected = fit(model := fresh(), model)
    model = fresh()
    model.compile()
    same(expected, fit(model, model))


def test_compiled_layers_of_an_eager_model():
    expected = fit(model := fresh(nn.Dropout(0.3)), model)
    model = fresh(nn.Dropout(0.3))
    for i in (0, 3):
        model[i] = torch.compile(model[i])
    same(expected, fit(model, model))


def test_copies_of_a_compiled_model_go_their_own_way():
    expected = fit(model := fresh(), model)
    first = torch.compile(fresh())
    same(expected, fit(first, first))
    second = copy.deepcopy(first)
    start = [p.detach().clone() for p in first.parameters()]
    fit(second, second)
    same(start, [p.detach() for p in first.parameters()])
    third = fresh()
    third.load_state_dict({k.removeprefix("_orig_mod."): v for k, v in zip(second.state_dict(), start)})
    same([p.detach() for p in second.parameters()], fit(third, third)[1])


def test_train_and_eval_functions_over_the_same_parameters():
    def run(wrap):
        model = fresh(nn.BatchNorm1d(7), nn.Dropout(0.2))
        opt, seen = optim.Adam(model.parameters(), lr=0.01), []

        def train(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss.detach()

        @torch.no_grad()
        def evaluate(x, y):
            out = model(x)
            return F.cross_entropy(out, y), (out.argmax(-1) == y).float().mean()
        train, evaluate = wrap(train), wrap(evaluate)
        for i, (x, y) in enumerate(batches(9)):
            model.train()
            seen.append(train(x, y))
            if i % 3 == 2:
                model.eval()
                seen += evaluate(x, y)
        return seen, list(model.state_dict().values())
    same(run(lambda f: f), run(torch.compile))


def test_a_function_that_becomes_the_loss():
    expected = fit(model := fresh(), model)
    loss = torch.compile(lambda out, y: F.cross_entropy(out, y, label_smoothing=0.0))
    model = fresh()
    opt, losses = optim.Adam(model.parameters(), lr=0.01), []
    for x, y in batches():
        opt.zero_grad()
        value = loss(model(x), y)
        value.backward()
        opt.step()
        losses.append(value.item())
    same(expected, (losses, [p.detach() for p in model.parameters()]))
    assert programs(loss) == 1


@dataclasses.dataclass
class Sample:
    x: torch.Tensor
    y: torch.Tensor
    weight: float = 1.0


def test_keyword_and_dataclass_arguments():
    def run(wrap):
        model = fresh()
        opt = optim.SGD(model.parameters(), lr=0.1)

        def step(sample, *, scale=1.0, mask=None):
            opt.zero_grad()
            out = model(sample.x) if mask is None else model(sample.x * mask)
            loss = F.cross_entropy(out, sample.y) * sample.weight * scale
            loss.backward()
            opt.step()
            return loss.detach()
        step, seen = wrap(step), []
        for i, (x, y) in enumerate(batches(8)):
            extra = {"scale": 2.0, "mask": torch.ones(5)} if i % 2 else {}
            seen.append(step(Sample(x, y, weight=1.0 + i // 4), **extra))
        return seen, [p.detach() for p in model.parameters()]
    same(run(lambda f: f), run(torch.compile))


def test_threads_that_train_models_of_their_own():
    def work(seed, wrap, results):
        torch.manual_seed(0)
        model = mlp()
        opt = optim.SGD(model.parameters(), lr=0.1)

        def step(x, y):
            opt.zero_grad()
            loss = F.cross_entropy(model(x), y)
            loss.backward()
            opt.step()
            return loss.detach()
        step = wrap(step)
        with made:
            model.load_state_dict(start)
        for x, y in batches(12, rows=8 + seed):
            step(x, y)
        results[seed] = [p.detach() for p in model.parameters()]
    made, start = threading.Lock(), mlp().state_dict()
    expected, got = {}, {}
    for wrap, results in ((lambda f: f, expected), (torch.compile, got)):
        threads = [threading.Thread(target=work, args=(i, wrap, results)) for i in range(4)]
        for t in threads:
            t.start()
        for t in threads:
            t.join()
    assert sorted(got) == sorted(expected) == [0, 1, 2, 3]
    same([expected[i] for i in range(4)], [got[i] for i in range(4)])


def test_eager_threads_see_plain_tensors_while_another_captures():
    model, stop, wrong = mlp(), threading.Event(), []
    x = numbers(8, 5)
    expected = model(x).detach().clone()

    def watch():
        while not stop.is_set():
            if not torch.equal(model(x), expected) or type(model[0].weight.detach()._array).__name__ != "ndarray":
                wrong.append(1)
    thread = threading.Thread(target=watch)
    thread.start()
    try:
        for i in range(12):
            torch.compile(lambda v, k=i: model(v) * k)(x)
    finally:
        stop.set()
        thread.join()
    assert not wrong


@pytest.mark.parametrize("whole", [True, False])
def test_autocast_around_the_call(whole):
    """Its precision is part of what a program depends on; weights that it has cast are not shared with the outside."""
    def run(wrap):
        model = fresh(nn.LayerNorm(7))
        opt, seen = optim.SGD(model.parameters(), lr=0.1), []

        def forward(x, y):
            return F.cross_entropy(model(x), y)

        def step(x, y):
            opt.zero_grad()
            loss = forward(x, y)
            loss.backward()
            opt.step()
            return loss.detach()
        step, forward = (wrap(step), forward) if whole else (step, wrap(forward))
        for i, (x, y) in enumerate(batches(8)):
            with torch.autocast("cpu", dtype=torch.float16 if i == 4 else torch.bfloat16, enabled=i != 6):
                model(x)
                seen.append(step(x, y))
                seen.append(model(x).detach().float())
        return seen, [p.detach() for p in model.parameters()], step if whole else forward
    found, expected = run(torch.compile), run(lambda f: f)
    torch.testing.assert_close(found[:2], expected[:2], rtol=2e-3, atol=2e-3)
    assert programs(found[2]) == 3
