"""CPU linear algebra and FFT kernels against PyTorch."""

import warnings

import numpy as np
import pytest
import scipy.linalg as scipy_linalg
import torch
from compare import Tolerance, array, same

from flambeau.backends.cpu.linalg import kernels as L

DTYPES = [np.float32, np.float64, np.complex64, np.complex128]
REALS = DTYPES[:2]
NAMES = {t: np.dtype(t).name for t in DTYPES}
dtypes = pytest.mark.parametrize("dtype", DTYPES, ids=NAMES.get)
reals = pytest.mark.parametrize("dtype", REALS, ids=NAMES.get)
BATCHES = [(), (3,), (2, 3), (0,), (2, 0)]
batches = pytest.mark.parametrize("batch", BATCHES, ids=str)


@pytest.fixture(autouse=True)
def no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error", RuntimeWarning)
        yield


def rand(shape, dtype, seed=0):
    rng = np.random.default_rng(seed)
    x = rng.standard_normal(shape)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.standard_normal(shape)
    return np.asarray(x).astype(dtype)


def spd(batch, n, dtype, seed=0):
    a = rand(batch + (n, n), dtype, seed)
    return a @ a.conj().swapaxes(-1, -2) + np.eye(n, dtype=dtype)


def t(x):
    return torch.from_numpy(np.array(x))


def tol(dtype, factor=1.0):
    eps = float(np.finfo(dtype).eps)
    return {"rtol": 500 * eps * factor, "atol": 500 * eps * factor}


def as_pytorch(got, want, factor=1.0):
    """Asserts that a kernel's result is PyTorch's, to the roundings of a few hundred steps."""
    assert isinstance(got, np.ndarray)
    same(array(want), got, lambda dtype: Tolerance(tol(dtype, factor)["rtol"], tol(dtype, factor)["atol"]))


def shapes_match(got, want):
    assert [g.shape for g in got] == [tuple(w.shape) for w in want]
    assert [g.dtype for g in got] == [w.resolve_conj().numpy().dtype for w in want]


def error_of(call, *args, **kwargs):
    with pytest.raises(RuntimeError) as caught:
        call(*args, **kwargs)
    return str(caught.value)


def checked(name, *args):
    """What a kernel `name_ex` gives, with the error that its code stands for."""
    *made, info = getattr(L, f"{name}_ex")(*args)
    L.check_info(info, f"{'' if name in ('cholesky', 'inv') else 'torch.'}linalg.{name}")
    return made


def frozen(*arrays):
    for a in arrays:
        a.setflags(write=False)
    return arrays


# -- Cholesky ----------------------------------------------------------------

@dtypes
@batches
@pytest.mark.parametrize("n", [0, 1, 4, 40])
def test_cholesky(dtype, batch, n):
    a, = frozen(spd(batch, n, dtype))
    for upper in (False, True):
        got, info = L.cholesky_ex(a, upper)
        want, winfo = torch.linalg.cholesky_ex(t(a), upper=upper)
        as_pytorch(got, want, 4)
        as_pytorch(info, winfo)
    b = rand(batch + (n, 2), dtype, 1)
    for upper in (False, True):
        f = L.cholesky_ex(a, upper)[0]
        as_pytorch(L.cholesky_solve(b, f, upper), torch.cholesky_solve(t(b), t(f), upper), 40)
        if 0 not in batch:
            as_pytorch(L.cholesky_inverse(f, upper), torch.cholesky_inverse(t(f), upper), 40)


@dtypes
def test_cholesky_fails(dtype):
    bad = np.array([[4, 2, 1], [2, -1, 3], [1, 3, 5]], dtype)
    nan = np.array([[np.nan, 0, 0], [1, 5, 0], [0, 0, 1]], dtype)
    a = np.stack([np.eye(3, dtype=dtype), bad, nan])
    for upper in (False, True):
        got, info = L.cholesky_ex(a, upper)
        want, winfo = torch.linalg.cholesky_ex(t(a), upper=upper)
        as_pytorch(info, winfo)
        as_pytorch(got[:2], want[:2])
    for x in (bad, a):
        assert error_of(checked, "cholesky", x) == error_of(torch.linalg.cholesky, t(x))
    z = np.stack([np.eye(2, dtype=dtype), np.zeros((2, 2), dtype)])
    for x in (z, z[1]):
        assert error_of(L.cholesky_inverse, x) == error_of(torch.cholesky_inverse, t(x))


