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
