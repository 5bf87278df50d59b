"""Operations that only PyTorch's dispatcher has names for, on plain tensors.

Those of backward passes are the derivative of the forward function, taken by autograd itself: the kernels are the same.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

KERNELS: dict[str, Callable[..., Any]] = {}


def kernel(*names: str) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """Enters a function under operations' names."""
    def enter(function: Callable[..., Any]) -> Callable[..., Any]:
        for name in names:
            KERNELS[name] = function
        return function

    return enter


def _torch() -> Any:
    import flambeau
    return flambeau


def _functional() -> Any:
    return _torch().nn.functional


def derivative(function: Callable[..., Any], inputs: list[Any], grad: Any, mask: Any = None) -> list[Any]:
    """The gradients of a function of some tensors; mask: of which of them (None: of all)."""
    torch, create = _torch(), _recorded(grad, *inputs)
    asked = [t is not None and bool(mask is None or mask[i]) for i, t in enumerate(inputs)]
    with torch.enable_grad():
        leaves = [None if t is None else _leaf(t, create, asked[i]) for i, t in enumerate(inputs)]
        made = function(*leaves)
        wanted = [t for t, wanted in zip(leaves, asked) if wanted]
        found = iter(torch.autograd.grad(made, wanted, grad, allow_unused=True, create_graph=create)) if wanted else iter(())
    return [next(found) if wanted else None for wanted in asked]


def _recorded(*tensors: Any) -> bool:
    """Whether a derivative of these gradients is recorded: then they have to depend on the tensors."""
    return _torch().is_grad_enabled() and any([t is not None and t.requires_grad for t in tensors])


def _leaf(tensor: Any, create: bool, asked: bool) -> Any:
    if create and tensor.requires_grad:
        return tensor.view_as(tensor)
    return tensor.detach().requires_grad_(asked)


# -------------------------------------------------------------------------------------------------------------- views
@kernel("_unsafe_view")
def _unsafe_view(self: Any, size: Any) -> Any:
    return self.view(size).data


@kernel("slice")
def _slice(self: Any, dim: int = 0, start: Any = None, end: Any = None, step: int = 1) -> Any:
    return self[(slice(None),) * (dim % self.ndim) + (slice(start, end, step),)]


@kernel("alias")
def _alias(self: Any) -> Any:
    return self.view_as(self) if self.ndim else self.view(())


@kernel("lift_fresh")
def _lift_fresh(self: Any) -> Any:
    return self


@kernel("lift_fresh_copy")
def _lift_fresh_copy(self: Any) -> Any:
    return self.clone()


@kernel("split")
def _split(self: Any, size: Any, dim: int = 0) -> Any:
    return list(self.split(size, dim))


@kernel("unsafe_split")
def _unsafe_split(self: Any, size: Any, dim: int = 0) -> Any:
    return [piece.data for piece in self.split(size, dim)]  # (each counts its changes by itself)


@kernel("split_with_sizes")
def _split_with_sizes(self: Any, sizes: Any, dim: int = 0) -> Any:
    return list(self.split(list(sizes), dim))


@kernel("unbind")
def _unbind(self: Any, dim: int = 0) -> Any:
    return list(self.unbind(dim))


@kernel("select_backward")
def _select_backward(grad: Any, sizes: Any, dim: int, index: int) -> Any:
    made = grad.new_zeros(sizes)
    made.select(dim, index).copy_(grad)
    return made


@kernel("slice_backward")
def _slice_backward(grad: Any, sizes: Any, dim: int, start: int, end: int, step: int) -> Any:
    made = grad.new_zeros(sizes)
    _slice(made, dim, start, end, step).copy_(grad)
    return made


@kernel("diagonal_backward")
def _diagonal_backward(grad: Any, sizes: Any, offset: int, dim1: int, dim2: int) -> Any:
    made = grad.new_zeros(sizes)
    made.diagonal(offset, dim1, dim2).copy_(grad)
    return made


@kernel("_to_copy")
def _to_copy(self: Any, *, dtype: Any = None, layout: Any = None, device: Any = None, pin_memory: Any = None,
             non_blocking: bool = False, memory_format: Any = None) -> Any:
    torch = _torch()
    return self.to(device=device or self.device, dtype=dtype or self.dtype, copy=True,
                   memory_format=memory_format or torch.preserve_format)