def test_cholesky_reads_one_triangle():
    a = spd((), 4, np.complex128)
    low = np.tril(a)
    low[0, 3] = np.nan
    low[1, 1] += 5j
    np.testing.assert_allclose(checked("cholesky", low)[0], np.linalg.cholesky(a))


def test_cholesky_solve_broadcast():
    low, = checked("cholesky", spd((3,), 4, np.float64))
    for b in (rand((4, 2), np.float64), rand((2, 1, 4, 2), np.float64), rand((4, 0), np.float64)):
        as_pytorch(L.cholesky_solve(b, low), torch.cholesky_solve(t(b), t(low)), 10)


# -- LU, solve, inverse, determinant -------------------------------------------

@dtypes
@batches
@pytest.mark.parametrize("shape", [(0, 0), (1, 1), (4, 4), (3, 6), (6, 3), (0, 3), (3, 0)], ids=str)
def test_lu(dtype, batch, shape):
    a, = frozen(rand(batch + shape, dtype))
    got = L.lu_factor_ex(a, True)
    want = torch.linalg.lu_factor_ex(t(a))
    for g, w in zip(got, want):
        as_pytorch(g, w, 20)
    for g, w in zip(L.lu_unpack(*got[:2]), torch.lu_unpack(t(got[0]), t(got[1]))):
        as_pytorch(g, w)


@dtypes
@pytest.mark.parametrize("shape", [(150, 150), (60, 130), (130, 60)], ids=str)
def test_lu_blocked(dtype, shape):
    a = rand((2,) + shape, dtype)
    lu, piv, info = L.lu_factor_ex(a)
    np.testing.assert_array_equal(piv, torch.linalg.lu_factor_ex(t(a))[1].numpy())
    p, low, up = L.lu_unpack(lu, piv)
    np.testing.assert_allclose(p @ low @ up, a, **tol(dtype, 10))
    assert not info.any()


def test_lu_special():
    nan = np.float32("nan")
    for m in ([[1, 2], [nan, 1]], [[1, 2, 1], [4, nan, 7], [3, 8, 9]],
              [[1, 2, 3], [2, 4, 6], [1, 1, 1]], [[0, 0], [0, 0]], [[0, 1, 2], [0, 3, 4]]):
        a = np.array(m, np.float32)
        for g, w in zip(L.lu_factor_ex(a), torch.linalg.lu_factor_ex(t(a))):
            as_pytorch(g, w)
    assert error_of(checked, "lu_factor", a) == error_of(torch.linalg.lu_factor, t(a))
    assert error_of(L.lu_factor_ex, a, False) == error_of(torch.linalg.lu_factor_ex, t(a), pivot=False)


@dtypes
@batches
@pytest.mark.parametrize("n", [0, 1, 5])
def test_lu_solve(dtype, batch, n):
    a = spd(batch, n, dtype)
    lu, piv, _ = L.lu_factor_ex(a)
    for left in (True, False):
        b = rand(batch + ((n, 3) if left else (3, n)), dtype, 2)
        frozen(lu, piv, b)
        for adjoint in (True, False):
            as_pytorch(L.lu_solve(lu, piv, b, left, adjoint),
                       torch.linalg.lu_solve(t(lu), t(piv), t(b), left=left, adjoint=adjoint), 40)


def test_lu_solve_broadcast():
    lu, piv, _ = L.lu_factor_ex(rand((2, 3, 3), np.float64))
    for b in (rand((4, 1, 3, 5), np.float64), rand((3, 5), np.float64)):
        as_pytorch(L.lu_solve(lu, piv, b), torch.linalg.lu_solve(t(lu), t(piv), t(b)), 10)
    b = rand((4, 3, 2), np.float64)
    as_pytorch(L.lu_solve(lu[0], piv[0], b), torch.linalg.lu_solve(t(lu[0]), t(piv[0]), t(b)), 10)


