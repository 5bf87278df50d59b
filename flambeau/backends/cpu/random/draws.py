"""Random numbers of the CPU backend: PyTorch's CPU generator, number for number.

``Engine`` is the state behind ``torch.Generator`` (a 32-bit Mersenne twister plus the cached second
value of the last Box-Muller pair). Every other function of this module is a draw kernel
``f(engine, shape, dtype, ...) -> ndarray``: it advances the engine exactly as the PyTorch 2.13 CPU
kernel of the same name does and returns the same values. All kernels are serial in PyTorch too, so
the number of threads never matters, and since release 2.7 MKL's own streams are not used any more
(PyTorch issue 132395), so the CPU vendor does not matter either.

Order of the elements
    PyTorch hands the draws out in *memory* order of the output (strides sorted), not in logical
    order. The kernels return C-ordered arrays; a caller that fills a permuted but dense tensor draws
    with the permuted shape and assigns through the same permutation. Only ``normal`` depends on
    contiguity in another way: see its ``contiguous`` parameter.

How close to PyTorch
    Bit for bit, all dtypes: rand / uniform, randint / random_, randperm (n below 2**32 / 20),
    normal / randn on every path (float32 repeats the fused multiply-adds of PyTorch's vector kernel;
    float64 goes through the same libm, element by element, hence slower), bernoulli and dropout
    masks, exponential, geometric, log_normal, cauchy, standard_gamma, multinomial (the order of exact
    ties aside).
    Same draws, last places may differ: dirichlet in float64 (2 ulp; the order of its sum).
    Same results unless an accept/reject test falls within rounding error of its bound (none seen):
    poisson, binomial, standard_gamma, dirichlet.
    Not checked against PyTorch: randperm for n >= 2**32 / 20 (a 64-bit variant; it takes gigabytes).
    On a C library other than PyTorch's, float64 results may differ in the last place.
"""

from __future__ import annotations

import math

import numpy as np

from ..parallel import split
from .engine import (
    _CHUNK,
    _MASK24,
    _MASK53,
    _TWO_PI,
    Engine,
    _bool,
    _cast,
    _Doubles,
    _f32,
    _f64,
    _fma32,
    _fma64,
    _is_float,
    _libm,
    _mantissa,
    _shape,
    _sincos,
    _u24,
    _u53,
)
from .rejection import binomial, dirichlet, poisson, standard_gamma

__all__ = [
    "Engine",
    "bernoulli",
    "binomial",
    "cauchy",
    "dirichlet",
    "dropout_mask",
    "exponential",
    "geometric",
    "log_normal",
    "multinomial",
    "normal",
    "poisson",
    "rand",
    "randn",
    "random_full",
    "random_int",
    "randperm",
    "standard_gamma",
    "uniform",
]


def uniform(engine, shape, dtype=np.float32, low=0.0, high=1.0):
    """``tensor.uniform_(low, high)``: one output per element, two for float64.

    The range is applied with one fused multiply-add. float16 and bfloat16 draw a float32 value and
    round it. A value rounded up to ``high`` becomes ``low``. Complex dtypes fill (real, imag) pairs.
    """
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    if dtype.kind == "c":
        part = _f32 if dtype.itemsize == 8 else _f64
        return uniform(engine, 2 * n, part, low, high).view(dtype).reshape(shape)
    if dtype == _f64:
        low, high = float(low), float(high)
        out = _u53(engine, n)
        if low != 0.0 or high != 1.0:
            for i in range(0, n, _CHUNK):
                part = out[i : i + _CHUNK]
                part[...] = _fma64(part, high - low, low)
            out[out == high] = low
        return out.reshape(shape)
    lo, hi = np.float32(low), np.float32(high)
    if lo == 0.0 and hi == 1.0:
        out = _u24(engine, n)
    else:
        span = float(hi - lo) * 2.0**-24
        out = np.empty(n, np.float32)
        for i in range(0, n, _CHUNK):
            part = out[i : i + _CHUNK]
            t = np.multiply((engine.draw32(part.size) & _MASK24).view(np.int32), span)
            t += float(lo)
            part[...] = t
        out[out == hi] = lo
    if dtype != _f32:
        out = out.astype(dtype)
        out[out == dtype.type(hi)] = dtype.type(lo)
    return out.reshape(shape)


def rand(engine, shape, dtype=np.float32):
    return uniform(engine, shape, dtype)


# -- normal ---------------------------------------------------------------------------------------


