"""Pooling: maximum, average, adaptive, fractional, and the inverse of maximum pooling.

One function per kind does the work for one, two and three dimensions. As in PyTorch the one-dimensional forms are
two-dimensional ones over a row of height 1.
"""

from __future__ import annotations

import math
from typing import Any

from ...autograd.state import grad_enabled
from ...backends.cpu.layers import pooling as _kernels  # noqa: F401  (enters the kernels into the table)
from ...settings import alert_not_deterministic
from ...tensors import dtypes as _dtypes
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import FUNCTIONS, check_on_cpu, public, row
from ..pointwise.functions import tied
from ..rules import images
from .forms import in_dimensions
from .layouts import channels_last_of, contiguous_copy, dense_channels_last, keeping_layout, laid_out

# ------------------------------------------------------------------------------------------------------------ rows
_scatter = row(
    "max_pool_scatter", "grad_output which size kernel_size stride padding dilation", batch="by_sample",
    shape=images.max_pool_scatter,
    node="MaxPool2DWithIndicesBackwardBackward0", forward="linear", backward=dict(
        grad_output=lambda grad, which, kernel_size, stride, padding, dilation: _gather(
            grad, which, kernel_size, stride, padding, dilation)))
_gather = row(
    "max_pool_gather", "self which kernel_size stride padding dilation", batch="by_sample", shape=rules.first_as(1),
    node="GatherBackward0", forward="linear", backward=dict(
        self=lambda grad, self_shape, which, kernel_size, stride, padding, dilation: _scatter(
            grad, which, _last(self_shape, kernel_size), kernel_size, stride, padding, dilation)))
_indices = row("max_pool_indices", "which size kernel_size stride padding dilation", batch="by_sample",
               shape=images.max_pool_indices)
_values = row("max_pool_values", "self kernel_size stride padding dilation out_size", batch="by_sample",
              shape=images.max_pool_values)


def _last(shape: Any, like: Any) -> tuple[int, ...]:
    return tuple(shape[len(shape) - len(like):])


def _max_row(dims: int) -> Any:
    return row(
        f"max_pool{dims}d_with_indices", "self kernel_size stride padding dilation out_size ceil_mode",
        kernel="max_pool", batch="by_sample", shape=images.max_pool,
        node=f"MaxPool{dims}DWithIndicesBackward0", constant=(1,), backward=dict(
            self=lambda grad, self, result1, kernel_size, stride, padding, dilation, ceil_mode: tied(_scatter(
                grad, result1, _last(self.shape, kernel_size), kernel_size, stride, padding, dilation), self)))


_AVERAGE = "kernel_size stride padding out_size count_include_pad divisor_override"
_avg_grad = row(
    "avg_pool_grad", "grad_output size kernel_size stride padding count_include_pad divisor_override", batch="by_sample",
    shape=rules.last_dims(1), forward="linear", node="AvgPool2DBackwardBackward0", backward=dict(
        grad_output=lambda grad, grad_output_shape, kernel_size, stride, padding, count_include_pad, divisor_override:
        _average[len(kernel_size)](grad, kernel_size, stride, padding, _last(grad_output_shape, kernel_size),
                                   count_include_pad, divisor_override)))


def _avg_row(dims: int) -> Any:
    return row(f"avg_pool{dims}d", f"self {_AVERAGE}", kernel="avg_pool", batch="by_sample", shape=images.avg_pool,
               node=f"AvgPool{dims}DBackward0", forward="linear",
               backward=dict(self=lambda grad, self, kernel_size, stride, padding, count_include_pad, divisor_override:
                             tied(_avg_grad(grad, _last(self.shape, kernel_size), kernel_size, stride, padding,
                                            count_include_pad, divisor_override), self)))


_adaptive_grad = row(
    "adaptive_avg_pool_grad", "grad_output size", batch="by_sample", shape=rules.last_dims(1),
    node="AdaptiveAvgPool2DBackwardBackward0", forward="linear", backward=dict(
        grad_output=lambda grad, grad_output_shape, size: _adaptive_average[len(size)](
            grad, _last(grad_output_shape, size))))


