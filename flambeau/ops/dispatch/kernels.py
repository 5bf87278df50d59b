"""Operations that only PyTorch's dispatcher has names for, on plain tensors; backward.py has those of backward passes."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...tensors.tensor import Tensor
from .backward import derivative


def _torch() -> Any:
    import flambeau
    return flambeau


def _functional() -> Any:
    return _torch().nn.functional


def _index_per_dimension(self: Any, indices: Any) -> tuple[Any, ...]:
    """One index per dimension, where a None stands for all of it: an arange that broadcasts against the others."""
    torch = _torch()
    if all([i is not None for i in indices]):
        return tuple(indices)
    given = torch.arange(self.numel()).view(self.shape)[_whole(indices)]
    return tuple(torch.unravel_index(given, self.shape))


def _whole(indices: Any) -> tuple[Any, ...]:
    return tuple([slice(None) if i is None else i for i in indices])


def _to_copy(self: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
             non_blocking: bool = False, memory_format: Any = None) -> Any:
    return self.to(device=device or self.device, dtype=dtype or self.dtype, copy=True,
                   memory_format=memory_format or _torch().preserve_format)


def _new_empty_strided(self: Any, size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                       pin_memory: Any = None) -> Any:
    return _torch().empty_strided(size, stride, dtype=dtype or self.dtype, device=device or self.device)


def _rsub(self: Any, other: Any, alpha: Any = 1) -> Any:
    return _torch().sub(other, self, alpha=alpha) if isinstance(other, Tensor) else other - self * alpha


def _elu(self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    if scale == 1 and input_scale == 1:
        return _functional().elu(self, alpha)
    return _torch().where(self <= 0, (self * input_scale).expm1() * (alpha * scale), self * scale)


def _elu_(self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    if scale == 1 and input_scale == 1:
        return _functional().elu_(self, alpha)
    return self.copy_(_elu(self, alpha, scale, input_scale))


def _elu_backward(grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, self: Any) -> Any:
    slope = self + alpha * scale if is_result else alpha * scale * (self * input_scale).exp()
    return _torch().where(self <= 0, grad * input_scale * slope, grad * scale)


def _moment(name: str) -> Callable[..., Any]:
    return lambda self, dim=None, *, correction=None, keepdim=False: getattr(_torch(), name)(
        self, dim, correction=1 if correction is None else correction, keepdim=keepdim)


# ------------------------------------------------------------------------------------------------------------- layers
def _convolution_backward(grad: Any, input: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
                          transposed: bool, output_padding: Any, groups: int, mask: Any) -> Any:
    run = functools.partial(_torch().convolution, bias=None, stride=stride, padding=padding, dilation=dilation,
                            transposed=transposed, output_padding=output_padding, groups=groups)
    x, w = derivative(lambda x, w: run(x, w), [input, weight], grad, mask[:2])
    return x, w, grad.sum((0, *range(2, grad.ndim))) if mask[2] else None


def _layer_norm_backward(grad: Any, input: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any) -> Any:
    dims, lead = tuple(range(input.ndim - len(shape), input.ndim)), tuple(range(input.ndim - len(shape)))
    if _recorded(grad, input, weight):  # mean and rstd depend on the input
        eps = _eps(input.var(dims, correction=0, keepdim=True), rstd)
        return tuple(derivative(lambda x, w=None, b=None: _functional().layer_norm(x, tuple(shape), w, b, eps),
                                [input, weight, bias], grad, mask))
    unit = (input - mean) * rstd
    x = _centred(grad if weight is None else grad * weight, unit, dims) * rstd
    return (x if mask[0] else None, _summed(grad * unit, lead) if mask[1] and weight is not None else None,
            _summed(grad, lead) if mask[2] and bias is not None else None)


def _group_norm_backward(grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, N: int, C: int, HxW: int, group: int,
                         mask: Any) -> Any:
    grouped = input.reshape(N, group, -1)
    if _recorded(grad, input, weight):
        bias, eps = None if weight is None else _torch().zeros_like(weight), _eps(grouped.var(2, correction=0), rstd)
        return tuple(derivative(lambda x, w=None, b=None: _functional().group_norm(x, group, w, b, eps), [input, weight, bias],
                                grad, mask))
    unit = (grouped - mean.unsqueeze(2)) * rstd.unsqueeze(2)
    over = (0, *range(2, input.ndim))
    scaled = grad if weight is None else grad * weight.view(1, C, *(1,) * (input.ndim - 2))
    x = _centred(scaled.reshape(N, group, -1), unit, (2,)) * rstd.unsqueeze(2)
    return (x.view(input.shape) if mask[0] else None, (grad * unit.view(input.shape)).sum(over) if mask[1] else None,
            grad.sum(over) if mask[2] else None)


def _centred(grad: Any, unit: Any, dims: tuple[int, ...]) -> Any:
    """What a normalization leaves of a gradient: what neither moves nor stretches the elements."""
    return grad - grad.mean(dims, keepdim=True) - unit * (grad * unit).mean(dims, keepdim=True)


def _recorded(*tensors: Any) -> bool:
    """Whether a derivative of these gradients is recorded: then they have to depend on the tensors."""
    return _torch().is_grad_enabled() and any([t is not None and t.requires_grad for t in tensors])


def _eps(variance: Any, rstd: Any) -> float:
    """The number that a normalization added to the variance: its backward operation is not told."""
    with _torch().no_grad():
        return float((rstd.reshape(variance.shape).double() ** -2 - variance.double()).median().clamp(min=0))


def _summed(x: Any, dims: tuple[int, ...]) -> Any:
    return x.sum(dims) if dims else x


def _pooled(n: int) -> Callable[..., Any]:
    return lambda self, kernel_size, stride=(), *rest: getattr(_functional(), f"max_pool{n}d")(
        self, kernel_size, stride or None, *rest, return_indices=True)


def _averaged(n: int) -> Callable[..., Any]:
    return lambda self, kernel_size, stride=(), *rest: getattr(_functional(), f"avg_pool{n}d")(
        self, kernel_size, stride or None, *rest)


def _adaptive(self: Any, output_size: Any) -> Any:
    return _functional().adaptive_avg_pool2d(self, tuple(output_size))


def _embedding_backward(grad: Any, indices: Any, num_weights: int, padding_idx: int, scale: bool) -> Any:
    weight = grad.new_zeros(num_weights, grad.shape[-1])
    return derivative(lambda w: _functional().embedding(indices, w, padding_idx if padding_idx >= 0 else None,
                                                        scale_grad_by_freq=scale), [weight], grad)[0]


def _flash(query: Any, key: Any, value: Any, dropout_p: float = 0.0, is_causal: bool = False, *, attn_mask: Any = None,
           scale: Any = None) -> Any:
    made = _functional().scaled_dot_product_attention(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)
    return made, query.new_empty(query.shape[:3]) if query.is_meta else _log_sums(query, key, is_causal, attn_mask, scale)


def _log_sums(query: Any, key: Any, causal: bool, mask: Any, scale: Any) -> Any:
    torch = _torch()
    scores = query @ key.transpose(-2, -1) * (query.shape[-1] ** -0.5 if scale is None else scale)
    if causal:
        seen = torch.ones(query.shape[-2], key.shape[-2], dtype=torch.bool).tril()
        scores = scores.masked_fill(~seen, -float("inf"))
    return (scores if mask is None else scores + mask).logsumexp(-1)


# ------------------------------------------------------------------------------------------------------------- losses
_WORDS = ("none", "mean", "sum")


def _loss(name: str, option: str = "") -> Callable[..., Any]:
    return lambda self, target, reduction=1, *more: getattr(_functional(), name)(
        self, target, reduction=_WORDS[reduction], **dict(zip((option,), more)))


def _nll(self: Any, target: Any, weight: Any, reduction: int, ignore_index: int) -> Any:
    torch = _torch()
    made = _functional().nll_loss(self, target, weight, reduction=_WORDS[reduction], ignore_index=ignore_index)
    if reduction == 0:
        return made, self.new_zeros(())
    if self.is_meta:
        return made, self.new_empty(())
    kept = target != ignore_index
    total = kept.sum().to(self.dtype) if weight is None else torch.where(
        kept, weight[target.masked_fill(~kept, 0)], 0.0).sum()
    return made, total


KERNELS: dict[str, Callable[..., Any]] = {
    "_unsafe_view": lambda self, size: self.view(size).data,
    "slice": lambda self, dim=0, start=None, end=None, step=1: self[
        (slice(None),) * (dim % self.ndim) + (slice(start, end, step),)],
    "alias": lambda self: self.view_as(self) if self.ndim else self.view(()),
    "lift_fresh": lambda self: self,
    "lift_fresh_copy": lambda self: self.clone(),
    "split": lambda self, size, dim=0: list(self.split(size, dim)),
    "unsafe_split": lambda self, size, dim=0: [p.data for p in self.split(size, dim)],  # (each counts its changes by itself)
    "split_with_sizes": lambda self, sizes, dim=0: list(self.split(list(sizes), dim)),
    "unbind": lambda self, dim=0: list(self.unbind(dim)),
    "_to_copy": _to_copy, "new_empty_strided": _new_empty_strided,
    "_local_scalar_dense": lambda self: self.item(),
    "index": lambda self, indices: self[_whole(indices)],
    "index_put": lambda self, indices, values, accumulate=False: self.clone().index_put_(
        _index_per_dimension(self, indices), values, accumulate),
    **dict.fromkeys(("index_put_", "_index_put_impl_"), lambda self, indices, values, accumulate=False, unsafe=False:
                    self.index_put_(_index_per_dimension(self, indices), values, accumulate)),
    "where.self": lambda condition, self, other: _torch().where(condition, self, other),
    "rsub": _rsub,
    **dict.fromkeys(("fill_.Scalar", "fill_.Tensor"), lambda self, value: self.fill_(value)),
    "elu": _elu, "elu_": _elu_, "elu_backward": _elu_backward,
    **{f"{name}_": lambda self, name=name: getattr(_functional(), name)(self, inplace=True)
       for name in ("silu", "mish", "hardswish", "hardsigmoid")},
    "log_sigmoid_forward": lambda self: (_functional().logsigmoid(self), self.new_empty(0)),
    "_softmax": lambda self, dim, half_to_float: self.softmax(dim),
    "_log_softmax": lambda self, dim, half_to_float: self.log_softmax(dim),
    **{f"{name}.correction": _moment(name) for name in ("var", "std", "var_mean", "std_mean")},
    "linalg_vector_norm": lambda self, *args, **kwargs: _torch().linalg.vector_norm(self, *args, **kwargs),
    "convolution_backward": _convolution_backward, "native_layer_norm_backward": _layer_norm_backward,
    "native_group_norm_backward": _group_norm_backward,
    **{f"max_pool{n}d_with_indices": _pooled(n) for n in (2, 3)}, **{f"avg_pool{n}d": _averaged(n) for n in (2, 3)},
    "_adaptive_avg_pool2d": _adaptive,
    "_adaptive_avg_pool2d_backward": lambda grad, self: derivative(lambda x: _adaptive(x, grad.shape[-2:]), [self], grad)[0],
    "embedding_dense_backward": _embedding_backward, "_scaled_dot_product_flash_attention_for_cpu": _flash,
    "mse_loss": _loss("mse_loss"), "smooth_l1_loss": _loss("smooth_l1_loss", "beta"),
    "huber_loss": _loss("huber_loss", "delta"), "soft_margin_loss": _loss("soft_margin_loss"),
    "binary_cross_entropy": lambda self, target, weight=None, reduction=1: _functional().binary_cross_entropy(
        self, target, weight, reduction=_WORDS[reduction]),
    "nll_loss_forward": _nll, "nll_loss2d_forward": _nll}
