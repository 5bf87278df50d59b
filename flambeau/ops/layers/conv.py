"""Convolutions of one to three dimensions and their transposes; unfold and fold.

A convolution is linear in its input and in its weight, so three rows are closed under differentiation: the derivative
of each is made of the other two.
"""

from __future__ import annotations

import functools
from typing import Any

from ...backends.cpu.layers import conv as _kernels  # noqa: F401  (enters the kernels into the table)
from ...tensors.tensor import Tensor
from ..core.row import FUNCTIONS, check_on_cpu, public, row, run, wrapped
from ..pointwise.functions import conj
from ..rules import images
from ..shape.views import relaid
from .forms import in_dimensions
from .layouts import channels_last_of, contiguous_copy, laid_out

_AGAIN = "ConvolutionBackwardBackward0"


# -------------------------------------------------------------------------------------------------- the three rows
def _apply(x: Tensor, weight: Tensor, size: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> Tensor:
    """The convolution, cut to `size`: an output padding of a stride or more made room for further windows."""
    made = convolution(x, weight, None, stride, padding, dilation, False, (0,) * len(stride), groups)
    for d, n in enumerate(size, 2):
        if made.shape[d] != n:
            made = made.narrow(d, 0, n)
    return made


def _input_grad(grad, input_shape, weight, stride, padding, dilation, transposed, output_padding, groups):
    if transposed:
        return _apply(grad, conj(weight), input_shape[2:], stride, padding, dilation, groups)
    return conv_input(grad, conj(weight), None, tuple(input_shape[2:]), stride, padding, dilation, groups)


def _weight_grad(grad, input, weight_shape, stride, padding, dilation, transposed, groups):
    pair = (conj(input), grad) if transposed else (grad, conj(input))
    return conv_weight(*pair, tuple(weight_shape[2:]), stride, padding, dilation, groups)


def _again_output_grad(grad, grad_output_shape, input, stride, padding, dilation, groups):
    return _apply(conj(input), grad, grad_output_shape[2:], stride, padding, dilation, groups)


def _grads(grad, stride, padding, dilation, transposed, groups, needs, input_shape=None, weight=None, input=None,
           weight_shape=None):
    """From arrays to arrays, those of weight and bias together."""
    g = grad._array
    if transposed or g.dtype.char not in "fd":
        return None
    numbers, made = (stride, padding, dilation, groups), [None, None, None]
    if needs[0]:
        made[0] = wrapped(run("conv_input", (g, weight._array, None, tuple(input_shape[2:]), *numbers)))
    if needs[1]:
        both = run("conv_weight_bias" if needs[2] else "conv_weight", (g, input._array, tuple(weight_shape[2:]), *numbers))
        made[1:] = [wrapped(m) for m in both] if needs[2] else [wrapped(both), None]
    elif needs[2]:
        made[2] = grad.sum((0, *range(2, grad.ndim)))
    return made


convolution = row(
    "convolution", "input weight bias? stride padding dilation transposed output_padding groups", shape=images.convolution,
    images="likes", fused={"input weight bias": _grads},
    backward=dict(
        input=_input_grad, weight=_weight_grad,
        bias=lambda grad: grad.sum((0, *range(2, grad.ndim)))))
conv_input = row("conv_input", "grad_output weight bias size stride padding dilation groups", shape=images.conv_input,
                 images="likes", node=_AGAIN, backward=dict(
    grad_output=lambda grad, grad_output_shape, weight, stride, padding, dilation, groups: _apply(
        grad, conj(weight), grad_output_shape[2:], stride, padding, dilation, groups),
    weight=lambda grad, grad_output, weight_shape, stride, padding, dilation, groups: conv_weight(
        conj(grad_output), grad, tuple(weight_shape[2:]), stride, padding, dilation, groups)))
conv_weight = row("conv_weight", "grad_output input size stride padding dilation groups", shape=images.conv_weight,
                  images="likes", node=_AGAIN, backward=dict(
    grad_output=_again_output_grad,
    input=lambda grad, grad_output, input_shape, stride, padding, dilation, groups: conv_input(
        conj(grad_output), grad, None, tuple(input_shape[2:]), stride, padding, dilation, groups)))
row("conv_weight_bias", "grad_output input size stride padding dilation groups", batch="conv_weight",
    shape=images.conv_weight_bias, images="likes", node=None)


# ---------------------------------------------------------------------------------------------------- arguments
def spread(value: Any, dims: int, name: str) -> tuple[int, ...]:
    """One number or one per dimension, as a tuple."""
    if value.__class__ is int:
        return (value,) * dims
    if isinstance(value, (tuple, list)):
        made = tuple([v if v.__class__ is int else v.__index__() for v in value])
        if len(made) == dims:
            return made
        if len(made) == 1:
            return made * dims
        raise RuntimeError(f"expected {name} to be a single integer value or a list of {dims} values to match the "
                           f"convolution dimensions, but got {name}={list(made)}")
    try:
        return (value.__index__(),) * dims
    except AttributeError:
        raise TypeError(f"conv{dims}d(): argument '{name}' must be tuple of ints, but found {type(value).__name__}") from None


def _check(name: str, x: Any, weight: Any, bias: Any, dims: int) -> None:
    for argument, value in (("input", x), ("weight", weight)):
        if not isinstance(value, Tensor):
            raise TypeError(f"{name}(): argument '{argument}' must be Tensor, not {type(value).__name__}")
    if bias is not None and not isinstance(bias, Tensor):
        raise TypeError(f"{name}(): argument 'bias' must be Tensor, not {type(bias).__name__}")
    if x.ndim not in (dims + 1, dims + 2):
        raise RuntimeError(f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to {name}, but got input of "
                           f"size: {list(x.shape)}")
    if weight.ndim != dims + 2:
        raise RuntimeError("weight should have at least three dimensions" if weight.ndim < 3 else
                           f"Expected {weight.ndim}-dimensional input for {weight.ndim}-dimensional weight"
                           f"{list(weight.shape)}, but got {x.ndim}-dimensional input of size {list(x.shape)} instead")
    for other, value in (("bias", bias), ("weight", weight)):
        if value is not None and value.dtype is not x.dtype:
            raise RuntimeError(f"Input type ({x.dtype.c_word}) and {other} type ({value.dtype.c_word}) should be the same"
                               f" (expected scalar type {x.dtype.word} but found {value.dtype.word})")


def _check_numbers(stride: Any, padding: Any, dilation: Any, groups: int, output_padding: Any = ()) -> None:
    if groups <= 0:
        raise RuntimeError(f"non-positive groups is not supported, got groups={groups}")
    if min(padding, default=0) < 0:
        raise RuntimeError(f"negative padding is not supported, got padding={list(padding)}")
    if min(output_padding, default=0) < 0:
        raise RuntimeError(f"negative output_padding is not supported, got output_padding={list(output_padding)}")
    if min(stride) <= 0:
        raise RuntimeError(f"non-positive stride is not supported, got stride={list(stride)}")
    if min(dilation) <= 0:
        raise RuntimeError(f"dilation should be greater than zero, got dilation={list(dilation)}")


@functools.lru_cache(1024)  # the same layer comes by in every step
def _check_shapes(image: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, groups: int) -> None:
    """Whether a convolution of these shapes (bias: None without one) and numbers can be."""
    _check_numbers(stride, padding, dilation, groups)
    out, inner = weight[:2]
    if out < groups or out % groups:
        wanted = "at least" if out < groups else "divisible by"
        raise RuntimeError(f"Given groups={groups}, expected weight to be {wanted} {groups} at dimension 0, but "
                           f"got weight of size {list(weight)} instead")
    if image[1] != inner * groups:
        raise RuntimeError(f"Given groups={groups}, weight of size {list(weight)}, expected input{list(image)} "
                           f"to have {inner * groups} channels, but got {image[1]} channels instead")
    _check_bias(weight, bias, out)
    kernel = weight[2:]
    padded = [n + 2 * p for n, p in zip(image[2:], padding)]
    reach = [d * (k - 1) + 1 for d, k in zip(dilation, kernel)]
    if any([k == 0 for k in kernel]):
        raise RuntimeError(f"kernel size should be greater than zero, but got weight of size {list(weight)}")
    if any([n < r for n, r in zip(padded, reach)]):
        show = lambda sizes: "(" + " x ".join(str(n) for n in sizes) + ")"
        raise RuntimeError(f"Calculated padded input size per channel: {show(padded)}. Kernel size: {show(reach)}. "
                           "Kernel size can't be greater than actual input size")


def _check_bias(weight: Any, bias: Any, out: int) -> None:
    if bias is not None and bias != (out,):
        raise RuntimeError(f"Given weight of size {list(weight)}, expected bias to be 1-dimensional with {out} "
                           f"elements, but got bias of size {list(bias)} instead")


def _same(x: Tensor, weight: Tensor, stride: Any, dilation: Any) -> tuple[Tensor, tuple[int, ...]]:
    """padding='same': half of what the kernel reaches over on each side; an odd rest goes to the end."""
    if any([s != 1 for s in stride]):
        raise RuntimeError("padding='same' is not supported for strided convolutions")
    total = [d * (k - 1) for d, k in zip(dilation, weight.shape[2:])]
    rest = [t % 2 for t in reversed(total)]
    if any(rest):
        x = FUNCTIONS["constant_pad_nd"](x, [n for r in rest for n in (0, r)], 0)
    return x, tuple([t // 2 for t in total])


# ------------------------------------------------------------------------------------------------- convolutions
def _conv(name: str, dims: int, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1, padding: Any = 0,
          dilation: Any = 1, groups: int = 1) -> Tensor:
    """The convolution of (batch, channels, {}) with weights (out channels, channels / groups, *kernel)."""
    x = input
    _check(name, x, weight, bias, dims)
    stride, dilation = spread(stride, dims, "stride"), spread(dilation, dims, "dilation")
    if x.dtype.letter in "bi":
        check_on_cpu("slow_conv_dilated<>" if max(dilation) > 1 else "compute_columns3d" if dims == 3 else "slow_conv2d_cpu", x,
                     "fc" if max(dilation) > 1 else "ifc", "int64")
    batched = x.ndim == dims + 2
    if not batched:
        x = x.unsqueeze(0)
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise RuntimeError(f"Invalid padding string: '{padding}'")
        _check_numbers(stride, (), dilation, groups)
        x, padding = _same(x, weight, stride, dilation) if padding == "same" else (x, (0,) * dims)
    else:
        padding = spread(padding, dims, "padding")
    _check_shapes(x.shape, weight.shape, None if bias is None else bias.shape, stride, padding, dilation, groups)
    run = convolution if x._array.flags.c_contiguous and weight._array.flags.c_contiguous else _convolved
    made = run(x, weight, bias, stride, padding, dilation, False, (0,) * dims, groups)
    return made if batched else made.squeeze(0)


def _convolved(x: Tensor, weight: Tensor, *rest: Any) -> Tensor:
    """The convolution, channels-last where the input or the weight is; as in PyTorch not complex ones, nor float64 volumes, nor
    transposed volumes; and in one dimension where the weight is."""
    if x.ndim == 3:
        made = convolution(x, weight, *rest)
        if weight._array.flags.c_contiguous or not x.is_floating_point() or channels_last_of(weight.unsqueeze(2)) is None:
            return made
        _, channels, length = made.shape
        return relaid(made, (channels * length, 1, channels))
    name = channels_last_of(x, weight)
    if name == "channels_last" and x.is_cuda:  # its kernels know the order themselves
        return convolution(x, weight, *rest)
    if name is None or not x.is_floating_point() or (x.ndim == 5 and (x.dtype.itemsize == 8 or rest[4])):
        return convolution(x, weight, *rest)
    return laid_out(convolution(contiguous_copy(x, name), contiguous_copy(weight, name), *rest), name)


conv1d, conv2d, conv3d = in_dimensions("conv{}d", method=False, autocast="lower")(_conv)


# ------------------------------------------------------------------------------------- transposed convolutions
def _transposed(name: str, dims: int, input: Tensor, weight: Tensor, bias: Tensor | None = None, stride: Any = 1,
                padding: Any = 0, output_padding: Any = 0, groups: int = 1, dilation: Any = 1) -> Tensor:
    """The transpose of a convolution; weights are (channels, out channels / groups, *kernel)."""
    x = input
    _check(name, x, weight, bias, dims)
    stride, padding = spread(stride, dims, "stride"), spread(padding, dims, "padding")
    dilation, more = spread(dilation, dims, "dilation"), spread(output_padding, dims, "output_padding")
    _check_numbers(stride, padding, dilation, groups, more)
    check_on_cpu(f"slow_conv_transpose{max(dims, 2)}d_out_cpu", x, "fc", "int64")
    batched = x.ndim == dims + 2
    if not batched:
        x = x.unsqueeze(0)
    if weight.shape[0] % groups:
        raise RuntimeError(f"Given groups={groups}, expected weight to be divisible by {groups} at dimension 0, but "
                           f"got weight of size {list(weight.shape)} instead")
    if x.shape[1] != weight.shape[0]:
        raise RuntimeError(f"Given transposed=1, weight of size {list(weight.shape)}, expected input{list(x.shape)} to "
                           f"have {weight.shape[0]} channels, but got {x.shape[1]} channels instead")
    _check_bias(weight.shape, None if bias is None else bias.shape, weight.shape[1] * groups)
    if any([m >= s and m >= d for m, s, d in zip(more, stride, dilation)]):
        raise RuntimeError(f"output padding must be smaller than either stride or dilation, but got output_padding="
                           f"{list(more)}, stride={list(stride)}, dilation={list(dilation)}")
    size = [(n - 1) * s - 2 * p + d * (k - 1) + m + 1 for n, s, p, d, k, m in
            zip(x.shape[2:], stride, padding, dilation, weight.shape[2:], more)]
    if min(size) <= 0:
        raise RuntimeError(f"Given input size per channel: {list(x.shape[2:])}. Calculated output size per channel: "
                           f"{size}. Output size is too small")
    run = convolution if x._array.flags.c_contiguous and weight._array.flags.c_contiguous else _convolved
    made = run(x, weight, bias, stride, padding, dilation, True, more, groups)
    return made if batched else made.squeeze(0)


conv_transpose1d, conv_transpose2d, conv_transpose3d = in_dimensions(
    "conv_transpose{}d", method=False, autocast="lower")(_transposed)


@public(method=False, name="convolution")
def convolution_(input: Tensor, weight: Tensor, bias: Tensor | None, stride: Any, padding: Any, dilation: Any,
                 transposed: bool, output_padding: Any, groups: int) -> Tensor:
    """Any of the six, by arguments."""
    dims = input.ndim - 2
    if transposed:
        return _transposed("convolution", dims, input, weight, bias, stride, padding, output_padding, groups, dilation)
    return _conv("convolution", dims, input, weight, bias, stride, padding, dilation, groups)


@public(method=False, autocast="lower")
def conv_tbc(input: Tensor, weight: Tensor, bias: Tensor, pad: int = 0) -> Tensor:
    """conv1d over (time, batch, channels) with weights (kernel, channels, out channels).

    >>> torch.conv_tbc(torch.ones(4, 1, 2), torch.ones(3, 2, 5), torch.zeros(5)).shape
    torch.Size([2, 1, 5])
    """
    if input.ndim != 3 or weight.ndim != 3:
        raise RuntimeError(f"conv_tbc: input and weight must have 3 dims: time, batch, channels; got {list(input.shape)} and "
                           f"{list(weight.shape)}")
    return conv1d(input.permute(1, 2, 0), weight.permute(2, 1, 0), bias, padding=pad).permute(2, 0, 1)


# ---------------------------------------------------------------------------------------------- unfold and fold
_im2col = row("im2col", "self kernel_size dilation padding stride", safe=True, shape=images.windows, node="Im2ColBackward0",
              backward=dict(
    self=lambda grad, self_shape, kernel_size, dilation, padding, stride: _col2im(
        grad, tuple(self_shape[-2:]), kernel_size, dilation, padding, stride)))
_col2im = row("col2im", "self output_size kernel_size dilation padding stride", safe=True, shape=images.from_windows,
              node="Col2ImBackward0", backward=dict(
    self=lambda grad, kernel_size, dilation, padding, stride: _im2col(grad, kernel_size, dilation, padding, stride)))


def _pairs(name: str, **values: Any) -> list[tuple[int, ...]]:
    made = []
    for argument, value in values.items():
        pair = (value, value) if value.__class__ is int else tuple([int(v) for v in value])
        if len(pair) == 1:
            pair *= 2
        if len(pair) != 2:
            raise RuntimeError(f"{name}: expected {argument} to have 2 elements, but got {len(pair)}")
        if (argument != "padding" and min(pair) <= 0) or min(pair) < 0:
            raise RuntimeError(f"{name}: {argument} should be greater than zero, but got {pair}")
        made.append(pair)
    return made


def _windows(name: str, size: Any, kernel: Any, dilation: Any, padding: Any, stride: Any) -> int:
    """How many windows there are; an error when there is none."""
    counts = [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, d, p, s in zip(size, kernel, dilation, padding, stride)]
    if min(counts) < 1:
        raise RuntimeError(f"{name}: given a spatial size of {tuple(size)}, kernel_size={kernel}, dilation={dilation}, "
                           f"padding={padding}, stride={stride}, the calculated shape of the array of sliding blocks is "
                           f"{tuple(counts)}, but its components must be at least one")
    return counts[0] * counts[1]


@public(toplevel=False, method=False)
def unfold(input: Tensor, kernel_size: Any, dilation: Any = 1, padding: Any = 0, stride: Any = 1) -> Tensor:
    """All windows of (batch, channels, height, width) as columns: (batch, channels * taps, windows)."""
    kernel, dilation, padding, stride = _pairs("unfold", kernel_size=kernel_size, dilation=dilation, padding=padding,
                                               stride=stride)
    if input.ndim not in (3, 4) or 0 in input.shape[input.ndim - 3:]:
        raise RuntimeError(f"Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions "
                           f"for input, but got: {list(input.shape)}")
    check_on_cpu("im2col_out_cpu", input, "fcb")
    _windows("unfold", input.shape[-2:], kernel, dilation, padding, stride)
    return _im2col(input, kernel, dilation, padding, stride)


@public(toplevel=False, method=False)
def fold(input: Tensor, output_size: Any, kernel_size: Any, dilation: Any = 1, padding: Any = 0,
         stride: Any = 1) -> Tensor:
    """The sum of columns of windows at their places: (batch, channels * taps, windows) -> (batch, channels, *size)."""
    size, kernel, dilation, padding, stride = _pairs("fold", output_size=output_size, kernel_size=kernel_size,
                                                     dilation=dilation, padding=padding, stride=stride)
    if input.ndim not in (2, 3) or 0 in input.shape[input.ndim - 2:]:
        raise RuntimeError(f"Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero "
                           f"dimensions for input, but got: {list(input.shape)}")
    taps = kernel[0] * kernel[1]
    if input.shape[-2] % taps:
        raise RuntimeError(f"Expected size of input's dimension 1 to be divisible by the product of kernel_size, but got "
                           f"input.size(1)={input.shape[-2]} and kernel_size={kernel}")
    count = _windows("fold", size, kernel, dilation, padding, stride)
    if input.shape[-1] != count:
        raise RuntimeError(f"Given output_size={size}, kernel_size={kernel}, dilation={dilation}, padding={padding}, "
                           f"stride={stride}, expected size of input's dimension 2 to match the calculated number of sliding "
                           f"blocks {count}, but got input.size(2)={input.shape[-1]}")
    check_on_cpu("col2im_out_cpu", input, "fcb")
    return _col2im(input, size, kernel, dilation, padding, stride)