def _adaptive_avg_row(dims: int) -> Any:
    return row(f"adaptive_avg_pool{dims}d", "self out_size", kernel="adaptive_avg_pool", batch="by_sample",
               shape=rules.last_dims(1), forward="linear", node=f"AdaptiveAvgPool{dims}DBackward0", backward=dict(
                   self=lambda grad, self, out_size: _adaptive_grad(
                       _not_empty(grad, f"adaptive_avg_pool{dims}d_backward"), _last(self.shape, out_size))))


def _not_empty(grad: Tensor, name: str) -> Tensor:
    """The gradient, where windows have a result to have one for."""
    empty = [d for d, n in enumerate(grad.shape) if d and not n]
    if empty:
        raise RuntimeError(f"{name}(): Expected grad_output to have non-zero size for non-batch dimensions, but grad_output "
                           f"has sizes {list(grad.shape)} with dimension {empty[0]} being empty")
    return grad


def put(grad: Tensor, indices: Tensor, shape: Any, dims: int) -> Tensor:
    """Zeros of a shape, with the gradients added at flat positions of the last `dims` dimensions."""
    flat = grad.new_zeros((*shape[:len(shape) - dims], math.prod(_last(shape, range(dims)))))
    return flat.scatter_add(-1, indices.flatten(-dims), grad.flatten(-dims)).reshape(shape)


def _adaptive_max_row(dims: int) -> Any:
    return row(f"adaptive_max_pool{dims}d", "self out_size", kernel="adaptive_max_pool", batch="by_sample", constant=(1,),
               shape=images.adaptive_max_pool, node=f"AdaptiveMaxPool{dims}DBackward0", backward=dict(
                   self=lambda grad, self, result1: tied(
                       put(_not_empty(grad, f"adaptive_max_pool{dims}d_backward"), result1, self.shape, dims), self)))


def _fractional_row(dims: int) -> Any:
    return row(f"fractional_max_pool{dims}d", "self kernel_size output_size samples", takes="f", kernel="fractional_max_pool",
               shape=images.fractional_max_pool, constant=(1,), node=f"FractionalMaxPool{dims}DBackward0", backward=dict(
                   self=lambda grad, self, result1, kernel_size, output_size: put(grad, result1, self.shape, dims)))


def _unpool_row(dims: int) -> Any:
    return row(f"max_unpool{dims}d", "self indices size", kernel="max_unpool", batch="by_sample", shape=rules.last_dims(2),
               forward="linear", node=f"MaxUnpool{dims}DBackward0",
               backward=dict(self=lambda grad, indices: grad.flatten(-dims).gather(
                   -1, indices.flatten(-dims)).reshape(indices.shape)))


_maximum = {2: _max_row(2), 3: _max_row(3)}
_average = {2: _avg_row(2), 3: _avg_row(3)}
_adaptive_average = {2: _adaptive_avg_row(2), 3: _adaptive_avg_row(3)}
_adaptive_maximum = {2: _adaptive_max_row(2), 3: _adaptive_max_row(3)}
_fractional = {2: _fractional_row(2), 3: _fractional_row(3)}
_unpooling = {2: _unpool_row(2), 3: _unpool_row(3)}


# ------------------------------------------------------------------------------------------------------- arguments
def ints(value: Any, dims: int, name: str, function: str) -> tuple[int, ...]:
    """One integer or one per dimension."""
    if value.__class__ is int:
        return (value,) * dims
    if isinstance(value, (tuple, list)):
        if any(v.__class__ is bool or not hasattr(v, "__index__") for v in value):
            raise TypeError(f"{function}(): argument '{name}' must be tuple of ints, not {value!r}")
        made = tuple([v.__index__() for v in value])
        if len(made) == dims:
            return made
        if len(made) == 1:
            return made * dims
        raise RuntimeError(f"{function}: {name} must either be a single int, or a tuple of {dims} ints, got {made}")
    if value.__class__ is bool or not hasattr(value, "__index__"):
        raise TypeError(f"{function}(): argument '{name}' must be int or tuple of ints, not {type(value).__name__}")
    return (value.__index__(),) * dims