@kernel("_local_scalar_dense")
def _local_scalar_dense(self: Any) -> Any:
    return self.item()


@kernel("new_empty_strided")
def _new_empty_strided(self: Any, size: Any, stride: Any, *, dtype: Any = None, layout: Any = None, device: Any = None,
                       pin_memory: Any = None) -> Any:
    return _torch().empty_strided(size, stride, dtype=dtype or self.dtype, device=device or self.device)


@kernel("index")
def _index(self: Any, indices: Any) -> Any:
    return self[tuple([slice(None) if i is None else i for i in indices])]


@kernel("index_put_", "_index_put_impl_")
def _index_put_(self: Any, indices: Any, values: Any, accumulate: bool = False, unsafe: bool = False) -> Any:
    return self.index_put_(_index_per_dimension(self, indices), values, accumulate)


@kernel("index_put")
def _index_put(self: Any, indices: Any, values: Any, accumulate: bool = False) -> Any:
    return self.clone().index_put_(_index_per_dimension(self, indices), values, accumulate)


def _index_per_dimension(self: Any, indices: Any) -> tuple[Any, ...]:
    """One index per dimension, where a None stands for all of it: an arange that broadcasts against the others."""
    torch = _torch()
    if all([i is not None for i in indices]):
        return tuple(indices)
    given = torch.arange(self.numel()).view(self.shape)[tuple([slice(None) if i is None else i for i in indices])]
    return tuple(torch.unravel_index(given, self.shape))


# ---------------------------------------------------------------------------------------------------------- pointwise
@kernel("where.self")
def _where(condition: Any, self: Any, other: Any) -> Any:
    return _torch().where(condition, self, other)


@kernel("rsub")
def _rsub(self: Any, other: Any, alpha: Any = 1) -> Any:
    return _torch().sub(other, self, alpha=alpha) if hasattr(other, "shape") else other - self * alpha


@kernel("fill_.Scalar", "fill_.Tensor")
def _fill_(self: Any, value: Any) -> Any:
    return self.fill_(value)


def _through(name: str, function: Callable[..., Any]) -> None:
    """name(grad, input, *options) as the derivative of function(input, *options)."""
    KERNELS[name] = lambda grad, self, *options, **named: derivative(
        lambda x: function(x, *options, **named), [self], grad)[0]


_through("softplus_backward", lambda x, *o: _functional().softplus(x, *o))
_through("leaky_relu_backward", lambda x, slope, is_result: _functional().leaky_relu(x, slope))
_through("hardtanh_backward", lambda x, *o: _functional().hardtanh(x, *o))
_through("silu_backward", lambda x: _functional().silu(x))
_through("mish_backward", lambda x: _functional().mish(x))
_through("hardswish_backward", lambda x: _functional().hardswish(x))
_through("hardsigmoid_backward", lambda x: _functional().hardsigmoid(x))
_through("gelu_backward", lambda x, approximate="none": _functional().gelu(x, approximate=approximate))
_through("log_sigmoid_backward", lambda x, buffer: _functional().logsigmoid(x))
_through("glu_backward", lambda x, dim: _functional().glu(x, dim))


@kernel("tanh_backward")
def _tanh_backward(grad: Any, output: Any) -> Any:
    return grad * (1 - output * output)


@kernel("sigmoid_backward")
def _sigmoid_backward(grad: Any, output: Any) -> Any:
    return grad * (output * (1 - output))


@kernel("threshold_backward")
def _threshold_backward(grad: Any, self: Any, threshold: Any) -> Any:
    return _torch().where(self <= threshold, 0.0, grad).to(grad.dtype)


@kernel("elu_backward")
def _elu_backward(grad: Any, alpha: Any, scale: Any, input_scale: Any, is_result: bool, self: Any) -> Any:
    torch = _torch()
    if is_result:
        return torch.where(self <= 0, grad * input_scale * (self + alpha * scale), grad * scale)
    return torch.where(self <= 0, grad * input_scale * alpha * scale * torch.exp(self * input_scale), grad * scale)


@kernel("elu")
def _elu(self: Any, alpha: Any = 1, scale: Any = 1, input_scale: Any = 1) -> Any:
    if scale == 1 and input_scale == 1:
        return _functional().elu(self, alpha)
    return _torch().where(self <= 0, (self * input_scale).expm1() * (alpha * scale), self * scale)


