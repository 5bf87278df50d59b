"""Batch, layer, group and instance normalization, RMS norm and local response normalization.

The gradients for input, weight and bias come from one kernel call. Where the gradient itself is to be differentiated it is
written out with tensor operations instead.
"""

from __future__ import annotations

import math
from typing import Any

from ...autograd.modes import no_grad
from ...autograd.state import CAPTURE, FOLLOW, NO_GRAD, state
from ...backends import registry
from ...backends.cpu.layers import normalization as _kernels
from ...tensors import dtypes as _dtypes
from ...tensors.parameter import Parameter
from ...tensors.tensor import Tensor, wrap
from ..core.generate_calls import stands_for
from ..core.row import CPU_ONLY, FUNCTIONS, _type_word, public, row, run, wrapped
from ..fast_calls import ordinary_floats
from ..rules import layers
from .layouts import channels_last_of, contiguous_copy, dense_channels_last, laid_out

ndarray = registry.CPU_ARRAY
_OURS = frozenset((Tensor, Parameter))
row("batch_norm_grad", "grad_output input weight mean invstd training needs", shape=layers.batch_norm_grad, images="takes")
row("layer_norm_grad", "grad_output input dims mean rstd weight needs", shape=layers.layer_norm_grad)
row("rms_norm_grad", "grad_output input dims rstd weight needs", batch="layer_norm_grad", shape=layers.rms_norm_grad)
row("group_norm_grad", "grad_output input group mean rstd weight needs", shape=layers.group_norm_grad)


# What is normalized has mean 0 and deviation 1 over `dims` (None: by fixed statistics), before weight and bias.
def _input_grad(weighted: Tensor, normal: Tensor, rstd: Tensor, dims: Any) -> Tensor:
    if dims is None:
        return weighted * rstd
    return rstd * (weighted - weighted.mean(dims, keepdim=True) - normal * (weighted * normal).mean(dims, keepdim=True))


def _normalized(input: Tensor, dims: Any, eps: float) -> tuple[Tensor, Tensor]:
    """(the input with mean 0 and deviation 1, one over its deviation)."""
    centred = input - input.mean(dims, keepdim=True)
    rstd = ((centred * centred).mean(dims, keepdim=True) + eps).rsqrt()
    return centred * rstd, rstd


# ------------------------------------------------------------------------------------------------------ batch norm
def _others(x: Tensor) -> tuple[int, ...]:
    """All dimensions but that of the channels."""
    return (0, *range(2, x.ndim))


def _spread(t: Tensor, like: Tensor) -> Tensor:
    return t.reshape(1, -1, *(1,) * (like.ndim - 2))


def _batch_normal(input, running_mean, running_var, training, eps):
    if training:
        return _normalized(input, _others(input), eps)
    rstd = (_spread(running_var, input) + eps).rsqrt()
    return (input - _spread(running_mean, input)) * rstd, rstd


def _batch_input(grad, input, weight, running_mean, running_var, training, eps):
    normal, rstd = _batch_normal(input, running_mean, running_var, training, eps)
    weighted = grad if weight is None else grad * _spread(weight, input)
    return _input_grad(weighted, normal, rstd, _others(input) if training else None)


def _batch_weight(grad, input, running_mean, running_var, training, eps):
    normal, _ = _batch_normal(input, running_mean, running_var, training, eps)
    return (grad * normal).sum(_others(input))


def _batch_fused(grad, input, weight, running_mean, running_var, training, eps, result1, result2, needs):
    mean, rstd = (result1, result2) if training else (running_mean, (running_var + eps).rsqrt())
    made = run("batch_norm_grad", (grad._array, input._array, None if weight is None else weight._array, mean._array,
                                   rstd._array, training, needs))
    return [wrapped(m) for m in made]


_batch_norm = row(
    "native_batch_norm", "input weight bias running_mean! running_var! training momentum eps", shape=layers.batch_norm,
    kernel="batch_norm", writes="running_mean running_var", constant=(1, 2), images="takes",
    fused={"input weight bias": _batch_fused},
    backward=dict(input=_batch_input, weight=_batch_weight, bias=lambda grad: grad.sum(_others(grad))))


def _check_size(name: str, value: Any, channels: int) -> None:
    if value is not None and tuple(value.shape) != (channels,):
        raise RuntimeError(f"{name} should contain {channels} elements not {value.numel()}")


