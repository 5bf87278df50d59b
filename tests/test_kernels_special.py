"""The special function kernels against torch.special (the oracle)."""

import warnings

import numpy as np
import pytest

torch = pytest.importorskip("torch")

import flambeau  # noqa: E402, F401  (rows whose expression is the kernel)
from flambeau.backends.cpu.table import KERNELS  # noqa: E402
from flambeau.native import off  # noqa: E402

INF, NAN = float("inf"), float("nan")
SPECIAL = np.array([
    NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.0, -2.0, -3.0, 0.5, -0.5, 1.5, -1.5, 3.0,
    8.0, 1e-10, -1e-10, 1e-30, -1e-30, 1e-4, -1e-4, 20.0, -20.0, 0.99999, -0.99999,
])
FAR = [1e300, -1e300, 1e-300, -1e-300, 1e-310, 709.5, 710.0, -710.0, -745.0]

# name: (ranges, rtol float64, atol float64).  An atol stands where the function
# has zeros that torch itself only resolves absolutely, or far out where the
# rounding of the phase of an oscillation dominates.
@pytest.fixture(autouse=True)
def numpy_kernels():
    with off():
        yield


def kernel(name):
    made = KERNELS["sigmoid" if name == "expit" else name]
    return (lambda x, eps=None: made(x, eps)) if name == "logit" else made


UNARY = {
    "erf": ([(-6, 6), (-1e-3, 1e-3)], 1e-14, 0),
    "erfc": ([(-6, 27), (-1, 1)], 1e-13, 0),
    "erfcx": ([(-26, 30), (0, 1e5)], 1e-12, 0),
    "erfinv": ([(-1, 1), (-1e-3, 1e-3), (0.999999, 1), (-1, -1 + 1e-9)], 1e-13, 0),
    "ndtr": ([(-37, 9), (-1, 1)], 1e-14, 2e-16),
    "ndtri": ([(0, 1), (0, 1e-9), (1e-300, 1e-290), (0.49, 0.51)], 1e-12, 1e-16),
    "log_ndtr": ([(-40, 9), (-1e5, 0), (-1.5, 1.5)], 1e-12, 0),
    "gammaln": ([(0, 10), (0.9, 2.1), (10, 1e6), (-5, 0), (-40, 0)], 1e-12, 1e-14),
    "digamma": ([(0, 10), (10, 1e6), (-5, 0), (-40, 0)], 1e-11, 1e-13),
    "i0": ([(-30, 30), (-700, 700)], 1e-13, 0),
    "i0e": ([(-30, 30), (-700, 1e6)], 1e-13, 0),
    "i1": ([(-30, 30), (-700, 700)], 1e-13, 0),
    "i1e": ([(-30, 30), (-700, 1e6)], 1e-13, 0),
    "modified_bessel_i0": ([(-30, 30)], 1e-13, 0),
    "modified_bessel_i1": ([(-30, 30)], 1e-13, 0),
    "modified_bessel_k0": ([(0, 5), (0, 100), (-1, 1)], 1e-12, 0),
    "modified_bessel_k1": ([(0, 5), (0, 100), (-1, 1)], 1e-12, 0),
    "scaled_modified_bessel_k0": ([(0, 5), (0, 1000)], 1e-12, 0),
    "scaled_modified_bessel_k1": ([(0, 5), (0, 1000)], 1e-12, 0),
    "bessel_j0": ([(-6, 6), (-100, 100), (0, 1e4)], 1e-13, 1e-14),
    "bessel_j1": ([(-6, 6), (-100, 100), (0, 1e4)], 1e-13, 1e-14),
    "bessel_y0": ([(-1, 6), (0, 100), (0, 1e4)], 1e-13, 1e-14),
    "bessel_y1": ([(-1, 6), (0, 100), (0, 1e4)], 1e-13, 1e-14),
    "spherical_bessel_j0": ([(-1, 1), (-100, 100)], 1e-13, 0),
    "airy_ai": ([(-5, 5), (-50, 50)], 1e-12, 1e-14),
    "entr": ([(-1, 5)], 1e-14, 0),
    "sinc": ([(-5, 5)], 1e-14, 0),
    "logit": ([(-0.1, 1.1)], 1e-14, 0),
    "expit": ([(-40, 40), (-800, 800)], 1e-14, 0),
}

