"""Losses of two arrays on a CUDA device, beside the CPU. Without a GPU the host plays one."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx
from test_cuda import draw
from test_cuda_rows import with_gradients

import flambeau as fl
import flambeau.nn.functional as F

pytestmark = needs_gxx


@pytest.mark.parametrize("loss", [F.mse_loss, F.l1_loss, F.smooth_l1_loss, F.huber_loss, F.soft_margin_loss,
                                  F.binary_cross_entropy_with_logits])
def test_losses(loss, cuda):
    x, y = draw(4, 5), draw(4, 5, seed=1)
    for reduction in ("mean", "sum", "none"):
        with_gradients(lambda x, r=reduction: loss(x, y.to(x.device).sigmoid(), reduction=r), x)


def test_losses_of_parts_and_types(cuda):
    with_gradients(lambda x, y: F.mse_loss(x[:, ::2], y.T), draw(4, 6), draw(3, 4, seed=1))
    with_gradients(F.mse_loss, draw(4, 6, dtype=fl.bfloat16), draw(4, 6, seed=1, dtype=fl.bfloat16))
    x, y = draw(3, 7000, dtype=fl.float64), draw(3, 7000, dtype=fl.float64, seed=1)
    with_gradients(lambda x, y: F.huber_loss(x, y, delta=0.3), x, y)


def test_binary_cross_entropy(cuda):
    x, y, w = draw(4, 5).sigmoid(), draw(4, 5, seed=1).sigmoid(), draw(5, seed=2).abs()
    with_gradients(lambda x: F.binary_cross_entropy(x, y.to(x.device)), x)
    with_gradients(lambda x: F.binary_cross_entropy(x, y.to(x.device), w.to(x.device), reduction="sum"), x)
    with_gradients(lambda x: F.binary_cross_entropy_with_logits(x, y.to(x.device), pos_weight=w.to(x.device)), x)
    with_gradients(lambda x: F.binary_cross_entropy_with_logits(x, y.to(x.device), w.to(x.device),
                                                                pos_weight=w.to(x.device)), x)
    with pytest.raises(RuntimeError, match="all elements of input should be between 0 and 1"):
        F.binary_cross_entropy(x.to(cuda) + 1, y.to(cuda)).item()