def _empty_batch(input: Tensor, weight: Any, bias: Any) -> tuple[Tensor, Tensor, Tensor]:
    made = input.clone()
    if weight is not None:
        made = made * weight[0]
    if bias is not None:
        made = made + bias[0]
    return made, input.new_zeros(0), input.new_zeros(0)


def _run_batch_norm(input: Tensor, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool,
                    momentum: float, eps: float) -> tuple[Tensor, Tensor, Tensor]:
    if not isinstance(input, Tensor):
        raise TypeError(f"batch_norm(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if not input.numel():
        return _empty_batch(input, weight, bias)
    if input.ndim < 2:
        raise RuntimeError(f"batch_norm: expected an input of at least 2 dimensions, got {list(input.shape)}")
    if not input.is_floating_point():
        raise NotImplementedError(f"\"batch_norm\" not implemented for '{_type_word(input.dtype)}'")
    if input._tangent is not None and any(t is not None and t._tangent is not None for t in (running_mean, running_var)):
        raise RuntimeError("batch_norm is not differentiable wrt running_mean and running_var, they cannot have forward grad "
                           "defined")
    channels = input.shape[1]
    if not training and (running_mean is None or running_var is None):
        raise RuntimeError("running_mean and running_var must be defined in evaluation mode")
    for name, value in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        _check_size(name, value, channels)
    if not input._array.flags.c_contiguous and registry.backend_of(input._array).NAME != "cuda" and (
            name := dense_channels_last(input)) is not None:  # that device's kernel takes them as they are
        made = _run_batch_norm(contiguous_copy(input, name), weight, bias, running_mean, running_var, training, momentum, eps)
        return laid_out(made[0], name), *made[1:]
    # As in PyTorch the update of the running statistics does not count as an in-place change: the next forward pass may
    # come before this one's backward.
    return _batch_norm(input, weight, bias, running_mean, running_var, training, float(momentum), float(eps))


@public(method=False, toplevel=False, name="batch_norm", out=False)
def _any_batch_norm(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None, weight: Tensor | None = None,
               bias: Tensor | None = None, training: bool = False, momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias per channel; in training with the batch's own statistics."""
    if training and input.ndim > 1 and input.numel() == input.shape[1]:
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {input.shape}")
    if training and eps <= 0:
        raise ValueError(f"batch_norm eps must be positive during training, but got {eps}")
    return _run_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


@stands_for(_any_batch_norm, method=False, toplevel=False)
def batch_norm(*args, **kwargs):
    mode = state.mode
    if not kwargs and len(args) == 8 and args[5] is True and ordinary_floats(args[0], mode):
        input, mean, var, weight, bias, _, momentum, eps = args
        x = input._array
        if _per_channel(x, (weight, bias, mean, var)) and momentum.__class__ is float is eps.__class__ and eps > 0:
            given = x, weight._array, bias._array, mean._array, var._array, True, momentum, eps
            made = _kernels.batch_norm(*given) if mode < 2 else state.follower.call("batch_norm", given)
            return _batch_norm.first(mode & NO_GRAD, made, input, weight, bias, mean, var, True, momentum, eps)
    return _any_batch_norm(*args, **kwargs)


def _per_channel(x: Any, others: tuple[Any, ...]) -> bool:
    """Whether all others are plain tensors of one number per channel of a contiguous batch with several values for each."""
    if x.ndim < 2 or not x.flags.c_contiguous or x.size == x.shape[1]:
        return False
    known, shape, dtype = registry.FOLLOWABLE if state.mode > 1 else CPU_ONLY, x.shape[1:2], x.dtype
    for t in others:
        if t.__class__ not in _OURS or t._array.shape != shape or t._array.dtype is not dtype or type(t._array) not in known:
            return False
    return True


@public(method=False, name="batch_norm", out=False)
def _batch_norm_top(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
                    running_var: Tensor | None, training: bool, momentum: float, eps: float,
                    cudnn_enabled: bool = True) -> Tensor:
    """torch.batch_norm: the arguments in another order than in nn.functional."""
    return _run_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)[0]


@public(method=False, out="exact")
def native_batch_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
                      running_var: Tensor | None, training: bool, momentum: float, eps: float) -> Any:
    """(result, mean, 1 / deviation).

    >>> x = torch.tensor([[1.0], [3.0]])
    >>> torch.native_batch_norm(x, None, None, None, None, True, 0.1, 0.0)
    (tensor([[-1.],
            [ 1.]]), tensor([2.]), tensor([1.]))
    """
    return _run_batch_norm(input, weight, bias, running_mean, running_var, training, momentum, eps)


