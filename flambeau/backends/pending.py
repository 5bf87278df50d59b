"""Arrays whose elements are yet to be conjugated or negated: a window onto memory, and two bits.

`conj()` and the imaginary part of a conjugate are views: they show the memory of another tensor, whose elements every reader
has to conjugate or negate. `PendingArray` is such a view. Its type names this backend, so that no kernel knows of the bits: one
that makes views makes them of the window and keeps the bits, any other gets the elements as they should be. What the window is
(memory, nothing but a shape, a device's, noted by a capture, promised by a followed call) is not asked here: whatever has to be
computed is a kernel call on it. Inside vmap the batch is outside, the bits inside.

It is no array of NumPy's, so that what takes it for one fails instead of reading elements without their sign.
"""

from __future__ import annotations

import sys
from typing import Any

from . import registry
from .batched.arrays import BatchedArray
from .cpu.layouts import uneven
from .dtypes import COMPLEX
from .facts import VIEWS, WRITES

NAME = "pending"
_LISTS = (list, tuple)


class PendingArray:
    """A window onto memory whose elements are conjugated (`conj`) or negated (`neg`) when they are read."""

    __slots__ = ("__weakref__", "conj", "dtype", "ndim", "neg", "shape", "window")

    def __init__(self, window: Any, conj: bool, neg: bool):
        self.window, self.conj, self.neg = window, conj, neg
        self.shape, self.ndim, self.dtype = window.shape, window.ndim, window.dtype

    # -------------------------------------------------------------------------------------------- what an array has
    size = property(lambda self: self.window.size)
    strides = property(lambda self: self.window.strides)
    flags = property(lambda self: self.window.flags)
    itemsize = property(lambda self: self.window.itemsize)
    nbytes = property(lambda self: self.window.nbytes)
    base = property(lambda self: self.window)

    def item(self, *args: Any) -> Any:
        return resolved(self).item(*args)

    def tolist(self) -> Any:
        return resolved(self).tolist()

    def astype(self, dtype: Any, **options: Any) -> Any:
        return resolved(self).astype(dtype, **options)

    def copy(self, order: str = "C") -> Any:
        return resolved(self).copy(order)

    def __array__(self, *args: Any, **kwargs: Any) -> Any:
        raise TypeError("an array with a conjugate or negative bit was given to NumPy: it has to be resolved first")

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **kwargs: Any) -> Any:
        """The fast path of pointwise operations calls NumPy's functions on any two arrays."""
        if method != "__call__" or len(inputs) != 2 or isinstance(kwargs.get("out", (None,))[0], registry.CPU_ARRAY):
            return NotImplemented
        return uneven(ufunc, *resolved(inputs))

    def over(self, window: Any) -> PendingArray:
        """The same bits over another window."""
        return PendingArray(window, self.conj, self.neg)

    # ---------------------------------------------------------------------------- NumPy's views, for batching rules
    def __getitem__(self, index: Any) -> PendingArray:
        return self.over(self.window[index])

    def reshape(self, *shape: Any) -> PendingArray:
        return self.over(self.window.reshape(*shape))

    def transpose(self, *axes: Any) -> PendingArray:
        return self.over(self.window.transpose(*axes))

    def swapaxes(self, a: int, b: int) -> PendingArray:
        return self.over(self.window.swapaxes(a, b))

    def __repr__(self) -> str:
        return f"<{'conjugate ' * self.conj}{'negative ' * self.neg}of {self.window!r}>"


ARRAY = PendingArray


# --------------------------------------------------------------------------------------------------------- the bits
def flipped(x: Any, conj: bool = False, neg: bool = False) -> Any:
    """The same memory with bits flipped: an ordinary array where none is left."""
    if x.__class__ is BatchedArray:
        return BatchedArray(x.level, flipped(x.examples, conj, neg))
    if x.__class__ is PendingArray:
        x, conj, neg = x.window, conj ^ x.conj, neg ^ x.neg
    return PendingArray(x, conj, neg) if conj or neg else x


def bits(x: Any) -> tuple[bool, bool]:
    """Whether the elements of an array are yet to be conjugated, and negated."""
    while x.__class__ is BatchedArray:
        x = x.examples
    return (x.conj, x.neg) if x.__class__ is PendingArray else (False, False)


def window_of(x: Any) -> Any:
    """The memory that an array shows, whatever its bits say."""
    return x.window if x.__class__ is PendingArray else x


def resolved(x: Any) -> Any:
    """An array's elements as they should be, in memory of their own where bits are set; other values are given back."""
    if x.__class__ is PendingArray:
        return _signed(x.window, x.conj, x.neg)
    if x.__class__ in _LISTS:
        return x.__class__([resolved(a) for a in x])
    return x