def _geometry(function: str, x: Any, dims: int, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool):
    """The checked window arguments as tuples, and the size of the output."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
    kernel = ints(kernel_size, dims, "kernel_size", function)
    missing = stride is None or (isinstance(stride, (tuple, list)) and not stride)
    stride = kernel if missing else ints(stride, dims, "stride", function)
    padding = ints(padding, dims, "padding", function)
    dilation = ints(dilation, dims, "dilation", function)
    if dims == 1 and x.ndim in (2, 3):
        _check_row(function, kernel[0], stride[0], padding[0], dilation[0])
    if min(kernel) <= 0:
        raise RuntimeError(f"{function}: kernel size should be greater than zero, but got {kernel}")
    if min(stride) <= 0:
        raise RuntimeError("stride should not be zero" if 0 in stride else
                           f"{function}: stride should be greater than zero, but got {stride}")
    if min(dilation) <= 0:
        raise RuntimeError(f"{function}: dilation should be greater than zero, but got {dilation}")
    if min(padding) < 0:
        raise RuntimeError(f"pad must be non-negative, but got pad: {min(padding)}")
    for p, k, d in zip(padding, kernel, dilation):
        if p > ((k - 1) * d + 1) // 2:
            raise RuntimeError(f"pad should be at most half of effective kernel size, but got pad={p}, kernel_size={k} and "
                               f"dilation={d}")
    _check_input(function, x, dims)
    out = tuple([pooled_size(n, k, s, p, d, ceil_mode) for n, k, s, p, d in
                 zip(x.shape[x.ndim - dims:], kernel, stride, padding, dilation)])
    if min(out) < 1:
        if function == "max_pool1d":
            raise RuntimeError(f"max_pool1d() Invalid computed output size: {out[0]}")
        given, made = ("x".join(map(str, (x.shape[x.ndim - dims - 1], *size))) for size in (x.shape[x.ndim - dims:], out))
        raise RuntimeError(f"Given input size: ({given}). Calculated output size: ({made}). Output size is too small")
    return kernel, stride, padding, dilation, out


def _check_row(function: str, *numbers: int) -> None:
    """The numbers of max_pool1d, which words its complaints in its own way."""
    if function == "max_pool1d":
        for name, value in zip(("kernel_size", "stride", "", "dilation"), numbers):
            if name and value <= 0:
                raise RuntimeError(f"max_pool1d() {name} must be greater than zero, but got {value}")


def _check_input(function: str, x: Tensor, dims: int) -> None:
    if function in ("avg_pool3d", "max_pool2d") and x.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(f"non-empty {dims + 1}D or {dims + 2}D (batch mode) tensor expected for input")
    if function == "max_pool3d" and x.ndim in (4, 5) and 0 in x.shape[x.ndim - 4:]:
        raise RuntimeError("max_pool3d: Expected input's non-batch dimensions to have positive length, but input has a "
                           f"shape of {list(x.shape)} and non-batch dimension {x.shape[x.ndim - 4:].index(0)} has length "
                           "zero!")
    if x.ndim not in (dims + 1, dims + 2) or 0 in x.shape[x.ndim - dims - 1:]:
        raise RuntimeError(f"{function}: Expected {dims + 1}D or {dims + 2}D (batch mode) tensor with optional 0 dim batch "
                           f"size for input, but got: {list(x.shape)}")


def pooled_size(n: int, kernel: int, stride: int, padding: int, dilation: int, ceil_mode: bool) -> int:
    """How many windows there are; with ceil_mode a last one may hang over, if it starts inside."""
    room = n + 2 * padding - dilation * (kernel - 1) - 1
    out = (room + stride - 1 if ceil_mode else room) // stride + 1
    if ceil_mode and (out - 1) * stride >= n + padding:
        out -= 1
    return out


# --------------------------------------------------------------------------------------------------------- maximum
def _max_pool(name: str, dims: int, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1,
              ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window of (batch, channels, {}); with return_indices also where it is."""
    x = input
    kernel, stride, padding, dilation, out = _geometry(name, x, dims, kernel_size, stride, padding, dilation, ceil_mode)
    if dims == 1 and not return_indices and not (x.requires_grad and grad_enabled()):
        check_on_cpu("max_pool1d_impl", x, "f")
    check_on_cpu("max_pool3d" if dims == 3 else "max_pool2d", x, "fi")
    if dims == 1:
        made = keeping_layout(_pooled, x.unsqueeze(-2), (1, *kernel), (1, *stride), (0, *padding), (1, *dilation), (1, *out),
                              ceil_mode, return_indices, applies=return_indices or (x.requires_grad and grad_enabled()))
        return tuple(m.squeeze(-2) for m in made) if return_indices else made.squeeze(-2)
    if x.ndim == 4 and dims == 3 and not x._array.flags.c_contiguous:
        made = _max_pool(name, 3, x.unsqueeze(0), kernel, stride, padding, dilation, ceil_mode, return_indices)
        return tuple(m.squeeze(0) for m in made) if return_indices else made.squeeze(0)
    if not x._array.flags.c_contiguous and (form := (dense_channels_last if dims == 3 else channels_last_of)(x)) is not None:
        return laid_out(_pooled(contiguous_copy(x, form), kernel, stride, padding, dilation, out, ceil_mode, return_indices),
                        form)
    return _pooled(x, kernel, stride, padding, dilation, out, ceil_mode, return_indices)