@kernel("log_sigmoid_forward")
def _log_sigmoid_forward(self: Any) -> Any:
    return _functional().logsigmoid(self), _torch().empty(0, dtype=self.dtype, device=self.device)


for _name in ("gelu", "silu", "mish", "hardswish", "hardsigmoid", "leaky_relu", "hardtanh", "softplus", "glu"):
    KERNELS[_name] = (lambda name: lambda *a, **k: getattr(_functional(), name)(*a, **k))(_name)


@kernel("relu")
def _relu(self: Any) -> Any:
    return _torch().relu(self)


# --------------------------------------------------------------------------------------------------------- reductions
@kernel("_softmax")
def _softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    return self.softmax(dim)


@kernel("_log_softmax")
def _log_softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    return self.log_softmax(dim)


@kernel("_softmax_backward_data")
def _softmax_backward(grad: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    product = grad * output
    return (product - output * product.sum(dim, keepdim=True)).to(input_dtype)


@kernel("_log_softmax_backward_data")
def _log_softmax_backward(grad: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    return (grad - output.exp() * grad.sum(dim, keepdim=True)).to(input_dtype)




def _moment(name: str) -> None:
    KERNELS[f"{name}.correction"] = lambda self, dim=None, *, correction=None, keepdim=False: getattr(_torch(), name)(
        self, dim, correction=1 if correction is None else correction, keepdim=keepdim)


for _name in ("var", "std", "var_mean", "std_mean"):
    _moment(_name)


@kernel("linalg_vector_norm")
def _vector_norm(self: Any, ord: Any = 2, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Any:
    return _torch().linalg.vector_norm(self, ord, dim, keepdim, dtype=dtype)


# ------------------------------------------------------------------------------------------------------------- layers
@kernel("convolution")
def _convolution(input: Any, weight: Any, bias: Any, stride: Any, padding: Any, dilation: Any, transposed: bool,
                 output_padding: Any, groups: int) -> Any:
    n = weight.ndim - 2
    if transposed:
        return getattr(_functional(), f"conv_transpose{n}d")(input, weight, bias, tuple(stride), tuple(padding),
                                                             tuple(output_padding), groups, tuple(dilation))
    return getattr(_functional(), f"conv{n}d")(input, weight, bias, tuple(stride), tuple(padding), tuple(dilation), groups)


@kernel("convolution_backward")
def _convolution_backward(grad: Any, input: Any, weight: Any, bias_sizes: Any, stride: Any, padding: Any, dilation: Any,
                          transposed: bool, output_padding: Any, groups: int, mask: Any) -> Any:
    run = functools.partial(_convolution, bias=None, stride=stride, padding=padding, dilation=dilation, transposed=transposed,
                            output_padding=output_padding, groups=groups)
    x, w = derivative(lambda x, w: run(x, w), [input, weight], grad, mask[:2])
    return x, w, grad.sum((0, *range(2, grad.ndim))) if mask[2] else None


@kernel("native_layer_norm")
def _layer_norm(input: Any, shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    dims = tuple(range(input.ndim - len(shape), input.ndim))
    mean = input.mean(dims, keepdim=True)
    rstd = (input.var(dims, correction=0, keepdim=True) + eps).rsqrt()
    return _functional().layer_norm(input, tuple(shape), weight, bias, eps), mean, rstd


@kernel("native_layer_norm_backward")
def _layer_norm_backward(grad: Any, input: Any, shape: Any, mean: Any, rstd: Any, weight: Any, bias: Any, mask: Any) -> Any:
    dims = tuple(range(input.ndim - len(shape), input.ndim))
    if _recorded(grad, input, weight):  # mean and rstd depend on the input
        eps = _eps(input.var(dims, correction=0, keepdim=True), rstd)
        return tuple(derivative(lambda x, w=None, b=None: _functional().layer_norm(x, tuple(shape), w, b, eps),
                                [input, weight, bias], grad, mask))
    lead = tuple(range(input.ndim - len(shape)))
    unit = (input - mean) * rstd
    scaled = grad if weight is None else grad * weight
    x = rstd * (scaled - scaled.mean(dims, keepdim=True) - unit * (scaled * unit).mean(dims, keepdim=True))
    return (x if mask[0] else None, _summed(grad * unit, lead) if mask[1] and weight is not None else None,
            _summed(grad, lead) if mask[2] and bias is not None else None)


def _eps(variance: Any, rstd: Any) -> float:
    """The number that a normalization added to the variance: its backward operation is not told."""
    with _torch().no_grad():
        return float((rstd.reshape(variance.shape).double() ** -2 - variance.double()).median().clamp(min=0))


def _summed(x: Any, dims: tuple[int, ...]) -> Any:
    return x.sum(dims) if dims else x


@kernel("native_group_norm")
def _group_norm(input: Any, weight: Any, bias: Any, N: int, C: int, HxW: int, group: int, eps: float) -> Any:
    flat = input.reshape(N, group, -1)
    rstd = (flat.var(2, correction=0) + eps).rsqrt()
    return _functional().group_norm(input, group, weight, bias, eps), flat.mean(2), rstd


@kernel("native_group_norm_backward")
def _group_norm_backward(grad: Any, input: Any, mean: Any, rstd: Any, weight: Any, N: int, C: int, HxW: int, group: int,
                         mask: Any) -> Any:
    if _recorded(grad, input, weight):
        eps = _eps(input.reshape(N, group, -1).var(2, correction=0), rstd)
        bias = None if weight is None else _torch().zeros_like(weight)
        return tuple(derivative(lambda x, w=None, b=None: _functional().group_norm(x, group, w, b, eps), [input, weight, bias],
                                grad, mask))
    unit = ((input.reshape(N, group, -1) - mean.unsqueeze(2)) * rstd.unsqueeze(2)).view(input.shape)
    over = (0, *range(2, input.ndim))
    scaled = grad if weight is None else grad * weight.view(1, C, *(1,) * (input.ndim - 2))
    scaled, flat = scaled.reshape(N, group, -1), unit.reshape(N, group, -1)
    x = rstd.unsqueeze(2) * (scaled - scaled.mean(2, keepdim=True) - flat * (scaled * flat).mean(2, keepdim=True))
    return (x.view(input.shape) if mask[0] else None, (grad * unit).sum(over) if mask[1] else None,
            grad.sum(over) if mask[2] else None)


@kernel("native_batch_norm")
def _batch_norm(input: Any, weight: Any, bias: Any, running_mean: Any, running_var: Any, training: bool, momentum: float,
                eps: float) -> Any:
    made = _functional().batch_norm(input, running_mean, running_var, weight, bias, training, momentum, eps)
    over = (0, *range(2, input.ndim))
    if not training:
        return made, input.new_empty(0), input.new_empty(0)
    return made, input.mean(over), (input.var(over, correction=0) + eps).rsqrt()


@kernel("native_batch_norm_backward")
def _batch_norm_backward(grad: Any, input: Any, weight: Any, running_mean: Any, running_var: Any, save_mean: Any,
                         save_invstd: Any, train: bool, eps: float, mask: Any) -> Any:
    if _recorded(grad, input, weight):
        bias = None if weight is None else _torch().zeros_like(weight)
        means, variances = (None, None) if train else (running_mean, running_var)
        return tuple(derivative(lambda x, w=None, b=None: _functional().batch_norm(x, means, variances, w, b, train, 0.0, eps),
                                [input, weight, bias], grad, mask))
    over, shape = (0, *range(2, input.ndim)), (1, -1, *(1,) * (input.ndim - 2))
    mean, rstd = (save_mean, save_invstd) if train else (running_mean, (running_var + eps).rsqrt())
    unit = (input - mean.view(shape)) * rstd.view(shape)
    scaled = grad if weight is None else grad * weight.view(shape)
    x = scaled
    if train:
        x = scaled - scaled.mean(over, keepdim=True) - unit * (scaled * unit).mean(over, keepdim=True)
    return (x * rstd.view(shape) if mask[0] else None, (grad * unit).sum(over) if mask[1] else None,
            grad.sum(over) if mask[2] else None)


def _pooled(n: int) -> None:
    def forward(self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, dilation: Any = 1,
                ceil_mode: bool = False) -> Any:
        return getattr(_functional(), f"max_pool{n}d")(self, kernel_size, stride or None, padding, dilation, ceil_mode,
                                                       return_indices=True)

    def backward(grad: Any, self: Any, kernel_size: Any, stride: Any, padding: Any, dilation: Any, ceil_mode: bool,
                 indices: Any) -> Any:
        return derivative(lambda x: forward(x, kernel_size, stride, padding, dilation, ceil_mode)[0], [self], grad)[0]

    def average(self: Any, kernel_size: Any, stride: Any = (), padding: Any = 0, ceil_mode: bool = False,
                count_include_pad: bool = True, divisor_override: Any = None) -> Any:
        return getattr(_functional(), f"avg_pool{n}d")(self, kernel_size, stride or None, padding, ceil_mode, count_include_pad,
                                                       divisor_override)

    KERNELS[f"max_pool{n}d_with_indices"], KERNELS[f"max_pool{n}d_with_indices_backward"] = forward, backward
    KERNELS[f"avg_pool{n}d"] = average
    KERNELS[f"avg_pool{n}d_backward"] = lambda grad, self, *options: derivative(lambda x: average(x, *options), [self], grad)[0]


_pooled(2)
_pooled(3)


@kernel("_adaptive_avg_pool2d")
def _adaptive(self: Any, output_size: Any) -> Any:
    return _functional().adaptive_avg_pool2d(self, tuple(output_size))


@kernel("_adaptive_avg_pool2d_backward")
def _adaptive_backward(grad: Any, self: Any) -> Any:
    return derivative(lambda x: _adaptive(x, grad.shape[-2:]), [self], grad)[0]


@kernel("embedding")
def _embedding(weight: Any, indices: Any, padding_idx: int = -1, scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    return _functional().embedding(indices, weight)


@kernel("embedding_dense_backward")
def _embedding_backward(grad: Any, indices: Any, num_weights: int, padding_idx: int, scale: bool) -> Any:
    weight = grad.new_zeros(num_weights, grad.shape[-1])
    return derivative(lambda w: _functional().embedding(indices, w, padding_idx if padding_idx >= 0 else None,
                                                        scale_grad_by_freq=scale), [weight], grad)[0]


@kernel("_scaled_dot_product_flash_attention_for_cpu")
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


@kernel("_scaled_dot_product_flash_attention_for_cpu_backward")
def _flash_backward(grad: Any, query: Any, key: Any, value: Any, out: Any, logsumexp: Any, dropout_p: float, is_causal: bool, *,
                    attn_mask: Any = None, scale: Any = None) -> Any:
    return tuple(derivative(lambda q, k, v: _functional().scaled_dot_product_attention(
        q, k, v, attn_mask, dropout_p, is_causal, scale=scale), [query, key, value], grad))


# ------------------------------------------------------------------------------------------------------------- losses
_WORDS = ("none", "mean", "sum")


def _loss(name: str, option: str = "") -> None:
    def forward(self: Any, target: Any, reduction: int = 1, *more: Any) -> Any:
        return getattr(_functional(), name)(self, target, reduction=_WORDS[reduction], **dict(zip((option,), more)))

    KERNELS[name] = forward
    KERNELS[f"{name}_backward"] = lambda grad, self, target, reduction, *more: derivative(
        lambda x: forward(x, target, reduction, *more), [self], grad)[0]


_loss("mse_loss")
_loss("smooth_l1_loss", "beta")
_loss("huber_loss", "delta")
_loss("soft_margin_loss")


@kernel("binary_cross_entropy")
def _bce(self: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    return _functional().binary_cross_entropy(self, target, weight, reduction=_WORDS[reduction])


@kernel("binary_cross_entropy_backward")
def _bce_backward(grad: Any, self: Any, target: Any, weight: Any = None, reduction: int = 1) -> Any:
    return derivative(lambda x: _bce(x, target, weight, reduction), [self], grad)[0]


@kernel("binary_cross_entropy_with_logits")
def _bce_logits(self: Any, target: Any, weight: Any = None, pos_weight: Any = None, reduction: int = 1) -> Any:
    return _functional().binary_cross_entropy_with_logits(self, target, weight, pos_weight=pos_weight,
                                                          reduction=_WORDS[reduction])


@kernel("nll_loss_forward", "nll_loss2d_forward")
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


@kernel("nll_loss_backward", "nll_loss2d_backward")
def _nll_backward(grad: Any, self: Any, target: Any, weight: Any, reduction: int, ignore_index: int, total: Any) -> Any:
    return derivative(lambda x: _functional().nll_loss(x, target, weight, reduction=_WORDS[reduction],
                                                       ignore_index=ignore_index), [self], grad)[0]
