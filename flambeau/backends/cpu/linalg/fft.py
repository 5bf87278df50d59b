"""Discrete Fourier transform kernels of the CPU backend.

One-dimensional kernels take ``(x, n, dim, norm)``, the n-dimensional ones
``(x, s, dims, norm)``: ``s`` holds the transform length of each of ``dims``,
an input longer than it is trimmed and a shorter one padded with zeros.
Precision follows the input: float32 and complex64 stay single.
"""

import numpy as np

_NORMS = ("backward", "ortho", "forward")
_FLIPPED = {"backward": "forward", "forward": "backward", "ortho": "ortho"}


def _norm(norm):
    if norm is None:
        return "backward"
    if norm not in _NORMS:
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    return norm


def _length(n):
    n = int(n)
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return n


def _complex_like(x):
    return np.result_type(x.dtype, np.complex64)


def _real_like(x):
    return np.empty(0, _complex_like(x)).real.dtype


def _run(kind, x, n, dim, norm):
    """One transform along one axis; ``kind`` names the numpy.fft function."""
    shape = list(x.shape)
    real_out = kind == "irfft"
    if x.size == 0:
        # nothing to transform, or only padding: the transform of zeros
        shape[dim] = n // 2 + 1 if kind == "rfft" else n
        return np.zeros(shape, _real_like(x) if real_out else _complex_like(x))
    with np.errstate(all="ignore"):
        out = getattr(np.fft, kind)(x, n=n, axis=dim, norm=norm)
    want = _real_like(x) if real_out else _complex_like(x)
    return out.astype(want, copy=False)


def _real_only(x, name):
    if np.iscomplexobj(x):
        kind = "ComplexFloat" if x.dtype == np.complex64 else "ComplexDouble"
        raise RuntimeError(f"{name} expects a real input tensor, but got {kind}")


# -- one dimension ---------------------------------------------------------

def fft(x, n=None, dim=-1, norm="backward"):
    return _run("fft", x, _length(x.shape[dim] if n is None else n), dim, _norm(norm))


def ifft(x, n=None, dim=-1, norm="backward"):
    return _run("ifft", x, _length(x.shape[dim] if n is None else n), dim, _norm(norm))


def rfft(x, n=None, dim=-1, norm="backward"):
    _real_only(x, "rfft")
    return _run("rfft", x, _length(x.shape[dim] if n is None else n), dim, _norm(norm))


def irfft(x, n=None, dim=-1, norm="backward"):
    n = _length(2 * (x.shape[dim] - 1) if n is None else n)
    return _run("irfft", x, n, dim, _norm(norm))


def hfft(x, n=None, dim=-1, norm="backward"):
    """Forward transform of a half-Hermitian signal: a real spectrum."""
    n = _length(2 * (x.shape[dim] - 1) if n is None else n)
    return _run("irfft", np.conj(x), n, dim, _FLIPPED[_norm(norm)])


def ihfft(x, n=None, dim=-1, norm="backward"):
    """Inverse of hfft: the non-negative half of the inverse transform."""
    _real_only(x, "ihfft")
    n = _length(x.shape[dim] if n is None else n)
    return np.conj(_run("rfft", x, n, dim, _FLIPPED[_norm(norm)]))


# -- several dimensions ----------------------------------------------------

def _resolve(x, s, dims, half):
    """Transform lengths and axes; ``half``: the last axis holds n // 2 + 1."""
    if dims is None:
        dims = range(x.ndim) if s is None else range(x.ndim - len(s), x.ndim)
    dims = [d % x.ndim if x.ndim else d for d in dims]
    if len(set(dims)) != len(dims):
        raise RuntimeError("FFT dims must be unique")
    default = [x.shape[d] for d in dims]
    if half and dims:
        default[-1] = 2 * (default[-1] - 1)
    if s is None:
        s = default
    s = [_length(d if n is None or n == -1 else n) for n, d in zip(s, default)]
    return s, dims


def _each(kind, x, s, dims, norm):
    for n, d in zip(s, dims):
        x = _run(kind, x, n, d, norm)
    return x


