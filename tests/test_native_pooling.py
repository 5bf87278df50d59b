"""Native pooling against NumPy's: windows of all kinds, nan and -inf, one to three dimensions."""

from __future__ import annotations

import numpy as np
import pytest
from compare import Tolerance, native_agrees, rounding
from lowered import run_lowered

import flambeau
from flambeau import native
from flambeau.backends.cpu.table import KERNELS
from flambeau.ops.layers.pooling import pooled_size

pytestmark = [pytest.mark.skipif(native.library("pool") is None, reason="needs a C compiler"),
              pytest.mark.usefixtures("threads")]
DTYPES = (np.float32, np.float64)
# shape, kernel, stride, padding, dilation, ceil_mode
WINDOWS = [
    ((2, 3, 8, 8), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((3, 24, 24), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((2, 2, 7, 9), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((2, 2, 7, 9), (2, 2), (2, 2), (0, 0), (1, 1), True),
    ((1, 2, 9, 11), (3, 3), (2, 2), (1, 1), (1, 1), False),
    ((1, 2, 10, 13), (3, 2), (1, 3), (1, 1), (2, 1), True),
    ((2, 1, 5, 1100), (1, 3), (1, 1), (0, 1), (1, 1), False),
    ((1, 1, 4, 2100), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((1, 1, 40, 40), (17, 17), (5, 6), (8, 3), (1, 1), False),
    ((2, 2, 6, 7, 8), (2, 2, 2), (2, 2, 2), (0, 0, 0), (1, 1, 1), False),
    ((1, 2, 6, 7, 8), (3, 2, 3), (1, 2, 2), (1, 1, 1), (1, 2, 1), True),
    ((0, 3, 8, 8), (2, 2), (2, 2), (0, 0), (1, 1), False),
    ((64, 8, 24, 24), (2, 2), (2, 2), (0, 0), (1, 1), False),
]
ADAPTIVE = [((2, 3, 8, 8), (1, 1)), ((2, 3, 7, 9), (3, 4)), ((1, 2, 5, 5), (7, 5)), ((3, 2, 4, 6, 5), (2, 3, 5)),
            ((16, 32, 24, 24), (7, 7)), ((2, 3, 30, 50), (1, 1))]


def numbers(shape, dtype, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(dtype)


def ulps(count):
    """So many units in the last place of the element, or of 1: windows are small."""
    return lambda dtype: Tolerance(*rounding(count)(dtype)[:2])


def spoiled(x):
    """Some nan, inf and -inf, and many equal elements."""
    x = np.round(x)
    rng = np.random.default_rng(3)
    for value in (np.nan, np.inf, -np.inf):
        x[rng.random(x.shape) < 0.06] = value
    return x


def out_size(shape, kernel, stride, padding, dilation, ceil):
    last = shape[len(shape) - len(kernel):]
    return tuple(pooled_size(n, k, s, p, d, ceil) for n, k, s, p, d in zip(last, kernel, stride, padding, dilation))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", WINDOWS)
@pytest.mark.parametrize("spoil", [False, True])
def test_maximum(case, dtype, spoil):
    shape, kernel, stride, padding, dilation, ceil = case
    size, out = shape[len(shape) - len(kernel):], out_size(*case)
    x = numbers(shape, dtype)
    x = spoiled(x) if spoil else x
    _, winners = native_agrees("max_pool", x, kernel, stride, padding, dilation, out, ceil)
    native_agrees("max_pool_values", x, kernel, stride, padding, dilation, out)
    native_agrees("max_pool_indices", winners, size, kernel, stride, padding, dilation)
    grad = numbers(winners.shape, dtype, 1)
    native_agrees("max_pool_scatter", grad, winners, size, kernel, stride, padding, dilation, tolerance=ulps(16))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("case", [c for c in WINDOWS if set(c[4]) == {1}])
@pytest.mark.parametrize("include_pad,override", [(True, None), (False, None), (True, 3)])
def test_average(case, dtype, include_pad, override):
    shape, kernel, stride, padding, _, _ = case
    size, out = shape[len(shape) - len(kernel):], out_size(*case)
    x = numbers(shape, dtype)
    native_agrees("avg_pool", x, kernel, stride, padding, out, include_pad, override, tolerance=ulps(16))
    grad = numbers((*shape[:len(shape) - len(kernel)], *out), dtype, 1)
    native_agrees("avg_pool_grad", grad, size, kernel, stride, padding, include_pad, override, tolerance=ulps(32))


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape,out", ADAPTIVE)
def test_adaptive(shape, out, dtype):
    x = numbers(shape, dtype)
    native_agrees("adaptive_avg_pool", x, out, tolerance=ulps(32))
    grad = numbers((*shape[:len(shape) - len(out)], *out), dtype, 1)
    native_agrees("adaptive_avg_pool_grad", grad, shape[len(shape) - len(out):], tolerance=ulps(32))
    for given in (x, spoiled(x)):
        native_agrees("adaptive_max_pool", given, out)


@pytest.mark.parametrize("dtype", DTYPES)
def test_strided_arguments(dtype):
    base = numbers((2, 9, 10, 3), dtype)
    x = base.transpose(0, 3, 1, 2)
    args = ((3, 3), (2, 2), (1, 1), (1, 1), (5, 5))
    _, winners = native_agrees("max_pool", x, *args)
    grad = np.broadcast_to(dtype(2), winners.shape)
    native_agrees("max_pool_scatter", grad, winners[::-1], (9, 10), *args[:4], tolerance=ulps(16))
    native_agrees("avg_pool", x, (3, 3), (2, 2), (1, 1), (5, 5), True, None, tolerance=ulps(16))
    native_agrees("adaptive_avg_pool", x, (4, 3), tolerance=ulps(16))


def test_gradients_follow_the_first_element_of_a_window_of_minus_infinities():
    x = flambeau.full((1, 1, 3, 3), -float("inf"), requires_grad=True)
    for off in (False, True):
        x.grad = None
        with native.off() if off else flambeau.enable_grad():
            flambeau.nn.functional.max_pool2d(x, 3, 2, 1).sum().backward()
        assert x.grad.tolist() == [[[[1, 1, 0], [1, 1, 0], [0, 0, 0]]]]


@pytest.mark.parametrize("dtype", DTYPES)
def test_lowerings(dtype, threads):
    if threads > 1:
        pytest.skip("the code is the same")
    cases = []
    for case in [c for c in WINDOWS if 0 not in c[0]][:11]:
        shape, kernel, stride, padding, dilation, ceil = case
        size, out = shape[len(shape) - len(kernel):], out_size(*case)
        x, grad = numbers(shape, dtype), numbers((*shape[:len(shape) - len(kernel)], *out), dtype, 1)
        cases.append(("max_pool", (x, kernel, stride, padding, dilation, out, ceil)))
        cases.append(("max_pool_values", (x, kernel, stride, padding, dilation, out)))
        which = KERNELS["max_pool"](x, kernel, stride, padding, dilation, out)[1]
        cases.append(("max_pool_scatter", (grad, which, size, kernel, stride, padding, dilation)))
        cases.append(("max_pool_indices", (which, size, kernel, stride, padding, dilation)))
        if set(dilation) == {1}:
            cases.append(("avg_pool", (x, kernel, stride, padding, out, False, None)))
            cases.append(("avg_pool_grad", (grad, size, kernel, stride, padding, True, 5)))
    for shape, out in ADAPTIVE:
        x, grad = numbers(shape, dtype), numbers((*shape[:len(shape) - len(out)], *out), dtype, 1)
        cases.append(("adaptive_avg_pool", (x, out)))
        cases.append(("adaptive_avg_pool_grad", (grad, shape[len(shape) - len(out):])))
        cases.append(("adaptive_max_pool", (x, out)))
    for (name, args), made in zip(cases, run_lowered(cases)):
        expected = KERNELS[name](*args)
        for got, wanted in zip(made, expected if isinstance(expected, tuple) else (expected,)):
            np.testing.assert_array_equal(got, wanted, err_msg=name)