@public(method=False)
def batch_norm_update_stats(input: Tensor, running_mean: Tensor | None, running_var: Tensor | None,
                            momentum: float) -> tuple[Tensor, Tensor]:
    """(mean, variance) per channel of a batch, which also go into the running statistics.

    >>> mean, variance = torch.zeros(2), torch.ones(2)
    >>> torch.batch_norm_update_stats(torch.tensor([[1.0, 2.0], [3.0, 6.0]]), mean, variance, 0.1)
    (tensor([2., 4.]), tensor([1., 4.]))
    >>> mean
    tensor([0.2000, 0.4000])
    """
    if not input.numel():
        raise RuntimeError(f"input tensor must have at least one element, but got input_sizes = {list(input.shape)}")
    dims = tuple([d for d in range(input.ndim) if d != 1])
    with no_grad():
        var, mean = FUNCTIONS["var_mean"](input, dims, correction=0)
        count = input.numel() // input.shape[1]
        for running, batch in ((running_mean, mean), (running_var, var * (count / max(count - 1, 1)))):
            if running is not None:
                running.mul_(1 - momentum).add_(batch, alpha=momentum)
    return mean, var


# --------------------------------------------------------------------------------------------------- instance norm
def _instance_norm(input: Tensor, running_mean: Any, running_var: Any, weight: Any, bias: Any, use_input_stats: bool,
                   momentum: float, eps: float) -> Tensor:
    """Batch norm in which every sample's channel is a channel of its own."""
    if not use_input_stats and (running_mean is None or running_var is None):
        raise RuntimeError("Expected running_mean and running_var to be defined when use_input_stats is false")
    n, c = input.shape[:2]
    for name, value in (("running_mean", running_mean), ("running_var", running_var), ("weight", weight), ("bias", bias)):
        _check_size(name, value, c)
    many = lambda t: None if t is None else t.repeat(n)
    mean, var = many(running_mean), many(running_var)
    made = _run_batch_norm(input.contiguous().view(1, n * c, *input.shape[2:]), many(weight), many(bias), mean, var,
                           use_input_stats, momentum, eps)[0]
    if use_input_stats and running_mean is not None:
        running_mean.detach().copy_(mean.view(n, c).mean(0))
    if use_input_stats and running_var is not None:
        running_var.detach().copy_(var.view(n, c).mean(0))
    return made.view(input.shape)


@public(method=False, toplevel=False, name="instance_norm", out=False)
def instance_norm(input: Tensor, running_mean: Tensor | None = None, running_var: Tensor | None = None,
                  weight: Tensor | None = None, bias: Tensor | None = None, use_input_stats: bool = True,
                  momentum: float = 0.1, eps: float = 1e-5) -> Tensor:
    """Normalizes each channel of each sample by itself."""
    if use_input_stats and input.ndim > 2 and math.prod(input.shape[2:]) == 1:
        raise ValueError(f"Expected more than 1 spatial element when training, got input size {input.shape}")
    return _instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


@public(method=False, name="instance_norm", out=False)
def _instance_norm_top(input: Tensor, weight: Tensor | None, bias: Tensor | None, running_mean: Tensor | None,
                       running_var: Tensor | None, use_input_stats: bool, momentum: float, eps: float,
                       cudnn_enabled: bool = True) -> Tensor:
    """torch.instance_norm: the arguments in another order than in nn.functional."""
    return _instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)


# ------------------------------------------------------------------------------------------------------ layer norm
def _last(shape: Any) -> tuple[int, ...]:
    return tuple(range(-len(shape), 0))


def _summed(x: Tensor, dims: int) -> Tensor:
    """The sum over all but the last dimensions."""
    return x.sum(tuple(range(x.ndim - dims))) if x.ndim > dims else x


def _layer_input(grad, input, normalized_shape, weight, eps):
    normal, rstd = _normalized(input, _last(normalized_shape), eps)
    return _input_grad(grad if weight is None else grad * weight, normal, rstd, _last(normalized_shape))


def _layer_weight(grad, input, normalized_shape, eps):
    return _summed(grad * _normalized(input, _last(normalized_shape), eps)[0], len(normalized_shape))


