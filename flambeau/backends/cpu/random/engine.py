"""The generator behind the random numbers: MT19937 with PyTorch's seeding and state bytes, and uniform draws from it."""

from __future__ import annotations

import ctypes
import math
import threading

import numpy as np

from ....native import library

_WORDS = 624
_STATE_BYTES = 5056
_LEGACY_BYTES = 5048
_DEFAULT_SEED = 67280421310721

_f32 = np.dtype(np.float32)
_f64 = np.dtype(np.float64)
_f16 = np.dtype(np.float16)
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


# Where the fields of a generator's 632 words are (native/random.c writes them too).
SIZE = 632
AT = 624          # how many words of the block are used up
FRESH = 625       # 1: seeded, and nothing drawn yet; 2: and word 0 is all there is of the key
HAS_NORMAL = 626  # the second half of the last pair of normals waits in NORMAL
HAS_SINGLE = 627
NORMAL = 314      # as float64
SINGLE = 630      # as float32
_local = threading.local()


class Engine:
    """Mersenne twister with PyTorch's seeding, draw order and state bytes.

    All that changes is in one array, `words`, which is never replaced: draws are kernels that write into it.
    """

    __slots__ = ("_seed", "words")

    def __init__(self, seed: int = _DEFAULT_SEED):
        self.words = np.zeros(SIZE, np.uint32)
        self.seed(seed)

    @classmethod
    def over(cls, words: np.ndarray) -> Engine:
        """An engine that draws from the words of another."""
        self = object.__new__(cls)
        self._seed = 0
        self.words = words
        return self

    # -- seeding ---------------------------------------------------------------------------------

    def seed(self, value: int) -> Engine:
        """Start the stream of ``value`` (kept modulo 2**64; only the low 32 bits feed the twister)."""
        self._seed = int(value) & 0xFFFFFFFFFFFFFFFF
        words = self.words
        words[0] = self._seed & 0xFFFFFFFF
        words[AT:HAS_SINGLE + 1] = _SEEDED
        return self

    @property
    def initial_seed(self) -> int:
        return self._seed

    @property
    def next_normal(self) -> float | None:
        """The second half of the last pair of normals, while it waits."""
        return float(self.words.view(_f64)[NORMAL]) if self.words[HAS_NORMAL] else None

    @next_normal.setter
    def next_normal(self, value: float | None) -> None:
        self.words[HAS_NORMAL] = value is not None
        if value is not None:
            self.words.view(_f64)[NORMAL] = value

    def _settle(self) -> None:
        """Works out the key of a new seed."""
        if self.words[FRESH] == 2:
            native = library("random")
            if native is not None:
                native.fl_mt_settle(self.words)
            else:
                _, legacy, memory = _numpy_twister()
                legacy.seed(int(self.words[0]))
                self.words[:_WORDS] = memory[:_WORDS]
                self.words[FRESH] = 1

    # -- raw draws -------------------------------------------------------------------------------

    def draw32(self, n: int) -> np.ndarray:
        """The next ``n`` 32-bit outputs as uint32."""
        out = np.empty(n, np.uint32)
        native = library("random")
        if native is not None:
            native.fl_mt_words(self.words, out, n)
        elif n:
            self._settle()
            bits, _, memory = _numpy_twister()
            memory[:] = self.words[:AT + 1]
            step = 64 * _WORDS
            for i in range(0, n, step):
                part = out[i : i + step]
                part[...] = bits.random_raw(part.size)
            self.words[:AT + 1] = memory
            self.words[FRESH] = 0
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
        self._settle()
        words = self.words
        out = np.zeros(_STATE_BYTES, np.uint8)
        rec = out.view(_STATE_LAYOUT)
        rec["seed"] = self._seed
        rec["seeded"] = 1
        rec["key"] = words[:_WORDS]
        at = int(words[AT])
        rec["next"] = 0 if words[FRESH] else at
        rec["left"] = 1 if words[FRESH] else _WORDS + 1 - at
        if words[HAS_NORMAL]:
            rec["normal"] = words.view(_f64)[NORMAL]
            rec["normal_ok"] = 1
        if words[HAS_SINGLE]:
            rec["fnormal"] = words.view(_f32)[SINGLE]
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
        words = self.words
        words[:_WORDS] = rec["key"] & _U32_ALL
        words[AT] = _WORDS if left == 1 else nxt
        words[FRESH] = left == 1 and nxt == 0
        words[HAS_NORMAL] = bool(rec["normal_ok"])
        words.view(_f64)[NORMAL] = rec["normal"]
        words[HAS_SINGLE] = bool(rec["fnormal_ok"])
        words.view(_f32)[SINGLE] = rec["fnormal"]
        return self

    def clone(self) -> Engine:
        return Engine().set_state(self.get_state())

    def __getstate__(self):
        return self.get_state()

    def __setstate__(self, state):
        self.__init__()
        self.set_state(state)