BINARY = {
    "xlogy": ([(-3, 3)], [(-1, 5)], 1e-14, 0),
    "xlog1py": ([(-3, 3)], [(-2, 5)], 1e-14, 0),
    "zeta": ([(1, 6), (1.0, 60)], [(0, 6), (0, 200)], 1e-10, 0),
    "gammainc": ([(0, 3), (0, 60), (0, 3000)], [(0, 3), (0, 60), (0, 3000)], 1e-11, 1e-300),
    "gammaincc": ([(0, 3), (0, 60), (0, 3000)], [(0, 3), (0, 60), (0, 3000)], 1e-11, 1e-300),
}

POLYNOMIALS = [
    kind + "chebyshev_polynomial_" + letter for kind in ("", "shifted_") for letter in "tuvw"
] + ["hermite_polynomial_h", "hermite_polynomial_he", "laguerre_polynomial_l",
     "legendre_polynomial_p"]

# torch's own float64 values are only good to about 1e-5 (Bessel, Airy) or 1e-9
# (incomplete gamma) for these, so SciPy stands in for it away from the special
# points; torch still decides those.
SCIPY = {
    "bessel_j0": "j0", "bessel_j1": "j1", "bessel_y0": "y0", "bessel_y1": "y1",
    "airy_ai": "airy", "gammainc": "gammainc", "gammaincc": "gammaincc",
}


def oracle_for(name):
    if name not in SCIPY:
        return getattr(torch.special, name)
    scipy_special = pytest.importorskip("scipy.special")

    def oracle(*tensors):
        value = getattr(scipy_special, SCIPY[name])(*[t.numpy() for t in tensors])
        return torch.from_numpy(np.asarray(value[0] if name == "airy_ai" else value))

    return oracle


def samples(ranges, count=300, seed=0):
    rng = np.random.default_rng(seed)
    return np.concatenate([rng.uniform(a, b, count) for a, b in ranges])


def torch_value(function, *arrays):
    return function(*[torch.from_numpy(np.array(a)) for a in arrays]).numpy()


def run(function, *args, **kwargs):
    """Call a kernel; it must be silent and leave its inputs alone."""
    copies = [a.copy() if isinstance(a, np.ndarray) else a for a in args]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        result = function(*args, **kwargs)
    for a, c in zip(args, copies):
        if isinstance(a, np.ndarray):
            assert a.tobytes() == c.tobytes()
    assert isinstance(result, np.ndarray)
    return result


def check(name, got, want, rtol, atol, inputs):
    assert got.dtype == want.dtype and got.shape == want.shape
    with np.errstate(all="ignore"):
        close = np.abs(got - want) <= atol + rtol * np.abs(want)
    good = close | (got == want) | (np.isnan(got) & np.isnan(want))
    bad = np.flatnonzero(~good)
    rows = [(*[float(i.flat[b]) for i in inputs], float(got.flat[b]), float(want.flat[b]))
            for b in bad[:8]]
    assert bad.size == 0, f"{name}: {bad.size} bad (inputs..., got, want): {rows}"


def reference(function, *arrays):
    """float32 results are held to torch's float64 ones, rounded."""
    with np.errstate(all="ignore"):
        wide = torch_value(function, *[a.astype(np.float64) for a in arrays])
        return wide.astype(np.float32)


@pytest.mark.parametrize("name", UNARY)
def test_unary(name):
    ranges, rtol, atol = UNARY[name]
    oracle = oracle_for(name)
    x = np.concatenate([samples(ranges), SPECIAL, FAR] if name not in SCIPY else [samples(ranges)])
    if name == "sinc":  # torch computes sin(pi x) as is, so no huge arguments
        x = x[~(np.abs(x) > 1e17)]
    check(name, run(kernel(name), x), torch_value(oracle, x), rtol, atol, [x])
    single = samples(ranges).astype(np.float32)
    got = run(kernel(name), single)
    want = reference(oracle, single)
    if name in ("sinc", "logit"):  # defined by their float32 formula
        want = torch_value(oracle, single)
    floor = max(atol, 1e-6 if atol else 1e-37)
    finite = np.isfinite(torch_value(getattr(torch.special, name), single)) | np.isnan(want)
    check(name, got[finite], want[finite], 2e-6, floor, [single[finite]])


