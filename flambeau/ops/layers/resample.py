"""Resizing, sampling at points of a grid, and rearranging of pixels and channels."""

from __future__ import annotations

import math
import warnings
from typing import Any

from ...autograd.modes import enable_grad, no_grad
from ...autograd.passes import grad as differentiate
from ...autograd.state import grad_enabled
from ...backends.cpu.layers import resample as _kernels  # noqa: F401  (enters the kernels into the table)
from ...creation.factories import linspace, ones
from ...tensors import dtypes as _dtypes
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import FUNCTIONS, check_dtype, check_on_cpu, moving, public, row
from ..rules import images
from .layouts import keeping_layout
from .pooling import adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d

# -------------------------------------------------------------------------------------------------------- resizing
# Two rows per node name: the gradient of one is the other.
_upsample_grad = moving("upsample_grad", "grad_output mode size align_corners scales", batch="by_sample",
                        shape=rules.last_dims(2),
                        node="UpsampleBackwardBackward0", forward="linear", backward=dict(
                         grad_output=lambda grad, grad_output_shape, mode, align_corners, scales: _upsample_again(
                             grad, mode, tuple(grad_output_shape[2:]), align_corners, scales)))


def _upsample_row(name: str, node: str) -> Any:
    return row(name, "self mode output_size align_corners scales", kernel="upsample", safe=True, batch="by_sample",
               shape=rules.last_dims(2),
               node=node, forward="linear",
               backward=dict(self=lambda grad, self_shape, mode, output_size, align_corners, scales: _upsample_grad(
                   grad, mode, tuple(self_shape[2:]), align_corners, scales)))


_upsample_again = _upsample_row("upsample", "UpsampleBackward0")
_RESIZERS: dict[tuple[str, int, bool], tuple[Any, str]] = {}
for _mode, _name, _kernel in (("nearest", "nearest", "nearest"), ("nearest-exact", "nearest_exact", "nearest-exact")):
    for _dims in (1, 2, 3):
        _word = "NearestExact" if _mode == "nearest-exact" else "Nearest"
        _RESIZERS[_mode, _dims,
                  False] = (_upsample_row(f"upsample_{_name}{_dims}d", f"Upsample{_word}{_dims}DBackward0"), _kernel)
for _mode, _dims, _kernel in (("linear", 1, "linear"), ("bilinear", 2, "linear"), ("bicubic", 2, "cubic"),
                              ("trilinear", 3, "linear")):
    for _smooth in (False, True) if _dims == 2 else (False,):
        _tail = "Aa" if _smooth else ""
        _RESIZERS[_mode, _dims, _smooth] = (
            _upsample_row(f"upsample_{_mode}{_dims}d{_tail.lower()}",
                          f"Upsample{_mode.title()}{_dims}D{_tail}Backward0"),
            _kernel + ("_aa" if _smooth else ""))
_NEEDS = {"linear": 3, "bilinear": 4, "bicubic": 4, "trilinear": 5}


def _per_dim(value: Any, dims: int, label: str, shape: Any) -> list[Any]:
    if not isinstance(value, (tuple, list)):
        return [value] * dims
    if len(value) != dims:
        other, what, letter = ("output", "output size of", "o") if label == "size" else ("scale_factor",) * 2 + ("s",)
        shown = tuple(value) if label == "size" else f"of shape {tuple(value)}"
        raise ValueError(f"Input and {other} must have the same number of spatial dimensions, but got input with spatial "
                         f"dimensions of {list(shape)} and {what} {shown}. Please provide input tensor in (N, C, d1, d2, "
                         f"...,dK) format and {other} in ({letter}1, {letter}2, ...,{letter}K) format.")
    return list(value)