SOLVES = [((4, 4), (4,)), ((4, 4), (4, 2)), ((4, 4), (4, 0)), ((0, 0), (0, 2)), ((0, 0), (0,)),
          ((3, 4, 4), (3, 4)), ((3, 4, 4), (4,)), ((3, 4, 4), (3, 4, 2)), ((3, 4, 4), (2, 1, 4, 2)),
          ((4, 4), (2, 1, 4, 2)), ((0, 4, 4), (0, 4, 2)), ((2, 3, 4, 4), (2, 3, 4))]


@dtypes
@pytest.mark.parametrize("sa,sb", SOLVES, ids=str)
def test_solve(dtype, sa, sb):
    a, b = frozen(rand(sa, dtype, 3), rand(sb, dtype, 4))
    for g, w in zip(L.solve_ex(a, b, True), torch._linalg_solve_ex(t(a), t(b))):
        as_pytorch(g, w, 40)
    if not L._is_vector_rhs(a, b):
        br = b.swapaxes(-1, -2)
        for g, w in zip(L.solve_ex(a, br, False), torch._linalg_solve_ex(t(a), t(br), left=False)):
            as_pytorch(g, w, 40)


# Pivots are powers of two, of the transpose as well: elimination is exact, and the last pivot zero, by every BLAS kernel.
SINGULAR = np.array([[4, 8, 2], [2, 4, 1], [1, 1, 1]], np.float32)


def test_singular():
    both = np.stack([np.eye(3, dtype=np.float32), SINGULAR])
    for a in (SINGULAR, both):
        b = np.ones(a.shape[:-1], np.float32)
        assert error_of(checked, "solve", a, b) == error_of(torch.linalg.solve, t(a), t(b))
        assert error_of(checked, "inv", a) == error_of(torch.linalg.inv, t(a))
        for g, w in zip(L.solve_ex(a, b), torch._linalg_solve_ex(t(a), t(b))):
            as_pytorch(g, w)
        inv, info = L.inv_ex(a)
        as_pytorch(info, torch.linalg.inv_ex(t(a))[1])
        assert inv.dtype == a.dtype
        as_pytorch(L.det(a), torch.linalg.det(t(a)))
        for g, w in zip(L.slogdet(a), torch.linalg.slogdet(t(a))):
            as_pytorch(g, w)
    for g, w in zip(L.slogdet(SINGULAR.astype(np.complex64)),
                    torch.linalg.slogdet(t(SINGULAR).to(torch.complex64))):
        as_pytorch(g, w)
    with pytest.raises(L.LinAlgError):
        checked("inv", SINGULAR)
    assert L.LinAlgError.__mro__[1] is RuntimeError


@dtypes
@batches
@pytest.mark.parametrize("n", [0, 1, 2, 5, 70])
def test_inv_det(dtype, batch, n):
    a, = frozen(rand(batch + (n, n), dtype, 5) + 2 * np.eye(n, dtype=dtype))
    for g, w in zip(L.inv_ex(a), torch.linalg.inv_ex(t(a))):
        as_pytorch(g, w, 100)
    for g, w in zip(L.slogdet(a), torch.linalg.slogdet(t(a))):
        as_pytorch(g, w, 4)
    if n < 10:
        as_pytorch(L.det(a), torch.linalg.det(t(a)), 10)