@pytest.mark.parametrize("name", UNARY)
def test_unary_special_points(name):
    oracle = getattr(torch.special, name)
    rough = 1e-4 if name in SCIPY else 0
    x = np.concatenate([SPECIAL, FAR]) if rough else SPECIAL
    if rough:
        check(name, run(kernel(name), x), torch_value(oracle, x), 1e-4, 1e-4, [x])
    x = SPECIAL.astype(np.float32)
    check(name, run(kernel(name), x), torch_value(oracle, x), 4e-6, max(rough, 1e-7), [x])
    for dtype in (np.float32, np.float64):
        zeros = np.array([0.0, -0.0], dtype)
        got, want = run(kernel(name), zeros), torch_value(oracle, zeros)
        assert np.array_equal(np.signbit(got), np.signbit(want))
        assert run(kernel(name), np.empty((0, 3), dtype)).shape == (0, 3)
        scalar = run(kernel(name), np.array(0.25, dtype))
        assert scalar.shape == () and scalar.dtype == dtype
        strided = np.linspace(0.1, 0.9, 12, dtype=dtype).reshape(3, 4).T[::2]
        got = run(kernel(name), strided)
        assert np.array_equal(got, kernel(name)(strided.copy()))


def test_float32_saturation():
    x = np.array([-30.0, -6.0, -4.0, 4.0, 6.0, 30.0], np.float32)
    for name in ("erf", "ndtr"):
        oracle = getattr(torch.special, name)
        check(name, run(kernel(name), x), torch_value(oracle, x), 0, 6e-8, [x])
    assert run(kernel("erf"), x)[[0, 1, 4, 5]].tolist() == [-1.0, -1.0, 1.0, 1.0]
    assert run(kernel("ndtr"), x)[[0, 5]].tolist() == [0.0, 1.0]


@pytest.mark.parametrize("name", BINARY)
def test_binary(name):
    first, second, rtol, atol = BINARY[name]
    oracle = oracle_for(name)
    pairs = [(samples([f], 200, 1), samples([s], 200, 2)) for f in first for s in second]
    a = np.concatenate([p[0] for p in pairs])
    b = np.concatenate([p[1] for p in pairs])
    check(name, run(kernel(name), a, b), torch_value(oracle, a, b), rtol, atol, [a, b])
    a32, b32 = a.astype(np.float32), b.astype(np.float32)
    check(name, run(kernel(name), a32, b32), reference(oracle, a32, b32), 2e-6, 1e-37,
          [a32, b32])
    points = np.array([NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, 2.0, 2.5, -2.5, 1e-30, 7.0,
                       -0.5, 30.0, 1e300])
    a, b = np.broadcast_arrays(points[:, None], points)
    oracle = getattr(torch.special, name)
    for dtype in (np.float64, np.float32):
        with np.errstate(all="ignore"):
            a, b = a.astype(dtype), b.astype(dtype)
        tol = 4e-6 if dtype == np.float32 else max(rtol, 1e-8 if name in SCIPY else 0)
        check(name, run(kernel(name), a, b), torch_value(oracle, a, b), tol, 1e-37, [a, b])


def test_incomplete_gamma_near_diagonal():
    rng = np.random.default_rng(3)
    a = rng.uniform(1, 1e5, 500)
    x = a + rng.normal(size=500) * 3 * np.sqrt(a)
    for name in ("igamma", "igammac"):
        want = torch_value(oracle_for(name.replace("igamma", "gammainc")), a, x)
        check(name, run(kernel(name), a, x), want, 1e-11, 0, [a, x])


def test_zeta_negative():
    q = np.array([-0.5, -3.25, -20.75, -1e-3, -7.999])
    for s in (2.0, 3.0, 7.0, 10.0):
        a = np.full_like(q, s)
        check("zeta", run(kernel("zeta"), a, q), torch_value(torch.special.zeta, a, q), 1e-9, 0, [a, q])


