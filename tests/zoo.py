"""Small models, batches and the table of cases for the tests of compiled training steps (test_compile_zoo*.py)."""

from __future__ import annotations

import flambeau as torch
from flambeau import nn
from flambeau.nn import functional as F


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def labels(n, classes, seed=0):
    return torch.randint(0, classes, (n,), generator=torch.Generator().manual_seed(seed))


def batches(n=6, rows=8, width=5, classes=3):
    return [(numbers(rows, width, seed=i), labels(rows, classes, seed=i)) for i in range(n)]


def inputs(*shape, n=6):
    return [(numbers(*shape, seed=i),) for i in range(n)]


def table(cases):
    """A decorator that enters a builder: with its calls (six batches of rows and labels, unless given), how many programs they
    may take, and which way they go."""
    def zoo(calls=None, most=1, goes="skip"):
        def enter(build):
            cases[build.__name__] = build, calls or batches(), most, goes
            return build
        return enter
    return zoo


def mlp(width=5, hidden=7, out=3, *more):
    return nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), *more, nn.Linear(hidden, out))


def trained(model, optimizer, loss=F.cross_entropy):
    def step(x, y):
        optimizer.zero_grad()
        value = loss(model(x), y)
        value.backward()
        optimizer.step()
        return value
    return step, model, optimizer