@dtypes
@batches
@pytest.mark.parametrize("n", [0, 1, 5, 50])
@pytest.mark.parametrize("upper", [True, False])
def test_solve_triangular(dtype, batch, n, upper):
    a = rand(batch + (n, n), dtype, 6) / max(n, 1) + 2 * np.eye(n, dtype=dtype)
    hidden = np.tril(np.ones((n, n), bool), -1) if upper else np.triu(np.ones((n, n), bool), 1)
    a[..., hidden] = np.nan
    for left in (True, False):
        b = rand(batch + ((n, 3) if left else (3, n)), dtype, 7)
        frozen(a, b)
        for unit in (True, False):
            as_pytorch(L.solve_triangular(a, b, upper, left, unit),
                       torch.linalg.solve_triangular(t(np.where(hidden, 0, a)), t(b), upper=upper,
                                                     left=left, unitriangular=unit), 10)


def test_solve_triangular_corner_cases():
    a, b = rand((3, 2, 2), np.float64), rand((4, 1, 2, 5), np.float64)
    as_pytorch(L.solve_triangular(a, b, True), torch.linalg.solve_triangular(t(a), t(b), upper=True), 10)
    z, one = np.zeros((2, 2), np.float32), np.ones((2, 1), np.float32)
    as_pytorch(L.solve_triangular(z, one, True), torch.linalg.solve_triangular(t(z), t(one), upper=True))


# -- QR ------------------------------------------------------------------------

RECTS = [(4, 4), (3, 6), (6, 3), (1, 1), (0, 0), (0, 3), (3, 0), (5, 1), (1, 5)]


@dtypes
@batches
@pytest.mark.parametrize("shape", RECTS, ids=str)
def test_qr(dtype, batch, shape):
    a, = frozen(rand(batch + shape, dtype, 8))
    for mode in ("reduced", "complete", "r"):
        for g, w in zip(L.qr(a, mode), torch.linalg.qr(t(a), mode)):
            as_pytorch(g, w, 4)
    for g, w in zip(L.geqrf(a), torch.geqrf(t(a))):
        as_pytorch(g, w, 4)


@dtypes
@batches
@pytest.mark.parametrize("shape,k", [((6, 3), 3), ((6, 3), 2), ((6, 3), 0), ((4, 4), 4), ((3, 0), 0),
                                     ((0, 0), 0)], ids=str)
def test_householder(dtype, batch, shape, k):
    a, tau = L.geqrf(rand(batch + shape, dtype, 9))
    tau = tau[..., :k]
    frozen(a, tau)
    as_pytorch(L.householder_product(a, tau), torch.linalg.householder_product(t(a), t(tau)), 4)
    if k != shape[1] or 0 in batch:
        return
    m = shape[0]
    for left in (True, False):
        c = rand(batch + ((m, 4) if left else (4, m)), dtype, 10)
        frozen(c)
        for transpose in (True, False):
            as_pytorch(L.ormqr(a, tau, c, left, transpose),
                       torch.ormqr(t(a), t(tau), t(c), left, transpose), 4)


def test_householder_blocked():
    x = rand((2, 90, 70), np.complex128)
    a, tau = L.geqrf(x)
    as_pytorch(L.householder_product(a, tau), torch.linalg.householder_product(t(a), t(tau)), 4)
    c = rand((2, 90, 5), np.complex128, 1)
    as_pytorch(L.ormqr(a, tau, c, True, True), torch.ormqr(t(a), t(tau), t(c), True, True), 10)


# -- SVD, eigenvalues ------------------------------------------------------------

@dtypes
@batches
@pytest.mark.parametrize("shape", RECTS, ids=str)
def test_svd(dtype, batch, shape):
    a, = frozen(rand(batch + shape, dtype, 11))
    m, n = shape
    for full in (True, False):
        got = L.svd(a, full)
        want = torch.linalg.svd(t(a), full_matrices=full)
        shapes_match(got, want)
        u, s, vh = got
        as_pytorch(s, want[1], 4)
        k = min(m, n)
        np.testing.assert_allclose((u[..., :k] * s[..., None, :]) @ vh[..., :k, :], a, **tol(dtype, 4))
        eye = np.broadcast_to(np.eye(u.shape[-1]), batch + (u.shape[-1],) * 2)
        np.testing.assert_allclose(u.conj().swapaxes(-1, -2) @ u, eye, **tol(dtype, 4))
        eye = np.broadcast_to(np.eye(vh.shape[-2]), batch + (vh.shape[-2],) * 2)
        np.testing.assert_allclose(vh @ vh.conj().swapaxes(-1, -2), eye, **tol(dtype, 4))
    as_pytorch(L.svdvals(a), torch.linalg.svdvals(t(a)), 4)