@pytest.mark.parametrize("n", [0, 1, 2, 3, 5, 12])
def test_polygamma(n):
    def oracle(t):
        return torch.special.polygamma(n, t)

    x = np.concatenate([samples([(0, 5), (0, 100), (-4, 0)]), SPECIAL])
    atol = 1e-9 if n < 12 else 1e-3  # terms of opposite signs cancel between poles
    check("polygamma", run(kernel("polygamma"), n, x), torch_value(oracle, x), 2e-8, atol, [x])
    x = samples([(0.5, 5), (1, 100), (-3, 0)]).astype(np.float32)
    got, want = run(kernel("polygamma"), n, x), reference(oracle, x)
    check("polygamma", got, want, 2e-6, 1e-6 if n < 3 else 1e-3, [x])
    x = np.array([NAN, INF, -INF, 0.0, -0.0, -1.0, 1.0, 2.0, 8.0], np.float32)
    check("polygamma", run(kernel("polygamma"), n, x), torch_value(oracle, x), 1e-5, 1e-6, [x])


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
@pytest.mark.parametrize("name", POLYNOMIALS)
def test_polynomials(name, dtype):
    oracle = getattr(torch.special, name)
    x = np.concatenate([samples([(-1, 1), (-3, 3)], 20), [0.0, -0.0, 1.0, -1.0, 0.5, 2.0]])
    n = np.array([-INF, -2.0, -0.5, 0.0, 1.0, 2.0, 2.9, 3.0, 5.0, 6.0, 7.0, 8.0, 9.0, 12.0,
                  25.0, NAN, INF])
    x, n = x.astype(dtype)[:, None], n.astype(dtype)
    got, want = run(kernel(name), x, n), torch_value(oracle, x, n)
    eps = np.finfo(dtype).eps
    inputs = np.broadcast_arrays(x, n)
    # the trigonometric form amplifies the rounding of acos by the degree
    check(name, got, want, 200 * eps, 500 * eps, inputs)
    big = np.array([30.0, 60.0, 100.0, 127.0, 600.0], dtype)  # overflow patterns
    x = np.array([1.5, -2.5, 3.0, 50.0, 1.0, -1.0], dtype)[:, None]
    check(name, run(kernel(name), x, big), torch_value(oracle, x, big), 1e5 * eps, 0,
          np.broadcast_arrays(x, big))
    x = np.array([NAN, INF, -INF], dtype)[:, None]
    n = np.array([-1.0, 0.0, 1.0, 5.0], dtype)
    got, want = run(kernel(name), x, n), torch_value(oracle, x, n)
    want[0, 3] = NAN  # torch leaves this value uninitialised
    check(name, got, want, 0, 0, np.broadcast_arrays(x, n))
    assert run(kernel(name), np.empty((0,), dtype), np.array(2, dtype)).shape == (0,)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_elementary(dtype):
    x = np.concatenate([samples([(-0.2, 1.2)]), SPECIAL]).astype(dtype)
    tol = 2e-6 if dtype == np.float32 else 1e-13
    for eps in (None, 0.0, 1e-3, 0.3):
        want = torch_value(lambda t: torch.special.logit(t, eps), x)
        check("logit", run(kernel("logit"), x, eps), want, tol, 1e-7 if tol > 1e-9 else 1e-15, [x])
    x = np.concatenate([samples([(-40, 40), (-800, 800)]), SPECIAL]).astype(dtype)
    want = torch_value(torch.nn.functional.logsigmoid, x)
    check("log_sigmoid", run(kernel("log_sigmoid"), x), want, tol, 1e-37, [x])
    check("sigmoid", run(kernel("sigmoid"), x), torch_value(torch.sigmoid, x), tol, 1e-37, [x])


@pytest.mark.parametrize("dtype", [np.complex64, np.complex128])
def test_complex(dtype):
    rng = np.random.default_rng(5)
    z = (rng.normal(size=100) * 3 + 3j * rng.normal(size=100))
    z = np.concatenate([z, [0, 1000, -1000, 1j]]).astype(dtype)
    tol = 1e-5 if dtype == np.complex64 else 1e-12
    for name in ("expit", "sinc"):
        want = torch_value(getattr(torch.special, name), z)
        check(name, run(kernel(name), z), want, tol, tol, [z.real, z.imag])