def _pooled(x: Tensor, kernel: Any, stride: Any, padding: Any, dilation: Any, out: Any, ceil_mode: bool,
            return_indices: bool) -> Any:
    if not return_indices and not (x.requires_grad and grad_enabled()) and x._tangent is None:
        return _values(x, kernel, stride, padding, dilation, out)
    made, which = _maximum[len(kernel)](x, kernel, stride, padding, dilation, out, ceil_mode)
    if not return_indices:
        return made
    indices = _indices(which, _last(x.shape, kernel), kernel, stride, padding, dilation)
    indices._counter = which._counter  # who changes the indices changes what the gradient goes by
    return made, indices


@in_dimensions("max_pool{}d_with_indices", method=False, toplevel={1: True, 2: False, 3: False})
def _maxima_with_indices(name: str, dims: int, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
                         dilation: Any = 1, ceil_mode: bool = False, return_indices: bool = False) -> Any:
    """The largest element of each window, and where it is."""
    return _max_pool(name.removesuffix("_with_indices"), dims, input, kernel_size, stride, padding, dilation, ceil_mode, True)


max_pool1d, max_pool2d, max_pool3d = in_dimensions("max_pool{}d", method=False, autocast={3: "float32"})(_max_pool)
max_pool1d_with_indices, max_pool2d_with_indices, max_pool3d_with_indices = _maxima_with_indices


# --------------------------------------------------------------------------------------------------------- average
def _avg_pool(name: str, dims: int, input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
              ceil_mode: bool = False, count_include_pad: bool = True, divisor_override: int | None = None) -> Tensor:
    """The mean of each window of (batch, channels, {}), or its sum over divisor_override."""
    x = input
    kernel, stride, padding, _, out = _geometry(name, x, dims, kernel_size, stride, padding, 1, ceil_mode)
    if divisor_override is not None and divisor_override == 0:
        raise RuntimeError("divisor must be not zero")
    check_on_cpu("avg_pool3d_out_frame" if dims == 3 else "avg_pool2d", x, "F" if dims == 3 else "f", "int64")
    if dims == 1:
        made = keeping_layout(_average[2], x.unsqueeze(-2), (1, *kernel), (1, *stride), (0, *padding), (1, *out),
                              count_include_pad, None)
        return made.squeeze(-2)
    return keeping_layout(_average[dims], x, kernel, stride, padding, out, count_include_pad, divisor_override,
                          applies=dims == 2)


@public(method=False)
def avg_pool1d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Tensor:
    """The mean of each window of (batch, channels, length)."""
    return _avg_pool("avg_pool1d", 1, input, kernel_size, stride, padding, ceil_mode, count_include_pad, None)


avg_pool2d, avg_pool3d = in_dimensions("avg_pool{}d", (2, 3), method=False, toplevel=False, autocast={3: "float32"},
                                       out="exact")(_avg_pool)