def test_svd_non_finite():
    a = np.ones((2, 3, 3), np.float32)
    a[1, 1, 1] = np.inf
    assert np.isnan(L.svdvals(a)[1]).all() and np.isfinite(L.svdvals(a)[0]).all()
    assert np.isnan(L.svd(a)[1][1]).all()
    a[1, 1, 1] = np.nan
    for x in (a, a[1]):
        assert error_of(L.svd, x) == error_of(torch.linalg.svd, t(x))
        assert error_of(L.svdvals, x) == error_of(torch.linalg.svdvals, t(x))


@dtypes
@batches
@pytest.mark.parametrize("n", [0, 1, 5])
def test_eigh(dtype, batch, n):
    a, = frozen(rand(batch + (n, n), dtype, 12))
    for uplo in "LU":
        w, v = L.eigh(a, uplo)
        want = torch.linalg.eigh(t(a), UPLO=uplo)
        shapes_match((w, v), want)
        as_pytorch(w, want[0], 4)
        half = np.tril(a, -1) if uplo == "L" else np.triu(a, 1)
        d = np.eye(n) * np.diagonal(a, axis1=-2, axis2=-1).real[..., None, :]
        full = half + half.conj().swapaxes(-1, -2) + d
        np.testing.assert_allclose((v * w[..., None, :]) @ v.conj().swapaxes(-1, -2), full,
                                   **tol(dtype, 10))
        as_pytorch(L.eigvalsh(a, uplo), torch.linalg.eigvalsh(t(a), UPLO=uplo), 4)


def test_eigh_non_finite():
    a = np.stack([np.eye(2), np.full((2, 2), np.nan), [[1, np.inf], [0, 2]]])
    as_pytorch(L.eigvalsh(a), torch.linalg.eigvalsh(t(a)))
    w, v = L.eigh(a)
    assert np.isnan(v[1]).all() and np.isfinite(v[[0, 2]]).all()
    np.testing.assert_array_equal(w[0], 1)


@dtypes
@batches
@pytest.mark.parametrize("n", [0, 1, 5])
def test_eig(dtype, batch, n):
    a, = frozen(rand(batch + (n, n), dtype, 13))
    w, v = L.eig(a)
    want = torch.linalg.eig(t(a))
    shapes_match((w, v), want)
    np.testing.assert_allclose(a @ v, v * w[..., None, :], **tol(dtype, 10))
    key = np.sort_complex(np.round(w.astype(complex), 3))
    np.testing.assert_allclose(key, np.sort_complex(np.round(want[0].numpy().astype(complex), 3)),
                               atol=2e-3)
    vals = L.eigvals(a)
    assert vals.shape == w.shape and vals.dtype == w.dtype
    np.testing.assert_allclose(vals.sum(-1), np.trace(a, axis1=-2, axis2=-1), **tol(dtype, 10))


def test_eig_real_spectrum_is_complex_and_nan_raises():
    w, v = L.eig(np.diag([1.0, 2.0]).astype(np.float32))
    assert w.dtype == v.dtype == np.complex64
    bad = np.full((2, 2), np.nan)
    assert error_of(L.eig, bad) == error_of(torch.linalg.eig, t(bad))
    error_of(L.eigvals, bad)


# -- least squares ------------------------------------------------------------

DRIVERS = ["gels", "gelsy", "gelsd", "gelss"]
LSTSQ = [((5, 3), (5, 2)), ((3, 5), (3, 2)), ((4, 4), (4, 2)), ((2, 5, 3), (2, 5, 2)),
         ((2, 5, 3), (2, 5)), ((5, 3), (5,)), ((2, 3, 5), (2, 3, 1)), ((0, 3), (0, 2)),
         ((3, 0), (3, 2)), ((2, 0, 3), (2, 0, 2)), ((2, 3, 0), (2, 3, 2)), ((0, 5, 3), (0, 5, 2)),
         ((1, 5, 3), (4, 5, 2)), ((4, 5, 3), (1, 5, 2))]


