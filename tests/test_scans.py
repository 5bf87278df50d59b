"""Running sums and softmax mean what they mean in PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from compare import Tolerance, same
from reduction_cases import SCANS
from test_reductions import DATA, TIES, TOLERANCES, ZEROS, evaluate, gradients

import flambeau


@pytest.mark.parametrize("expression", SCANS)
def test_same_as_pytorch(expression):
    same(evaluate(torch, expression), evaluate(flambeau, expression), TOLERANCES.get)


GRADIENTS = [
    (DATA, "x.cumsum(0)"), (DATA, "x.cumsum(1)"), (DATA, "x.cumprod(1)"), (ZEROS, "x.cumprod(1)"),
    (ZEROS, "x.cumprod(0)"),
    (ZEROS * 0, "x.cumprod(1)"), (TIES, "x.cummax(1)[0]"), (TIES, "x.cummin(0)[0]"), (DATA, "x.logcumsumexp(1)"),
    (DATA, "x.softmax(0)"), (DATA, "x.softmax(1)"), (DATA, "x.log_softmax(0)"), (DATA, "x.log_softmax(1)"),
    (DATA, "x.softmax(1) * x"), (DATA, "x.log_softmax(1).exp()"), (np.array(3.0), "x.softmax(0)"),
    (np.array(3.0), "x.cumsum(0)"), (np.array(3.0), "x.cumprod(0)"),
]


@pytest.mark.parametrize(("data", "expression"), GRADIENTS)
def test_gradients(data, expression):
    expected, got = gradients(torch, data, expression), gradients(flambeau, data, expression)
    same(expected, got, Tolerance(1e-9, 1e-8))


@pytest.mark.parametrize("data", [DATA, ZEROS, ZEROS * 0])
def test_cumprod_at_zeros_without_a_second_derivative(data):
    made = []
    for t in (torch, flambeau):
        x = t.tensor(data.tolist(), dtype=t.float64, requires_grad=True)
        (x.cumprod(1) * t.arange(1.0, 5.0, dtype=t.float64)).sum().backward()
        made.append(x.grad)
    same(*made, 1e-9)


@pytest.mark.parametrize("expression", ["x.cumsum(0)", "x.cumprod(0)", "x.cummax(0)[0]", "x.logcumsumexp(0)",
                                        "x.softmax(0)", "x.log_softmax(0)"])
def test_names_of_nodes(expression):
    made = [type(eval(expression, {"t": t, "x": t.ones(2, 3, requires_grad=True)}).grad_fn).__name__
            for t in (torch, flambeau)]
    assert made[0] == made[1]


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize(("shape", "dim"), [((300, 1000), 1), ((1000, 300), 0), ((8, 50, 600), 1), ((200000,), 0)])
def test_large_softmax(name, shape, dim):
    x = np.random.default_rng(0).standard_normal(shape).astype(np.float32)
    grads = []
    for t in (torch, flambeau):
        leaf = t.from_numpy(x).clone().requires_grad_()
        made = getattr(leaf, name)(dim)
        (made * t.from_numpy(np.ascontiguousarray(x[::-1]))).sum().backward()
        grads.append((made.detach(), leaf.grad))
    same(*grads, Tolerance(2e-4, 2e-6))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("special", ["masked", "empty row", "large", "nan", "tiny"])
def test_softmax_of_special_rows(name, special):
    x = np.random.default_rng(0).standard_normal((90, 100)).astype(np.float32)
    if special == "masked":
        x[:, 50:] = -np.inf
        x[3, 1:50] = -1e30
    elif special == "empty row":
        x[5] = -np.inf
    elif special == "large":
        x *= 1000
    elif special == "nan":
        x[7, 7] = np.nan
    else:
        x -= 70
    for dim in (0, 1):
        e, g = getattr(torch.from_numpy(x), name)(dim), getattr(flambeau.from_numpy(x), name)(dim)
        same(e, g, Tolerance(1e-5, 1e-7))


def test_in_place_scans_keep_the_history():
    for t in (torch, flambeau):
        x = t.tensor([1.0, 2.0, 3.0], requires_grad=True)
        y = x * 1
        y.cumsum_(0)
        y.sum().backward()
        assert x.grad.tolist() == [3.0, 2.0, 1.0]
