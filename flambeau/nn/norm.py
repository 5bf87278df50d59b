"""Normalization layers."""

from __future__ import annotations

import numbers
from typing import Any

from ..creation.factories import ones, tensor, zeros
from ..ops.core.row import FUNCTIONS
from ..tensors import dtypes as _dtypes
from ..tensors.tensor import Tensor
from . import functional as F
from . import init
from .explain import wrong_size
from .layer import Layer, Spatial, family
from .lazy import LazyModuleMixin
from .module import Module
from .parameter import UninitializedBuffer, UninitializedParameter, learn

__all__ = ["BatchNorm1d", "BatchNorm2d", "BatchNorm3d", "SyncBatchNorm", "LazyBatchNorm1d", "LazyBatchNorm2d",
           "LazyBatchNorm3d", "InstanceNorm1d", "InstanceNorm2d", "InstanceNorm3d", "LazyInstanceNorm1d",
           "LazyInstanceNorm2d", "LazyInstanceNorm3d", "LayerNorm", "GroupNorm", "RMSNorm", "LocalResponseNorm",
           "CrossMapLRN2d"]


def _reset(weight: Tensor | None, bias: Tensor | None) -> None:
    if weight is not None:
        init.ones_(weight)
    if bias is not None:
        init.zeros_(bias)


class _NormBase(Module):
    """What batch and instance normalization share: weight, bias and running statistics per channel."""

    _version = 2
    __constants__ = ["track_running_stats", "momentum", "eps", "num_features", "affine"]

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True):
        super().__init__()
        self.num_features, self.eps, self.momentum = num_features, eps, momentum
        self.affine, self.track_running_stats = affine, track_running_stats
        made = {"device": device, "dtype": dtype}
        learn(self, "weight", num_features if affine else None, **made)
        learn(self, "bias", num_features if affine and bias else None, **made)
        if track_running_stats:
            self.register_buffer("running_mean", zeros(num_features, **made))
            self.register_buffer("running_var", ones(num_features, **made))
            self.register_buffer("num_batches_tracked", tensor(0, dtype=_dtypes.int64, device=device))
        else:
            for name in ("running_mean", "running_var", "num_batches_tracked"):
                self.register_buffer(name, None)
        self.reset_parameters()

    def reset_running_stats(self) -> None:
        if self.track_running_stats:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()

    def reset_parameters(self) -> None:
        self.reset_running_stats()
        _reset(self.weight, self.bias)

    def _check_input_dim(self, input: Tensor) -> None:
        raise NotImplementedError(f"_check_input_dim is not implemented for {type(self).__name__}")

    def _mismatch(self, input: Tensor, name: str) -> str:
        return wrong_size(input, 1, self.num_features, "num_features", name)

    def extra_repr(self) -> str:
        return (f"{self.num_features}, eps={self.eps}, momentum={self.momentum}, affine={self.affine}, "
                f"bias={self.bias is not None}, track_running_stats={self.track_running_stats}")

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        version = local_metadata.get("version", None)
        if (version is None or version < 2) and self.track_running_stats:
            # Before version 2 there was no num_batches_tracked.
            key = prefix + "num_batches_tracked"
            if key not in state_dict:
                own = self.num_batches_tracked
                state_dict[key] = own if own is not None and own.device.type != "meta" else tensor(0, dtype=_dtypes.int64)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)


class _BatchNorm(_NormBase):
    """Normalizes each channel over the batch."""

    _input_dims: tuple[int, ...]

    def __init_subclass__(cls, input_dims: tuple[int, ...] | None = None, **kwargs: Any) -> None:
        super().__init_subclass__(**kwargs)
        if input_dims is not None:
            cls._input_dims = input_dims

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() not in self._input_dims:
            wanted = " or ".join(f"{dims}D" for dims in self._input_dims)
            raise ValueError(f"expected {wanted} input (got {input.dim()}D input)")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        return F.batch_norm(input, *self._arguments())

    def _arguments(self) -> tuple[Any, ...]:
        """What batch_norm takes besides the input; counts the batch."""
        own_stats = self.running_mean is None and self.running_var is None
        factor = 0.0 if self.momentum is None else self.momentum
        if self.training and self.track_running_stats and self.num_batches_tracked is not None:
            self.num_batches_tracked.add_(1)
            if self.momentum is None:  # the mean over all batches so far
                factor = 1.0 / float(self.num_batches_tracked)
        keep = not self.training or self.track_running_stats
        return (self.running_mean if keep else None, self.running_var if keep else None, self.weight, self.bias,
                self.training or own_stats, factor, self.eps)


