"""Discrete Fourier transform kernels of the CPU backend. Precision follows the input: float32 and complex64 stay single."""

import numpy as np


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
