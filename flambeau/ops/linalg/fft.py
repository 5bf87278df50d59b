"""Discrete Fourier transforms: three rows (complex to complex, real to complex, complex to real), and the public forms.

A transform is its own derivative up to direction: the adjoint of a forward transform is the unscaled inverse one with
the same normalization.
"""

from __future__ import annotations

import functools
from typing import Any

from ...creation.factories import arange
from ...tensors import dtypes as _dtypes
from ...tensors.shapes import wrap_dim
from ...tensors.tensor import Tensor
from ..core.row import FUNCTIONS, Row
from ..rules import products
from .common import linalg

_MODES = {None: "backward", "backward": "backward", "ortho": "ortho", "forward": "forward"}
_NONE, _ROOT, _COUNT = range(3)


def _half_grad(grad: Tensor, dim: tuple[int, ...], normalization: int, onesided: bool, shape: tuple[int,
                                                                                                    ...]) -> Tensor:
    """Of a real input: the missing half of the spectrum had no influence, so it counts as zero."""
    if onesided:
        missing = shape[dim[-1]] - grad._array.shape[dim[-1]]
        if missing > 0:
            sizes = list(grad._array.shape)
            sizes[dim[-1]] = missing
            grad = FUNCTIONS["cat"]([grad, grad.new_zeros(sizes)], dim[-1])
    return _c2c(grad, dim, normalization, False).real


def _real_grad(grad: Tensor, dim: tuple[int, ...], normalization: int) -> Tensor:
    """Of half a spectrum: points that stand for their mirror image too count twice."""
    half = _r2c(grad, dim, normalization, True)
    last = dim[-1]
    size, full = half._array.shape[last], grad._array.shape[last]
    twice = full - size
    if twice <= 0:
        return half
    parts = [half.narrow(last, 0, 1), half.narrow(last, 1, twice) * 2]
    if size > 1 + twice:
        parts.append(half.narrow(last, 1 + twice, size - 1 - twice))
    return FUNCTIONS["cat"](parts, last)


_c2c = Row("_fft_c2c", "self dim normalization forward", safe=True, batch=("along", 1), shape=products.transform,
           kernel="fft_c2c", node="FftC2CBackward0", forward="linear", backward=dict(
    self=lambda grad, dim, normalization, forward: _c2c(grad, dim, normalization, not forward)))
_r2c = Row("_fft_r2c", "self dim normalization onesided", safe=True, batch=("along", 1), shape=products.from_real,
           kernel="fft_r2c", node="FftR2CBackward0", forward="linear", backward=dict(
    self=lambda grad, dim, normalization, onesided, self_shape: _half_grad(grad, dim, normalization, onesided, self_shape)))
_c2r = Row("_fft_c2r", "self dim normalization last_dim_size", safe=True, batch=("along", 1), shape=products.to_real,
           kernel="fft_c2r", node="FftC2RBackward0",
           forward="linear", backward=dict(
    self=lambda grad, dim, normalization: _real_grad(grad, dim, normalization)))


# ------------------------------------------------------------------------------------------------------- arguments
def _normalization(norm: str | None, forward: bool) -> int:
    if norm not in _MODES:
        raise RuntimeError(f'Invalid normalization mode: "{norm}"')
    mode = _MODES[norm]
    if mode == "ortho":
        return _ROOT
    return _NONE if (mode == "backward") == forward else _COUNT


