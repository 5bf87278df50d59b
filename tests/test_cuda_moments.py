"""Variance and batch norm on a CUDA device, beside the CPU. Without a GPU the host plays one."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx
from test_cuda import agree, draw
from test_cuda_rows import with_gradients

import flambeau as fl
import flambeau.nn.functional as F

pytestmark = needs_gxx


def test_variance(cuda):
    x = draw(4, 5, 6)
    for dims in ((0,), (1,), (2,), (0, 2), (0, 1), (0, 1, 2)):
        agree(lambda x, d=dims: (x.var(d), x.std(d, keepdim=True), *fl.var_mean(x, d, correction=0)), x)
    with_gradients(lambda x: x.var(1), x)
    agree(lambda x: (x.var(), x[:, ::2, 1:].std(1), *fl.std_mean(x)), x)
    agree(lambda x: (x.var(1), x.std(1)), draw(4, 1))  # nothing is left to divide by
    agree(lambda x: (x.var(), x.var(1), x.T.var(0)), draw(3, 9000) + 1000)


def test_variance_of_halves(cuda):
    agree(lambda x: (x.var(1), x.std(0)), draw(8, 6, dtype=fl.bfloat16))


@pytest.mark.parametrize("shape", [(8, 3), (2, 3, 40, 50)])
def test_batch_norm(shape, cuda):
    kind = fl.float64 if len(shape) == 4 else fl.float32  # long sums that cancel
    w, b = draw(3, seed=1, dtype=kind), draw(3, seed=2, dtype=kind)

    def run(x, w, b, training=True):
        mean, var = fl.full((3,), 0.5, dtype=x.dtype, device=x.device), fl.full((3,), 2.0, dtype=x.dtype, device=x.device)
        made = F.batch_norm(x, mean, var, w, b, training=training)
        return made if not training else fl.cat([made.reshape(-1), mean.detach(), var.detach()])
    with_gradients(run, draw(*shape, dtype=kind), w, b)
    with_gradients(lambda x, w, b: run(x, w, b, False), draw(*shape, dtype=kind), w, b)


def test_batch_norm_of_halves_and_layouts(cuda):
    with_gradients(lambda x: F.batch_norm(x, None, None, training=True), draw(8, 4, 6, dtype=fl.bfloat16))
    agree(lambda x: F.batch_norm(x.to(memory_format=fl.channels_last), None, None, training=True), draw(2, 3, 4, 5))
    agree(lambda x: F.batch_norm(x, fl.zeros(3, device=x.device), fl.ones(3, device=x.device)), draw(5, 3, 7))


@pytest.mark.parametrize("shape, dtype", [((3, 8, 5, 4), fl.bfloat16), ((2, 3, 4, 5), fl.float32),
                                          ((2, 16, 3, 2, 4), fl.float32), ((3, 8, 1, 1), fl.bfloat16)])
def test_batch_norm_of_channels_last_images(shape, dtype, cuda):
    """They stay where they are, and so do their gradients."""
    x, w, b = draw(*shape, dtype=dtype), draw(shape[1], seed=1), draw(shape[1], seed=2)
    last = fl.channels_last if len(shape) == 4 else fl.channels_last_3d
    weights = draw(*shape, seed=3, dtype=fl.bfloat16)

    def run(x, w, b, weights, training=True):
        x, w, b = (t.detach().requires_grad_() for t in (x.contiguous(memory_format=last), w, b))
        mean, var = fl.full(w.shape, 0.5, device=x.device), fl.full(w.shape, 2.0, device=x.device)
        made = F.batch_norm(x, mean, var, w, b, training=training)
        (made * weights.to(made.dtype).contiguous(memory_format=last)).sum().backward()
        assert made.is_contiguous(memory_format=last) and x.grad.is_contiguous(memory_format=last)
        return [t.detach() for t in (made, x.grad, w.grad, b.grad, mean, var)]
    for training in (True, False):
        wanted = run(x.float(), w, b, weights, training)
        got = run(x.to(cuda), w.to(cuda), b.to(cuda), weights.to(cuda), training)
        for there, here in zip(got, wanted):
            near = 1e-4 if there.dtype is fl.float32 else 2 ** -8  # rounded once
            fl.testing.assert_close(there.cpu().float(), here, rtol=near, atol=near / 4)


def test_variance_with_an_element_far_from_all_others(cuda):
    """Sums are of distances from a thread's first element: if that is the one, it counts itself."""
    x = draw(600, 8)
    x[0, 3], x[0, 5], x[70, 6] = 1e6, -1e7, 3e8
    agree(lambda x: (x.var(0), x.T.contiguous().var(1)), x)
    agree(lambda x: (x.var(0), x.T.contiguous().std(1)), draw(600, 8) + 1000)