class BatchNorm1d(_BatchNorm, input_dims=(2, 3)):
    """Batch normalization of (batch, channels) or (batch, channels, length).

    Shapes: (batch, num_features) or (batch, num_features, length), kept.

    >>> layer = nn.BatchNorm1d(3)
    >>> layer(torch.randn(10, 3)).mean().abs() < 1e-5
    tensor(True)
    >>> layer.running_mean.shape
    torch.Size([3])
    """


class BatchNorm2d(_BatchNorm, input_dims=(4,)):
    """Batch normalization of (batch, channels, height, width).

    Shapes: (batch, num_features, height, width), kept.

    >>> nn.BatchNorm2d(3)(torch.randn(4, 3, 8, 8)).shape
    torch.Size([4, 3, 8, 8])
    """


class BatchNorm3d(_BatchNorm, input_dims=(5,)):
    """Batch normalization of (batch, channels, depth, height, width).

    Shapes: (batch, num_features, depth, height, width), kept.

    >>> nn.BatchNorm3d(3)(torch.randn(2, 3, 4, 4, 4)).shape
    torch.Size([2, 3, 4, 4, 4])
    """


class SyncBatchNorm(_BatchNorm):
    """Batch normalization over the batches of all processes of a group; of the own batch where there is no group.

    >>> nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(nn.BatchNorm1d(3)))
    Sequential(
      (0): SyncBatchNorm(3, eps=1e-05, momentum=0.1, affine=True, bias=True, track_running_stats=True)
    )
    """

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, process_group: Any = None, device: Any = None, dtype: Any = None, *,
                 bias: bool = True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)
        self.process_group = process_group

    def _check_input_dim(self, input: Tensor) -> None:
        if input.dim() < 2:
            raise ValueError(f"expected at least 2D input (got {input.dim()}D input)")

    def _check_non_zero_input_channels(self, input: Tensor) -> None:
        if input.size(1) == 0:
            raise ValueError("SyncBatchNorm number of input channels should be non-zero")

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        self._check_non_zero_input_channels(input)
        if self.training:
            from .. import distributed as dist
            if dist.is_initialized() and dist.get_world_size(self.process_group) > 1:
                from .parallel.sync_batchnorm import normalize
                return normalize(self, input)
        return F.batch_norm(input, *self._arguments())

    @classmethod
    def convert_sync_batchnorm(cls, module: Module, process_group: Any = None) -> Module:
        """The module with every BatchNorm layer in it replaced by a SyncBatchNorm of the same parameters."""
        made = module
        if isinstance(module, _BatchNorm):
            made = cls(module.num_features, module.eps, module.momentum, module.affine, module.track_running_stats,
                       process_group, bias=module.bias is not None)
            if module.affine:
                made.weight = module.weight
                if module.bias is not None:
                    made.bias = module.bias
            made.running_mean, made.running_var = module.running_mean, module.running_var
            made.num_batches_tracked = module.num_batches_tracked
            made.training = module.training
            if hasattr(module, "qconfig"):
                made.qconfig = module.qconfig
        for name, child in module.named_children():
            made.add_module(name, cls.convert_sync_batchnorm(child, process_group))
        return made