# -------------------------------------------------------------------------------------------------------- adaptive
def _adaptive_size(function: str, x: Any, dims: int, output_size: Any) -> tuple[int, ...]:
    """The wanted size; None keeps the input's."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{function}(): argument 'input' (position 1) must be Tensor, not {type(x).__name__}")
    wanted = output_size if isinstance(output_size, (tuple, list)) else (output_size,) * dims
    if None in wanted:
        _check_kept(function, x, dims, wanted)
    if dims > 1 and isinstance(output_size, (tuple, list)) and x.ndim <= len(wanted):
        raise ValueError(f"Input dimension should be at least {len(wanted) + 1}")
    average = "avg" in function
    to_one = average and dims > 1 and all([n == 1 for n in wanted])  # a plain mean, which takes any tensor
    if not to_one and x.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(f"{function}: Expected {dims + 1}D or {dims + 2}D tensor, but got {list(x.shape)}")
    if len(wanted) == 1 and dims > 1 and len(output_size) == 1:
        wanted = tuple(wanted) * dims
    if len(wanted) != dims:
        raise RuntimeError(f"{function}() argument 'output_size' should contain one int (got {len(wanted)})" if dims == 1
                           else f"{function}: output_size must be {dims}" if average
                           else f"{function}(): internal error: output_size.size() must be {dims}")
    size = tuple(wanted) if to_one else tuple(
        [n if w is None else w.__index__() for w, n in zip(wanted, x.shape[x.ndim - dims:])])
    if min(size) < 0 and not average:
        raise RuntimeError(f"Trying to create tensor with negative dimension {min(size)}: "
                           f"{[*x.shape[:x.ndim - dims], *(1,) * (dims == 1), *size]}")
    if min(size) < 0:
        raise RuntimeError(f"{function}: elements of output_size must be greater than or equal to 0 but received {size}")
    if not to_one and 0 in x.shape[-dims if average and dims < 3 else 1:]:
        raise RuntimeError(f"{function}: Expected input to have non-zero size for non-batch dimensions, but input has "
                           f"sizes {list(x.shape)}")
    return size


def _check_kept(function: str, x: Tensor, dims: int, wanted: Any) -> None:
    """None in an output_size keeps the input's size there: is there one to keep?"""
    if dims == 1:
        raise TypeError(f"{function}(): argument 'output_size' (position 2) must be tuple of ints, but found element of "
                        "type NoneType at pos 0")
    if x.ndim <= len(wanted):
        raise ValueError(f"Input dimension should be at least {len(wanted) + 1}")
    if len(wanted) != dims:
        raise RuntimeError(f"{function}: output_size must be {dims}")


def _averaged(x: Tensor, size: tuple[int, ...]) -> Tensor:
    if all([n == 1 for n in size]):
        made = x.mean(tuple(range(-len(size), 0)), keepdim=True)
        name = None if x._array.flags.c_contiguous else channels_last_of(x)
        return made if name is None else laid_out(made, name)
    check_on_cpu("adaptive_avg_pool3d_cpu" if len(size) == 3 else "adaptive_avg_pool2d", x, "f")
    return keeping_layout(_adaptive_average[len(size)], x, size, applies=len(size) == 2)


@in_dimensions("adaptive_avg_pool{}d", method=False, toplevel={1: True, 2: False, 3: False}, autocast={3: "float32"})
def _adaptive_averages(name: str, dims: int, input: Tensor, output_size: Any) -> Tensor:
    """The mean over windows that cover (batch, channels, {}) evenly; None in output_size keeps one of several dimensions."""
    size = _adaptive_size(name, input, dims, output_size)
    return _averaged(input.unsqueeze(-2), (1, *size)).squeeze(-2) if dims == 1 else _averaged(input, size)


adaptive_avg_pool1d, adaptive_avg_pool2d, adaptive_avg_pool3d = _adaptive_averages


def _adaptive_max(dims: int, x: Any, output_size: Any, return_indices: bool) -> Any:
    size = _adaptive_size(f"adaptive_max_pool{dims}d", x, dims, output_size)
    check_on_cpu("adaptive_max_pool3d_cpu" if dims == 3 else "adaptive_max_pool2d", x, "f")
    if dims == 1:
        made = tuple([m.squeeze(-2) for m in keeping_layout(_adaptive_maximum[2], x.unsqueeze(-2), (1, *size))])
    else:
        made = keeping_layout(_adaptive_maximum[dims], x, size, applies=dims == 2)
    return made if return_indices else made[0]


