"""The generator behind the random numbers: MT19937 with PyTorch's seeding and state bytes, and uniform draws from it."""

from __future__ import annotations

import math

import numpy as np

_WORDS = 624
_STATE_BYTES = 5056
_LEGACY_BYTES = 5048
_DEFAULT_SEED = 67280421310721

_f32 = np.dtype(np.float32)
_f64 = np.dtype(np.float64)
_f16 = np.dtype(np.float16)
_i64 = np.dtype(np.int64)
_bool = np.dtype(np.bool_)

_U32_ALL = np.uint64(0xFFFFFFFF)
_MASK24 = np.uint32((1 << 24) - 1)
_MASK53 = np.uint64((1 << 53) - 1)
_TWO_PI = 2.0 * math.pi

# Elements handled at a time by the long vector chains: the working set stays in the L2 cache.
_CHUNK = 16 * 1024

_STATE_LAYOUT = np.dtype(
    {
        "names": ["seed", "left", "seeded", "next", "key", "normal", "normal_ok", "fnormal", "fnormal_ok"],
        "formats": ["<u8", "<i4", "<i4", "<u8", ("<u8", (_WORDS,)), "<f8", "<i4", "<f4", "u1"],
        # 5016 and 5032 hold two doubles of the retired generator; they stay zero.
        "offsets": [0, 8, 12, 16, 24, 5024, 5040, 5048, 5052],
        "itemsize": _STATE_BYTES,
    }
)