# ----------------------------------------------------------------------------------------------------------- instance
class _InstanceNorm(Spatial, _NormBase):
    """Normalizes each channel of each sample by itself."""

    def __init__(self, num_features: int, eps: float = 1e-5, momentum: float = 0.1, affine: bool = False,
                 track_running_stats: bool = False, device: Any = None, dtype: Any = None, *, bias: bool = True):
        super().__init__(num_features, eps, momentum, affine, track_running_stats, device, dtype, bias=bias)

    def _check_input_dim(self, input: Tensor) -> None:
        d = self._get_no_batch_dim()
        if input.dim() not in (d, d + 1):
            raise ValueError(f"expected {d}D or {d + 1}D input (got {input.dim()}D input)")

    def _mismatch(self, input: Tensor, name: str) -> str:
        return wrong_size(input, -(self._dims + 1), self.num_features, "num_features", name)

    def _get_no_batch_dim(self) -> int:
        return self._dims + 1

    def _handle_no_batch_input(self, input: Tensor) -> Tensor:
        return self._apply_instance_norm(input.unsqueeze(0)).squeeze(0)

    def _apply_instance_norm(self, input: Tensor) -> Tensor:
        return F.instance_norm(input, self.running_mean, self.running_var, self.weight, self.bias,
                               self.training or not self.track_running_stats,
                               self.momentum if self.momentum is not None else 0.0, self.eps)

    def forward(self, input: Tensor) -> Tensor:
        self._check_input_dim(input)
        dim = input.dim() - self._get_no_batch_dim()
        if input.size(dim) != self.num_features:
            if self.affine:
                raise ValueError(f"expected input's size at dim={dim} to match num_features ({self.num_features}), but "
                                 f"got: {input.size(dim)}.")
            import warnings
            warnings.warn(f"input's size at dim={dim} does not match num_features. You can silence this warning by not "
                          "passing in num_features, which is not used because affine=False", stacklevel=2)
        return self._handle_no_batch_input(input) if dim == 0 else self._apply_instance_norm(input)

    def _load_from_state_dict(self, state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs):
        version = local_metadata.get("version", None)
        if version is None and not self.track_running_stats:
            # Once these layers always saved running statistics: such files would load something that is not used.
            stale = [prefix + name for name in ("running_mean", "running_var") if prefix + name in state_dict]
            if stale:
                error_msgs.append(f"Unexpected running stats buffer(s) {' and '.join(repr(k) for k in stale)} for "
                                  f"{type(self).__name__} with track_running_stats=False. If state_dict is a "
                                  "checkpoint saved before 0.4.0, this may be expected; remove these keys from it.")
                for key in stale:
                    state_dict.pop(key)
        super()._load_from_state_dict(state_dict, prefix, local_metadata, strict, missing_keys, unexpected_keys, error_msgs)


InstanceNorm1d, InstanceNorm2d, InstanceNorm3d = family(
    "InstanceNorm{n}d", lambda n: (_InstanceNorm,),
    """Instance normalization of (batch, channels, {size}) or (channels, {size}).

    Shapes: (batch, num_features, {size}), kept.

    >>> nn.InstanceNorm{n}d(3)(torch.randn(2, 3, {times[4]})).shape
    torch.Size([2, 3, {times[4]}])
    """)


# --------------------------------------------------------------------------------------------------------------- lazy
class _LazyNormBase(LazyModuleMixin, _NormBase):
    """num_features come with the first input."""

    def __init__(self, eps: float = 1e-5, momentum: float | None = 0.1, affine: bool = True,
                 track_running_stats: bool = True, device: Any = None, dtype: Any = None, *, bias: bool = True):
        made = {"device": device, "dtype": dtype}
        super().__init__(0, eps, momentum, False, False, **made)  # no parameters yet
        self.affine, self.track_running_stats = affine, track_running_stats
        if affine:
            self.weight = UninitializedParameter(**made)
            if bias:
                self.bias = UninitializedParameter(**made)
        if track_running_stats:
            self.running_mean = UninitializedBuffer(**made)
            self.running_var = UninitializedBuffer(**made)
            self.num_batches_tracked = tensor(0, dtype=_dtypes.int64, device=device)

    def reset_parameters(self) -> None:
        if not self.has_uninitialized_params() and self.num_features != 0:
            super().reset_parameters()

    def initialize_parameters(self, input: Tensor) -> None:
        if not self.has_uninitialized_params():
            return
        self.num_features = input.shape[1]
        for held in (self.weight, self.bias) if self.affine else ():
            if held is not None:
                held.materialize((self.num_features,))
        if self.track_running_stats:
            self.running_mean.materialize((self.num_features,))
            self.running_var.materialize((self.num_features,))
        self.reset_parameters()


