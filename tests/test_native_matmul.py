"""The native matrix products against NumPy, through the C functions, the kernels and the compiler's lowerings."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from compare import native_agrees, products, same, same_elements
from lowered import run_lowered

from flambeau import native
from flambeau.backends.cpu.linalg import gemm
from flambeau.backends.cpu.table import KERNELS
from flambeau.native import pointer

LIBRARY = native.library("gemm")
pytestmark = pytest.mark.skipif(LIBRARY is None, reason="no C compiler")
SIZES = [(1, 1, 1), (3, 5, 7), (8, 48, 16), (9, 50, 33), (16, 32, 8), (64, 10, 100), (130, 131, 129), (49, 400, 321),
         (100, 97, 700), (2, 1000, 3), (300, 2, 5), (1, 70, 40), (70, 1, 40), (5, 6, 0), (1, 1037, 67),
         (1037, 1, 67), (1, 3, 1), (1, 21, 2100), (21, 1, 2100), (1, 1037, 300)]
SUFFIX = {np.float32: "f32", np.float64: "f64"}


@pytest.fixture
def rng():
    return np.random.default_rng(0)


def matrix(rng, rows, columns, turned, dtype, extra=0):
    """(memory, the matrix it holds): stored transposed if turned, with `extra` unused columns."""
    held = rng.standard_normal((columns, rows + extra) if turned else (rows, columns + extra)).astype(dtype)
    return held, (held[:, :rows].T if turned else held[:, :columns])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("ta,tb", [(0, 0), (0, 1), (1, 0), (1, 1)])
def test_gemm(threads, rng, dtype, ta, tb):
    for (m, n, k), (alpha, beta), extra in itertools.product(SIZES, [(1, 0), (1, 1), (0.5, -2)], (0, 3)):
        (ma, a), (mb, b) = matrix(rng, m, k, ta, dtype, extra), matrix(rng, k, n, tb, dtype, extra)
        mc, c = matrix(rng, m, n, 0, dtype, extra)
        want = alpha * (a.astype(np.float64) @ b.astype(np.float64)) + beta * c.astype(np.float64)
        beyond = mc[:, n:].copy()
        if beta == 0:
            c[...] = np.nan  # not looked at
        run = getattr(LIBRARY, "fl_gemm_" + SUFFIX[dtype])
        run(ta, tb, m, n, k, alpha, pointer(ma), ma.shape[1], pointer(mb), mb.shape[1], beta, pointer(mc), mc.shape[1])
        same_elements(want, c, products(k), dtype=np.dtype(dtype).name)
        assert np.array_equal(mc[:, n:], beyond)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_one_thread_gives_the_same(threads, rng, dtype):
    a, b = rng.standard_normal((70, 90)).astype(dtype), rng.standard_normal((90, 110)).astype(dtype)
    made = np.empty((70, 110), dtype), np.empty((70, 110), dtype)
    for name, c in zip(("fl_gemm_", "fl_gemm1_"), made):
        getattr(LIBRARY, name + SUFFIX[dtype])(0, 0, 70, 110, 90, 1.0, pointer(a), 90, pointer(b), 110, 0.0, pointer(c), 110)
    assert np.array_equal(*made)


@pytest.mark.parametrize("ta,tb", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("m,n", [(1, 1041), (1041, 1)])
def test_a_vector_shared_among_threads(threads, rng, ta, tb, m, n):
    """The last share is of one element, whose sum must be taken in the same order."""
    (ma, _), (mb, _) = matrix(rng, m, 530, ta, np.float32), matrix(rng, 530, n, tb, np.float32)
    made = np.empty((m, n), np.float32), np.empty((m, n), np.float32)
    for name, c in zip(("fl_gemm_f32", "fl_gemm1_f32"), made):
        getattr(LIBRARY, name)(ta, tb, m, n, 530, 1.0, pointer(ma), ma.shape[1], pointer(mb), mb.shape[1], 0.0, pointer(c), n)
    assert np.array_equal(*made)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("count,m,n,k", [(1, 40, 50, 60), (7, 33, 17, 50), (64, 12, 12, 64), (3, 5, 0, 4), (5, 1, 9, 35),
                                         (5, 9, 1, 35)])
def test_batches(threads, rng, dtype, count, m, n, k):
    a, b = rng.standard_normal((count, m, k)).astype(dtype), rng.standard_normal((count, n, k)).astype(dtype)
    out = np.empty((count, m, n), dtype)
    getattr(LIBRARY, "fl_bgemm_" + SUFFIX[dtype])(count, 0, 1, m, n, k, 1.0, pointer(a), k, m * k, pointer(b), k, n * k, 0.0,
                                                 pointer(out), max(n, 1), m * n)
    same_elements(a.astype(np.float64) @ b.astype(np.float64).swapaxes(1, 2), out, products(k), dtype=np.dtype(dtype).name)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("m,n,k", [(3, 5, 0), (20, 33, 700), (100, 130, 60), (1, 1100, 70), (40, 1, 70)])
def test_linear_adds_a_bias_per_column(threads, rng, dtype, m, n, k):
    x, w = rng.standard_normal((m, k)).astype(dtype), rng.standard_normal((n, k)).astype(dtype)
    bias, out = rng.standard_normal(n).astype(dtype), np.empty((m, n), dtype)
    getattr(LIBRARY, "fl_linear_" + SUFFIX[dtype])(0, 1, m, n, k, pointer(x), k, pointer(w), k, pointer(bias), pointer(out), n)
    same_elements(x.astype(np.float64) @ w.astype(np.float64).T + bias, out, products(k), dtype=np.dtype(dtype).name)


def test_nan_and_inf_spread_only_where_they_belong(threads, rng, monkeypatch):
    monkeypatch.setattr(gemm, "WORTH", 1)
    a, b = rng.standard_normal((60, 70)).astype(np.float32), rng.standard_normal((70, 90)).astype(np.float32)
    a[3, 5], b[7, 11] = np.nan, np.inf
    out = gemm.mm(a, b)
    assert np.isnan(out[3]).all() and np.isfinite(np.delete(np.delete(out, 3, 0), 11, 1)).all()
    assert np.isinf(np.delete(out[:, 11], 3)).all()


def kernel_cases(rng, dtype):
    a, b = rng.standard_normal((90, 80)).astype(dtype), rng.standard_normal((70, 80)).astype(dtype)
    batch, other = rng.standard_normal((6, 60, 40)).astype(dtype), rng.standard_normal((6, 40, 50)).astype(dtype)
    row, full = rng.standard_normal(70).astype(dtype), rng.standard_normal((90, 70)).astype(dtype)
    yield "mm", (a, b.T)
    yield "mm", (np.asfortranarray(a), np.ascontiguousarray(b.T))
    yield "bmm", (batch, other)
    yield "bmm", (batch, np.ascontiguousarray(other.swapaxes(1, 2)).swapaxes(1, 2))
    yield "bmm", (np.broadcast_to(batch[0], batch.shape), other)
    yield "addmm", (row, a, b.T, 1, 1)
    yield "addmm", (full, a, b.T, 0.5, 2)
    yield "addmm", (np.full_like(full, np.nan), a, b.T, 0, 1)
    yield "baddbmm", (rng.standard_normal((6, 60, 50)).astype(dtype), batch, other, -1, 2)
    yield "linear", (row, a, b)
    yield "linear", (None, rng.standard_normal((3, 30, 80)).astype(dtype), b)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_kernels_agree_with_numpy(threads, rng, dtype, monkeypatch):
    monkeypatch.setattr(gemm, "WORTH", 1)
    monkeypatch.setattr(gemm, "LEAST", 1)
    a, b = rng.standard_normal((90, 160)).astype(dtype), rng.standard_normal((80, 70)).astype(dtype)
    long = rng.standard_normal((2, 3, 160)).astype(dtype)
    vectors = [("mm", (a[:1, :80], b)), ("mm", (a, a[:1].T)), ("linear", (b[0], long[:, -1:, :80][:1], b.T)), ("mv", (a, a[3])),
               ("mv", (b.T, a[3, ::2])), ("mv", (a, a[3, ::-1])), ("addmm", (b[0], a[:1, :80], b, 1, 1)),
               ("bmm", (long[:, :1], long.mT)), ("mv", (a[:, :80], b[:, 3]))]
    strided = [*vectors, ("mm", (a[:, ::2], b)), ("mm", (np.broadcast_to(a[:1, :80], (90, 80)), b)), ("mm", (a[::-1, :80], b))]
    for name, args in [*kernel_cases(rng, dtype), *strided]:
        native_agrees(name, *args, tolerance=products(80))


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_lowerings(rng, dtype):
    small, row = rng.standard_normal((5, 6)).astype(dtype), rng.standard_normal(80).astype(dtype)
    cases = list(kernel_cases(rng, dtype))
    cases += [("mm", (small, small.T)), ("mm", (small.T, small)), ("mv", (cases[0][1][0], row)), ("mv", (cases[1][1][0], row))]
    for m, n, k, ta, tb in itertools.product((1, 16), (1, 8, 10, 32), (1, 9), (0, 1), (0, 1)):  # written out as loops
        a, b = matrix(rng, m, k, ta, dtype)[1], matrix(rng, n, k, tb, dtype)[1]
        cases += [("mm", (a, b.T)), ("linear", (rng.standard_normal(n).astype(dtype), a, b)), ("linear", (None, a, b))]
    for (name, args), made in zip(cases, run_lowered(cases)):
        with native.off():
            wants = KERNELS[name](*args)
        same(wants, made[0], products(80), name)