@in_dimensions("adaptive_max_pool{}d", method=False, toplevel=False, autocast={3: "float32"})
def _adaptive_maxima(name: str, dims: int, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The maxima of windows that cover the input evenly; with return_indices also where they are."""
    return _adaptive_max(dims, input, output_size, return_indices)


@in_dimensions("adaptive_max_pool{}d_with_indices", method=False, toplevel=False)
def _adaptive_maxima_with_indices(name: str, dims: int, input: Tensor, output_size: Any, return_indices: bool = False) -> Any:
    """The maxima of windows that cover the input evenly, and where they are."""
    return _adaptive_max(dims, input, output_size, True)


adaptive_max_pool1d, adaptive_max_pool2d, adaptive_max_pool3d = _adaptive_maxima
adaptive_max_pool1d_with_indices, adaptive_max_pool2d_with_indices, adaptive_max_pool3d_with_indices = (
    _adaptive_maxima_with_indices)


@public(method=False, name="adaptive_max_pool1d")
def _adaptive_max_pool1d_top(input: Tensor, output_size: Any) -> Any:
    """torch.adaptive_max_pool1d: always with indices."""
    return _adaptive_max(1, input, output_size, True)


# ----------------------------------------------------------------------------------------------- fractional, unpool
def _fractional_pool(dims: int, x: Tensor, kernel_size: Any, output_size: Any, output_ratio: Any, samples: Any) -> Any:
    name = f"fractional_max_pool{dims}d"
    if output_size is None and output_ratio is None:
        raise ValueError(f"{name} requires specifying either an output_size or an output_ratio")
    kernel = ints(kernel_size, dims, "kernel_size", name)
    if x.ndim not in (dims + 1, dims + 2) or 0 in x.shape[1:]:
        raise RuntimeError(f"{name}: Expected {dims + 1}D or {dims + 2}D tensor with non-zero dimensions, but got "
                           f"{list(x.shape)}")
    size = tuple(x.shape[x.ndim - dims:])
    if output_size is None:
        ratio = (output_ratio,) * dims if isinstance(output_ratio, (int, float)) else tuple(output_ratio)
        out = tuple([int(n * r) for n, r in zip(size, ratio)])
    else:
        out = ints(output_size, dims, "output_size", name)
    if min(kernel) <= 0 or min(out) < 0:
        raise RuntimeError(f"{name}: kernel_size and output_size must be greater than zero, but got {kernel} and {out}")
    if any([o + k - 1 > n for o, k, n in zip(out, kernel, size)]):
        raise RuntimeError(f"{name}: pool size {kernel} and output size {out} are too large relative to the input's {size}")
    batch = x.shape[0] if x.ndim == dims + 2 else 1
    if samples is None:
        from ..random.factories import rand
        samples = rand(batch, x.shape[-dims - 1], dims, dtype=x.dtype, device=x.device)
    elif samples.ndim == 3 and samples.shape[0] > batch:
        samples = samples[:batch]
    if tuple(samples.shape) != (batch, x.shape[-dims - 1], dims) or samples.dtype is not x.dtype:
        raise RuntimeError(f"{name}: Expect _random_samples of shape {(batch, x.shape[-dims - 1], dims)} and dtype "
                           f"{x.dtype}, but got {tuple(samples.shape)} and {samples.dtype}")
    if 0 in out:
        shape = (*x.shape[:x.ndim - dims], *out)
        return x.new_empty(shape), x.new_empty(shape, dtype=_dtypes.int64)
    return _fractional[dims](x, kernel, out, samples)


@in_dimensions("fractional_max_pool{}d", (2, 3), method=False, toplevel=False, autocast="float32")
def _fractional_maxima(name: str, dims: int, input: Tensor, kernel_size: Any, output_size: Any = None, output_ratio: Any = None,
                       return_indices: bool = False, _random_samples: Tensor | None = None) -> Any:
    """The maxima of windows at random distances (Graham, Fractional Max-Pooling)."""
    made = _fractional_pool(dims, input, kernel_size, output_size, output_ratio, _random_samples)
    return made if return_indices else made[0]


@in_dimensions("fractional_max_pool{}d_with_indices", (2, 3), method=False, toplevel=False)
def _fractional_maxima_with_indices(name: str, dims: int, input: Tensor, kernel_size: Any, output_size: Any = None,
                                    output_ratio: Any = None, return_indices: bool = False,
                                    _random_samples: Tensor | None = None) -> Any:
    """The maxima of windows at random distances, and where they are."""
    return _fractional_pool(dims, input, kernel_size, output_size, output_ratio, _random_samples)


fractional_max_pool2d, fractional_max_pool3d = _fractional_maxima
fractional_max_pool2d_with_indices, fractional_max_pool3d_with_indices = _fractional_maxima_with_indices


def _unpool_size(x: Tensor, kernel: Any, stride: Any, padding: Any, output_size: Any) -> tuple[int, ...]:
    dims = len(kernel)
    default = tuple([(n - 1) * s + k - 2 * p for n, s, k, p in zip(x.shape[x.ndim - dims:], stride, kernel, padding)])
    if output_size is None:
        return default
    wanted = tuple(output_size)
    if len(wanted) in (dims + 1, dims + 2):
        wanted = wanted[-dims:]
    if len(wanted) != dims:
        raise ValueError(f"output_size should be a sequence containing {dims} or {dims + 2} elements, but it has a length of "
                         f"'{len(wanted)}'")
    for d, (n, given, s) in enumerate(zip(default, wanted, stride)):
        if not n - s < given < n + s:
            raise ValueError(f"invalid output_size \"{wanted}\" (dim {d} must be between {n - s} and {n + s})")
    return wanted


@in_dimensions("max_unpool{}d", method=False, toplevel=False, autocast={2: "float32", 3: "float32"})
def _unpooled(name: str, dims: int, input: Tensor, indices: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0,
              output_size: Any = None) -> Tensor:
    """Zeros with the maxima of a pooling back at their places."""
    x = input
    kernel = ints(kernel_size, dims, "kernel_size", name)
    stride = kernel if stride is None else ints(stride, dims, "stride", name)
    padding = ints(padding, dims, "padding", name)
    if indices.dtype is not _dtypes.int64:
        raise RuntimeError(f"elements in indices should be type int64 but got: {indices.dtype}")
    if indices.shape != x.shape:
        raise RuntimeError(f"Expected shape of indices to be same as that of the input tensor ({list(x.shape)}) but got "
                           f"indices tensor with shape: {list(indices.shape)}")
    if x.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(f"Input to {name} should be a {dims + 1}d or {dims + 2}d Tensor, but got {list(x.shape)}")
    if min(stride) <= 0:
        raise RuntimeError(f"strides should be greater than zero, but got stride: {stride}")
    check_on_cpu(f"max_unpool{max(dims, 2)}d", x, "f")
    alert_not_deterministic(f"max_unpooling{max(dims, 2)}d_forward_out")
    size = _unpool_size(x, kernel, stride, padding, output_size)
    if dims == 1:
        return _unpooling[2](x.unsqueeze(-2), indices.unsqueeze(-2), (1, *size)).squeeze(-2)
    return keeping_layout(_unpooling[dims], x, indices, size, applies=dims == 2)


max_unpool1d, max_unpool2d, max_unpool3d = _unpooled


# --------------------------------------------------------------------------------------------------------- p-norms
@in_dimensions("lp_pool{}d", method=False, toplevel=False)
def _norms(name: str, dims: int, input: Tensor, norm_type: float, kernel_size: Any, stride: Any = None,
           ceil_mode: bool = False) -> Tensor:
    """The p-norm (without absolute values) of each window."""
    kernel = ints(kernel_size, dims, "kernel_size", name)
    average = (avg_pool1d, avg_pool2d, avg_pool3d)[dims - 1]
    made = average(input.pow(norm_type), kernel_size, stride, 0, ceil_mode)
    count = math.prod(kernel)
    return (made.sign() * FUNCTIONS["relu"](made.abs())).mul(count).pow(1.0 / norm_type)


lp_pool1d, lp_pool2d, lp_pool3d = _norms