@dtypes
@pytest.mark.parametrize("driver", DRIVERS)
@pytest.mark.parametrize("sa,sb", LSTSQ, ids=str)
def test_lstsq(dtype, driver, sa, sb):
    a, = frozen(rand(sa, dtype, 14))
    b = np.ones(sb, dtype) + rand(sb, dtype, 15)
    frozen(b)
    for g, w in zip(L.lstsq(a, b, None, driver), torch.linalg.lstsq(t(a), t(b), driver=driver)):
        as_pytorch(g, w, 20)


@dtypes
@pytest.mark.parametrize("driver", DRIVERS[1:])
@pytest.mark.parametrize("shape", [(6, 4), (4, 6)], ids=str)
def test_lstsq_rank_deficient(dtype, driver, shape):
    a = rand((3,) + shape, dtype, 16)
    a[1, :, 2] = a[1, :, 1]
    a[1, 3] = a[1, 0] * 2
    a[2] = 0
    b = rand((3, shape[0], 2), dtype, 17)
    for rcond in (None, 1e-3):
        got = L.lstsq(a, b, rcond, driver)
        if driver == "gelsy":
            # PyTorch hands gelsy an uninitialised jpvt, so its rank varies from
            # call to call on such input: LAPACK through SciPy is the oracle.
            cond = rcond or 6 * float(np.finfo(dtype).eps)
            for i in range(2):
                x, _, rank, _ = scipy_linalg.lstsq(a[i], b[i], cond=cond, lapack_driver="gelsy")
                assert got[2][i] == rank
                np.testing.assert_allclose(got[0][i], x, **tol(dtype, 40))
            assert got[2][2] == 0 and not got[0][2].any()
            assert got[1].shape == got[3].shape == (0,)
            continue
        want = torch.linalg.lstsq(t(a), t(b), rcond=rcond, driver=driver)
        for g, w in zip(got, want):
            as_pytorch(g, w, 40)


def test_lstsq_gels_singular():
    a = np.array([[1, 0], [0, 0], [0, 0]], np.float32)
    b = np.ones((3, 1), np.float32)
    assert error_of(L.lstsq, a, b, None, "gels") == \
        error_of(torch.linalg.lstsq, t(a), t(b), driver="gels")
    a, b = np.stack([a, a]), np.stack([b, b])
    assert error_of(L.lstsq, a, b, None, "gels") == \
        error_of(torch.linalg.lstsq, t(a), t(b), driver="gels")


# -- matrix exponential ---------------------------------------------------------

@dtypes
@batches
@pytest.mark.parametrize("n", [0, 1, 2, 6])
@pytest.mark.parametrize("scale", [1e-3, 0.05, 0.3, 1.0, 5.0])
def test_matrix_exp(dtype, batch, n, scale):
    a, = frozen(rand(batch + (n, n), dtype, 18) * np.asarray(scale / max(n, 1), dtype))
    as_pytorch(L.matrix_exp(a), torch.linalg.matrix_exp(t(a)), 20)


def test_matrix_exp_mixed_norms_and_specials():
    a = rand((4, 3, 3), np.float64, 19) * np.array([1e-9, 0.5, 6, 20])[:, None, None]
    want = torch.linalg.matrix_exp(t(a)).numpy()
    np.testing.assert_allclose(L.matrix_exp(a), want, rtol=1e-8,
                               atol=1e-10 * np.abs(want).max())
    np.testing.assert_array_equal(L.matrix_exp(np.zeros((3, 3), np.float32)), np.eye(3))
    for v in (np.nan, np.inf, 1e3):
        x = np.full((2, 2), v, np.float32)
        as_pytorch(L.matrix_exp(x), torch.linalg.matrix_exp(t(x)))
    x = np.stack([np.eye(2), np.full((2, 2), np.nan)])
    as_pytorch(L.matrix_exp(x), torch.linalg.matrix_exp(t(x)))


