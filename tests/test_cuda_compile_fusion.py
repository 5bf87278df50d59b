"""Pointwise operations that share a kernel on a CUDA device: the same elements, to the bit, as one kernel for each.

(The host that plays a GPU has no fused multiply-adds; on a GPU a product and a sum in one kernel may be rounded once.)
"""

from __future__ import annotations

import random

import numpy as np
import pytest
from cuda_host import needs_gxx
from cuda_programs import draw, kernels

import flambeau as torch
import flambeau.nn.functional as F
from flambeau.backends.cuda import driver

pytestmark = needs_gxx


@pytest.fixture(autouse=True)
def device(cuda):
    """Every test is on a CUDA device."""


def same(got, wanted):
    exact = not isinstance(driver.machine(), driver.Machine)
    for g, w in zip(got, wanted, strict=True):
        assert (g.dtype, g.shape, g.stride()) == (w.dtype, w.shape, w.stride())
        if exact:
            np.testing.assert_array_equal(g.float().cpu().numpy(), w.float().cpu().numpy())
        else:
            torch.testing.assert_close(g, w, equal_nan=True)


CASES = {
    "a chain": (lambda x, y: ((x * 2 + y).tanh() - 0.5) * x, 1),
    "half precision in between": (lambda x, y: (x.bfloat16() + y.bfloat16()).float().exp().half(), 1),
    "several results": (lambda x, y: ((z := x + y), z * z, z.sigmoid().bfloat16()), 1),
    "masks and choices": (lambda x, y: torch.where(x > y, x, y * 2).masked_fill(x < 0, 1.5) * (y != 0), None),
    "numbers without a type": (lambda x, y: (x / 3).clamp(-0.5, float("inf")).pow(2) + 7, 1),
    "a scalar on the device": (lambda x, y: (x * y.max()) + y.max() * 2 - x, None),
    "gelu of half precision": (lambda x, y: F.gelu(x.bfloat16().float(), approximate="tanh").bfloat16(), 1),
    "another layout": (lambda x, y: ((x.t() + y.t()).exp() - 1).abs(), 1),
    "whole numbers": (lambda x, y: ((x * 10).int() + (y * 10).int()).mul(7).long() * 3, None),
    "two sizes": (lambda x, y: (x.exp() + 1, (x[:3].contiguous() * 2).sin()), None),
}


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("shape", [(4, 6), (37, 53)])
def test_groups(name, shape):
    function, count = CASES[name]
    compiled = torch.compile(function)
    for seed in range(4):
        x, y = draw(*shape, seed=seed), draw(*shape, seed=seed + 9)
        got, wanted = compiled(x, y), function(x, y)
        same(*[r if isinstance(r, tuple) else (r,) for r in (got, wanted)])
    assert "fused" in kernels(compiled)
    assert count is None or kernels(compiled) == ["fused"] * count


def test_addresses_that_are_no_multiple_of_16():
    compiled = torch.compile(lambda x: (x[1:] + 1).exp() * 2)
    for seed in range(3):
        x = draw(50, seed=seed)
        same((compiled(x),), ((x[1:] + 1).exp() * 2,))
    assert kernels(compiled) == ["fused"]


def test_changes_in_place_keep_their_order():
    def build():
        state, other = draw(5, 7, seed=1), draw(5, 7, seed=2)

        def step(x):
            before = state * 2
            state.mul_(0.5).add_(x)
            after = state + before
            other.copy_(after.relu())
            state.sub_(other)
            return before, after - other
        return step, state, other
    (plain, *wanted), (function, *got) = build(), build()
    compiled = torch.compile(function)
    for seed in range(4):
        x = draw(5, 7, seed=seed)
        same((*compiled(x), *got), (*plain(x), *wanted))
    assert "fused" in kernels(compiled)


def test_widened_elements_are_read_as_they_were():
    """gelu's backward pass reads what the product gave, not a float32 copy that the forward pass would have to write."""
    x = draw(8, 4).bfloat16()
    w = draw(6, 4, seed=1).bfloat16().requires_grad_()

    def step(x):
        w.grad = None
        y = F.gelu((x @ w.t()).float(), approximate="tanh")
        y.square().sum().backward()
        return y.detach().sum()
    step(x)
    wanted = w.grad.clone()
    compiled = torch.compile(step)
    for _ in range(3):
        compiled(x)
        same((w.grad,), (wanted,))
    assert not {"cast", "_to_copy"} & set(kernels(compiled)[:3])


@pytest.mark.parametrize("seed", range(24))
def test_random_programs(seed):
    """Random operations, in place too, on tensors and views of them."""
    choose = random.Random(seed)
    lines = []
    for _ in range(choose.randint(4, 14)):
        a, b, c = (choose.randrange(4) for _ in range(3))
        lines.append(choose.choice([
            f"t[{a}] = t[{b}] * t[{c}]", f"t[{a}] = t[{b}] + t[{c}] * 0.5", f"t[{a}] = t[{b}].tanh()",
            f"t[{a}].add_(t[{b}])", f"t[{a}].mul_(0.75)", f"t[{a}].copy_(t[{b}])", f"t[{a}] = t[{b}].bfloat16().float()",
            f"t[{a}] = torch.where(t[{b}] > 0, t[{c}], t[{b}])", f"t[{a}][1:3].add_(1)", f"t[{a}] = t[{b}] - t[{c}].sum()",
            f"t[{a}] = t[{b}].t().contiguous().t()", f"t[{a}][0].copy_(t[{b}][1])", f"t[{a}] = t[{b}].half().relu().float()"]))
    names = {}
    exec("def body(t, torch):\n    " + "\n    ".join(lines), names)
    body = names["body"]

    def run(compiled):
        state = [draw(5, 6, seed=n) for n in range(2)]

        def step(x, y):
            t = [*state, x * 1, y * 1]
            body(t, torch)
            return tuple([v * 1 for v in t])
        step = torch.compile(step) if compiled else step
        return [[*step(draw(5, 6, seed=10 + n), draw(5, 6, seed=20 + n)), *[s.clone() for s in state]] for n in range(3)]
    for got, wanted in zip(run(True), run(False)):
        same(got, wanted)
