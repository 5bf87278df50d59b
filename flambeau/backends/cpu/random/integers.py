"""Random integers and permutations (see draws.py)."""

from __future__ import annotations

import numpy as np

from .engine import (
    _bool,
    _f64,
    _is_float,
    _mantissa,
    _shape,
)


def _mod(draws, span):
    """``draws % span`` by way of the (vectorised) division by a scalar."""
    if span & (span - 1) == 0:
        return draws & draws.dtype.type(span - 1)
    d = draws.dtype.type(span)
    q = draws // d
    q *= d
    return np.subtract(draws, q, out=q)


def random_int(engine, shape, dtype=np.int64, low=0, high=None):
    """``randint(low, high)`` / ``random_(low, high)``: ``low + draw % (high - low)``.

    One output per element for ranges below 2**28, two above. ``high=None`` is PyTorch's
    ``random_(low, None)``: everything up to the largest value of the dtype (for the floating dtypes
    up to the last integer they hold exactly).
    """
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    low = int(low)
    bounded = high is not None
    if high is None:
        if dtype == _bool:
            high = 2
        elif _is_float(dtype):
            high = (1 << _mantissa(dtype)) + 1
        else:
            high = int(np.iinfo(dtype).max) + 1
    high = int(high)
    if low >= high:
        raise RuntimeError(f"random_ expects 'from' to be less than 'to', but got from={low} >= to={high}")
    if _is_float(dtype) and bounded:
        low, high = _exact_bounds(low, high, dtype)
    span = high - low
    if span >= 1 << 28:
        draws = engine.draw64(n)
        if span < 1 << 64:
            draws = _mod(draws, span)
    else:
        draws = _mod(engine.draw32(n), span).astype(np.uint64)
    if span == 1 << 64:
        out = draws.view(np.int64)  # all 64 bits as they come
    elif dtype == np.dtype(np.uint64):
        out = draws + np.uint64(low & 0xFFFFFFFFFFFFFFFF)
    else:
        out = draws.view(np.int64)
        if low:
            with np.errstate(over="ignore"):
                out = out + np.int64(low)
    return _from_int(out, dtype).reshape(shape)


def _exact_bounds(low, high, dtype):
    """Move bounds a floating dtype cannot hold inwards, so that no result rounds out of the interval."""
    digits = _mantissa(dtype)

    def rounded(value):
        value = int(float(np.float64(value) if dtype == _f64 else np.float32(value).astype(dtype)))
        return value if value < 1 << 63 else -1 << 63  # what the C cast of 2**63 gives

    def step(value):
        return 1 << (abs(value).bit_length() - digits)

    up = rounded(low + 1)
    if up < low:
        low = up + step(low + 1)
    down = rounded(high - 1)
    if down >= high:
        high = down - step(high - 1)
    return low, high


def _from_int(values, dtype):
    if dtype == _bool:
        return np.not_equal(values, 0, out=np.empty(np.shape(values), np.bool_))  # an array, also of no dimensions
    if dtype.itemsize == 2 and dtype.kind not in "iu":
        values = values.astype(np.float32)
    with np.errstate(over="ignore"):
        return values.astype(dtype)


def random_full(engine, shape, dtype=np.int64):
    """``tensor.random_()``: the non-negative half of the integer dtypes, 0 to 2**digits of the floats."""
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    if dtype == _bool:
        return (engine.draw32(n) & np.uint32(1)).astype(np.bool_).reshape(shape)
    if _is_float(dtype):
        span = (1 << _mantissa(dtype)) + 1
    else:
        span = int(np.iinfo(dtype).max) + 1
    if dtype.itemsize == 8:
        draws = engine.draw64(n)
        if span < 1 << 64:
            draws = _mod(draws, span)
    else:
        draws = engine.draw32(n)
        if span < 1 << 32:
            draws = _mod(draws, span)
    return _from_int(draws, dtype).reshape(shape)


def randperm(engine, n, dtype=np.int64):
    """``torch.randperm``: Fisher-Yates, one output for each of the first ``n - 1`` places."""
    dtype = np.dtype(dtype)
    n = int(n)
    if n >= 0xFFFFFFFF // 20:
        # Too long for 32-bit draws: the inside-out shuffle with 64-bit ones.
        picks = (engine.draw64(n) % np.arange(1, n + 1, dtype=np.uint64)).tolist()
        items = [0] * n
        for i, j in enumerate(picks):
            items[i] = items[j]
            items[j] = i
        return np.array(items, np.int64).astype(dtype)
    if n < 2:
        return np.zeros(n, np.int64).astype(dtype)
    picks = engine.draw32(n - 1) % np.arange(n, 1, -1, dtype=np.uint32)
    picks += np.arange(n - 1, dtype=np.uint32)
    items = list(range(n))
    for i, j in enumerate(picks.tolist()):
        items[i], items[j] = items[j], items[i]
    return _from_int(np.array(items, np.int64), dtype)
