"""Observers: modules that watch tensors pass and know the scale and the zero point that would fit what they saw."""

from __future__ import annotations

import functools
from typing import Any

from .. import int64, per_channel_affine, per_channel_symmetric, per_tensor_affine, per_tensor_symmetric, qint8, quint8
from ..creation.factories import full, tensor, zeros
from ..nn.module import Module
from ..tensors import dtypes as _dtypes
from ..tensors.tensor import Tensor

_RANGES = {"qint8": (-128, 127), "int8": (-128, 127), "quint8": (0, 255), "uint8": (0, 255), "qint32": (-2**31, 2**31 - 1),
           "int32": (-2**31, 2**31 - 1), "int16": (-2**15, 2**15 - 1), "uint16": (0, 2**16 - 1)}
_CHANNELS = (per_channel_affine, per_channel_symmetric)


class _Partial:
    """A class with some of its arguments, to be called with none; `with_args` adds more."""

    def __init__(self, made: functools.partial):
        self.p = made

    def __call__(self, *args: Any, **keywords: Any) -> Any:
        return self.p(*args, **keywords)

    def __repr__(self) -> str:
        return repr(self.p) + "{}"

    def with_args(self, **keywords: Any) -> _Partial:
        return _Partial(functools.partial(self.p, **keywords))


class ObserverBase(Module):
    """What watches a tensor: `forward` looks at it and gives it back, `calculate_qparams` says how to quantize it."""

    def __init__(self, dtype: Any, is_dynamic: bool = False):
        super().__init__()
        self.dtype, self.is_dynamic = dtype, is_dynamic

    def forward(self, x: Tensor) -> Tensor:
        raise NotImplementedError

    def calculate_qparams(self, **kwargs: Any) -> Any:
        raise NotImplementedError

    @classmethod
    def with_args(cls, **keywords: Any) -> _Partial:
        """The class with these arguments, as a QConfig wants it."""
        return _Partial(functools.partial(cls, **keywords))


class PlaceholderObserver(ObserverBase):
    """Looks at nothing: it stands for "this dtype" in a QConfig."""

    def __init__(self, dtype: Any = _dtypes.float32, custom_op_name: str = "", compute_dtype: Any = None,
                 quant_min: int | None = None, quant_max: int | None = None, qscheme: Any = None, eps: float | None = None,
                 is_dynamic: bool = False):
        super().__init__(dtype, is_dynamic or compute_dtype is not None)
        self.custom_op, self.quant_min, self.quant_max = custom_op_name, quant_min, quant_max
        self.qscheme, self.eps = qscheme, eps

    def forward(self, x: Tensor) -> Tensor:
        return x

    def extra_repr(self) -> str:
        return f"dtype={self.dtype}, is_dynamic={self.is_dynamic}"

    def calculate_qparams(self, **kwargs: Any) -> Any:
        raise Exception("calculate_qparams should not be called for PlaceholderObserver")


class UniformQuantizationObserverBase(ObserverBase):
    """Observers of a range of integers that are evenly spaced."""

    def __init__(self, dtype: Any = quint8, qscheme: Any = per_tensor_affine, reduce_range: bool = False,
                 quant_min: int | None = None, quant_max: int | None = None, factory_kwargs: Any = None,
                 eps: float = 2.0**-23, is_dynamic: bool = False, **kwargs: Any):
        super().__init__(dtype, is_dynamic)
        if kwargs:
            raise TypeError(f"{type(self).__name__}: unknown arguments {', '.join(kwargs)}")
        if dtype.name not in _RANGES:
            raise AssertionError(f"Default Observer only works for {', '.join(sorted(_RANGES))} data types, got {dtype}")
        self.qscheme, self.reduce_range = qscheme, reduce_range
        self.has_customized_qrange = quant_min is not None and quant_max is not None
        if self.has_customized_qrange and not quant_min <= 0 <= quant_max:
            raise AssertionError("Used-specified quantization range must include 0.")
        low, high = (quant_min, quant_max) if self.has_customized_qrange else _RANGES[dtype.name]
        if reduce_range and not self.has_customized_qrange:
            low, high = low // 2, high // 2
        self.quant_min, self.quant_max = low, high
        self.register_buffer("eps", tensor([eps], **(factory_kwargs or {})))

    def _symmetric(self) -> bool:
        return self.qscheme in (per_tensor_symmetric, per_channel_symmetric)

    def _calculate_qparams(self, least: Tensor, greatest: Tensor) -> tuple[Tensor, Tensor]:
        """Scale and zero point for a range (or one per channel) which is made to contain zero."""
        least, greatest = least.clamp(max=0.0).reshape(-1), greatest.clamp(min=0.0).reshape(-1)
        low, high = self.quant_min, self.quant_max
        if self._symmetric():
            scale = greatest.maximum(-least) / (float(high - low) / 2)
            unsigned = self.dtype.name in ("quint8", "uint8")
            middle = 0 if not unsigned else (low + high) // 2 if self.has_customized_qrange else 128
            return scale.maximum(self.eps), full(scale.shape, middle, dtype=int64)
        scale = ((greatest - least) / float(high - low)).maximum(self.eps)
        zero_point = (low - (least / scale).round().to(_dtypes.int32)).clamp(low, high)
        return scale, zero_point.to(int64)

    def calculate_qparams(self) -> tuple[Tensor, Tensor]:
        """(scale, zero point) for what was seen."""
        if self.min_val.numel() == 0 or bool((self.min_val > self.max_val).any()):
            import warnings
            warnings.warn("must run observer before calling calculate_qparams. Returning default values.", stacklevel=2)
            return tensor([1.0]), zeros(1, dtype=int64)
        return self._calculate_qparams(self.min_val, self.max_val)

    def extra_repr(self) -> str:
        return f"min_val={self.min_val}, max_val={self.max_val}"


