"""Losses with a quick way for what most calls bring: the same results and the same complaints as the long way, and PyTorch."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from compare import EXACT, Tolerance, agree

import flambeau

MODULES = (torch, flambeau)


@pytest.mark.filterwarnings("ignore:reduction")
@pytest.mark.parametrize("reduction", ["none", "mean", "sum", "batchmean"])
@pytest.mark.parametrize("log_target", [False, True])
@pytest.mark.parametrize("shape", [(3,), (4, 5), (200, 300)])
def test_kl_div(shape, log_target, reduction):
    rng = np.random.default_rng(0)
    x, t = np.log(rng.random(shape) + 0.01).astype(np.float32), rng.random(shape).astype(np.float32)
    t.flat[0] = 0
    given = np.log(t + np.float32(0.1)) if log_target else t

    def run(m):
        a, b = m.tensor(x, requires_grad=True), m.tensor(given)
        made = m.nn.functional.kl_div(a, b, reduction=reduction, log_target=log_target)
        made.sum().backward()
        return made.detach().numpy(), a.grad.numpy()

    agree(run, Tolerance(3e-6, 1e-6))


def test_kl_div_at_the_edges():
    def run(m):
        x, t = m.tensor([-np.inf, 1.0, 2.0, 3.0]), m.tensor([0.0, np.nan, -1.0, 0.0])
        return (m.nn.functional.kl_div(x, t, reduction="none").numpy(),)

    agree(run, EXACT)


def test_kl_div_differentiates_the_target_too():
    def run(m):
        x, t = m.linspace(-3, -1, 6), m.linspace(0.1, 0.9, 6).requires_grad_()
        m.nn.functional.kl_div(x, t, reduction="sum").backward()
        return (t.grad.numpy(),)

    agree(run, Tolerance(1e-6, 0))


def test_kl_div_of_a_constant_target_is_one_operation():
    x = flambeau.zeros(2, 3, requires_grad=True)
    made = flambeau.nn.functional.kl_div(x, flambeau.ones(2, 3), reduction="none")
    assert made.grad_fn.row.name == "kl_term"


@pytest.mark.parametrize("target, error", [([0, 1], ValueError), ([0, 1, 5], IndexError), ([0.0, 1.0, 2.0], RuntimeError)])
def test_nll_loss_complains_as_before(target, error):
    with pytest.raises(error):
        flambeau.nn.functional.nll_loss(flambeau.zeros(3, 4), flambeau.tensor(target))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("dtype", ["int64", "uint8"])
def test_nll_loss(reduction, dtype):
    x = np.log(np.random.default_rng(0).random((6, 4)))

    def run(m):
        a, t = m.tensor(x, requires_grad=True), m.tensor([0, 3, 1, 2, 2, 0], dtype=getattr(m, dtype))
        made = m.nn.functional.nll_loss(a, t, reduction=reduction, ignore_index=2)
        made.sum().backward()
        return made.detach().numpy(), a.grad.numpy()

    agree(run, Tolerance(1e-15, 0))


@pytest.mark.parametrize("reduction", ["none", "mean", "sum"])
@pytest.mark.parametrize("weighted", [False, True])
@pytest.mark.parametrize("shape", [(6, 4), (3, 5, 2, 2), (300, 40)])
def test_smoothed_cross_entropy(shape, weighted, reduction):
    rng = np.random.default_rng(1)
    x, t = rng.standard_normal(shape), rng.integers(0, shape[1], (shape[0], *shape[2:]))
    t.flat[1] = 3  # ignored

    def run(m):
        a, weight = m.tensor(x, requires_grad=True), m.linspace(0.5, 2, shape[1], dtype=m.float64) if weighted else None
        made = m.nn.functional.cross_entropy(a, m.tensor(t), weight, ignore_index=3, reduction=reduction, label_smoothing=0.2)
        (slope,) = m.autograd.grad(made.square().sum(), a, create_graph=True)
        (curve,) = m.autograd.grad(slope.square().sum(), a)
        return made.detach().numpy(), slope.detach().numpy(), curve.numpy()

    agree(run, Tolerance(1e-12, 1e-14, of_largest=1e-14))


def test_smoothed_cross_entropy_with_nothing_to_count():
    def run(m):
        return (m.nn.functional.cross_entropy(m.zeros(2, 3), m.tensor([1, 1]), ignore_index=1, label_smoothing=0.1).numpy(),)

    agree(run, EXACT)


def test_smoothed_cross_entropy_is_one_operation_behind_log_softmax():
    made = flambeau.nn.functional.cross_entropy(flambeau.zeros(2, 3, requires_grad=True), flambeau.tensor([0, 1]),
                                                label_smoothing=0.1)
    assert type(made.grad_fn).__name__ == "AddBackward0" and made.grad_fn.row.name == "smoothed_nll"