LazyBatchNorm1d, LazyBatchNorm2d, LazyBatchNorm3d = family(
    "LazyBatchNorm{n}d", lambda n: (_LazyNormBase, (BatchNorm1d, BatchNorm2d, BatchNorm3d)[n - 1]),
    """BatchNorm{n}d whose num_features come with the first input.

    >>> nn.LazyBatchNorm{n}d()(torch.randn(2, 3, {times[4]})).shape
    torch.Size([2, 3, {times[4]}])
    """, options=lambda n: {})
LazyInstanceNorm1d, LazyInstanceNorm2d, LazyInstanceNorm3d = family(
    "LazyInstanceNorm{n}d", lambda n: (_LazyNormBase, (InstanceNorm1d, InstanceNorm2d, InstanceNorm3d)[n - 1]),
    """InstanceNorm{n}d whose num_features come with the first input.

    >>> nn.LazyInstanceNorm{n}d()(torch.randn(2, 3, {times[4]})).shape
    torch.Size([2, 3, {times[4]}])
    """)


# -------------------------------------------------------------------------------------------------- layer, group, rms
def _shape(value: Any) -> tuple[int, ...]:
    return (value,) if isinstance(value, numbers.Integral) else tuple(value)


def _wrong_last(wanted: tuple[int, ...], input: Tensor, name: str) -> str:
    """What to say of an input whose last dimensions are not those that are normalized."""
    got = tuple(input.shape[max(input.ndim - len(wanted), 0):])
    if got == tuple(wanted):
        return ""
    write = got[0] if len(got) == 1 else got
    return (f"Its input has shape {list(input.shape)}, which ends in {list(got)} and should end in {list(wanted)} "
            f"(normalized_shape). Write normalized_shape={write} where `{name}` is made, or give it an input that ends so.")


