"""lowering.py, continued: layers, losses, activations and factories."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...tensors.tensor import Tensor
from . import bits  # noqa: F401  (its functions, too)
from .calls import operation as op
from .calls import scalar
from .lowering import LOWERED, linear, lowered

_REDUCTIONS = {"none": 0, "mean": 1, "sum": 2}


# ------------------------------------------------------------------------------------------------------- activations
def _activation(name: str) -> None:
    """nn.functional's form of an activation, with its `inplace`."""
    def activate(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        writes = kwargs.pop("inplace", False)
        if args and args[-1].__class__ is bool:
            *args, writes = args  # type: ignore[assignment]
        return op(f"{name}_" if writes else name, input, *args, **kwargs)
    LOWERED[name] = activate


for _name in ("relu", "elu", "leaky_relu", "hardtanh", "silu", "mish", "hardswish", "hardsigmoid", "threshold", "celu",
              "softplus"):
    _activation(_name)
_SELU = (1.6732632423543772, 1.0507009873554805)  # alpha and scale: mean and variance are kept


@lowered("selu")
def selu(input: Tensor, inplace: bool = False) -> Any:
    return op("elu_" if inplace else "elu", input, *_SELU)


@lowered("relu6")
def relu6(input: Tensor, inplace: bool = False) -> Any:
    return op("hardtanh_" if inplace else "hardtanh", input, 0.0, 6.0)


@lowered("logsigmoid", "log_sigmoid")
def logsigmoid(input: Tensor) -> Any:
    return op("log_sigmoid_forward", input)[0]


# ------------------------------------------------------------------------------------------------------------ layers
def _tuple(value: Any, n: int) -> list[int]:
    return [value] * n if isinstance(value, int) else list(value) if len(value) == n else list(value) * n


def _convolution(n: int, transposed: bool) -> Callable[..., Any]:
    def forward(input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, dilation: Any = 1,
                groups: int = 1) -> Any:
        dilation_ = _tuple(dilation, n)
        if isinstance(padding, str):
            sizes = [0] * n if padding == "valid" else [d * (k - 1) for d, k in zip(dilation_, weight.shape[2:])]
            if any([s % 2 for s in sizes]):
                return NotImplemented
            padding = [s // 2 for s in sizes]
        return run(input, weight, bias, stride, padding, dilation_, [0] * n, groups)

    def turned(input: Tensor, weight: Tensor, bias: Any = None, stride: Any = 1, padding: Any = 0, output_padding: Any = 0,
               groups: int = 1, dilation: Any = 1) -> Any:
        return run(input, weight, bias, stride, padding, _tuple(dilation, n), _tuple(output_padding, n), groups)

    def run(input: Tensor, weight: Tensor, bias: Any, stride: Any, padding: Any, dilation: Any, output_padding: Any,
            groups: int) -> Any:
        single = input.ndim == n + 1
        made = op("convolution", op("unsqueeze", input, 0) if single else input, weight, bias, _tuple(stride, n),
                  _tuple(padding, n), dilation, transposed, output_padding, groups)
        return op("squeeze", made, 0) if single else made

    return turned if transposed else forward


for _n in (1, 2, 3):
    LOWERED[f"conv{_n}d"] = _convolution(_n, False)
    LOWERED[f"conv_transpose{_n}d"] = _convolution(_n, True)


@lowered("layer_norm")
def layer_norm(input: Tensor, normalized_shape: Any, weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any,
               **more: Any) -> Any:
    return op("native_layer_norm", input, list(normalized_shape), weight, bias, eps)[0]


@lowered("group_norm")
def group_norm(input: Tensor, num_groups: int, weight: Any = None, bias: Any = None, eps: float = 1e-5, *rest: Any) -> Any:
    n, c = input.shape[:2]
    count = input.numel() // (n * c) if n * c else 0
    from .lowering import contiguous
    return op("native_group_norm", contiguous(input), weight, bias, n, c, count, num_groups, eps)[0]


@lowered("batch_norm")
def batch_norm(input: Tensor, running_mean: Any, running_var: Any, weight: Any = None, bias: Any = None, training: bool = False,
               momentum: Any = 0.1, eps: float = 1e-5, *rest: Any) -> Any:
    op("empty", [0], dtype=_uint8(), device=input.device)  # where PyTorch keeps what other libraries reserve
    return op("native_batch_norm", input, weight, bias, running_mean, running_var, training,
              0.0 if momentum is None else momentum, eps)[0]


def _uint8() -> Any:
    import flambeau
    return flambeau.uint8


@lowered("dropout")
def dropout(input: Tensor, p: float = 0.5, training: bool = True, inplace: bool = False) -> Any:
    if p < 0.0 or p > 1.0:
        raise ValueError(f"dropout probability has to be between 0 and 1, but got {p}")
    if not training or p == 0 or not input.numel():
        return input
    if p == 1:
        return op("mul_" if inplace else "mul", input, op("zeros", [], dtype=input.dtype, device=input.device))
    mask = scalar("div_", op("bernoulli_", op("empty_like", input), 1 - p), 1 - p)
    return op("mul_" if inplace else "mul", input, mask)


@lowered("embedding")
def embedding(input: Tensor, weight: Tensor, padding_idx: Any = None, max_norm: Any = None, norm_type: float = 2.0,
              scale_grad_by_freq: bool = False, sparse: bool = False) -> Any:
    if max_norm is not None or input.is_floating_point():  # (torch.embedding takes the weight first)
        return NotImplemented
    padding = -1 if padding_idx is None else padding_idx if padding_idx >= 0 else weight.shape[0] + padding_idx
    return op("embedding", weight, input, padding, scale_grad_by_freq, sparse)


def _pooling(n: int) -> Callable[..., Any]:
    def pool(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, dilation: Any = 1, ceil_mode: bool = False,
             return_indices: bool = False) -> Any:
        size = _tuple(kernel_size, n)
        options = [size, [] if stride is None or stride == [] else _tuple(stride, n), _tuple(padding, n), _tuple(dilation, n),
                   ceil_mode]
        if n == 1:
            options[1] = options[1] or size
            wide = [[1, *o] if i < 2 else [0, *o] if i == 2 else [1, *o] if i == 3 else o for i, o in enumerate(options)]
            found = op("max_pool2d_with_indices", op("unsqueeze", input, -2), *wide)
            found = [op("squeeze", f, -2) for f in (found if return_indices else found[:1])]
        else:
            found = op(f"max_pool{n}d_with_indices", input, *options)
        return tuple(found) if return_indices else found[0]
    return pool


for _n in (1, 2, 3):
    LOWERED[f"max_pool{_n}d"] = _pooling(_n)
    LOWERED[f"max_pool{_n}d_with_indices"] = functools.partial(_pooling(_n), return_indices=True)


@lowered("avg_pool1d")
def avg_pool1d(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
               count_include_pad: bool = True) -> Any:
    size = _tuple(kernel_size, 1)
    step = size if stride is None or stride == [] or stride == () else _tuple(stride, 1)
    made = op("avg_pool2d", op("unsqueeze", input, -2), [1, *size], [1, *step], [0, *_tuple(padding, 1)], ceil_mode,
              count_include_pad)
    return op("squeeze", made, -2)


def _average(n: int) -> Callable[..., Any]:
    def pool(input: Tensor, kernel_size: Any, stride: Any = None, padding: Any = 0, ceil_mode: bool = False,
             count_include_pad: bool = True, divisor_override: Any = None) -> Any:
        size = _tuple(kernel_size, n)
        step = size if stride is None or stride == [] or stride == () else _tuple(stride, n)
        return op(f"avg_pool{n}d", input, size, step, _tuple(padding, n), ceil_mode, count_include_pad, divisor_override)
    return pool


LOWERED["avg_pool2d"], LOWERED["avg_pool3d"] = _average(2), _average(3)


@lowered("adaptive_avg_pool2d")
def adaptive_avg_pool2d(input: Tensor, output_size: Any) -> Any:
    size = [s if o is None else o for o, s in zip(_tuple(output_size, 2) if output_size is None or not isinstance(
        output_size, (list, tuple)) else list(output_size), input.shape[-2:])]
    return op("mean", input, [-1, -2], True) if size == [1, 1] else op("_adaptive_avg_pool2d", input, size)


@lowered("adaptive_avg_pool1d")
def adaptive_avg_pool1d(input: Tensor, output_size: Any) -> Any:
    made = adaptive_avg_pool2d(op("unsqueeze", input, -2), [1, *_tuple(output_size, 1)])
    return op("squeeze", made, -2)


@lowered("scaled_dot_product_attention")
def attention(query: Tensor, key: Tensor, value: Tensor, attn_mask: Any = None, dropout_p: float = 0.0, is_causal: bool = False,
              scale: float | None = None, enable_gqa: bool = False) -> Any:
    """As PyTorch chooses on a CPU: the fused kernel for four dimensions without dropout, else the parts."""
    if query.ndim == 4 and dropout_p == 0 and not enable_gqa and query.is_floating_point() and (
            attn_mask is None or not attn_mask.requires_grad) and not (is_causal and attn_mask is not None):
        given: dict[str, Any] = {} if scale is None else {"scale": scale}
        if attn_mask is not None:
            given["attn_mask"] = _additive(attn_mask, query)
        return op("_scaled_dot_product_flash_attention_for_cpu", query, key, value, 0.0, is_causal, **given)[0]
    return _attention_parts(query, key, value, attn_mask, dropout_p, is_causal, scale, enable_gqa)


def _additive(mask: Tensor, query: Tensor) -> Tensor:
    import flambeau
    if mask.dtype is not flambeau.bool:
        return mask
    blocked = op("scalar_tensor", -float("inf"), dtype=query.dtype, device=query.device)
    free = op("scalar_tensor", 0.0, dtype=query.dtype, device=query.device)
    return op("where", mask, free, blocked)


def _attention_parts(query: Tensor, key: Tensor, value: Tensor, mask: Any, p: float, causal: bool, scale: float | None,
                     grouped: bool) -> Any:
    import flambeau
    if grouped:
        key = flambeau.repeat_interleave(key, query.shape[-3] // key.shape[-3], -3)
        value = flambeau.repeat_interleave(value, query.shape[-3] // value.shape[-3], -3)
    if causal:
        mask = flambeau.ones(query.shape[-2], key.shape[-2], dtype=flambeau.bool, device=query.device).tril()
    root = (query.shape[-1] ** -0.5 if scale is None else scale) ** 0.5
    scores = flambeau.matmul(query * root, key.transpose(-2, -1) * root)
    if mask is not None:
        scores = scores + _additive(mask, query)
    weights = dropout(scores.softmax(-1), p)
    return flambeau.matmul(weights, value)


def _projected(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any, b_hh: Any) -> tuple[Tensor, Tensor]:
    return linear(input, w_ih, b_ih), linear(hx, w_hh, b_hh)


@lowered("lstm_cell")
def lstm_cell(input: Tensor, hx: Any, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Any:
    first, second = _projected(input, hx[0], w_ih, w_hh, b_ih, b_hh)
    i, f, g, o = op("unsafe_split", op("add_", second, first), w_hh.shape[1], 1)
    i, f, g, o = op("sigmoid_", i), op("sigmoid_", f), op("tanh_", g), op("sigmoid_", o)
    kept = op("mul", f, hx[1])
    cell = op("add_", kept, op("mul", i, g))
    return op("mul", o, op("tanh", cell)), cell


@lowered("gru_cell")
def gru_cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Any:
    first, second = _projected(input, hx, w_ih, w_hh, b_ih, b_hh)
    (r1, z1, n1), (r2, z2, n2) = [op("unsafe_split", x, w_hh.shape[1], 1) for x in (first, second)]
    reset, update = op("sigmoid_", op("add_", r2, r1)), op("sigmoid_", op("add_", z2, z1))
    new = op("tanh_", op("add", n1, op("mul_", n2, reset)))
    return op("add_", op("mul_", op("sub", hx, new), update), new)


def _plain_cell(name: str) -> Callable[..., Any]:
    def cell(input: Tensor, hx: Tensor, w_ih: Tensor, w_hh: Tensor, b_ih: Any = None, b_hh: Any = None) -> Any:
        return op(name, op("add_", *reversed(_projected(input, hx, w_ih, w_hh, b_ih, b_hh))))
    return cell


LOWERED["rnn_tanh_cell"], LOWERED["rnn_relu_cell"] = _plain_cell("tanh"), _plain_cell("relu")


# ------------------------------------------------------------------------------------------------------------ losses
def _reduction(reduction: str = "mean", size_average: Any = None, reduce: Any = None) -> int:
    if size_average is not None or reduce is not None:
        if reduce is False:
            return 0
        return 2 if size_average is False else 1
    if reduction not in _REDUCTIONS:
        raise ValueError(f"{reduction} is not a valid value for reduction")
    return _REDUCTIONS[reduction]


def _two(name: str, *options: str) -> None:
    """A loss of an input and a target of its shape."""
    def loss(input: Tensor, target: Tensor, *args: Any, **kwargs: Any) -> Any:
        named = dict(zip(("size_average", "reduce", "reduction", *options), args)) | kwargs
        values = [named.pop(o) for o in options if o in named]
        weight = named.pop("weight", None)
        if weight is not None:
            return NotImplemented
        if input.shape != target.shape:
            import flambeau
            input, target = flambeau.broadcast_tensors(input, target)
        return op(name, input, target, _reduction(**named), *values)
    LOWERED[name] = loss


_two("mse_loss")
_two("smooth_l1_loss", "beta")
_two("huber_loss", "delta")
_two("soft_margin_loss")


@lowered("l1_loss")
def l1_loss(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
            weight: Any = None) -> Any:
    return NotImplemented if weight is not None else _reduced(op("abs", op("sub", input, target)),
                                                              _reduction(reduction, size_average, reduce))


def _reduced(loss: Tensor, reduction: int) -> Tensor:
    return loss if not reduction else op("mean" if reduction == 1 else "sum", loss)


@lowered("binary_cross_entropy")
def binary_cross_entropy(input: Tensor, target: Tensor, weight: Any = None, size_average: Any = None, reduce: Any = None,
                         reduction: str = "mean") -> Any:
    return op("binary_cross_entropy", input, target, weight, _reduction(reduction, size_average, reduce))


@lowered("binary_cross_entropy_with_logits")
def binary_cross_entropy_with_logits(input: Tensor, target: Tensor, weight: Any = None, size_average: Any = None,
                                     reduce: Any = None, reduction: str = "mean", pos_weight: Any = None) -> Any:
    return op("binary_cross_entropy_with_logits", input, target, weight, pos_weight,
              _reduction(reduction, size_average, reduce))


@lowered("nll_loss")
def nll_loss(input: Tensor, target: Tensor, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
             reduce: Any = None, reduction: str = "mean") -> Any:
    kind = _reduction(reduction, size_average, reduce)
    if input.ndim in (1, 2):
        return op("nll_loss_forward", input, target, weight, kind, ignore_index)[0]
    return op("nll_loss2d_forward", input, target, weight, kind, ignore_index)[0] if input.ndim == 4 else NotImplemented


@lowered("cross_entropy")
def cross_entropy(input: Tensor, target: Tensor, weight: Any = None, size_average: Any = None, ignore_index: int = -100,
                  reduce: Any = None, reduction: str = "mean", label_smoothing: float = 0.0) -> Any:
    kind, dim = _reduction(reduction, size_average, reduce), 0 if input.ndim == 1 else 1
    if weight is not None and (label_smoothing or target.is_floating_point()):
        return NotImplemented
    logs = LOWERED["log_softmax"](input, dim)
    if target.is_floating_point():
        return _soft_targets(logs, target, dim, kind, label_smoothing)
    plain = _likelihood(logs, target, weight, kind, ignore_index)
    if plain is NotImplemented or not label_smoothing:
        return plain
    smooth = op("neg", op("sum", logs, [dim]))
    ignored = op("eq", target, ignore_index)
    op("masked_fill_", smooth, ignored, 0.0)
    if kind == 1:
        kept = op("sum", op("bitwise_not", ignored))
        smooth = op("div", op("sum", smooth), kept)
    elif kind == 2:
        smooth = op("sum", smooth)
    share = label_smoothing / input.shape[dim]
    return op("add", scalar("mul", plain, 1 - label_smoothing), scalar("mul", smooth, share))


def _likelihood(logs: Tensor, target: Tensor, weight: Any, kind: int, ignore_index: int) -> Any:
    names = {1: "nll_loss_forward", 2: "nll_loss_forward", 4: "nll_loss2d_forward"}
    if logs.ndim in names:
        return op(names[logs.ndim], logs, target, weight, kind, ignore_index)[0]
    from .lowering import reshape
    n, c = logs.shape[:2]
    flat = reshape(logs, [n, c, 1, -1])
    made = op("nll_loss2d_forward", flat, reshape(target, [n, 1, -1]), weight, kind, ignore_index)[0]
    return made if kind else reshape(made, list(target.shape))


def _soft_targets(logs: Tensor, target: Tensor, dim: int, kind: int, smoothing: float) -> Tensor:
    if smoothing:
        target = scalar("add", scalar("mul", target, 1 - smoothing), smoothing / logs.shape[dim])
    product = op("mul", logs, target)
    if kind == 0:
        return op("neg", op("sum", product, [dim]))
    total = op("neg", op("sum", product))
    return scalar("div", total, logs.numel() // logs.shape[dim]) if kind == 1 else total


@lowered("kl_div")
def kl_div(input: Tensor, target: Tensor, size_average: Any = None, reduce: Any = None, reduction: str = "mean",
           log_target: bool = False) -> Any:
    if log_target:
        loss = op("mul", op("exp", target), op("sub", target, input))
    else:
        product = op("mul", target, input)
        loss = op("sub", op("xlogy", target, target), product)
    if reduction == "batchmean":
        return op("div", op("sum", loss), input.shape[0])
    return _reduced(loss, _reduction(reduction, size_average, reduce))


# --------------------------------------------------------------------------------------------------------- factories
def _factory(name: str) -> Callable[..., Any]:
    """A function that makes a tensor from nothing: its device is always said."""
    def make(*args: Any, **kwargs: Any) -> Any:
        import flambeau
        requires = kwargs.pop("requires_grad", False)
        if kwargs.get("out") is not None:
            return NotImplemented
        kwargs = {k: v for k, v in kwargs.items() if v is not None and k != "names" and not (k == "pin_memory" and not v)}
        kwargs["device"] = flambeau.device(kwargs.get("device", flambeau.get_default_device()))
        made = op(name, *_sized(name, args, kwargs), **kwargs, pin_memory=False)
        return made.requires_grad_() if requires else made
    return make


_SIZED = ("zeros", "ones", "empty", "rand", "randn", "new_zeros", "new_ones", "new_empty")


def _sized(name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[Any, ...]:
    if name not in _SIZED or not args:
        return args
    return ([int(a) for a in args],) if not isinstance(args[0], (list, tuple)) else (list(args[0]),)


for _name in ("zeros", "ones", "empty", "full", "arange", "eye", "linspace", "logspace", "rand", "randn", "randint", "randperm",
              "scalar_tensor", "empty_strided", "tril_indices", "triu_indices"):
    LOWERED[_name] = _factory(_name)


def _beside(name: str) -> Callable[..., Any]:
    """x.new_zeros(2, 3), zeros_like(x) and their kin."""
    def make(input: Tensor, *args: Any, **kwargs: Any) -> Any:
        requires = kwargs.pop("requires_grad", False)
        kwargs = {k: v for k, v in kwargs.items() if v is not None and not (k == "pin_memory" and not v)}
        if name in _SIZED and args and isinstance(args[0], int):
            args = (list(args),)
        elif name in _SIZED and not args and "size" not in kwargs:
            args = ([],)
        made = op(name, input, *args, **kwargs, pin_memory=False)
        return made.requires_grad_() if requires else made
    return make


for _name in ("new_zeros", "new_ones", "new_empty", "new_full", "zeros_like", "ones_like", "empty_like", "full_like",
              "rand_like", "randn_like"):
    LOWERED[_name] = _beside(_name)
