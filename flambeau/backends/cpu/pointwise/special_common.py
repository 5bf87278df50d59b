"""Shared plumbing of the special function kernels.

The mathematical cores work on flat float64 blocks small enough to stay in the
cache; the decorators here take care of the dtype, the shape, the blocking and
of silencing NumPy's floating point warnings.
"""

import functools

import numpy as np

BLOCK = 16384


def poly(coefficients, u):
    """Horner evaluation, lowest power first, without temporaries."""
    result = u * coefficients[-1]
    for c in coefficients[-2:0:-1]:
        result += c
        result *= u
    result += coefficients[0]
    return result


def fill(out, mask, function, *args):
    """``out[mask] = function(*args[mask])``, skipping the gather when it can."""
    count = np.count_nonzero(mask)
    if count == 0:
        return
    if count == mask.size:
        out[...] = function(*args)
    else:
        out[mask] = function(*[a[mask] for a in args])


def flattened(arrays, dtype):
    """A result laid out like the arguments, itself as a flat array, and theirs in its order."""
    first = arrays[0]
    alike = 0 not in first.strides and all(a.strides == first.strides for a in arrays[1:])
    order = "K" if alike else "C"
    out = np.empty_like(first, dtype, order, subok=False)
    return out, out.ravel(order), [a.ravel(order) for a in arrays]


def _blocked(core, arrays, dtype, *extra):
    out, flat_out, flat = flattened(arrays, dtype)
    single = dtype == np.float32
    with np.errstate(all="ignore"):
        for start in range(0, flat_out.size, BLOCK):
            stop = start + BLOCK
            blocks = [f[start:stop].astype(np.float64, copy=False) for f in flat]
            flat_out[start:stop] = core(*blocks, single, *extra)
    return out


def unary(core):
    """Make ``core(x, single)`` over flat float64 blocks a kernel.

    ``single`` tells the core that float32 accuracy is enough.
    """

    @functools.wraps(core)
    def kernel(x):
        x = np.asarray(x)
        return _blocked(core, [x], x.dtype)

    kernel.core = core
    return kernel


def binary(core):
    """Make ``core(a, b, single)`` over flat float64 blocks a kernel."""

    @functools.wraps(core)
    def kernel(a, b):
        a, b = np.broadcast_arrays(a, b)
        return _blocked(core, [a, b], np.result_type(a, b))

    kernel.core = core
    return kernel


def quiet(function):
    """Run a kernel written directly in the input's dtype, always an array out."""

    @functools.wraps(function)
    def kernel(*args, **kwargs):
        with np.errstate(all="ignore"):
            return np.asarray(function(*args, **kwargs))

    return kernel