class LayerNorm(Module):
    """Normalizes each sample over its last dimensions.

    Shapes: (*, normalized_shape), kept.

    >>> x = torch.tensor([[1.0, 2.0, 3.0]])
    >>> nn.LayerNorm(3)(x).detach()
    tensor([[-1.2247,  0.0000,  1.2247]])
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(self, normalized_shape: Any, eps: float = 1e-5, elementwise_affine: bool = True, bias: bool = True,
                 device: Any = None, dtype: Any = None):
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _shape(normalized_shape), eps, elementwise_affine
        learn(self, "weight", self.normalized_shape if elementwise_affine else None, device, dtype)
        learn(self, "bias", self.normalized_shape if elementwise_affine and bias else None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.layer_norm(input, self.normalized_shape, self.weight, self.bias, self.eps)

    def _mismatch(self, input: Tensor, name: str) -> str:
        return _wrong_last(self.normalized_shape, input, name)

    def extra_repr(self) -> str:
        return (f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}, "
                f"bias={self.bias is not None}")


class GroupNorm(Module):
    """Normalizes each sample over groups of its channels.

    Shapes: (batch, num_channels, *), kept.

    >>> nn.GroupNorm(2, 6)(torch.randn(4, 6, 8, 8)).shape
    torch.Size([4, 6, 8, 8])
    """

    __constants__ = ["num_groups", "num_channels", "eps", "affine"]

    def __init__(self, num_groups: int, num_channels: int, eps: float = 1e-5, affine: bool = True, device: Any = None,
                 dtype: Any = None, *, bias: bool = True):
        super().__init__()
        if num_groups <= 0:
            raise ValueError(f"num_groups must be positive, got {num_groups}")
        if num_channels % num_groups != 0:
            raise ValueError(f"num_channels ({num_channels}) must be divisible by num_groups ({num_groups})")
        self.num_groups, self.num_channels, self.eps, self.affine = num_groups, num_channels, eps, affine
        learn(self, "weight", num_channels if affine else None, device, dtype)
        learn(self, "bias", num_channels if affine and bias else None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _reset(self.weight, self.bias)

    def forward(self, input: Tensor) -> Tensor:
        return F.group_norm(input, self.num_groups, self.weight, self.bias, self.eps)

    def _mismatch(self, input: Tensor, name: str) -> str:
        return wrong_size(input, 1, self.num_channels, "num_channels", name)

    def extra_repr(self) -> str:
        return (f"{self.num_groups}, {self.num_channels}, eps={self.eps}, affine={self.affine}, bias={self.bias is not None}")


class RMSNorm(Module):
    """Divides each sample by the root of its mean square over the last dimensions.

    Shapes: (*, normalized_shape), kept.

    >>> nn.RMSNorm(2)(torch.tensor([[3.0, 4.0]])).detach()
    tensor([[0.8485, 1.1314]])
    """

    __constants__ = ["normalized_shape", "eps", "elementwise_affine"]

    def __init__(self, normalized_shape: Any, eps: float | None = None, elementwise_affine: bool = True,
                 device: Any = None, dtype: Any = None):
        super().__init__()
        self.normalized_shape, self.eps, self.elementwise_affine = _shape(normalized_shape), eps, elementwise_affine
        learn(self, "weight", self.normalized_shape if elementwise_affine else None, device, dtype)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        _reset(self.weight, None)

    def forward(self, x: Tensor) -> Tensor:
        return F.rms_norm(x, self.normalized_shape, self.weight, self.eps)

    def _mismatch(self, input: Tensor, name: str) -> str:
        return _wrong_last(self.normalized_shape, input, name)

    def extra_repr(self) -> str:
        return f"{self.normalized_shape}, eps={self.eps}, elementwise_affine={self.elementwise_affine}"


# ---------------------------------------------------------------------------------------------------- across channels
class LocalResponseNorm(Layer, function=F.local_response_norm):
    """Divides by a power of the mean square over neighbouring channels.

    Shapes: (batch, channels, *), kept.

    >>> nn.LocalResponseNorm(2)(torch.randn(4, 6, 8, 8)).shape
    torch.Size([4, 6, 8, 8])
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1.0

    def extra_repr(self) -> str:
        return f"{self.size}, alpha={self.alpha}, beta={self.beta}, k={self.k}"


class CrossMapLRN2d(Layer):
    """LocalResponseNorm over a window that is centred on the channel, as Torch7 had it.

    Shapes: (batch, channels, height, width), kept.

    >>> nn.CrossMapLRN2d(2)(torch.randn(4, 6, 8, 8)).shape
    torch.Size([4, 6, 8, 8])
    """

    size: int
    alpha: float = 1e-4
    beta: float = 0.75
    k: float = 1
    extra_repr = LocalResponseNorm.extra_repr

    def forward(self, input: Tensor) -> Tensor:
        if input.dim() != 4:
            raise ValueError(f"CrossMapLRN2d: Expected input to be 4D, got {input.dim()}D instead.")
        cat = FUNCTIONS["cat"]
        first = min(int((self.size - 1) / 2 + 1), input.size(1))
        reach = first - 1
        squares = input.pow(2)
        total = squares
        for away in range(1, reach + 1):
            rest = input.size(1) - away
            none = squares.new_zeros((input.size(0), away, *input.shape[2:]))
            total = total + cat([squares.narrow(1, away, rest), none], 1)
            total = total + cat([none, squares.narrow(1, 0, rest)], 1)
        if first < input.size(1):  # PyTorch's running sum never lets go of channel 0; models were trained with that
            none = squares.new_zeros((input.size(0), first, *input.shape[2:]))
            total = total + cat([none, squares[:, :1].expand(-1, input.size(1) - first, -1, -1)], 1)
        return input * (total * (self.alpha / self.size) + self.k).pow(-self.beta)