class Engine:
    """Mersenne twister with PyTorch's seeding, draw order and state bytes.

    One block of 624 outputs is kept in ``_buf`` with the read position ``_pos``; NumPy's bit generator
    always stands at the end of that same block, so its key is the state to export.
    """

    __slots__ = ("_bits", "_buf", "_fresh", "_legacy", "_pos", "_seed", "next_float_normal", "next_normal")

    def __init__(self, seed: int = _DEFAULT_SEED):
        self._bits = None
        self._legacy = None
        self.seed(seed)

    # -- seeding ---------------------------------------------------------------------------------

    def seed(self, value: int) -> Engine:
        """Start the stream of ``value`` (kept modulo 2**64; only the low 32 bits feed the twister)."""
        self._seed = int(value) & 0xFFFFFFFFFFFFFFFF
        self._buf = None
        self._pos = _WORDS
        self._fresh = True
        self.next_normal = None
        self.next_float_normal = None
        if self._bits is not None:
            self._legacy.seed(self._seed & 0xFFFFFFFF)
        return self

    @property
    def initial_seed(self) -> int:
        return self._seed

    def _bitgen(self):
        if self._bits is None:
            from numpy.random import MT19937, RandomState

            self._bits = MT19937(0)
            self._legacy = RandomState(self._bits)
            self._legacy.seed(self._seed & 0xFFFFFFFF)
        return self._bits

    # -- raw draws -------------------------------------------------------------------------------

    def _words(self, n: int) -> np.ndarray:
        """The next n outputs of NumPy's generator."""
        return (self._bits or self._bitgen()).random_raw(n).astype(np.uint32)

    def _refill(self):
        buf = self._words(_WORDS)
        buf.flags.writeable = False
        self._buf = buf
        self._fresh = False

    def draw32(self, n: int) -> np.ndarray:
        """The next ``n`` 32-bit outputs as uint32. May be a read-only view: do not write into it."""
        pos = self._pos
        end = pos + n
        if end <= _WORDS and self._buf is not None:
            self._pos = end
            return self._buf[pos:end]
        out = np.empty(n, np.uint32)
        if n == 0:
            return out
        done = _WORDS - pos
        if done:
            out[:done] = self._buf[pos:]
        bulk = (n - done) // _WORDS * _WORDS
        if bulk:
            step = 64 * _WORDS
            for i in range(0, bulk, step):
                k = min(step, bulk - i)
                out[done : done + k] = self._words(k)
                done += k
            self._fresh = False
        if done < n:
            self._refill()
            self._pos = n - done
            out[done:] = self._buf[: n - done]
        else:
            self._pos = _WORDS
        return out

    def draw64(self, n: int) -> np.ndarray:
        """``n`` 64-bit numbers as uint64, two outputs each, the first of them in the high half."""
        raw = self.draw32(2 * n)
        out = raw[0::2].astype(np.uint64)
        out <<= np.uint64(32)
        out |= raw[1::2]
        return out

    # -- state -----------------------------------------------------------------------------------

    def get_state(self) -> np.ndarray:
        """The 5056 bytes of ``torch.Generator.get_state()`` as a uint8 array."""
        out = np.zeros(_STATE_BYTES, np.uint8)
        rec = out.view(_STATE_LAYOUT)
        rec["seed"] = self._seed
        rec["seeded"] = 1
        rec["key"] = self._bitgen().state["state"]["key"]
        rec["next"] = 0 if self._fresh else self._pos
        rec["left"] = 1 if self._fresh else _WORDS + 1 - self._pos
        if self.next_normal is not None:
            rec["normal"] = self.next_normal
            rec["normal_ok"] = 1
        if self.next_float_normal is not None:
            rec["fnormal"] = self.next_float_normal
            rec["fnormal_ok"] = 1
        return out

    def set_state(self, state) -> Engine:
        """Take over the bytes of ``get_state`` (ours or PyTorch's; the 5048-byte old form as well)."""
        data = np.ascontiguousarray(state)
        if data.dtype != np.uint8 or data.ndim != 1:
            raise TypeError("RNG state must be a torch.ByteTensor")
        if data.size == _LEGACY_BYTES:
            data = np.concatenate([data, np.zeros(_STATE_BYTES - _LEGACY_BYTES, np.uint8)])
        if data.size != _STATE_BYTES:
            raise RuntimeError(
                f"Expected either a CPUGeneratorImplStateLegacy of size {_LEGACY_BYTES} or a CPUGeneratorImplState "
                f"of size {_STATE_BYTES} but found the input RNG state size to be {data.size}"
            )
        rec = data.view(_STATE_LAYOUT)[0]
        left, nxt = int(rec["left"]), int(rec["next"])
        if int(rec["seeded"]) != 1 or not 0 < left <= _WORDS or nxt > _WORDS:
            raise RuntimeError("Invalid mt19937 state")
        self._seed = int(rec["seed"])
        bits = self._bitgen()
        key = (rec["key"] & _U32_ALL).astype(np.uint32)
        self._fresh = left == 1 and nxt == 0
        self._pos = _WORDS if left == 1 else nxt
        # From position 0 NumPy hands out the block of this key without touching the key itself.
        bits.state = {"bit_generator": "MT19937", "state": {"key": key, "pos": _WORDS if self._fresh else 0}}
        if self._fresh:
            self._buf = None
        else:
            self._refill()
        self.next_normal = float(rec["normal"]) if rec["normal_ok"] else None
        self.next_float_normal = float(rec["fnormal"]) if rec["fnormal_ok"] else None
        return self

    def clone(self) -> Engine:
        return Engine().set_state(self.get_state())

    def __getstate__(self):
        return self.get_state()

    def __setstate__(self, state):
        self.__init__()
        self.set_state(state)


# -- helpers --------------------------------------------------------------------------------------


def _shape(shape):
    """(shape tuple, number of elements) of an int or a sequence of ints."""
    if type(shape) is tuple and all([type(s) is int for s in shape]):
        return shape, math.prod(shape)
    if isinstance(shape, (int, np.integer)):
        shape = (int(shape),)
    else:
        shape = tuple(int(s) for s in shape)
    return shape, math.prod(shape)


def _is_float(dtype) -> bool:
    return dtype.kind == "f" or _mantissa(dtype) == 8


def _mantissa(dtype):
    """Significant bits of a floating dtype (ml_dtypes' bfloat16 has kind 'V'); None for the others."""
    if dtype == _f32:
        return 24
    if dtype == _f64:
        return 53
    if dtype == _f16:
        return 11
    if dtype.name == "bfloat16":
        return 8
    return None