_layer_norm = row(
    "native_layer_norm", "input normalized_shape weight bias eps", shape=layers.layer_norm_shaped, kernel="layer_norm_shaped",
    cheap=True, batch="layer_norm", constant=(1, 2),
    backward=dict(input=_layer_input, weight=_layer_weight,
                  bias=lambda grad, normalized_shape, bias: _summed(grad, len(normalized_shape))),
    fused={"input weight bias":
           "layer_norm_grad(grad, input, len(normalized_shape), result1, result2, weight, needs)"})


@public(method=False)
def native_layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None, bias: Tensor | None,
                      eps: float) -> Any:
    """(result, mean, 1 / deviation)."""
    shape = _checked_shape("layer_norm", input, normalized_shape, weight, bias)
    if not input.is_floating_point():
        raise NotImplementedError(f"\"LayerNormKernelImpl\" not implemented for '{_type_word(input.dtype)}'")
    return _layer_norm(input, shape, weight, bias, float(eps))


def _checked_shape(name: str, input: Any, normalized_shape: Any, weight: Any, bias: Any) -> tuple[int, ...]:
    if normalized_shape.__class__ is tuple and normalized_shape and isinstance(input, Tensor) and input._array.shape[
            -len(normalized_shape):] == normalized_shape and (
            weight is None or weight._array.shape == normalized_shape) and (
            bias is None or bias._array.shape == normalized_shape):
        return normalized_shape  # the usual case in one look
    if not isinstance(input, Tensor):
        raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if isinstance(normalized_shape, int):
        raise TypeError(f"{name}(): argument 'normalized_shape' (position 2) must be tuple of ints, not int")
    shape = tuple([int(n) for n in normalized_shape])
    if not shape:
        raise RuntimeError(f"Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one element, "
                           f"but got normalized_shape = {list(shape)}")
    for label, value in (("weight", weight), ("bias", bias)):
        if value is not None and tuple(value.shape) != shape:
            raise RuntimeError(f"Expected {label} to be of same shape as normalized_shape, but got {label} of shape "
                               f"{list(value.shape)} and normalized_shape = {list(shape)}")
    if tuple(input.shape[max(0, input.ndim - len(shape)):]) != shape:
        raise RuntimeError(f"Given normalized_shape={list(shape)}, expected input with shape "
                           f"[*, {', '.join(str(n) for n in shape)}], but got input of size{list(input.shape)}")
    return shape