def _floating(x: Any, function: str, complex_: bool = False) -> Tensor:
    """The input as a floating (or complex) tensor; integers become the default type."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
    d = x.dtype
    if d.is_floating_point and x._array.dtype.char not in "fd":
        raise RuntimeError(f"Unsupported dtype {d}: {function} does not take half precision on the CPU")
    if not (d.is_floating_point or d.is_complex):
        d = _dtypes.get_default_dtype()
        x = x.to(d)
    return x.to(d.to_complex()) if complex_ and not d.is_complex else x


def _resized(x: Tensor, sizes: dict[int, int]) -> Tensor:
    """x trimmed or padded with zeros at the end of the given dims."""
    for d, n in sizes.items():
        have = x._array.shape[d]
        if n < have:
            x = x.narrow(d, 0, n)
        elif n > have:
            shape = list(x._array.shape)
            shape[d] = n - have
            x = FUNCTIONS["cat"]([x, x.new_zeros(shape)], d)
    return x


def _points(n: Any) -> int:
    if n < 1:
        raise RuntimeError(f"Invalid number of data points ({n}) specified")
    return int(n)


def _one(x: Tensor, n: int | None, dim: int) -> tuple[int, int]:
    if not x._array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    d = wrap_dim(dim, x._array.ndim)
    return d, _points(x._array.shape[d] if n is None else n)


def _many(x: Tensor, s: Any, dim: Any, half: bool = False) -> tuple[tuple[int, ...], list[int]]:
    """(dims, sizes); `half`: the last default size is that of a real signal with this half spectrum."""
    ndim = x._array.ndim
    s = [s] if isinstance(s, int) else s
    if not ndim and (dim is not None or half):
        first = 0 if dim is None else dim if isinstance(dim, int) else dim[0] if len(dim) else -1
        raise IndexError(f"Dimension specified as {first} but tensor has no dimensions")
    if dim is not None:
        dims = [wrap_dim(d, ndim) for d in ((dim,) if isinstance(dim, int) else dim)]
        if len(set(dims)) != len(dims):
            raise RuntimeError("FFT dims must be unique")
        if s is not None and len(s) != len(dims):
            raise RuntimeError("When given, dim and shape arguments must have the same length")
    elif s is not None:
        if len(s) > ndim:
            raise RuntimeError(f"Got shape with {len(s)} values but input tensor only has {ndim} dimensions.")
        dims = list(range(ndim - len(s), ndim))
    else:
        dims = list(range(ndim))
    sizes = [x._array.shape[d] for d in dims]
    if half and sizes:
        sizes[-1] = 2 * (sizes[-1] - 1)
    if s is not None:
        sizes = [have if n == -1 else n for n, have in zip(s, sizes)]
    return tuple(dims), [_points(n) for n in sizes]


def _real_only(x: Tensor, function: str) -> None:
    if x.is_complex():
        raise RuntimeError(f"{function} expects a real input tensor, but got {x.dtype}")


def _export(function: Any = None, autocast: str | None = "float32") -> Any:
    if function is None:
        return functools.partial(_export, autocast=autocast)
    return linalg(function, name="fft_" + function.__name__, autocast=autocast)


# --------------------------------------------------------------------------------------------------- one dimension
def _complex_one(x: Any, n: Any, dim: int, norm: Any, forward: bool, name: str) -> Tensor:
    x = _floating(x, name)
    d, n = _one(x, n, dim)
    x = _resized(x, {d: n})
    scale = _normalization(norm, forward)
    if x.is_complex():
        return _c2c(x, (d,), scale, forward)
    made = _r2c(x, (d,), scale, False)
    return made if forward else made.conj()


@_export
def fft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The discrete Fourier transform along one dimension."""
    return _complex_one(input, n, dim, norm, True, "fft")


@_export
def ifft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of fft."""
    return _complex_one(input, n, dim, norm, False, "ifft")


@_export
def rfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform of a real signal: the n // 2 + 1 points that determine it."""
    x = _floating(input, "rfft")
    _real_only(x, "rfft")
    d, n = _one(x, n, dim)
    return _r2c(_resized(x, {d: n}), (d,), _normalization(norm, True), True)