def _some(dims, name):
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")


def fftn(x, s=None, dims=None, norm="backward"):
    s, dims = _resolve(x, s, dims, False)
    if not dims:
        return x.astype(_complex_like(x))
    return _each("fft", x, s[::-1], dims[::-1], _norm(norm))


def ifftn(x, s=None, dims=None, norm="backward"):
    s, dims = _resolve(x, s, dims, False)
    if not dims:
        return x.astype(_complex_like(x))
    return _each("ifft", x, s[::-1], dims[::-1], _norm(norm))


def rfftn(x, s=None, dims=None, norm="backward"):
    if np.iscomplexobj(x):
        kind = "ComplexFloat" if x.dtype == np.complex64 else "ComplexDouble"
        raise RuntimeError(f"rfftn expects a real-valued input tensor, but got {kind}")
    s, dims = _resolve(x, s, dims, False)
    _some(dims, "rfftn")
    norm = _norm(norm)
    return _each("fft", _run("rfft", x, s[-1], dims[-1], norm), s[:-1], dims[:-1], norm)


def irfftn(x, s=None, dims=None, norm="backward"):
    s, dims = _resolve(x, s, dims, True)
    _some(dims, "irfftn")
    norm = _norm(norm)
    half = _trim(x, s[-1] // 2 + 1, dims[-1])
    return _run("irfft", _each("ifft", half, s[:-1], dims[:-1], norm), s[-1], dims[-1], norm)


def hfftn(x, s=None, dims=None, norm="backward"):
    """Forward transform, half-Hermitian along the last of ``dims``; real output."""
    s, dims = _resolve(x, s, dims, True)
    _some(dims, "hfftn")
    norm = _norm(norm)
    half = _trim(x, s[-1] // 2 + 1, dims[-1])
    return hfft(_each("fft", half, s[:-1], dims[:-1], norm), s[-1], dims[-1], norm)


def ihfftn(x, s=None, dims=None, norm="backward"):
    """Inverse of hfftn; the input is real, half of the last axis is kept."""
    if np.iscomplexobj(x):
        kind = "ComplexFloat" if x.dtype == np.complex64 else "ComplexDouble"
        raise RuntimeError(f"Only supports floating-point dtypes, but found: {kind}")
    s, dims = _resolve(x, s, dims, False)
    _some(dims, "ihfftn")
    norm = _norm(norm)
    return _each("ifft", ihfft(x, s[-1], dims[-1], norm), s[:-1], dims[:-1], norm)


def _trim(x, n, dim):
    """Drop what the last transform would ignore before the others run."""
    if x.shape[dim] <= n:
        return x
    cut = [slice(None)] * x.ndim
    cut[dim] = slice(0, n)
    return x[tuple(cut)]


# -- the three primitives of the op table -----------------------------------
# normalization: 0 none, 1 by the root of the number of points, 2 by the number.

_FORWARD = ("backward", "ortho", "forward")
_INVERSE = ("forward", "ortho", "backward")


def c2c(x, dims, normalization, forward):
    """Complex to complex, over dims of their own length."""
    kind = "fft" if forward else "ifft"
    norm = (_FORWARD if forward else _INVERSE)[normalization]
    for d in reversed(dims):
        x = _run(kind, x, x.shape[d], d, norm)
    return x


def r2c(x, dims, normalization, onesided):
    """Real to complex, forward; onesided keeps n // 2 + 1 points of the last dim."""
    norm = _FORWARD[normalization]
    out = _run("rfft" if onesided else "fft", x, x.shape[dims[-1]], dims[-1], norm)
    for d in dims[:-1]:
        out = _run("fft", out, out.shape[d], d, norm)
    return out


def c2r(x, dims, normalization, last_dim_size):
    """Half of a Hermitian signal to real, inverse, with last_dim_size points along the last dim."""
    norm = _INVERSE[normalization]
    for d in dims[:-1]:
        x = _run("ifft", x, x.shape[d], d, norm)
    return _run("irfft", x, last_dim_size, dims[-1], norm)