def _wanted(input: Tensor, size: Any, scale_factor: Any, recompute: Any, mode: str) -> tuple[Any, Any]:
    """The output size and the scale factors to compute positions with (None: from the sizes)."""
    dims, shape = input.ndim - 2, input.shape[2:]
    if size is not None and scale_factor is not None:
        raise ValueError("only one of size or scale_factor should be defined")
    if size is not None:
        if recompute:
            raise ValueError("recompute_scale_factor is not meaningful with an explicit size.")
        given = _per_dim(size, dims, "size", shape)
        for n in given:
            if isinstance(n, float) or not hasattr(n, "__index__"):
                raise TypeError(f"expected size to be one of int or Tuple[int] or Tuple[int, int] or Tuple[int, int, "
                                f"int], but got size with types {[type(n) for n in given]}")
        return tuple([n.__index__() for n in given]), (None,) * dims
    if scale_factor is None:
        raise ValueError("either size or scale_factor should be defined")
    factors = [float(f) for f in _per_dim(scale_factor, dims, "scale_factor", shape)]
    out = tuple([math.floor(float(n) * f) for n, f in zip(shape, factors)])
    return out, (None,) * dims if recompute or mode == "area" else tuple(factors)


@public(method=False, toplevel=False, out=False)
def interpolate(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
                align_corners: bool | None = None, recompute_scale_factor: bool | None = None,
                antialias: bool = False) -> Tensor:
    """(batch, channels, *size) resized to `size` or by `scale_factor`."""
    if mode in ("nearest", "area", "nearest-exact"):
        if align_corners is not None:
            raise ValueError("align_corners option can only be set with the interpolating modes: linear | bilinear | bicubic "
                             "| trilinear")
    elif align_corners is None:
        align_corners = False
    out, factors = _wanted(input, size, scale_factor, recompute_scale_factor, mode)
    if antialias and not (mode in ("bilinear", "bicubic") and input.ndim == 4):
        raise ValueError("Anti-alias option is restricted to bilinear and bicubic modes and requires a 4-D tensor as input")
    if input.ndim not in (3, 4, 5):
        raise NotImplementedError("Input Error: Only 3D, 4D and 5D input Tensors supported "
                                  f"(got {input.ndim}D) for the modes: nearest | linear | bilinear | bicubic | trilinear | "
                                  f"area | nearest-exact (got {mode})")
    if mode == "area":
        return (adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d)[input.ndim - 3](input, out)
    if mode in _NEEDS and input.ndim != _NEEDS[mode]:
        raise NotImplementedError(f"Got {input.ndim}D input, but {mode} mode needs {_NEEDS[mode]}D input")
    if mode not in _NEEDS and mode not in ("nearest", "nearest-exact"):
        raise NotImplementedError(f"Input Error: Only 3D, 4D and 5D input Tensors supported (got {input.ndim}D) for "
                                  f"the modes: nearest | linear | bilinear | bicubic | trilinear | area | nearest-exact (got "
                                  f"{mode})")
    if min(out) <= 0 or 0 in input.shape[1:]:
        raise RuntimeError(f"Input and output sizes should be greater than 0, but got input of size {list(input.shape)} and "
                           f"output of size {list(out)}")
    return resize(input, mode, out, bool(align_corners), factors, antialias)


def resize(input: Tensor, mode: str, out: Any, align_corners: bool, factors: Any, antialias: bool = False) -> Tensor:
    made, kernel = _RESIZERS[mode, input.ndim - 2, antialias]
    if antialias:
        check_on_cpu("compute_index_ranges_weights", input, "F", "uint8")
    bytes_too = mode in ("nearest", "nearest-exact", "bilinear", "bicubic")
    if input.dtype.is_complex or not (input.dtype.is_floating_point or (input.dtype is _dtypes.uint8 and bytes_too)):
        raise NotImplementedError(f"\"{made.name}\" not implemented for '{input.dtype}'")
    return keeping_layout(made, input, kernel, tuple(out), align_corners, tuple(factors))


def _deprecated(name: str) -> None:
    warnings.warn(f"`nn.functional.{name}` is deprecated. Use `nn.functional.interpolate` instead.", stacklevel=4)


