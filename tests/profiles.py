"""Programs that are profiled, for the tests of profilers."""

from __future__ import annotations

import torch

import flambeau

LIBRARIES = [flambeau, torch]


def profiled(t, program, **options):
    with t.profiler.profile(activities=[t.profiler.ProfilerActivity.CPU], **options) as p:
        program(t)
    return p


def leaf(t, *shape):
    return t.linspace(0.1, 1.0, torch.Size(shape).numel()).reshape(shape).clone().requires_grad_()


def both(program, **options):
    return [profiled(t, lambda t: program(t, *made), **options) for t in LIBRARIES for made in [prepared(t)]]


def prepared(t):
    t.manual_seed(0)
    model = t.nn.Sequential(t.nn.Linear(4, 8), t.nn.ReLU(), t.nn.Linear(8, 3))
    return leaf(t, 5, 4), model, t.optim.SGD(model.parameters(), lr=0.1)


def top(p):
    """The names of events that are in no other; what PyTorch frees between them aside."""
    return [e.name for e in p.events() if e.cpu_parent is None and e.name != "[memory]"]


def training(t, x, model, optimizer):
    with t.profiler.record_function("forward"):
        loss = t.nn.functional.mse_loss(model(x.detach()), t.ones(5, 3))
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


def a_line_of_mine(t, x):
    return x.exp()