def _signed(x: Any, conj: bool, neg: bool) -> Any:
    made, home = x, registry.backend_of(x)
    if conj and x.dtype.kind in COMPLEX:
        made = home.call("conj", (made,))
    if neg:
        made = home.call("neg", (made,))
    if made.strides == x.strides and type(made) in registry.ARRAY_TYPES:
        return made
    made = made if type(made) in registry.ARRAY_TYPES else registry.cpu.asarray(made)
    if made.strides != x.strides and all([n == 1 or a == b for n, a, b in zip(x.shape, made.strides, x.strides)]):
        # PyTorch's copies keep the strides of single elements, too.
        return home.as_strided(made, x.shape, home.strides(x), home.storage_offset(made))
    return made


# ---------------------------------------------------------------------------------------------------------- kernels
def call(name: str, args: tuple[Any, ...]) -> Any:
    """Runs a kernel some of whose arrays have bits."""
    if name in VIEWS:
        return _views(name, args)
    plain = resolved(args)
    made = registry.common(_arrays(plain)).call(name, plain)
    for i in WRITES.get(name, ()):
        _put_back(args[i], plain[i])
    return made


def _arrays(values: Any) -> list[Any]:
    return [a for v in values for a in (_arrays(v) if v.__class__ in _LISTS else [v] if hasattr(v, "strides") else [])]


def _put_back(target: Any, value: Any) -> None:
    """After a kernel has written to a copy with resolved elements."""
    if target.__class__ is PendingArray:
        write(target, value)
    elif target.__class__ in _LISTS:
        for t, v in zip(target, value):
            _put_back(t, v)


def _views(name: str, args: tuple[Any, ...]) -> Any:
    """A view of the window has its bits. Parts of conjugates are real: the imaginary one takes the other sign."""
    x, rest = args[0], args[1:]
    made = registry.common([x.window]).call(name, (x.window, *rest))
    conj, neg = x.conj, x.neg
    if x.dtype.kind in COMPLEX and name in ("real", "imag"):
        conj, neg = False, neg ^ (conj and name == "imag")
    if made.__class__ in _LISTS:
        return made.__class__([flipped(m, conj, neg) for m in made])
    return flipped(made, conj, neg)


# ------------------------------------------------------------------------------------------- copies, and what is new
def write(target: Any, source: Any) -> None:
    """target[...] = source: the window gets what reads as the source."""
    home = registry.backend_of(target.window)
    source = resolved(source)
    if not hasattr(source, "strides"):
        source = home.asarray(source, target.dtype)
    elif target.neg and source.dtype != target.dtype:
        source = registry.backend_of(source).copy(source, target.dtype)  # not all that it may be can be negated
    home.write(target.window, _signed(source, target.conj, target.neg))


def fill(target: Any, value: Any) -> None:
    write(target, value)


def copy(x: Any, dtype: Any = None) -> Any:
    return registry.backend_of(x.window).copy(resolved(x), dtype)


def copy_with_layout(source: Any, like: Any) -> Any:
    like = like.window if like.__class__ is PendingArray else like
    return registry.backend_of(like).copy_with_layout(resolved(source), like)


def like(x: Any, dtype: Any) -> Any:
    return registry.backend_of(x.window).like(x.window, dtype)


def empty_like(x: Any) -> Any:
    return like(x, x.dtype)


def to_cpu(x: Any) -> Any:
    x = resolved(x)
    return registry.backend_of(x).to_cpu(x)


def cast(x: Any, dtype: Any) -> Any:
    return x.astype(dtype)


# --------------------------------------------------------------------------------------------- memory and geometry
def _of_window(name: str) -> Any:
    """A function of the window's backend that looks at its memory or geometry."""
    return lambda x, *args: getattr(registry.backend_of(x.window), name)(x.window, *args)


def _window(name: str) -> Any:
    """A function of the window's backend that gives another window: it has the same bits."""
    function = _of_window(name)
    return lambda x, *args: x.over(function(x, *args))


device_of, strides, storage_offset, is_contiguous, address, Storage, storage_bytes, is_shared = map(_of_window, (
    "device_of", "strides", "storage_offset", "is_contiguous", "address", "Storage", "storage_bytes", "is_shared"))
as_strided, resized, to_shared, settled = map(_window, ("as_strided", "resized", "to_shared", "settled"))
registry.ARRAY_TYPES[PendingArray] = registry.pending = sys.modules[__name__]