@_export
def irfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of rfft: a real signal of n points."""
    x = _floating(input, "irfft", True)
    d, n = _half(x, n, dim)
    return _c2r(_resized(x, {d: n // 2 + 1}), (d,), _normalization(norm, False), n)


def _half(x: Tensor, n: int | None, dim: int) -> tuple[int, int]:
    if not x._array.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    d = wrap_dim(dim, x._array.ndim)
    return d, _points(2 * (x._array.shape[d] - 1) if n is None else n)


@_export
def hfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The transform of half a Hermitian signal: a real spectrum of n points."""
    x = _floating(input, "hfft", True)
    d, n = _half(x, n, dim)
    return _c2r(_resized(x, {d: n // 2 + 1}).conj(), (d,), _normalization(norm, True), n)


@_export
def ihfft(input: Tensor, n: int | None = None, dim: int = -1, norm: str | None = None) -> Tensor:
    """The inverse of hfft: half of a Hermitian signal."""
    x = _floating(input, "ihfft")
    _real_only(x, "ihfft")
    d, n = _one(x, n, dim)
    return _r2c(_resized(x, {d: n}), (d,), _normalization(norm, False), True).conj()


# ----------------------------------------------------------------------------------------------- several dimensions
def _complex_many(x: Any, s: Any, dim: Any, norm: Any, forward: bool, name: str) -> Tensor:
    x = _floating(x, name, True)
    dims, sizes = _many(x, s, dim)
    scale = _normalization(norm, forward)
    x = _resized(x, dict(zip(dims, sizes)))
    return _c2c(x, dims, scale, forward) if dims else x.clone()


def _need_dims(dims: tuple[int, ...], name: str) -> None:
    if not dims:
        raise RuntimeError(f"{name} must transform at least one axis")


def _real_many(input: Tensor, s: Any, dim: Any, name: str) -> tuple[Tensor, Any]:
    """A real signal in the sizes asked for, and the dimensions that are transformed."""
    x = _floating(input, name)
    if x.is_complex():
        raise RuntimeError(f"{name} expects a real-valued input tensor, but got {x.dtype}")
    dims, sizes = _many(x, s, dim)
    _need_dims(dims, name)
    return _resized(x, dict(zip(dims, sizes))), dims


def _half_many(input: Tensor, s: Any, dim: Any, name: str) -> tuple[Tensor, Any, int]:
    """A spectrum of which half of the last dimension is kept, the dimensions, and the size of the whole last one."""
    x = _floating(input, name, True)
    dims, sizes = _many(x, s, dim, half=True)
    _need_dims(dims, name)
    return _resized(x, dict(zip(dims, [*sizes[:-1], sizes[-1] // 2 + 1]))), dims, sizes[-1]


@_export
def fftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The transform over several dimensions (by default all)."""
    return _complex_many(input, s, dim, norm, True, "fftn")


@_export
def ifftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of fftn."""
    return _complex_many(input, s, dim, norm, False, "ifftn")


@_export
def rfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The transform of a real signal over several dimensions; half of the last one is kept."""
    x, dims = _real_many(input, s, dim, "rfftn")
    return _r2c(x, dims, _normalization(norm, True), True)


@_export
def irfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of rfftn."""
    x, dims, last = _half_many(input, s, dim, "irfftn")
    return _c2r(x, dims, _normalization(norm, False), last)


@_export(autocast=None)
def hfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The transform of a signal that is Hermitian in its last dimension: a real spectrum."""
    x, dims, last = _half_many(input, s, dim, "hfftn")
    scale = _normalization(norm, True)
    if len(dims) > 1:
        x = _c2c(x, dims[:-1], scale, True)
    return _c2r(x.conj(), dims[-1:], scale, last)


@_export(autocast=None)
def ihfftn(input: Tensor, s: Any = None, dim: Any = None, norm: str | None = None) -> Tensor:
    """The inverse of hfftn."""
    x, dims = _real_many(input, s, dim, "ihfftn")
    scale = _normalization(norm, False)
    half = _r2c(x, dims[-1:], scale, True).conj()
    return _c2c(half, dims[:-1], scale, False) if len(dims) > 1 else half


def _two(name: str, many: Any, doc: str, autocast: str | None = "float32") -> Any:
    def function(input: Tensor, s: Any = None, dim: Any = (-2, -1), norm: str | None = None) -> Tensor:
        if isinstance(input, Tensor) and input._array.ndim < 2 and tuple(dim) == (-2, -1):
            raise IndexError("Dimension out of range (expected to be in range of [-1, 0], but got -2)")
        return many(input, s, dim, norm)

    function.__name__ = function.__qualname__ = name
    function.__doc__ = doc
    return _export(function, autocast)


fft2 = _two("fft2", fftn, "fftn over the last two dimensions.")
ifft2 = _two("ifft2", ifftn, "ifftn over the last two dimensions.")
rfft2 = _two("rfft2", rfftn, "rfftn over the last two dimensions.")
irfft2 = _two("irfft2", irfftn, "irfftn over the last two dimensions.")
hfft2 = _two("hfft2", hfftn, "hfftn over the last two dimensions.", None)
ihfft2 = _two("ihfft2", ihfftn, "ihfftn over the last two dimensions.", None)


# ------------------------------------------------------------------------------------------- frequencies and shifts
def _frequencies(n: int, d: float, count: int, wrapped: int, options: dict[str, Any]) -> Tensor:
    dtype = options.get("dtype") or _dtypes.get_default_dtype()
    if not (dtype.is_floating_point or dtype.is_complex):
        raise RuntimeError(f"fftfreq requires a floating point or complex dtype, got {dtype}")
    requires_grad = options.pop("requires_grad", False)
    options = {**options, "dtype": dtype}
    low = arange(count - wrapped, **options)
    frequencies = low if not wrapped else FUNCTIONS["cat"]([low, arange(-wrapped, 0, **options)])
    return (frequencies * (1.0 / (n * d))).requires_grad_(requires_grad)


def fftfreq(n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
            device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """The frequencies of fft's points, for samples d apart."""
    made = _frequencies(n, d, n, n // 2, {"dtype": dtype, "device": device, "requires_grad": requires_grad})
    return made if out is None else out.copy_(made)


def rfftfreq(n: int, d: float = 1.0, *, out: Tensor | None = None, dtype: Any = None, layout: Any = None,
             device: Any = None, requires_grad: bool = False, pin_memory: bool = False) -> Tensor:
    """The frequencies of rfft's points."""
    made = _frequencies(n, d, n // 2 + 1, 0, {"dtype": dtype, "device": device, "requires_grad": requires_grad})
    return made if out is None else out.copy_(made)


def _shift_dims(x: Tensor, dim: Any) -> list[int]:
    return list(range(x._array.ndim)) if dim is None else [dim] if isinstance(dim, int) else list(dim)


@_export(autocast=None)
def fftshift(input: Tensor, dim: Any = None) -> Tensor:
    """Moves the zero frequency to the middle."""
    dims = _shift_dims(input, dim)
    return input.roll([input._array.shape[d] // 2 for d in dims], dims)


@_export(autocast=None)
def ifftshift(input: Tensor, dim: Any = None) -> Tensor:
    """The inverse of fftshift."""
    dims = _shift_dims(input, dim)
    return input.roll([(input._array.shape[d] + 1) // 2 for d in dims], dims)
