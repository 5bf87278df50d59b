"""Gradients that a compiled step hands around: returned, shared between parameters, in one flat tensor, taken from inputs."""

from __future__ import annotations

import pytest
from compiled import agree, programs

import flambeau as torch
from flambeau import nn


def cleared(*params):
    for p in params:
        p.grad = None


def returned(a, b, x):
    (a * b * x).sum().backward()
    return [a.grad, b.grad, a.grad]


def views_returned(a, b, x):
    (a * b * x).sum().backward()
    return a.grad.detach(), b.grad[1:]


def one_for_both(a, b, x):
    (a * a * x).sum().backward()
    b.grad = a.grad


def a_view_for_the_other(a, b, x):
    (a * a * x).sum().backward()
    b.grad = a.grad.detach()[:]


def one_flat_tensor(a, b, x):
    flat = torch.zeros(6)
    a.grad, b.grad = flat[:3], flat[3:]
    (a * b * x).sum().backward()
    return flat.norm()


def a_flat_tensor_returned(a, b, x):
    flat = torch.zeros(6)
    a.grad, b.grad = flat[:3], flat[3:]
    (a * b * x).sum().backward()
    return flat


def an_argument(a, b, x):
    a.grad, b.grad = x * 2, x


def set_by_hand_and_returned(a, b, x):
    a.grad, b.grad = torch.autograd.grad((a * b * x).sum(), (a, b))
    return a.grad


def swapped(a, b, x):
    (a * b * x).sum().backward()
    a.grad, b.grad = b.grad, a.grad


@pytest.mark.parametrize("use", [returned, views_returned, one_for_both, a_view_for_the_other, one_flat_tensor,
                                 a_flat_tensor_returned, an_argument, set_by_hand_and_returned, swapped])
def test_gradients_that_share_memory(use):
    def build():
        a, b = nn.Parameter(torch.arange(1.0, 4)), nn.Parameter(torch.arange(2.0, 5))

        def step(x):
            cleared(a, b)
            return use(a, b, x)
        return step, nn.ParameterList([a, b])
    agree(build, [(torch.full((3,), float(i)),) for i in range(6)], programs_at_most=1)


def test_returned_gradients_stay_unchanged():
    w = nn.Parameter(torch.ones(2))

    @torch.compile
    def step(x):
        w.grad = None
        (w * w * x).sum().backward()
        return w.grad
    kept = [step(torch.full((2,), float(i))) for i in range(5)]
    assert [k.tolist() for k in kept] == [[2.0 * i] * 2 for i in range(5)]
    assert programs(step) == 1
    kept[-1].zero_()
    assert w.grad.tolist() == [0.0, 0.0]