def _u24(engine, n):
    """``n`` float32 uniforms of [0, 1): the low 24 bits of one output each."""
    out = np.empty(n, np.float32)
    for i in range(0, n, _CHUNK):
        part = out[i : i + _CHUNK]
        raw = engine.draw32(part.size) & _MASK24
        np.multiply(raw.view(np.int32), np.float32(2.0**-24), out=part, dtype=np.float32, casting="unsafe")
    return out


def _u53(engine, n):
    """``n`` float64 uniforms of [0, 1): the low 53 bits of two outputs each."""
    out = np.empty(n, np.float64)
    for i in range(0, n, _CHUNK):
        part = out[i : i + _CHUNK]
        raw = engine.draw32(2 * part.size)
        np.multiply(raw[0::2] & np.uint32((1 << 21) - 1), 2.0**-21, out=part)
        part += raw[1::2] * 2.0**-53
    return out


class _Doubles:
    """float64 uniforms one at a time for the accept/reject samplers, without running ahead."""

    __slots__ = ("_engine",)

    def __init__(self, engine):
        self._engine = engine

    def __call__(self):
        engine = self._engine
        pos = engine._pos
        if pos <= _WORDS - 2 and engine._buf is not None:
            hi, lo = engine._buf[pos : pos + 2].tolist()
            engine._pos = pos + 2
        else:
            hi, lo = engine.draw32(2).tolist()
        return ((hi & 0x1FFFFF) << 32 | lo) * 2.0**-53

    def normal(self):
        """One standard normal of the scalar Box-Muller method, by way of the engine's cached value."""
        engine = self._engine
        value = engine.next_normal
        if value is not None:
            engine.next_normal = None
            return value
        theta = _TWO_PI * self()
        radius = math.sqrt(-2.0 * math.log1p(-self()))
        engine.next_normal = radius * math.sin(theta)
        return radius * math.cos(theta)


def _libm(fn, x):
    """A function of ``math`` over a float64 array: NumPy's vector versions may be off in the last place."""
    return np.fromiter(map(fn, x.ravel().tolist()), np.float64, x.size).reshape(x.shape)


def _sincos(theta):
    """(sin, cos) of float64 as libm's sincos has them, which is what the complex exponential calls."""
    z = np.exp(1j * theta)
    return z.imag, z.real


def _split(x):
    t = x * 134217729.0
    hi = t - (t - x)
    return hi, x - hi


def _fma64(x, scale, shift):
    """``x * scale + shift`` in float64 rounded once, for an array and two finite scalars."""
    if shift == 0.0 or scale == 1.0 or scale == 0.0:
        return x * scale + shift
    p = x * scale
    if not (1e-140 < abs(scale) < 1e140):
        return p + shift
    xh, xl = _split(x)
    sh, sl = _split(float(scale))
    e = ((xh * sh - p) + xh * sl + xl * sh) + xl * sl
    s = p + shift
    b = s - p
    e += (p - (s - b)) + (shift - b)
    return s + e


def _fma32(x, scale, shift):
    """``x * scale + shift`` of a float32 array and float32 scalars with a single rounding to float32."""
    scale, shift = np.float32(scale), np.float32(shift)
    if scale == 1.0:
        return x if shift == 0.0 else x + shift
    if shift == 0.0:
        return x * scale
    t = np.multiply(x, np.float64(scale), dtype=np.float64)
    t += np.float64(shift)
    return t.astype(np.float32)


def _cast(values, dtype):
    """Float results to the output dtype as a C cast does (integers truncate)."""
    if values.dtype == dtype:
        return values
    if dtype.kind in "iu":
        with np.errstate(invalid="ignore"):
            return values.astype(np.int64).astype(dtype)
    if dtype.itemsize == 2 and values.dtype == _f64:
        values = values.astype(np.float32)  # float16 and bfloat16 are made from float32
    return values.astype(dtype)


# -- uniform --------------------------------------------------------------------------------------
