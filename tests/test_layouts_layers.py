"""Strides of results where PyTorch has rules of its own: one-dimensional layers, stack, and others (see test_layouts.py)."""

from __future__ import annotations

import itertools

import pytest
import torch

import flambeau


def value(T, shape, last=False):
    """A tensor; last: with the second dimension the fastest in memory."""
    count = 1
    for n in shape:
        count *= n
    x = ((T.arange(count) * 7919 % 101) / 101).reshape(shape)
    return x.movedim(1, -1).contiguous().movedim(-1, 1) if last else x


LAYERS = {
    "conv1d": lambda T, x, w: T.nn.functional.conv1d(x, w),
    "conv1d, groups": lambda T, x, w: T.nn.functional.conv1d(x, w[:, :1], groups=3),
    "conv_transpose1d": lambda T, x, w: T.nn.functional.conv_transpose1d(x, w),
    "avg_pool1d": lambda T, x, w: T.nn.functional.avg_pool1d(x, 2),
    "max_pool1d": lambda T, x, w: T.nn.functional.max_pool1d(x, 2),
    "max_pool1d, positions": lambda T, x, w: T.nn.functional.max_pool1d(x, 2, return_indices=True),
    "adaptive_avg_pool1d": lambda T, x, w: T.nn.functional.adaptive_avg_pool1d(x, 2),
    "adaptive_max_pool1d": lambda T, x, w: T.nn.functional.adaptive_max_pool1d(x, 2, return_indices=True),
}


@pytest.mark.parametrize("name", LAYERS)
def test_layers_of_one_dimension(name):
    for batch, last, weight_last, recorded, kernel in itertools.product((1, 2), *[(False, True)] * 3, (1, 2)):
        seen = []
        for T in (torch, flambeau):
            x, w = value(T, (batch, 3, 6), last).requires_grad_(recorded), value(T, (3, 3, kernel), weight_last)
            made = LAYERS[name](T, x, w)
            made = made if isinstance(made, tuple) else (made,)
            if recorded:
                made[0].sum().backward()
            seen.append(([(m.stride(), [round(v, 4) for v in m.flatten().tolist()]) for m in made],
                         x.grad.stride() if recorded else None, type(made[0].grad_fn).__name__))
        assert seen[0] == seen[1], (batch, last, weight_last, recorded, kernel)


OTHERS = {
    "stack": lambda T: [T.stack([value(T, (2, 3, 4, 5), True)] * 3, dim) for dim in range(-5, 5)],
    "stack of one format and another": lambda T: [T.stack([value(T, (2, 3, 4, 5), True), value(T, (2, 3, 4, 5))])],
    "stack of volumes": lambda T: [T.stack([value(T, (2, 3, 4, 5, 2), True)] * 2, dim) for dim in (0, 1, 3, 5)],
    "rsub": lambda T: [T.rsub(value(T, (4, 5)).t(), value(T, (5, 4))), T.rsub(value(T, (4, 5)), value(T, (5, 4)).t())],
    "mvlgamma": lambda T: [T.mvlgamma(value(T, (4, 5)).t() + 3, 2)],
    "lstsq": lambda T: [T.linalg.lstsq(T.eye(4, 3) + 1, value(T, (4, 2))).solution,
                        T.linalg.lstsq((T.eye(4, 3) + 1).expand(2, 4, 3), value(T, (2, 4, 2))).solution,
                        T.linalg.lstsq(T.eye(3, 4) + 1, value(T, (3, 2))).solution],
    "histogram": lambda T: T.histogram(value(T, (5,)), bins=T.tensor([0.0, 9.0, 0.5, 9.0, 1.0])[::2]),
    "as_strided_scatter": lambda T: [T.as_strided_scatter(value(T, (3,)).expand(2, 3), T.zeros(2, 2), (2, 2), (1, 2), 0)],
    "conv_transpose3d": lambda T: [
        T.nn.functional.conv_transpose3d(value(T, (1, 3, 4, 4, 4), True), value(T, (3, 2, 2, 2, 2)))],
}


@pytest.mark.parametrize("name", OTHERS)
def test_strides_and_values(name):
    theirs, ours = ([(tuple(t.shape), t.stride(), t) for t in OTHERS[name](T)] for T in (torch, flambeau))
    assert [t[:2] for t in ours] == [t[:2] for t in theirs]
    for a, b in zip(ours, theirs):
        torch.testing.assert_close(torch.tensor(a[2].tolist()), b[2], rtol=1e-4, atol=1e-4)