@public(method=False, toplevel=False, out=False)
def upsample(input: Tensor, size: Any = None, scale_factor: Any = None, mode: str = "nearest",
             align_corners: bool | None = None) -> Tensor:
    """The old name of interpolate."""
    _deprecated("upsample")
    return interpolate(input, size, scale_factor, mode, align_corners)


@public(method=False, toplevel=False, out=False)
def upsample_nearest(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate with mode nearest."""
    _deprecated("upsample_nearest")
    return interpolate(input, size, scale_factor, mode="nearest")


@public(method=False, toplevel=False, out=False)
def upsample_bilinear(input: Tensor, size: Any = None, scale_factor: Any = None) -> Tensor:
    """interpolate with mode bilinear and align_corners."""
    _deprecated("upsample_bilinear")
    return interpolate(input, size, scale_factor, mode="bilinear", align_corners=True)


# ------------------------------------------------------------------------------------------------- sampling at points
_MODES, _PADDINGS = ("bilinear", "nearest", "bicubic"), ("zeros", "border", "reflection")


def _grid_grad(index: int) -> Any:
    """The sampling is written with tensor operations; its gradient is theirs."""
    def formula(grad, input, grid, interpolation_mode, padding_mode, align_corners):
        again = grad_enabled()
        with enable_grad():
            pair = [input, grid] if again else [input.detach(), grid.detach()]
            target = pair[index]
            if not again:
                target.requires_grad_(True)
            if not target.requires_grad:
                return None
            made = _sample(*pair, interpolation_mode, padding_mode, align_corners)
            if not made.requires_grad:  # the nearest element does not depend on where exactly the point is
                return target.new_zeros(target.shape)
            got = differentiate(made, target, grad, create_graph=again, allow_unused=True)[0]
            return target.new_zeros(target.shape) if got is None else got

    return formula


def _grid_row(dims: int) -> Any:
    return row(f"grid_sampler_{dims}d", "input grid interpolation_mode padding_mode align_corners",
               node=f"GridSampler{dims}DBackward0", backward=dict(input=_grid_grad(0), grid=_grid_grad(1)))


_SAMPLERS = {2: _grid_row(2), 3: _grid_row(3)}


def _place(at: Tensor, n: int, align: bool) -> Tensor:
    """[-1, 1] -> element positions."""
    return (at + 1) / 2 * (n - 1) if align else ((at + 1) * n - 1) / 2


def _confine(at: Tensor, n: int, padding: int, align: bool) -> Tensor:
    """Positions outside: as they are (zeros), moved to the border, or reflected at it."""
    if padding == 0:
        return at
    if padding == 2:
        low, high = (0, 2 * (n - 1)) if align else (-1, 2 * n - 1)
        if low == high:
            at = at * 0
        else:
            start, span = low / 2, (high - low) / 2
            away = (at - start).abs()
            rest, flips = away.fmod(span), (away / span).floor()
            at = FUNCTIONS["where"](flips.fmod(2) == 0, rest + start, span - rest + start)
    inside = (at > 0).logical_and(at < n - 1)
    return FUNCTIONS["where"](inside, at, at.detach().clamp(0, n - 1).nan_to_num(0))


def _fetch(flat: Tensor, positions: list[Tensor], size: Any) -> Tensor:
    """Elements (batch, channels, points) at whole positions; zero outside."""
    index, valid = None, None
    for at, n in zip(positions, size):
        ok = (at >= 0).logical_and(at <= n - 1)
        at = at.nan_to_num(-1).clamp(-1, n).to(_dtypes.int64).clamp(0, n - 1)
        index = at if index is None else index * n + at
        valid = ok if valid is None else valid.logical_and(ok)
    index = index.unsqueeze(1).expand(flat.shape[0], flat.shape[1], -1)
    return flat.gather(2, index) * valid.unsqueeze(1).to(flat.dtype)


def _sample(input: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    n, c = input.shape[:2]
    size, points = tuple(input.shape[2:]), tuple(grid.shape[1:-1])
    flat = input.flatten(2)
    # The grid's last dimension is (x, y, z); positions are kept slowest dimension first.
    at = [grid.select(-1, len(size) - 1 - d).flatten(1) for d in range(len(size))]
    at = [_place(a, s, align) for a, s in zip(at, size)]
    if mode != 2:
        at = [_confine(a, s, padding, align) for a, s in zip(at, size)]
    if mode == 1:
        made = _fetch(flat, [a.detach().round() for a in at], size)
    elif mode == 0:
        made = _linear(flat, at, size)
    else:
        made = _bicubic(flat, at, size, padding, align)
    return made.reshape(n, c, *points)


def _linear(flat: Tensor, at: list[Tensor], size: Any) -> Tensor:
    low = [a.detach().floor() for a in at]
    part = [a - b for a, b in zip(at, low)]
    total = None
    for corner in range(1 << len(size)):
        bits = [corner >> d & 1 for d in range(len(size))]
        weight = None
        for p, bit in zip(part, bits):
            w = p if bit else 1 - p
            weight = w if weight is None else weight * w
        term = _fetch(flat, [b + bit for b, bit in zip(low, bits)], size) * weight.unsqueeze(1)
        total = term if total is None else total + term
    return total


def _cubic_weights(part: Tensor) -> list[Tensor]:
    a = -0.75
    near = lambda x: ((a + 2) * x - (a + 3)) * x * x + 1
    far = lambda x: ((a * x - 5 * a) * x + 8 * a) * x - 4 * a
    return [far(part + 1), near(part), near(1 - part), far(2 - part)]


def _bicubic(flat: Tensor, at: list[Tensor], size: Any, padding: int, align: bool) -> Tensor:
    low = [a.detach().floor() for a in at]
    weights = [_cubic_weights(a - b) for a, b in zip(at, low)]
    total = None
    for i in range(4):
        y = _confine(low[0] + (i - 1), size[0], padding, align)
        for j in range(4):
            x = _confine(low[1] + (j - 1), size[1], padding, align)
            term = _fetch(flat, [y, x], size) * (weights[0][i] * weights[1][j]).unsqueeze(1)
            total = term if total is None else total + term
    return total


def _grid_sampler(input: Tensor, grid: Tensor, mode: int, padding: int, align: bool) -> Tensor:
    dims = input.ndim - 2
    if input.ndim not in (4, 5) or grid.ndim != input.ndim:
        raise RuntimeError(f"grid_sampler(): expected 4D or 5D input and grid with same number of dimensions, but got input "
                           f"with sizes {list(input.shape)} and grid with sizes {list(grid.shape)}")
    if input.shape[0] != grid.shape[0]:
        raise RuntimeError(f"grid_sampler(): expected grid and input to have same batch size, but got input with sizes "
                           f"{list(input.shape)} and grid with sizes {list(grid.shape)}")
    if grid.shape[-1] != dims:
        raise RuntimeError(f"grid_sampler(): expected grid to have size {dims} in last dimension, but got grid with sizes "
                           f"{list(grid.shape)}")
    if 0 in input.shape[2:]:
        raise RuntimeError(f"grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes "
                           f"{list(input.shape)}")
    if input.dtype is not grid.dtype:
        raise RuntimeError(f"grid_sampler(): expected input and grid to have same dtype, but input has {input.dtype} "
                           f"and grid has {grid.dtype}")
    if mode == 2 and dims == 3:
        raise RuntimeError("grid_sampler(): bicubic interpolation only supports 4D input")
    check_dtype("grid_sampler", input.dtype, "f")
    args = (input, grid, mode, padding, align)
    if input.is_cuda and grid.is_cuda:
        return _SAMPLERS[dims](*args)  # there is a kernel for it
    with no_grad():
        made = _sample(input.detach(), grid.detach(), mode, padding, align)
    return _SAMPLERS[dims].finish(args, made._array)


@public(method=False, toplevel=False, out=False, autocast="float32")
def grid_sample(input: Tensor, grid: Tensor, mode: str = "bilinear", padding_mode: str = "zeros",
                align_corners: bool | None = None) -> Tensor:
    """The input at the points of a grid (batch, *out, dims), whose coordinates run from -1 to 1 as (x, y, z)."""
    if mode not in _MODES:
        raise ValueError(f"nn.functional.grid_sample(): expected mode to be 'bilinear', 'nearest' or 'bicubic', but got: "
                         f"'{mode}'")
    if padding_mode not in _PADDINGS:
        raise ValueError(f"nn.functional.grid_sample(): expected padding_mode to be 'zeros', 'border', or 'reflection', but "
                         f"got: '{padding_mode}'")
    if align_corners is None:
        warnings.warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please "
                      "specify align_corners=True if the old behavior is desired.", stacklevel=3)
        align_corners = False
    return _grid_sampler(input, grid, _MODES.index(mode), _PADDINGS.index(padding_mode), align_corners)


@public(method=False, aliases=("grid_sampler_2d", "grid_sampler_3d"))
def grid_sampler(input: Tensor, grid: Tensor, interpolation_mode: int, padding_mode: int,
                 align_corners: bool) -> Tensor:
    """grid_sample with numbered modes."""
    return _grid_sampler(input, grid, interpolation_mode, padding_mode, align_corners)


def _base_grid(theta: Tensor, size: Any, align: bool) -> Tensor:
    """Homogeneous coordinates (points, dims + 1) of an evenly spaced grid."""
    dims = len(size)
    parts = []
    for d in reversed(range(dims)):
        at = linspace(-1, 1, size[d], dtype=theta.dtype, device=theta.device) if size[d] > 1 else theta.detach().new_zeros(1)
        if not align:
            at = at * ((size[d] - 1) / size[d])
        parts.append(at.reshape([-1 if i == d else 1 for i in range(dims)]).expand(*size).reshape(-1))
    parts.append(ones(math.prod(size), dtype=theta.dtype, device=theta.device))
    return FUNCTIONS["stack"](parts, 1)


def _affine_grad(grad, theta_dtype, size, align_corners):
    base = _base_grid(grad, size[2:], align_corners)
    return grad.reshape(grad.shape[0], -1, grad.shape[-1]).transpose(1, 2).matmul(base)


_affine = row("affine_grid_generator", "theta size align_corners", backward=dict(theta=_affine_grad))


@public(method=False)
def affine_grid_generator(theta: Tensor, size: Any, align_corners: bool) -> Tensor:
    """A grid for grid_sample: the affine map theta (batch, dims, dims + 1) of an even grid of the given size.

    >>> theta = torch.tensor([[[1.0, 0.0, 0.0], [0.0, 1.0, 0.0]]])
    >>> torch.affine_grid_generator(theta, [1, 1, 2, 2], align_corners=True).shape
    torch.Size([1, 2, 2, 2])
    """
    size = tuple([int(n) for n in size])
    with no_grad():
        base = _base_grid(theta, size[2:], align_corners)
        made = base.matmul(theta.detach().transpose(1, 2)).reshape(theta.shape[0], *size[2:], len(size) - 2)
    return _affine.finish((theta, size, align_corners), made._array)


@public(method=False, toplevel=False, out=False)
def affine_grid(theta: Tensor, size: Any, align_corners: bool | None = None) -> Tensor:
    """A grid for grid_sample: the affine map theta (batch, dims, dims + 1) of an even grid of the given size."""
    if align_corners is None:
        warnings.warn("Default grid_sample and affine_grid behavior has changed to align_corners=False since 1.3.0. Please "
                      "specify align_corners=True if the old behavior is desired.", stacklevel=3)
        align_corners = False
    if not theta.is_floating_point():
        raise ValueError(f"Expected theta to have floating point type, but got {theta.dtype}")
    if len(size) not in (4, 5):
        raise NotImplementedError("affine_grid only supports 4D and 5D sizes, for 2D and 3D affine transforms, respectively. "
                                  f"Got size {size}.")
    dims = len(size) - 2
    if theta.ndim != 3 or theta.shape[-2] != dims or theta.shape[-1] != dims + 1:
        raise ValueError(f"Expected a batch of {dims}D affine matrices of shape Nx{dims}x{dims + 1} for size {size}. Got "
                         f"{theta.shape}.")
    if min(size) <= 0:
        raise ValueError(f"Expected non-zero, positive output size. Got {size}")
    if theta.shape[0] != size[0]:
        raise RuntimeError(f"Expected size for first two dimensions of batch2 tensor to be: [{size[0]}, {dims + 1}] but got: "
                           f"[{theta.shape[0]}, {dims + 1}].")
    return affine_grid_generator(theta, size, align_corners)


# ------------------------------------------------------------------------------------------------------ rearranging
_shuffle = moving("pixel_shuffle", "self upscale_factor", batch="trailing", shape=images.shuffled, forward="linear",
                  backward=dict(
    self=lambda grad, upscale_factor: _unshuffle(grad, upscale_factor)))
_unshuffle = moving("pixel_unshuffle", "self downscale_factor", batch="trailing", shape=images.unshuffled,
                    forward="linear", backward=dict(
    self=lambda grad, downscale_factor: _shuffle(grad, downscale_factor)))
_channels = moving("channel_shuffle", "self groups", batch="by_sample", shape=rules.same, forward="linear", backward=dict(
    self=lambda grad, groups: _channels(grad, grad.shape[1] // groups)))


def _check_shuffle(name: str, input: Tensor, factor: int) -> None:
    if input.ndim < 3:
        raise RuntimeError(f"pixel_{name} expects input to have at least 3 dimensions, but got input with {input.ndim} "
                           "dimension(s)")
    if factor <= 0:
        word = "upscale_factor" if name == "shuffle" else "downscale_factor"
        raise RuntimeError(f"pixel_{name} expects a positive {word}, but got {factor}")


@public(method=False)
def pixel_shuffle(input: Tensor, upscale_factor: int) -> Tensor:
    """(..., c * r * r, h, w) -> (..., c, h * r, w * r)."""
    _check_shuffle("shuffle", input, upscale_factor)
    if input.shape[-3] % (upscale_factor ** 2):
        raise RuntimeError(f"pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
                           f"upscale_factor, but input.size(-3)={input.shape[-3]} is not divisible by {upscale_factor ** 2}")
    return keeping_layout(_shuffle, input, upscale_factor)


@public(method=False)
def pixel_unshuffle(input: Tensor, downscale_factor: int) -> Tensor:
    """(..., c, h * r, w * r) -> (..., c * r * r, h, w)."""
    _check_shuffle("unshuffle", input, downscale_factor)
    for d, word in ((-2, "height"), (-1, "width")):
        if input.shape[d] % downscale_factor:
            raise RuntimeError(f"pixel_unshuffle expects {word} to be divisible by downscale_factor, but input.size({d})="
                               f"{input.shape[d]} is not divisible by {downscale_factor}")
    return keeping_layout(_unshuffle, input, downscale_factor)


@public(method=False, aliases=("native_channel_shuffle",))
def channel_shuffle(input: Tensor, groups: int) -> Tensor:
    """Channels as (groups, c), transposed."""
    if input.ndim < 3:
        raise RuntimeError(f"channel_shuffle expects input with > 2 dims, but got input with sizes {list(input.shape)}")
    if groups <= 0:
        raise RuntimeError(f"Number of groups to divide channels in must be positive. Value of groups:{groups}")
    if input.shape[1] % groups:
        raise RuntimeError(f"Number of channels must be divisible by groups. Got {input.shape[1]} channels and "
                           f"{groups} groups.")
    return keeping_layout(_channels, input, groups)


native_channel_shuffle = channel_shuffle
