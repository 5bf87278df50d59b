"""The sums inside batch and group normalization: lengths around whole vectors, blocks and rows, against float64 NumPy."""

from __future__ import annotations

import numpy as np
import pytest
from compare import Tolerance, same_elements

import flambeau
from flambeau import native
from flambeau.backends.cpu.layers.normalization import batch_norm, group_norm

pytestmark = pytest.mark.skipif(native.library("batchnorm") is None, reason="needs a C compiler")
LENGTHS = (1, 7, 8, 15, 16, 17, 31, 49, 63, 64, 65, 127, 255, 1000, 1023, 1024, 1025, 1088, 2100)


@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_statistics(length, dtype):
    x = (np.random.default_rng(length).standard_normal((5, 4, length)) * 3 + 100).astype(dtype)
    wide = x.astype(np.float64)
    bound = Tolerance(3e-6 if dtype is np.float32 else 1e-13, 0)
    for groups in (1, 2, 4):
        rows = wide.reshape(5, groups, -1)
        _, mean, inverse = group_norm(x, groups, None, None, 1e-5)
        same_elements(rows.mean(2), mean, bound)
        same_elements(1 / np.sqrt(rows.var(2) + 1e-5), inverse, bound)
    _, mean, inverse = batch_norm(x, None, None, None, None, True, 0.1, 1e-5)
    same_elements(wide.mean((0, 2)), mean, bound)
    same_elements(1 / np.sqrt(wide.var((0, 2)) + 1e-5), inverse, bound)


@pytest.mark.parametrize("length", LENGTHS[1:])  # (groups of two elements magnify the rounding of their difference)
def test_gradients_are_those_of_float64(length):
    rng = np.random.default_rng(length)
    x, g = rng.standard_normal((6, 4, length)), rng.standard_normal((6, 4, length))
    results = []
    for dtype in (flambeau.float32, flambeau.float64):
        leaves = [flambeau.tensor(a, dtype=dtype, requires_grad=True) for a in (x, np.linspace(0.5, 2, 4), np.ones(4))]
        functional = flambeau.nn.functional
        for made in (functional.group_norm(leaves[0], 2, *leaves[1:]),
                     functional.batch_norm(leaves[0], None, None, *leaves[1:], training=True)):
            made.backward(flambeau.tensor(g, dtype=dtype))
        results.append([leaf.grad.numpy() for leaf in leaves])
    for single, double in zip(*results):
        same_elements(double, single, Tolerance(0, 4e-6, of_largest=4e-6))