# -- LDL --------------------------------------------------------------------------

@dtypes
@batches
@pytest.mark.parametrize("n", [0, 1, 2, 3, 7, 20])
@pytest.mark.parametrize("hermitian", [True, False])
def test_ldl(dtype, batch, n, hermitian):
    a = rand(batch + (n, n), dtype, 20)
    at = a.swapaxes(-1, -2)
    a = a + (at.conj() if hermitian else at)
    frozen(a)
    got = L.ldl_factor_ex(a, hermitian)
    want = torch.linalg.ldl_factor_ex(t(a), hermitian=hermitian)
    as_pytorch(got[1], want[1])
    as_pytorch(got[2], want[2])
    as_pytorch(got[0], want[0], 100)
    b = rand(batch + (n, 2), dtype, 21)
    x = L.ldl_solve(got[0], got[1], b, hermitian)
    assert x.shape == b.shape and x.dtype == b.dtype
    np.testing.assert_allclose(a @ x, b, **tol(dtype, 100))
    as_pytorch(x, torch.linalg.ldl_solve(t(got[0]), t(got[1]), t(b), hermitian=hermitian), 100)


def test_ldl_special():
    for m in ([[0, 1], [1, 0]], [[0, 0], [0, 0]], [[4, 1, 2], [1, -3, 7], [2, 7, 1]],
              [[0, 2, 0], [2, 0, 0], [0, 0, 0]]):
        a = np.array(m, np.float32)
        for g, w in zip(L.ldl_factor_ex(a), torch.linalg.ldl_factor_ex(t(a))):
            as_pytorch(g, w)
    ld, piv = checked("ldl_factor", np.array([[4, 1, 2], [1, -3, 7], [2, 7, 1.0]]))
    b = rand((2, 3, 2), np.float64)
    as_pytorch(L.ldl_solve(ld, piv, b), torch.linalg.ldl_solve(t(ld), t(piv), t(b)))


# -- cdist ---------------------------------------------------------------------

@reals
@pytest.mark.parametrize("p", [0.0, 0.5, 1.0, 1.7, 2.0, 3.0, float("inf")])
@pytest.mark.parametrize("s1,s2", [((4, 3), (5, 3)), ((2, 4, 3), (5, 3)), ((2, 1, 4, 3), (3, 5, 3)),
                                   ((30, 3), (5, 3)), ((2, 7, 4), (2, 40, 4)), ((0, 3), (2, 3)),
                                   ((4, 0), (2, 0)), ((0, 4, 3), (0, 5, 3))], ids=str)
def test_cdist(dtype, p, s1, s2):
    x, y = frozen(rand(s1, dtype, 22), rand(s2, dtype, 23))
    as_pytorch(L.cdist(x, y, p), torch.cdist(t(x), t(y), p=p), 4)


def test_cdist_chunks_and_modes(monkeypatch):
    monkeypatch.setattr("flambeau.backends.cpu.linalg.functions._CDIST_CHUNK", 64)
    x, y = rand((2, 33, 3), np.float64), rand((2, 6, 3), np.float64, 1)
    as_pytorch(L.cdist(x, y, 1.0), torch.cdist(t(x), t(y), p=1.0))
    near = L.cdist(x, x)
    assert np.abs(near[..., range(33), range(33)]).max() < 1e-6
    for mode, name in ((1, "use_mm_for_euclid_dist"), (2, "donot_use_mm_for_euclid_dist")):
        as_pytorch(L.cdist(x, y, 2.0, mode), torch.cdist(t(x), t(y), compute_mode=name))
    z = np.array([[1, np.nan], [1, 2], [2, 3]], np.float32)
    for p in (0.0, 1.0, 2.0, float("inf")):
        as_pytorch(L.cdist(z[1:2], z, p), torch.cdist(t(z[1:2]), t(z), p=p))