def _any_layer_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, bias: Tensor | None = None,
                    eps: float = 1e-5, cudnn_enable: bool = True) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, with statistics over the last dimensions of each sample."""
    shape = _checked_shape("layer_norm", input, normalized_shape, weight, bias)
    if input._array.dtype.char not in "fd":
        return native_layer_norm(input, shape, weight, bias, eps)[0]
    return _layer_norm(input, shape, weight, bias, float(eps))[0]


_any_layer_norm = public(_any_layer_norm, method=False, out=False, name="layer_norm")


@stands_for(_any_layer_norm, method=False)
def layer_norm(*args, **kwargs):
    mode = state.mode
    if not kwargs and 3 < len(args) < 6 and ordinary_floats(args[0], mode):
        input, shape, weight, bias = args if len(args) == 4 else args[:4]
        eps = args[4] if len(args) == 5 else 1e-5
        x = input._array
        if weight.__class__ in _OURS and bias.__class__ in _OURS and shape.__class__ is tuple and eps.__class__ is float:
            w, b = weight._array, bias._array
            if shape and w.shape == shape == b.shape == x.shape[-len(shape):] and w.dtype is x.dtype is b.dtype and (
                    type(w) in (known := CPU_ONLY if mode < 2 else registry.FOLLOWABLE) and type(b) in known):
                if mode > 1:
                    made = state.follower.call("layer_norm", (x, len(shape), w, b, eps))
                elif mode == 0 and (input._node is not None or weight._node is not None or bias._node is not None
                                    or input._counter is not None or weight._counter is not None
                                    or bias._counter is not None):
                    made = _kernels.layer_norm(x, len(shape), w, b, eps)
                else:
                    return wrap(_kernels.layer_norm_only(x, len(shape), w, b, eps))
                return _layer_norm.first(mode & NO_GRAD, made, input, shape, weight, bias, eps)
    return _any_layer_norm(*args, **kwargs)


def _rms_normal(input: Tensor, dims: int, eps: float) -> tuple[Tensor, Tensor]:
    if input.dtype.itemsize < 4:
        input = input.to(_dtypes.float32)  # the engine rounds the gradient
    rstd = ((input * input).mean(tuple(range(-dims, 0)), keepdim=True) + eps).rsqrt()
    return input * rstd, rstd


def _rms_input(grad, input, dims, weight, eps):
    normal, rstd = _rms_normal(input, dims, eps)
    weighted = grad if weight is None else grad * weight
    return rstd * (weighted - normal * (weighted * normal).mean(tuple(range(-dims, 0)), keepdim=True))


def _rms_weight(grad, input, dims, eps):
    return _summed(grad * _rms_normal(input, dims, eps)[0], dims)


_rms_norm = row(
    "fused_rms_norm", "input dims weight eps", shape=layers.rms_norm, kernel="rms_norm", cheap=True, constant=(1,),
    node="MulBackward0",
    backward=dict(input=_rms_input, weight=_rms_weight),
    fused={"input weight": "rms_norm_grad(grad, input, dims, result1, weight, needs)"})


@public(method=False, out=False)
def rms_norm(input: Tensor, normalized_shape: Any, weight: Tensor | None = None, eps: float | None = None) -> Tensor:
    """x / sqrt(mean(x * x) + eps) * weight over the last dimensions."""
    shape = _checked_shape("rms_norm", input, normalized_shape, weight, None)
    if not input._array.flags.c_contiguous and (name := channels_last_of(input)) is not None:
        return laid_out(rms_norm(contiguous_copy(input, name), normalized_shape, weight, eps), name)
    half = input.dtype.is_floating_point and input.dtype.itemsize < 4
    if eps is None:
        eps = _dtypes.finfo(_dtypes.float32 if half else input.dtype.to_real() if input.is_complex() else input.dtype).eps
    if state.mode & ~(CAPTURE | FOLLOW) < 2 and input._array.dtype.char in "fdeE" and input.numel() and (
            weight is None or weight._array.dtype is input._array.dtype) and (not half or type(input._array) is ndarray):
        return _rms_norm(input, len(shape), weight, float(eps))[0]
    x = input.to(_dtypes.float32) if half else input
    dims = tuple(range(-len(shape), 0))
    made = x * (x.pow(2).mean(dims, keepdim=True) + eps).rsqrt()
    if half:
        if weight is not None and weight.dtype is input.dtype:
            return (made * weight.to(_dtypes.float32)).to(input.dtype)
        made = made.to(input.dtype)
    return made if weight is None else made * weight


# ------------------------------------------------------------------------------------------------------ group norm
def _grouped(t: Tensor, group: int) -> Tensor:
    n, c = t.shape[:2]
    return t.reshape(n, group, c // group, math.prod(t.shape[2:]))


def _group_input(grads, input, weight, group, eps):
    """From the gradients of the result, the mean and the inverse deviation; as in PyTorch the latter two count only where all
    three are there."""
    grad, of_mean, of_rstd = grads
    if grad is None:
        return None
    normal, rstd = _normalized(_grouped(input, group), (2, 3), eps)
    weighted = _grouped(grad, group)
    if weight is not None:
        weighted = weighted * weight.reshape(1, group, -1, 1)
    made = _input_grad(weighted, normal, rstd, (2, 3)).reshape(input.shape)
    if of_mean is None or of_rstd is None:
        return made
    return made + _statistics_grad(of_mean, of_rstd, input, group, eps)


def _group_weight(grads, input, group, eps):
    if grads[0] is None:
        return None
    normal, _ = _normalized(_grouped(input, group), (2, 3), eps)
    return (_grouped(grads[0], group) * normal).sum((0, 3)).reshape(-1)


def _group_fused(grads, input, weight, group, eps, result1, result2, needs):
    grad, of_mean, of_rstd = grads
    if grad is None:
        return [None] * 3
    made = [wrapped(m) for m in run("group_norm_grad", (
        grad._array, input._array, group, result1._array, result2._array, None if weight is None else weight._array, needs))]
    if needs[0] and of_mean is not None and of_rstd is not None:
        made[0] = made[0] + _statistics_grad(of_mean, of_rstd, input, group, eps)
    return made


def _statistics_grad(of_mean: Tensor, of_rstd: Tensor, input: Tensor, group: int, eps: float) -> Tensor:
    x = input.reshape(input.shape[0], group, -1)
    normal, rstd = _normalized(x, (2,), eps)
    share = of_mean.to(input.dtype).unsqueeze(-1) - of_rstd.to(input.dtype).unsqueeze(-1) * rstd ** 2 * normal
    return (share / x.shape[2]).expand(x.shape).reshape(input.shape)


_group_norm = row(
    "native_group_norm", "input group weight bias eps", takes="f", shape=layers.group_norm, kernel="group_norm",
    fused={"input weight bias": _group_fused}, backward=dict(
        input=_group_input, weight=_group_weight,
        bias=lambda grads: None if grads[0] is None else grads[0].sum(_others(grads[0]))))


@public(method=False, out=False)
def group_norm(input: Tensor, num_groups: int, weight: Tensor | None = None, bias: Tensor | None = None,
               eps: float = 1e-5,
               cudnn_enabled: bool = True) -> Tensor:
    """(x - mean) / sqrt(var + eps) * weight + bias, with statistics over num_groups groups of channels."""
    shape = input.shape
    if len(shape) < 2:
        raise RuntimeError(f"Expected at least 2 dimensions for input tensor but received {input.ndim}")
    channels = shape[1]
    if num_groups <= 0:
        raise RuntimeError(f"Expected num groups to be greater than 0, got {num_groups}")
    if channels % num_groups:
        raise RuntimeError(f"Expected number of channels in input to be divisible by num_groups, but got input of shape "
                           f"{list(input.shape)} and num_groups={num_groups}")
    if input.numel() == num_groups:
        sizes = [shape[0] * channels // num_groups, num_groups, *shape[2:]]
        raise ValueError(f"Expected more than 1 value per channel when training, got input size {sizes}")
    for label, value in (("weight", weight), ("bias", bias)):
        if value is not None and value.shape != (channels,):
            raise RuntimeError(f"Expected {label} to be a vector of size equal to the number of channels in input, but got "
                               f"{label} of shape {list(value.shape)} and input of shape {list(input.shape)}")
    if not input._array.flags.c_contiguous and (name := channels_last_of(input)) is not None:
        return laid_out(_group_norm(contiguous_copy(input, name), num_groups, weight, bias, float(eps))[0], name)
    return _group_norm(input, num_groups, weight, bias, float(eps))[0]


@public(method=False)
def native_group_norm(input: Tensor, weight: Tensor | None, bias: Tensor | None, N: int, C: int, HxW: int, group: int,
                      eps: float) -> Any:
    """(result, mean, 1 / deviation).

    >>> torch.native_group_norm(torch.tensor([[1.0, 3.0]]), None, None, 1, 2, 1, 1, 0.0)
    (tensor([[-1.,  1.]]), tensor([[2.]]), tensor([[1.]]))
    """
    return _group_norm(input, group, weight, bias, float(eps))


# ------------------------------------------------------------------------------------------ across channels, vectors
@public(method=False, toplevel=False, out=False)
def local_response_norm(input: Tensor, size: int, alpha: float = 1e-4, beta: float = 0.75, k: float = 1.0) -> Tensor:
    """x / (k + alpha * mean of squares over `size` neighbouring channels) ** beta."""
    from .pooling import avg_pool2d, avg_pool3d
    if input.ndim < 3:
        raise ValueError(f"Expected 3D or higher dimensionality input (got {input.ndim} dimensions)")
    if not input.numel():
        return input
    if not input._array.flags.c_contiguous and (name := channels_last_of(input)) is not None:
        return laid_out(local_response_norm(contiguous_copy(input, name), size, alpha, beta, k), name)
    pad = FUNCTIONS["constant_pad_nd"]
    squares = input.mul(input)
    if input.ndim == 3:
        squares = pad(squares.unsqueeze(1), (0, 0, size // 2, (size - 1) // 2))
        mean = avg_pool2d(squares, (size, 1), stride=1).squeeze(1)
    else:
        shape = input.shape
        squares = pad(squares.reshape(shape[0], 1, shape[1], shape[2], -1), (0, 0, 0, 0, size // 2, (size - 1) // 2))
        mean = avg_pool3d(squares, (size, 1, 1), stride=1).squeeze(1).reshape(shape)
    return input / mean.mul(alpha).add(k).pow(beta)


@public(method=False, toplevel=False, out=False)
def normalize(input: Tensor, p: float = 2.0, dim: Any = 1, eps: float = 1e-12, out: Tensor | None = None) -> Tensor:
    """input over its p-norm along dim (at least eps)."""
    size = input.norm(p, dim, keepdim=True).clamp_min(eps).expand_as(input)
    return input / size if out is None else FUNCTIONS["div"](input, size, out=out)
