"""Pooling, resizing, padding and rearranging on a CUDA device, beside the CPU."""

from __future__ import annotations

import pytest
from cuda_host import needs_gxx
from test_cuda import agree, draw
from test_cuda_conv import both

import flambeau as fl
from flambeau.nn import functional as F

pytestmark = needs_gxx
HALF = dict(rtol=0.02, atol=0.05)


@pytest.mark.parametrize("pool", [
    lambda x: F.max_pool2d(x, 3, 2, 1), lambda x: F.max_pool2d(x, (2, 3), 1, (1, 0), (2, 1)),
    lambda x: F.max_pool2d(x, 2, ceil_mode=True), lambda x: F.max_pool1d(x[0], 3, 2), lambda x: F.max_pool2d(x, 5, 1, 2),
    lambda x: F.max_pool3d(x[:, None], 2), lambda x: F.avg_pool2d(x, 3, 2, 1),
    lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False), lambda x: F.avg_pool2d(x, 2, ceil_mode=True),
    lambda x: F.avg_pool2d(x, 2, 1, divisor_override=3), lambda x: F.avg_pool1d(x[0], 3, 2, 1),
    lambda x: F.avg_pool3d(x[:, None], 2, 2), lambda x: F.adaptive_avg_pool2d(x, (3, 2)), lambda x: F.adaptive_avg_pool2d(x, 1),
    lambda x: F.adaptive_avg_pool2d(x, (9, 4)), lambda x: F.adaptive_avg_pool1d(x[0], 4), lambda x: F.lp_pool2d(x, 2, 3, 2)])
def test_pooling(pool, cuda):
    both(pool, draw(2, 3, 7, 8).abs())


def test_which_elements_win(cuda):
    x = draw(2, 3, 7, 8)
    x[0, 0, 2:5, 3] = float("nan")
    x[0, 1] = -float("inf")
    x[1, 0] = 1.0
    agree(lambda x: F.max_pool2d(x, 3, 2, 1, return_indices=True), x)
    agree(lambda x: F.max_pool3d(x, (2, 2, 3), 1, (1, 1, 0), return_indices=True), x)
    agree(lambda x: F.max_pool2d(x, (17, 16), 1, (8, 8), return_indices=True), x)  # taps beyond a byte
    agree(lambda x: F.adaptive_max_pool2d(x, (3, 5), return_indices=True), x)
    samples = fl.from_numpy(draw(2, 3, 2).abs().numpy() % 1)
    agree(lambda x, s: F.fractional_max_pool2d(x, 2, (3, 4), _random_samples=s, return_indices=True), x, samples)
    agree(lambda x: F.max_pool2d(x.to(fl.int64), 2), draw(2, 3, 6, 6))
    agree(lambda x: F.max_unpool2d(*F.max_pool2d(x, 2, return_indices=True), 2), draw(2, 3, 6, 6))
    bad = fl.full((1, 1, 1, 1), 9, dtype=fl.int64, device=cuda)
    with pytest.raises(RuntimeError, match="Found an invalid max index: 9"):
        F.max_unpool2d(fl.ones(1, 1, 1, 1, device=cuda), bad, 2)


@pytest.mark.parametrize("dtype", [fl.float64, fl.bfloat16])
def test_dtypes(dtype, cuda):
    x = draw(2, 3, 6, 8, dtype=dtype)
    tolerance = HALF if dtype is fl.bfloat16 else None
    both(lambda x: F.max_pool2d(x, 3, 2, 1), x, tolerance=tolerance)
    both(lambda x: F.avg_pool2d(x, 3, 2, 1), x, tolerance=tolerance)
    both(lambda x: F.interpolate(x, scale_factor=1.5, mode="bilinear"), x, tolerance=tolerance)


def test_channels_last(cuda):
    x = draw(2, 3, 6, 8).to(memory_format=fl.channels_last)
    agree(lambda x: (F.max_pool2d(x, 2), F.avg_pool2d(x, 2), F.adaptive_avg_pool2d(x, 2), F.interpolate(x, scale_factor=2)), x)
    both(lambda x: F.max_pool2d(x, 3, 2, 1), x)


@pytest.mark.parametrize("arguments", [
    dict(scale_factor=2), dict(size=(5, 9)), dict(size=(9, 3), mode="nearest-exact"), dict(scale_factor=1.7, mode="bilinear"),
    dict(size=(9, 4), mode="bilinear", align_corners=True), dict(size=(11, 5), mode="bicubic"),
    dict(size=(3, 4), mode="bilinear", antialias=True), dict(size=(3, 4), mode="bicubic", antialias=True),
    dict(size=(3, 4), mode="area")])
def test_interpolation(arguments, cuda):
    both(lambda x: F.interpolate(x, **arguments), draw(2, 3, 7, 8))


def test_interpolation_of_lines_and_volumes(cuda):
    both(lambda x: F.interpolate(x, scale_factor=2.5, mode="linear"), draw(2, 3, 7))
    both(lambda x: F.interpolate(x, size=(3, 7, 4), mode="trilinear"), draw(2, 1, 4, 5, 3))
    agree(lambda x: F.interpolate(x, scale_factor=2), draw(1, 2, 3, 4).abs().to(fl.uint8))
    agree(lambda x: F.interpolate(x[..., ::2], scale_factor=2), draw(1, 2, 3, 8))


@pytest.mark.parametrize("mode", ["reflect", "replicate", "circular"])
def test_padding(mode, cuda):
    both(lambda x: F.pad(x, (2, 1, 1, 3), mode=mode), draw(2, 3, 5, 6))
    both(lambda x: F.pad(x, (2, 0), mode=mode), draw(2, 3, 5))
    both(lambda x: F.pad(x, (1, 1, 2, 1, 0, 2), mode=mode), draw(1, 2, 4, 5, 3))
    agree(lambda x: F.pad(x, (2, 1), mode=mode), draw(2, 3, 5, dtype=fl.complex128))
    agree(lambda x: F.pad(x, (1, 0), mode=mode), draw(2, 3, 5, dtype=fl.int64))


def test_rearranging(cuda):
    both(lambda x: F.pixel_shuffle(x, 2), draw(2, 8, 3, 4))
    both(lambda x: F.pixel_unshuffle(x, 2), draw(2, 2, 4, 6))
    both(lambda x: F.channel_shuffle(x, 3), draw(2, 6, 3, 2))


@pytest.mark.parametrize("mode", ["bilinear", "nearest", "bicubic"])
def test_points_of_a_grid(mode, cuda):
    x, grid = draw(2, 3, 5, 6, dtype=fl.float64), draw(2, 4, 3, 2, seed=1, dtype=fl.float64) / 2
    grid[0, 0, 0, 0] = float("nan")
    for padding, align in (("zeros", False), ("border", True), ("reflection", False), ("reflection", True)):
        agree(lambda x, g, p=padding, a=align: F.grid_sample(x, g, mode=mode, padding_mode=p, align_corners=a), x, grid)


def test_points_of_a_volume(cuda):
    agree(lambda x, g: F.grid_sample(x, g, align_corners=False), draw(1, 2, 3, 4, 5), draw(1, 2, 2, 3, 3, seed=1) / 3)