class MinMaxObserver(UniformQuantizationObserverBase):
    """The least and the greatest that was ever seen.

    >>> observer = torch.ao.quantization.MinMaxObserver()
    >>> observer(torch.tensor([-1.0, 1.55]))
    tensor([-1.0000,  1.5500])
    >>> observer.calculate_qparams()
    (tensor([0.0100]), tensor([100]))
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        if self.qscheme in _CHANNELS and not isinstance(self, _PerChannel):
            raise NotImplementedError("MinMaxObserver's qscheme only support torch.per_tensor_symmetric and "
                                      "torch.per_tensor_affine.")
        self.reset_min_max_vals()

    def reset_min_max_vals(self) -> None:
        """Forgets what it saw."""
        self.register_buffer("min_val", tensor(float("inf")))
        self.register_buffer("max_val", tensor(float("-inf")))

    def _ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.aminmax()

    def _seen(self, least: Tensor, greatest: Tensor) -> None:
        self.min_val, self.max_val = least.minimum(self.min_val), greatest.maximum(self.max_val)

    def forward(self, x_orig: Tensor) -> Tensor:
        if x_orig.numel():
            self._seen(*self._ends(x_orig.detach().to(self.min_val.dtype)))
        return x_orig

    def _load_from_state_dict(self, state_dict: Any, prefix: str, *args: Any) -> None:
        for name in ("min_val", "max_val"):  # their shapes are those of what was seen
            if prefix + name in state_dict:
                setattr(self, name, state_dict[prefix + name].detach().clone())
        super()._load_from_state_dict(state_dict, prefix, *args)


class _Moving(MinMaxObserver):
    def __init__(self, averaging_constant: float = 0.01, *args: Any, **kwargs: Any):
        self.__dict__["averaging_constant"] = averaging_constant
        super().__init__(*args, **kwargs)

    def _seen(self, least: Tensor, greatest: Tensor) -> None:
        if self.min_val.numel() and not bool(self.min_val.isinf().all()):
            share = self.averaging_constant
            least = self.min_val + share * (least - self.min_val)
            greatest = self.max_val + share * (greatest - self.max_val)
        self.min_val, self.max_val = least, greatest


class MovingAverageMinMaxObserver(_Moving):
    """A moving average of the least and the greatest."""


class _PerChannel(MinMaxObserver):
    def __init__(self, ch_axis: int = 0, dtype: Any = quint8, qscheme: Any = per_channel_affine, *args: Any, **kwargs: Any):
        self.__dict__["ch_axis"] = ch_axis
        super().__init__(dtype, qscheme, *args, **kwargs)
        if qscheme not in _CHANNELS:
            raise NotImplementedError(f"{type(self).__name__}'s qscheme only support torch.per_channel_symmetric and "
                                      "torch.per_channel_affine.")

    def reset_min_max_vals(self) -> None:
        self.register_buffer("min_val", tensor([]))
        self.register_buffer("max_val", tensor([]))

    def _ends(self, x: Tensor) -> tuple[Tensor, Tensor]:
        return x.movedim(self.ch_axis, 0).flatten(1).aminmax(dim=1)

    def _seen(self, least: Tensor, greatest: Tensor) -> None:
        if self.min_val.numel():
            least, greatest = least.minimum(self.min_val), greatest.maximum(self.max_val)
        self.min_val, self.max_val = least, greatest


class PerChannelMinMaxObserver(_PerChannel):
    """The least and the greatest of each channel."""


class MovingAveragePerChannelMinMaxObserver(_PerChannel):
    """A moving average of the least and the greatest of each channel."""

    def __init__(self, averaging_constant: float = 0.01, *args: Any, **kwargs: Any):
        self.__dict__["averaging_constant"] = averaging_constant
        super().__init__(*args, **kwargs)

    _seen = _Moving._seen


default_observer = MinMaxObserver.with_args(quant_min=0, quant_max=127)
default_placeholder_observer = PlaceholderObserver
default_weight_observer = MinMaxObserver.with_args(dtype=qint8, qscheme=per_tensor_symmetric)
default_per_channel_weight_observer = PerChannelMinMaxObserver.with_args(dtype=qint8, qscheme=per_channel_symmetric)
default_dynamic_quant_observer = PlaceholderObserver.with_args(dtype=quint8, quant_min=0, quant_max=255, is_dynamic=True)