def _fma_to(y, b, c, wide):
    """y(float32) = y * b + c rounded once; ``b`` and the scratch ``wide`` are float64, where y * b is exact."""
    np.multiply(y, b, wide)
    np.add(wide, c, y, casting="same_kind")


_LOG_POLY = tuple(
    np.asarray(np.float32(c), np.float64)  # numbers as arrays: a Python number costs a small call twice the time
    for c in (
        7.0376836292e-2,
        -1.1514610310e-1,
        1.1676998740e-1,
        -1.2420140846e-1,
        1.4249322787e-1,
        -1.6668057665e-1,
        2.0000714765e-1,
        -2.4999993993e-1,
        3.3333331174e-1,
    )
)
_SIN_POLY = tuple(np.asarray(np.float32(c), np.float64) for c in (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1))
_COS_POLY = tuple(
    np.asarray(np.float32(c), np.float64) for c in (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
)


_ROOT_HALF = 0x3F3504F3  # the bits of sqrt(1/2) in float32


def _log_f32(x, wide):
    """Cephes' logf of positive normal float32, with the polynomial in fused multiply-adds."""
    bits = x.view(np.int32) - np.int32(_ROOT_HALF)
    e = (bits >> 23).astype(np.float32)
    bits &= 0x7FFFFF
    bits += _ROOT_HALF
    m = bits.view(np.float32)  # x = m * 2**e with m of [sqrt(1/2), sqrt(2))
    m -= np.float32(1)
    m64 = m.astype(np.float64)
    z = m * m
    np.multiply(m64, _LOG_POLY[0], wide)
    wide += _LOG_POLY[1]
    y = wide.astype(np.float32)
    for c in _LOG_POLY[2:]:
        _fma_to(y, m64, c, wide)
    y *= m
    _fma_to(y, z.astype(np.float64), e * np.float32(-2.12194440e-4), wide)
    z *= np.float32(0.5)
    y -= z
    y += m
    e *= np.float32(0.693359375)
    y += e
    return y


_FOUR_OVER_PI = np.float32(1.27323954473516)
_PIO4_HI = np.float32(0.78515625)
_PIO4_MID = np.float32(2.4187564849853515625e-4)
_PIO4_LO = float(np.float32(3.77489497744594108e-8))


def _sincos_f32(x, wide):
    """Cephes' sinf and cosf of float32 in [0, 2 pi], with fused multiply-adds; (sin, cos). Overwrites x."""
    j = (x * _FOUR_OVER_PI).astype(np.int32)
    j += 1
    j &= -2  # the even multiple of pi / 4 nearest to x: 0 to 8
    jf = j.astype(np.float32)
    x -= jf * _PIO4_HI  # these two products have few enough bits to be exact
    x -= jf * _PIO4_MID
    np.multiply(jf, -_PIO4_LO, wide, dtype=np.float64)
    wide += x
    np.copyto(x, wide, "same_kind")
    z = x * x
    z64 = z.astype(np.float64)
    np.multiply(z64, _COS_POLY[0], wide)
    wide += _COS_POLY[1]
    c = wide.astype(np.float32)
    _fma_to(c, z64, _COS_POLY[2], wide)
    c *= z
    _fma_to(c, z64, -0.5 * z64, wide)
    c += np.float32(1)
    np.multiply(z64, _SIN_POLY[0], wide)
    wide += _SIN_POLY[1]
    s = wide.astype(np.float32)
    _fma_to(s, z64, _SIN_POLY[2], wide)
    s *= z
    np.copyto(z64, x)
    _fma_to(s, z64, z64, wide)
    # In the odd quadrants sine and cosine change places; then the signs. All on the bits.
    sin, cos = s.view(np.int32), c.view(np.int32)
    j <<= 29
    swap = j << 1
    swap >>= 31
    swap &= sin ^ cos
    sin ^= swap
    cos ^= swap
    j &= _SIGN
    sin ^= j
    swap = (jf.astype(np.int32) + 2) << 29
    swap &= _SIGN
    cos ^= swap
    return s, c


_SIGN = np.int32(-0x80000000)
_HALF_BLOCK = np.dtype("V32")  # eight 32-bit numbers moved as one


def _blocks_f32(engine, mean, std, out):
    """Box-Muller over blocks of 16, some thousand at a time; a long draw is shared among the cores."""
    raw = engine.draw32(out.size)

    def work(start, stop):
        for i in range(start * 16, stop * 16, _CHUNK):
            j = min(i + _CHUNK, stop * 16)
            _box_muller_f32(raw[i:j], mean, std, out[i:j])

    if out.size >= 2 * _CHUNK:
        split(out.size // 16, work)
    else:
        work(0, out.size // 16)


def _box_muller_f32(raw, mean, std, out):
    """The first 8 draws of a block of 16 make radii, the other 8 angles."""
    raw = raw.view(_HALF_BLOCK)
    k1 = raw[0::2].copy().view(np.int32)
    k2 = raw[1::2].copy().view(np.int32)
    k1 &= 0xFFFFFF
    k2 &= 0xFFFFFF
    np.subtract(1 << 24, k1, k1)
    radius = k1.astype(np.float32)
    radius *= np.float32(2.0**-24)
    wide = np.empty(k1.size, np.float64)
    radius = _log_f32(radius, wide)
    radius *= np.float32(-2)
    np.sqrt(radius, radius)
    theta = k2.astype(np.float32)
    theta *= np.float32(_TWO_PI * 2.0**-24)
    sin, cos = _sincos_f32(theta, wide)
    cos *= radius
    sin *= radius
    out = out.view(_HALF_BLOCK)
    out[0::2] = _fma32(cos, std, mean).view(_HALF_BLOCK)
    out[1::2] = _fma32(sin, std, mean).view(_HALF_BLOCK)


def _blocks_f64(engine, mean, std, out):
    u = _u53(engine, out.size).reshape(-1, 2, 8)
    out = out.reshape(-1, 2, 8)
    radius = np.sqrt(-2.0 * _libm(math.log, 1.0 - u[:, 0]))
    sin, cos = _sincos(u[:, 1] * _TWO_PI)
    out[:, 0] = _fma64(radius * cos, std, mean)
    out[:, 1] = _fma64(radius * sin, std, mean)


def _scalar_normals(engine, n):
    """``n`` standard normals in float64 by the scalar method, cached value first."""
    if n < 32:
        with _Doubles(engine) as uni:
            return np.array([uni.normal() for _ in range(n)], np.float64)
    out = np.empty(n, np.float64)
    start = 0
    if engine.next_normal is not None:
        out[0] = engine.next_normal
        engine.next_normal = None
        start = 1
    pairs = (n - start + 1) // 2
    u = _u53(engine, 2 * pairs).reshape(-1, 2)
    radius = np.sqrt(-2.0 * _libm(math.log1p, -u[:, 1]))
    sin, cos = _sincos(u[:, 0] * _TWO_PI)
    both = np.empty((pairs, 2), np.float64)
    np.multiply(radius, cos, out=both[:, 0])
    np.multiply(radius, sin, out=both[:, 1])
    both = both.reshape(-1)
    out[start:] = both[: n - start]
    if (n - start) & 1:
        engine.next_normal = float(both[-1])
    return out


def normal(engine, shape, dtype=np.float32, mean=0.0, std=1.0, contiguous=True):
    """``tensor.normal_(mean, std)`` and, with an array ``mean`` or ``std``, ``torch.normal``.

    Contiguous outputs of 16 elements or more are made in blocks of 16 (uniforms in the output dtype's
    arithmetic; when the size is no multiple of 16, the last 16 are drawn anew). Everything else,
    that is fewer than 16 elements or ``contiguous=False`` (a tensor that is not contiguous, whatever
    its size), takes the scalar float64 path, which leaves the second value of an odd last pair in the
    engine. Complex dtypes fill (real, imag) pairs with ``std / sqrt(2)``.
    """
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    mean_array = isinstance(mean, np.ndarray)
    std_array = isinstance(std, np.ndarray)
    if mean_array or std_array:
        if std_array:
            out = normal(engine, shape, dtype, 0.0, 1.0, contiguous)
            out *= std
        else:
            out = normal(engine, shape, dtype, 0.0, std, contiguous)
        out += mean if mean_array else dtype.type(mean)
        return out
    mean, std = float(mean), float(std)
    if dtype.kind == "c":
        part = _f32 if dtype.itemsize == 8 else _f64
        if mean != 0.0:
            raise ValueError("normal: a complex mean other than 0 is not drawn here")
        return normal(engine, 2 * n, part, 0.0, std / math.sqrt(2.0), contiguous).view(dtype).reshape(shape)
    if n < 16 or not contiguous:
        out = _fma64(_scalar_normals(engine, n), std, mean)
        return _cast(out, dtype).reshape(shape)
    if dtype == _f64:
        out, words, blocks = np.empty(n, np.float64), 2, _blocks_f64
    else:
        out, words, blocks = np.empty(n, np.float32), 1, _blocks_f32
    whole = n & ~15
    if dtype == _f32 and whole < n < _CHUNK:  # the last 16, drawn anew, in one go with the others: half the calls
        raw = np.empty(whole + 16, np.uint32)
        raw[:whole] = engine.draw32(whole)
        engine.draw32(n - whole)
        raw[whole:] = engine.draw32(16)
        both = np.empty(whole + 16, np.float32)
        _box_muller_f32(raw, mean, std, both)
        out[:whole] = both[:whole]
        out[n - 16 :] = both[whole:]
        return out.reshape(shape)
    step = _CHUNK if blocks is _blocks_f64 else 256 * _CHUNK
    for i in range(0, whole, step):
        k = min(step, whole - i)
        blocks(engine, mean, std, out[i : i + k])
    if whole < n:
        if dtype == _f32 or dtype == _f64:
            engine.draw32(words * (n - whole))
        blocks(engine, mean, std, out[n - 16 :])
    return out.astype(dtype, copy=False).reshape(shape)


def randn(engine, shape, dtype=np.float32, contiguous=True):
    return normal(engine, shape, dtype, 0.0, 1.0, contiguous)


def log_normal(engine, shape, dtype=np.float32, mean=1.0, std=2.0):
    """``tensor.log_normal_``: the exponential of scalar-path normals, whatever the size."""
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    out = _fma64(_scalar_normals(engine, n), float(std), float(mean))
    with np.errstate(over="ignore"):
        out = _libm(_exp, out) if dtype == _f64 else np.exp(out)
        return _cast(out, dtype).reshape(shape)


def _exp(x):
    try:
        return math.exp(x)
    except OverflowError:
        return math.inf


# -- integers -------------------------------------------------------------------------------------


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
    if n > 300:
        return _from_int(_swap_all(picks, n), dtype)
    items = list(range(n))
    for i, j in enumerate(picks.tolist()):
        items[i], items[j] = items[j], items[i]
    return _from_int(np.array(items, np.int64), dtype)


def _swap_all(picks, n):
    """arange(n) after the swaps (i, picks[i]), i = 0, 1, ... with picks[i] >= i, without a Python loop.

    Place k holds, when its turn comes, what step m put there: m the last earlier step that picked k, or k
    itself when no step did. What m put there is what place m held at its own turn, so following these
    links to their end gives the value. Step i then fetches from its picked place what the last
    earlier step with the same pick left there.
    """
    steps = np.arange(n, dtype=np.int64)
    j = np.empty(n, np.int64)
    j[:-1] = picks
    j[-1] = n - 1
    link = steps.copy()
    moved = np.flatnonzero(j != steps)
    link[j[moved]] = moved  # of equal picks the last one stays
    while True:
        further = link[link]
        if np.array_equal(further, link):
            break
        link = further
    order = np.sort(j << 32 | steps)  # by pick, then by step
    step = order & 0xFFFFFFFF
    order >>= 32
    again = np.flatnonzero(order[1:] == order[:-1])
    out = j
    out[step[again + 1]] = link[step[again]]
    return out


# -- Bernoulli ------------------------------------------------------------------------------------


def _bernoulli_mask(engine, n, p):
    """Booleans, True with the scalar probability ``p``: a 53-bit uniform below ``p``."""
    bound = math.ceil(p * 2.0**53)
    out = np.empty(n, np.bool_)
    for i in range(0, n, _CHUNK):
        part = out[i : i + _CHUNK]
        draws = engine.draw64(part.size)
        draws &= _MASK53
        np.less(draws, np.uint64(bound), out=part)
    return out


def bernoulli(engine, shape, dtype=np.float32, p=0.5):
    """``tensor.bernoulli_(p)`` for a scalar or an array ``p`` (``torch.bernoulli`` passes its input).

    A scalar takes two outputs per element whatever the dtype. An array takes two per element when
    it is float64 and one otherwise; it must broadcast to ``shape``.
    """
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    if not isinstance(p, np.ndarray):
        p = float(p)
        if not 0.0 <= p <= 1.0:
            raise RuntimeError(f"bernoulli_ expects p to be in [0, 1], but got p={p:g}")
        return _bernoulli_mask(engine, n, p).reshape(shape).astype(dtype, copy=False)
    p = np.broadcast_to(p, shape)
    draw = _u53 if p.dtype == _f64 else _u24
    if p.dtype != _f64:
        p = p.astype(np.float32, copy=False)
    if not np.all(fine := (p >= 0) & (p <= 1)):
        draw(engine, int(np.argmin(fine)))  # those before the first that is none
        raise RuntimeError("Expected p_in >= 0 && p_in <= 1 to be true, but got false.")
    return np.less(draw(engine, n).reshape(shape), p).astype(dtype, copy=False)


def dropout_mask(engine, shape, p):
    """Booleans, True where ``F.dropout(x, p)`` keeps an element: ``bernoulli_(1 - p)`` of x's shape.

    ``torch.native_dropout`` draws the same way. For p = 0 and p = 1 ``F.dropout`` (and alpha and feature
    dropout) draws nothing, which is the caller's to know; ``native_dropout`` draws all the same.
    """
    shape, n = _shape(shape)
    return _bernoulli_mask(engine, n, 1.0 - float(p)).reshape(shape)


# -- inversion of one uniform ---------------------------------------------------------------------


def exponential(engine, shape, dtype=np.float32, lambd=1.0):
    """``tensor.exponential_``: ``-log1p(-u) / lambd`` of a 53-bit uniform, in float64 for every dtype."""
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    u = _u53(engine, n)
    np.negative(u, out=u)
    u = _libm(math.log1p, u) if dtype == _f64 else np.log1p(u, out=u)
    u *= -1.0 / float(lambd)
    return _cast(u, dtype).reshape(shape)


def geometric(engine, shape, dtype=np.float32, p=0.5):
    """``tensor.geometric_``: ``ceil(log(u) / log1p(-p))``."""
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    with np.errstate(divide="ignore"):
        out = np.log(_u53(engine, n))
    out /= math.log1p(-float(p))
    return _cast(np.ceil(out, out=out), dtype).reshape(shape)


def cauchy(engine, shape, dtype=np.float32, median=0.0, sigma=1.0):
    """``tensor.cauchy_``: ``median + sigma * tan(pi * (u - 0.5))``."""
    dtype = np.dtype(dtype)
    shape, n = _shape(shape)
    u = _u53(engine, n)
    u -= 0.5
    u *= math.pi
    out = _fma64(_libm(math.tan, u), float(sigma), float(median))
    with np.errstate(over="ignore"):
        return _cast(out, dtype).reshape(shape)


# -- multinomial ----------------------------------------------------------------------------------


def multinomial(engine, weights, num_samples, replacement=False):
    """``torch.multinomial`` of a 1-d or 2-d float array; int64 indices.

    Without replacement, and for a single sample in any case, an exponential is drawn for every weight
    and the largest weight/exponential ratios win. With replacement a 53-bit uniform per sample is
    looked up in the running sum of its row.
    """
    weights = np.asarray(weights)
    num_samples = int(num_samples)
    rows = weights if weights.ndim == 2 else weights[None]
    if not replacement or num_samples == 1:
        q = exponential(engine, weights.shape, weights.dtype).reshape(rows.shape)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            q = rows / q
        if num_samples == 1:
            out = np.argmax(q, axis=-1, keepdims=True)
        else:
            key = q if q.dtype == _f64 else q.astype(np.float32)
            out = np.argsort(-key, axis=-1, kind="stable")[:, :num_samples]
    else:
        u = _u53(engine, rows.shape[0] * num_samples).reshape(rows.shape[0], num_samples)
        out = np.empty(u.shape, np.int64)
        for row, draws, found in zip(rows, u, out):
            cum = _running_share(row)
            np.copyto(found, np.minimum(np.searchsorted(cum, draws, side="left"), row.size - 1))
    out = np.ascontiguousarray(out, dtype=np.int64)
    return out if weights.ndim == 2 else out[0]


def _running_share(row):
    """Running sum of a row divided by its total, as float64 values of the precision PyTorch keeps."""
    if row.dtype != _f64:
        row = row.astype(np.float32)
    cum = np.cumsum(row, dtype=row.dtype)
    if cum[-1] > 0:
        cum /= cum[-1]
    return cum.astype(np.float64)


# -- checks ---------------------------------------------------------------------------------------


def multinomial_problem(weights):
    """What is wrong with these weights, or None."""
    w = weights.astype(np.float64, copy=False)
    if not (np.isfinite(w).all() and (w >= 0).all()):
        return "invalid multinomial distribution: probability tensor contains either `inf`, `nan` or element < 0"
    if not (w.sum(-1) > 0).all():
        return "invalid multinomial distribution (sum of probabilities <= 0)"
    return None


def any_negative(x):
    return bool((x < 0).any())
