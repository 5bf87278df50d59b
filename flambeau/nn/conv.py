"""Convolution layers and their transposes, of one to three dimensions, and the lazy ones."""

from __future__ import annotations

import math
from typing import Any

from ..tensors.tensor import Tensor
from . import functional as F
from . import init
from .explain import wrong_size
from .layer import Spatial, family
from .lazy import LazyModuleMixin
from .modules.utils import _ntuple, _reverse_repeat_tuple
from .parameter import UninitializedParameter, learn

__all__ = ["Conv1d", "Conv2d", "Conv3d", "ConvTranspose1d", "ConvTranspose2d", "ConvTranspose3d", "LazyConv1d",
           "LazyConv2d", "LazyConv3d", "LazyConvTranspose1d", "LazyConvTranspose2d", "LazyConvTranspose3d"]
_PADDING_MODES = ("zeros", "reflect", "replicate", "circular")


class _ConvNd(Spatial):
    """What all convolutions share: the weight, the bias and their first values."""

    __constants__ = ["stride", "padding", "dilation", "groups", "padding_mode", "output_padding", "in_channels",
                     "out_channels", "kernel_size"]
    __annotations__ = {"bias": "Tensor | None"}

    def __init__(self, in_channels: int, out_channels: int, kernel_size: tuple[int, ...], stride: tuple[int, ...],
                 padding: Any, dilation: tuple[int, ...], transposed: bool, output_padding: tuple[int, ...],
                 groups: int, bias: bool, padding_mode: str, device: Any = None, dtype: Any = None):
        super().__init__()
        _check(in_channels, out_channels, groups, padding, padding_mode, stride)
        self.in_channels, self.out_channels = in_channels, out_channels
        self.kernel_size, self.stride, self.padding, self.dilation = kernel_size, stride, padding, dilation
        self.transposed, self.output_padding = transposed, output_padding
        self.groups, self.padding_mode = groups, padding_mode
        self._reversed_padding_repeated_twice = self._both_sides()
        first, second = (in_channels, out_channels) if transposed else (out_channels, in_channels)
        learn(self, "weight", (first, second // groups, *kernel_size), device, dtype)
        learn(self, "bias", out_channels if bias else None, device, dtype)
        self.reset_parameters()

    def _both_sides(self) -> list[int]:
        """The padding in the order that F.pad takes it, for the padding modes other than zeros."""
        if not isinstance(self.padding, str):
            return list(_reverse_repeat_tuple(self.padding, 2))
        sides = [0, 0] * len(self.kernel_size)
        if self.padding == "same":
            for d, k, i in zip(self.dilation, self.kernel_size, range(len(self.kernel_size) - 1, -1, -1)):
                total = d * (k - 1)
                sides[2 * i] = total // 2
                sides[2 * i + 1] = total - total // 2
        return sides

    def reset_parameters(self) -> None:
        """Uniform values within 1 / sqrt(fan in), as PyTorch draws them."""
        init.kaiming_uniform_(self.weight, a=math.sqrt(5))
        if self.bias is not None:
            fan_in, _ = init._calculate_fan_in_and_fan_out(self.weight)
            if fan_in != 0:
                bound = 1 / math.sqrt(fan_in)
                init.uniform_(self.bias, -bound, bound)

    def _mismatch(self, input: Tensor, name: str) -> str:
        dims = len(self.kernel_size)
        if input.ndim not in (dims + 1, dims + 2):
            return (f"Its input has shape {list(input.shape)} and should have {dims + 2} dimensions: batch, channels "
                    f"({self.in_channels} of them) and {dims} of the image.")
        last = input.shape[-1] == self.in_channels != input.shape[-dims - 1]
        order = (0, dims + 1, *range(1, dims + 1)) if input.ndim == dims + 2 else (dims, *range(dims))
        advice = f"The channels seem to come last: x.permute{order} brings them to the front." if last else ""
        return wrong_size(input, -dims - 1, self.in_channels, "in_channels", name, advice, self.weight)

    def extra_repr(self) -> str:
        text = f"{self.in_channels}, {self.out_channels}, kernel_size={self.kernel_size}, stride={self.stride}"
        if self.padding != (0,) * len(self.padding):
            text += f", padding={self.padding}"
        if self.dilation != (1,) * len(self.dilation):
            text += f", dilation={self.dilation}"
        if self.output_padding != (0,) * len(self.output_padding):
            text += f", output_padding={self.output_padding}"
        if self.groups != 1:
            text += f", groups={self.groups}"
        if self.bias is None:
            text += ", bias=False"
        if self.padding_mode != "zeros":
            text += f", padding_mode={self.padding_mode}"
        return text

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        if not hasattr(self, "padding_mode"):
            self.padding_mode = "zeros"


def _check(in_channels: int, out_channels: int, groups: int, padding: Any, padding_mode: str,
           stride: tuple[int, ...]) -> None:
    if groups <= 0:
        raise ValueError("groups must be a positive integer")
    if in_channels % groups != 0:
        raise ValueError("in_channels must be divisible by groups")
    if out_channels % groups != 0:
        raise ValueError("out_channels must be divisible by groups")
    if isinstance(padding, str):
        if padding not in ("same", "valid"):
            raise ValueError(f"Invalid padding string {padding!r}, should be one of {{'same', 'valid'}}")
        if padding == "same" and any(s != 1 for s in stride):
            raise ValueError("padding='same' is not supported for strided convolutions")
    if padding_mode not in _PADDING_MODES:
        raise ValueError(f"padding_mode must be one of {set(_PADDING_MODES)}, but got padding_mode='{padding_mode}'")


class _Conv(_ConvNd):
    """A convolution; subclasses say of how many dimensions."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 dilation: Any = 1, groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None,
                 dtype: Any = None):
        many = _ntuple(self._dims)
        super().__init__(in_channels, out_channels, many(kernel_size), many(stride),
                         padding if isinstance(padding, str) else many(padding), many(dilation), False, many(0), groups,
                         bias, padding_mode, device, dtype)

    def forward(self, input: Tensor) -> Tensor:
        return self._conv_forward(input, self.weight, self.bias)

    def _conv_forward(self, input: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        padding = self.padding
        if self.padding_mode != "zeros":
            input = F.pad(input, self._reversed_padding_repeated_twice, mode=self.padding_mode)
            padding = (0,) * self._dims
        return self._function(input, weight, bias, self.stride, padding, self.dilation, self.groups)


class Conv1d(_Conv, dims=1, function=F.conv1d):
    """The convolution of (batch, channels, length).

    Shapes: (batch, in_channels, length) to (batch, out_channels, new length).

    >>> nn.Conv1d(16, 33, 3, stride=2)(torch.randn(20, 16, 50)).shape
    torch.Size([20, 33, 24])
    """


class Conv2d(_Conv, dims=2, function=F.conv2d):
    """The convolution of (batch, channels, height, width).

    Shapes: (batch, in_channels, height, width) to (batch, out_channels, new height, new width); a new size is floor((size +
    2 padding - dilation (kernel - 1) - 1) / stride) + 1.

    >>> nn.Conv2d(3, 8, kernel_size=3, padding=1)(torch.randn(4, 3, 32, 32)).shape
    torch.Size([4, 8, 32, 32])
    >>> nn.Conv2d(3, 8, 3, stride=2)(torch.randn(4, 3, 32, 32)).shape
    torch.Size([4, 8, 15, 15])
    """


class Conv3d(_Conv, dims=3, function=F.conv3d):
    """The convolution of (batch, channels, depth, height, width).

    Shapes: (batch, in_channels, depth, height, width) to (batch, out_channels, ...).

    >>> nn.Conv3d(3, 8, 3)(torch.randn(2, 3, 8, 8, 8)).shape
    torch.Size([2, 8, 6, 6, 6])
    """


# -------------------------------------------------------------------------------------------------------- transposed
class _ConvTransposeNd(_ConvNd):
    """A transposed convolution; subclasses say of how many dimensions."""

    def __init__(self, in_channels: int, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0,
                 output_padding: Any = 0, groups: int = 1, bias: bool = True, dilation: Any = 1,
                 padding_mode: str = "zeros", device: Any = None, dtype: Any = None):
        if padding_mode != "zeros":
            raise ValueError(f'Only "zeros" padding mode is supported for {type(self).__name__}')
        many = _ntuple(self._dims)
        super().__init__(in_channels, out_channels, many(kernel_size), many(stride), many(padding), many(dilation),
                         True, many(output_padding), groups, bias, padding_mode, device, dtype)

    def forward(self, input: Tensor, output_size: list[int] | None = None) -> Tensor:
        more = self._output_padding(input, output_size, self.stride, self.padding, self.kernel_size, self._dims,
                                    self.dilation)
        return self._function(input, self.weight, self.bias, self.stride, self.padding, more, self.groups, self.dilation)

    def _output_padding(self, input: Tensor, output_size: Any, stride: Any, padding: Any, kernel_size: Any,
                        num_spatial_dims: int, dilation: Any = None) -> tuple[int, ...]:
        """The output padding that gives the asked size."""
        if output_size is None:
            return self.output_padding
        dims = num_spatial_dims
        kept = 2 if input.dim() == dims + 2 else 1
        if len(output_size) == kept + dims:
            output_size = output_size[kept:]
        if len(output_size) != dims:
            raise ValueError(f"{type(self).__name__}: for {input.dim()}D input, output_size must have {dims} or "
                             f"{kept + dims} elements (got {len(output_size)})")
        smallest = [(input.size(d + kept) - 1) * stride[d] - 2 * padding[d]
                    + (dilation[d] if dilation is not None else 1) * (kernel_size[d] - 1) + 1 for d in range(dims)]
        for wanted, low, s in zip(output_size, smallest, stride):
            if not low <= wanted <= low + s - 1:
                raise ValueError(f"requested an output size of {output_size}, but valid sizes range from {smallest} to "
                                 f"{[m + t - 1 for m, t in zip(smallest, stride)]} (for an input of {input.size()[2:]})")
        return tuple([wanted - low for wanted, low in zip(output_size, smallest)])


ConvTranspose1d, ConvTranspose2d, ConvTranspose3d = family(
    "ConvTranspose{n}d", lambda n: (_ConvTransposeNd,),
    """The transpose of Conv{n}d, which makes a larger image from a smaller one.

    Shapes: (batch, in_channels, {size}) to (batch, out_channels, {new}).

    >>> nn.ConvTranspose{n}d(4, 2, 2, stride=2)(torch.randn(1, 4, {times[3]})).shape
    torch.Size([1, 2, {times[6]}])
    """, options=lambda n: {"dims": n, "function": getattr(F, f"conv_transpose{n}d")})


# --------------------------------------------------------------------------------------------------------------- lazy
class _LazyConvXdMixin(LazyModuleMixin):
    """in_channels come with the first input."""

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.in_channels != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor, *args: Any, **kwargs: Any) -> None:
        if not self.has_uninitialized_params():
            return
        self.in_channels = self._get_in_channels(input)
        if self.in_channels % self.groups != 0:
            raise ValueError("in_channels must be divisible by groups")
        first, second = (self.in_channels, self.out_channels) if self.transposed else (self.out_channels, self.in_channels)
        self.weight.materialize((first, second // self.groups, *self.kernel_size))
        if self.bias is not None:
            self.bias.materialize((self.out_channels,))
        self.reset_parameters()

    def _get_in_channels(self, input: Tensor) -> int:
        dims = self._get_num_spatial_dims()
        if input.dim() not in (dims + 1, dims + 2):
            raise RuntimeError(f"Expected {dims + 1}D (unbatched) or {dims + 2}D (batched) input to "
                               f"{type(self).__name__}, but got input of size: {input.shape}")
        return input.shape[1] if input.dim() == dims + 2 else input.shape[0]

    def _get_num_spatial_dims(self) -> int:
        return self._dims

    def _make_lazy(self, out_channels: int, bias: bool, device: Any, dtype: Any) -> None:
        self.weight = UninitializedParameter(device=device, dtype=dtype)
        self.out_channels = out_channels
        if bias:
            self.bias = UninitializedParameter(device=device, dtype=dtype)


class _LazyConv(_LazyConvXdMixin):
    def __init__(self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                 groups: int = 1, bias: bool = True, padding_mode: str = "zeros", device: Any = None, dtype: Any = None):
        super().__init__(0, 0, kernel_size, stride, padding, dilation, groups, False, padding_mode, device, dtype)
        self._make_lazy(out_channels, bias, device, dtype)


class _LazyConvTranspose(_LazyConvXdMixin):
    def __init__(self, out_channels: int, kernel_size: Any, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
                 groups: int = 1, bias: bool = True, dilation: Any = 1, padding_mode: str = "zeros", device: Any = None,
                 dtype: Any = None):
        super().__init__(0, 0, kernel_size, stride, padding, output_padding, groups, False, dilation, padding_mode,
                         device, dtype)
        self._make_lazy(out_channels, bias, device, dtype)


LazyConv1d, LazyConv2d, LazyConv3d = family(
    "LazyConv{n}d", lambda n: (_LazyConv, (Conv1d, Conv2d, Conv3d)[n - 1]),
    """Conv{n}d whose in_channels come with the first input.

    >>> nn.LazyConv{n}d(8, 3)(torch.randn(2, 5, {times[6]})).shape
    torch.Size([2, 8, {times[4]}])
    """)
LazyConvTranspose1d, LazyConvTranspose2d, LazyConvTranspose3d = family(
    "LazyConvTranspose{n}d", lambda n: (_LazyConvTranspose, (ConvTranspose1d, ConvTranspose2d, ConvTranspose3d)[n - 1]),
    """ConvTranspose{n}d whose in_channels come with the first input.

    >>> nn.LazyConvTranspose{n}d(8, 3)(torch.randn(2, 5, {times[4]})).shape
    torch.Size([2, 8, {times[6]}])
    """)
