"""Hyper-parameters are read at each call, whatever way they take through an optimizer."""

from __future__ import annotations

import math

import numpy as np
import pytest
from compiled import programs, same_seen, seen

import flambeau as torch
from flambeau import optim


class Own(optim.Optimizer):
    """As people write them."""

    def __init__(self, params, lr):
        super().__init__(params, {"lr": lr, "beta": 0.9})

    @torch.no_grad()
    def step(self):
        for group in self.param_groups:
            for p in group["params"]:
                state = self.state[p]
                if not state:
                    state["mean"] = torch.zeros_like(p)
                state["mean"].mul_(group["beta"]).add_(p.grad * (1 - group["beta"]))
                p.data.mul_(1 - group["lr"] * 0.1)
                p -= math.sqrt(group["lr"]) * 0.1 * state["mean"]
                p.add_(p.grad, alpha=-group["lr"])


MAKERS = {
    "SGD": lambda p: optim.SGD(p, lr=0.1, momentum=0.9, weight_decay=0.1), "Adam": lambda p: optim.Adam(p, lr=0.1),
    "AdamW": lambda p: optim.AdamW(p, lr=0.1), "NAdam": lambda p: optim.NAdam(p, lr=0.1, weight_decay=0.1),
    "Adamax": lambda p: optim.Adamax(p, lr=0.1), "Adadelta": lambda p: optim.Adadelta(p, lr=0.5),
    "Adagrad": lambda p: optim.Adagrad(p, lr=0.1, lr_decay=0.1), "RMSprop": lambda p: optim.RMSprop(p, lr=0.1, momentum=0.5),
    "Rprop": lambda p: optim.Rprop(p, lr=0.1), "own": lambda p: Own(p, 0.1),
}


def weights(maker, dtype, transposed, compiled):
    rng = np.random.default_rng(1)
    w = torch.from_numpy(rng.standard_normal((4, 5))).to(dtype)
    w = (w.t() if transposed else w).detach().requires_grad_()
    optimizer = maker([w])

    def step(x):
        optimizer.zero_grad()
        loss = ((w * x).tanh() ** 2).mean()
        loss.backward()
        optimizer.step()
        return loss
    run = torch.compile(step) if compiled else step
    group = optimizer.param_groups[0]
    for i in range(12):
        group["lr"] *= 0.8 if i % 3 == 0 else 1
        if i % 4 == 0 and "betas" in group:
            group["betas"] = (0.8 + i / 100, 0.95)
        run(torch.from_numpy(rng.standard_normal(tuple(w.shape))).to(dtype))
        yield seen([w, w.grad, dict(optimizer.state[w])])
    if compiled:
        assert programs(run) == 1, run._compiled.reasons


@pytest.mark.parametrize("transposed", [False, True])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize("name", MAKERS)
def test_one_program_for_all_values(name, dtype, transposed):
    eager, compiled = (weights(MAKERS[name], dtype, transposed, c) for c in (False, True))
    for a, b in zip(eager, compiled, strict=True):
        same_seen(a, b, 1e-5 if dtype is torch.float32 else 1e-12)


def test_a_number_that_python_takes_is_guarded():
    class Rounding(optim.SGD):
        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.sub_(p.grad * round(group["lr"], 1))

    w = torch.ones(3, requires_grad=True)
    optimizer = Rounding([w], lr=0.52)

    @torch.compile
    def step():
        optimizer.zero_grad()
        (w * w).sum().backward()
        optimizer.step()
    expected = 1.0
    for lr in (0.52, 0.52, 0.52, 0.31, 0.31, 0.52, 0.31):
        optimizer.param_groups[0]["lr"] = lr
        step()
        expected -= 2 * expected * round(lr, 1)
        np.testing.assert_allclose(w.detach().numpy(), np.full(3, expected, np.float32), rtol=1e-6)
    assert programs(step) == 2