_SEEDED = np.array([_WORDS, 2, 0, 0], np.uint32)


def _numpy_twister():
    """NumPy's generator of this thread, the object that seeds it, and its own memory: the key and the position."""
    try:
        return _local.twister
    except AttributeError:
        from numpy.random import MT19937, RandomState
        bits = MT19937(0)
        block = (ctypes.c_uint32 * (_WORDS + 1)).from_address(bits.ctypes.state_address)
        _local.twister = bits, RandomState(bits), np.frombuffer(block, np.uint32)
        return _local.twister


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
    native = library("random")
    if native is not None:
        native.fl_mt_rand_f32(engine.words, out, n)
        return out
    raw = (engine.draw32(n) & _MASK24).view(np.int32)
    return np.multiply(raw, np.float32(2.0**-24), out=out, dtype=np.float32, casting="unsafe")


def _u53(engine, n):
    """``n`` float64 uniforms of [0, 1): the low 53 bits of two outputs each."""
    out = np.empty(n, np.float64)
    native = library("random")
    if native is not None:
        native.fl_mt_uniform_f64(engine.words, out, n, 0.0, 1.0)
        return out
    raw = engine.draw32(2 * n)
    np.multiply(raw[0::2] & np.uint32((1 << 21) - 1), 2.0**-21, out=out)
    out += raw[1::2] * 2.0**-53
    return out


class _Doubles:
    """float64 uniforms one at a time for the accept/reject samplers: a `with` block that takes words from the engine by the
    block, and at its end gives back those it did not use."""

    __slots__ = ("_at", "_engine", "_normal", "_words")

    def __init__(self, engine):
        self._engine = engine

    def __enter__(self) -> _Doubles:
        self._words, self._at = [], 0
        self._normal = self._engine.next_normal
        return self

    def __exit__(self, *exc):
        engine = self._engine
        engine.next_normal = self._normal
        if self._words:
            engine.words[AT] = _WORDS - (len(self._words) - self._at)

    def _more(self):
        left = self._words[self._at :]
        engine = self._engine
        while len(left) < 2:
            left += engine.draw32(_WORDS - int(engine.words[AT]) or _WORDS).tolist()
        self._words, self._at = left, 0

    def __call__(self):
        at = self._at
        if at + 2 > len(self._words):
            self._more()
            at = 0
        self._at = at + 2
        return ((self._words[at] & 0x1FFFFF) << 32 | self._words[at + 1]) * 2.0**-53

    def normal(self):
        """One standard normal of the scalar Box-Muller method, by way of the engine's cached value."""
        value = self._normal
        if value is not None:
            self._normal = None
            return value
        theta = _TWO_PI * self()
        radius = math.sqrt(-2.0 * math.log1p(-self()))
        self._normal = radius * math.sin(theta)
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
    if not (1e-140 < abs(scale) < 1e140):
        return x * scale + shift
    return fma(x, float(scale), shift)


def fma(x, scale, shift):
    """x * scale + shift in float64, rounded once."""
    product = x * scale
    x_high, x_low = _split(x)
    scale_high, scale_low = _split(scale)
    rest = ((x_high * scale_high - product) + x_high * scale_low + x_low * scale_high) + x_low * scale_low
    total = product + shift
    part = total - product
    return total + (rest + ((product - (total - part)) + (shift - part)))


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
