"""Native reductions and scans against NumPy in double precision: layouts, NaN and infinities, one and two threads."""

from __future__ import annotations

import numpy as np
import pytest
from compare import EXACT, Tolerance, native_agrees, rounding, same, same_elements

from flambeau.backends.cpu.table import KERNELS
from flambeau.native import library, toolchain

pytestmark = pytest.mark.skipif(toolchain.compiler() is None, reason="no C compiler")
CASES = [((9000,), None), ((9000,), (0,)), ((300, 70), (0,)), ((300, 70), (1,)), ((70000, 3), (0,)), ((3, 70001), (1,)),
         ((20, 50, 30), (1,)), ((20, 50, 30), (0, 1)), ((20, 50, 30), (1, 2)), ((5000, 300), (0,)), ((7, 11, 600), (1,)),
         ((20, 50, 30), (0, 2)), ((400, 500), None), ((2, 100000), (0,)), ((33, 64, 64), (2,)), ((130, 1, 100), (1,))]


def data(shape, kind, seed=0):
    return (np.random.default_rng(seed).normal(size=shape) * 3 + 1).astype(kind)


def near(exact, made, kind, ulps=8):
    """Asserts that a result of this dtype is near what higher precision gives."""
    assert made.dtype == np.dtype(kind)
    same_elements(np.asarray(exact), np.asarray(made), rounding(ulps), dtype=kind)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape, axes", CASES)
@pytest.mark.parametrize("keepdim", [False, True])
def test_sums(shape, axes, keepdim, kind, threads):
    assert library("reduce") is not None
    x = data(shape, kind)
    exact = x.astype(np.longdouble)
    how = dict(axis=axes, keepdims=keepdim)
    total = exact.sum(**how)
    near(total, KERNELS["sum"](x, axes, keepdim), kind)
    near(exact.mean(**how), KERNELS["mean"](x, axes, keepdim), kind)
    near(np.sqrt((exact * exact).sum(**how)), KERNELS["vector_norm"](x, 2, axes, keepdim), kind)
    near(np.abs(exact).sum(**how), KERNELS["vector_norm"](x, 1, axes, keepdim), kind)
    near(np.log(np.exp(exact).sum(**how)), KERNELS["logsumexp"](x, axes, keepdim), kind)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape, axes", [c for c in CASES if c[1] != (0, 2)])
def test_variance(shape, axes, kind, threads):
    x = data(shape, kind) + np.dtype(kind).type(100)
    exact = x.astype(np.longdouble)
    for correction in (0, 1):
        if shape == (130, 1, 100) and correction:
            continue
        spread, middle = KERNELS["var_mean"](x, axes, correction, False)
        near(exact.mean(axis=axes), middle, kind)
        near(exact.var(axis=axes, ddof=correction), spread, kind, 32)
        near(exact.std(axis=axes, ddof=correction), KERNELS["std"](x, axes, correction, False), kind, 32)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape, axes", CASES)
def test_extremes(shape, axes, kind, threads):
    rng = np.random.default_rng(1)
    for bad in (False, True):
        x = rng.integers(-50, 50, shape).astype(kind)  # with ties: the first place counts
        if bad:
            x.reshape(-1)[rng.integers(0, x.size, 12)] = np.nan
            x.reshape(-1)[rng.integers(0, x.size, 12)] = np.inf
        for name in ("amax", "amin"):
            native_agrees(name, x, axes, True)
        if axes is not None and len(axes) > 1:
            continue
        axis = None if axes is None else axes[0]
        for name in ("argmax", "argmin"):
            assert native_agrees(name, x, axis, False).dtype == np.int64
        if axis is not None:
            for name in ("max_dim", "min_dim"):
                native_agrees(name, x, axis, True)


@pytest.mark.parametrize("kind", ["float32", "float64"])
def test_special_values(kind):
    x = data((200, 100), kind)
    x[3, 5], x[7, 7], x[8, 1], x[9, 1], x[9, 2] = np.nan, np.inf, -np.inf, np.inf, -np.inf
    x[11] = -np.inf
    for name in ("sum", "mean", "logsumexp", "amax", "amin"):
        for axes in ((0,), (1,), None):
            native_agrees(name, x, axes, False, tolerance=Tolerance(2e-5 if kind == "float32" else 1e-12, 0))


def test_a_long_sum_stays_exact(threads):
    x = np.full(20_000_000, 0.1, np.float32)
    assert abs(float(KERNELS["sum"](x)) - 0.1 * x.size) / (0.1 * x.size) < 2e-7
    x = np.tile(np.array([1e8, 1.0, -1e8, 1.0], np.float64), 50_000)
    assert KERNELS["sum"](x) == 100_000


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape, axis", [((9001,), 0), ((70, 131), 1), ((70, 131), 0), ((9, 500, 7), 1), ((5, 60, 300), 1),
                                         ((3, 0, 4), 1), ((100000, 2), 0)])
def test_scans(shape, axis, kind, threads):
    x = data(shape, kind)
    exact = x.astype(np.float64)
    near(np.cumsum(exact, axis), KERNELS["cumsum"](x, axis), kind)
    y = 1 + x / np.dtype(kind).type(1000)
    wanted = np.cumprod(y.astype(np.float64), axis).astype(kind)
    same(wanted, KERNELS["cumprod"](y, axis), Tolerance(1e-6 if kind == "float32" else 1e-12, 0))
    strided = np.repeat(x, 2, axis=-1)[..., ::2]
    same(KERNELS["cumsum"](x, axis), KERNELS["cumsum"](strided, axis), EXACT)


@pytest.mark.parametrize("kind", ["float32", "float64"])
@pytest.mark.parametrize("shape, axis", [((9001,), 0), ((70, 131), 1), ((70, 131), 0), ((9, 500, 7), 1), ((3, 4), 1)])
def test_sums_from_the_end(shape, axis, kind, threads):
    x = data(shape, kind)
    wanted = native_agrees("cumsum_from_end", x, axis, tolerance=Tolerance(1e-6, 0))
    exact = np.flip(np.cumsum(np.flip(x, axis).astype(np.float64), axis), axis)
    near(exact, wanted, kind)


@pytest.mark.parametrize("n", [1, 15, 16, 17, 31, 127, 128, 129, 2047, 2048, 2049, 5000])
def test_row_ends(n, threads):
    x = data((70, n), "float32")
    x[0, -1] = np.nan
    for name, arguments in (("sum", ()), ("vector_norm", (1,)), ("vector_norm", (2,))):
        native_agrees(name, x, *arguments, (1,), False, tolerance=1e-4)
