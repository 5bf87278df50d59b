"""Formulas of the operations that modes see, as PyTorch writes them: a backward pass below autograd shows the same calls.

The names of a formula's arguments say what it needs: `grad`, arguments of the operation, `result`, `x_shape`.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

from ...tensors.tensor import Tensor
from .calls import operation as op
from .calls import scalar
from .lowering import reshape, sum_to_size, to
from .rules import Rule

RULES: dict[str, Rule] = {}


def rule(names: str, constant: tuple[int, ...] = (), only: Callable[..., bool] | None = None,
         **formulas: Callable[..., Any]) -> None:
    """Enters formulas by argument. constant: results without a gradient; only: of which calls they are."""
    for name in names.split():
        RULES[name] = Rule(formulas, constant=constant, only=only)


# Their results do not depend on the elements of their arguments in a way that has a derivative.
rule("detach _local_scalar_dense equal is_same_size zeros_like ones_like empty_like full_like new_zeros new_ones new_empty "
     "new_full new_empty_strided rand_like randn_like randint_like bernoulli multinomial argmax argmin eq ne lt le gt ge "
     "isnan isinf logical_and logical_or logical_not logical_xor any all nonzero argsort searchsorted bucketize isfinite "
     "allclose")


def _conj(x: Any) -> Any:
    return op("_conj", x) if isinstance(x, Tensor) and x.is_complex() else x


def _times(grad: Tensor, number: Any) -> Tensor:
    return grad if number == 1 else scalar("mul", grad, number)


def _negated(grad: Tensor, slope: Tensor) -> Tensor:
    """-grad * slope, the slope first: as C++ evaluates it."""
    return op("mul", op("neg", grad), slope)


def _after(value: Tensor, then: Callable[[Tensor], Tensor]) -> Tensor:
    return then(value)


def _zero(grad: Tensor) -> Tensor:
    return op("scalar_tensor", 0, dtype=grad.dtype, device=grad.device)


def _nothing(grad: Tensor) -> Tensor:
    return op("zeros_like", grad)


# -------------------------------------------------------------------------------------------------------- arithmetic
rule("add", self=lambda grad: grad, other=lambda grad, alpha: _times(grad, alpha))
rule("sub", self=lambda grad: grad, other=lambda grad, alpha: _times(op("neg", grad), alpha))
rule("rsub", self=lambda grad, alpha: _times(op("neg", grad), alpha), other=lambda grad: grad)
rule("mul", self=lambda grad, other: op("mul", grad, _conj(other)), other=lambda grad, self: op("mul", grad, _conj(self)))
rule("mul.Scalar", self=lambda grad, other: scalar("mul", grad, other))
rule("div.Scalar", self=lambda grad, other: scalar("div", grad, other))
rule("div.Tensor", self=lambda grad, other: op("div", grad, _conj(other)), other=lambda grad, self, other:
     _negated(grad, _conj(op("div", op("div", self, other), other))))
rule("pow.Tensor_Scalar pow_.Scalar", self=lambda grad, self, exponent: _nothing(grad) if exponent == 0 else op(
    "mul", grad, _conj(scalar("mul", op("pow", self, exponent - 1), exponent))))
rule("neg", self=lambda grad: op("neg", grad))
rule("reciprocal", self=lambda grad, result: _negated(grad, _conj(op("mul", result, result))))
rule("exp", self=lambda grad, result: op("mul", grad, _conj(result)))
rule("log", self=lambda grad, self: op("div", grad, _conj(self)))
rule("sqrt", self=lambda grad, result: op("div", grad, scalar("mul", _conj(result), 2)))
rule("rsqrt", self=lambda grad, result: _after(_conj(op("pow", result, 3)), lambda cube: op("mul", scalar(
    "mul", grad, -0.5), cube)))
rule("sin", self=lambda grad, self: op("mul", grad, _conj(op("cos", self))))
rule("cos", self=lambda grad, self: op("mul", grad, _conj(op("neg", op("sin", self)))))
rule("abs", self=lambda grad, self: op("mul", grad, op("sgn", self)))
rule("erf", self=lambda grad, self: op("mul", scalar("mul", op("exp", op("neg", op("pow", self, 2))), 2 / math.sqrt(math.pi)),
                                       grad))
rule("log1p", self=lambda grad, self: op("div", grad, scalar("add", self, 1)))
rule("expm1", self=lambda grad, result: op("mul", grad, scalar("add", result, 1)))
rule("sign floor ceil round trunc zero fill.Scalar heaviside", self=_nothing)
rule("lerp.Scalar", end=lambda grad, weight: scalar("mul", grad, weight), self=lambda grad, weight:
     scalar("mul", grad, 1 - weight))
rule("addcmul", self=lambda grad: grad,
     tensor1=lambda grad, tensor2, value: op("mul", grad, scalar("mul", tensor2, value)),
     tensor2=lambda grad, tensor1, value: op("mul", grad, scalar("mul", tensor1, value)))
rule("addcdiv", self=lambda grad: grad,
     tensor1=lambda grad, tensor2, value: op("mul", grad, op(
         "div_", scalar("fill_", op("empty_like", tensor2), value), tensor2)),
     tensor2=lambda grad, tensor1, tensor2, value: _negated(grad, _after(
         op("mul", tensor2, tensor2), lambda square: op("div", scalar("mul", tensor1, value), square))))
rule("clone alias lift_fresh positive", self=lambda grad: grad)
rule("copy", self=_nothing, src=lambda grad: grad)
rule("fill.Tensor", self=_nothing, value=lambda grad: op("sum", grad))
rule("_to_copy", self=lambda grad, self_dtype: to(grad, self_dtype))


def _pow_base(grad: Tensor, self: Tensor, exponent: Tensor) -> Tensor:
    made = op("mul", grad, op("mul", exponent, op("pow", self, scalar("sub", exponent, 1))))
    zero = _zero(grad)
    return op("where", op("eq", exponent, 0.0), zero, made)


def _pow_exponent(grad: Tensor, self: Tensor, exponent: Tensor, result: Tensor) -> Tensor:
    at_zero = op("logical_and", op("ge", exponent, 0), op("eq", self, 0))
    made = op("mul", result, op("log", self))
    return op("mul", grad, op("where", at_zero, _zero(grad), made))


rule("pow.Tensor_Tensor pow_.Tensor", self=_pow_base, exponent=_pow_exponent)


def _clamped(grad: Tensor, self: Tensor, min: Any, max: Any) -> Tensor:
    zero = _zero(grad)
    inside = None if min is None else op("ge", self, min)
    if max is not None:
        below = op("le", self, max)
        inside = below if inside is None else op("logical_and_", inside, below)
    return grad if inside is None else op("where", inside, grad, zero)


rule("clamp.default", self=_clamped)


def _larger(compare: str) -> Callable[..., Tensor]:
    """The gradient of one of two, of which the larger (or smaller) was taken; compare: where it was the other."""
    def formula(grad: Tensor, self: Tensor, other: Tensor) -> Tensor:
        half = scalar("div", grad, 2)
        shared = op("where", op("eq", self, other), half, grad)
        return op("masked_fill_", shared, op(compare, self, other), 0)
    return formula


rule("maximum", self=_larger("lt"), other=_larger("gt"))
rule("minimum", self=_larger("gt"), other=_larger("lt"))
rule("where.self", self=lambda grad, condition: _where(grad, condition, True), other=lambda grad, condition:
     _where(grad, condition, False))


def _where(grad: Tensor, condition: Tensor, first: bool) -> Tensor:
    zero = _zero(grad)
    return op("where", condition, grad, zero) if first else op("where", condition, zero, grad)


rule("masked_fill.Scalar", self=lambda grad, mask: op("masked_fill", grad, mask, 0))
rule("masked_fill.Tensor", self=lambda grad, mask: op("masked_fill", grad, mask, 0), value=lambda grad, mask: op(
    "sum", op("where", mask, grad, _zero(grad))))
rule("relu", self=lambda grad, result: op("threshold_backward", grad, result, 0))


# -------------------------------------------------------------------------------------------------------- reductions
def _axes(dim: Any, ndim: int) -> list[int]:
    dims = range(ndim) if dim is None or dim == [] else [dim] if isinstance(dim, int) else dim
    return sorted([d % max(ndim, 1) for d in dims])


def _restored(x: Tensor, dim: Any, shape: list[int], keepdim: bool) -> Tensor:
    """What a reduction left, with the dimensions that it took."""
    if keepdim or not shape:
        return x
    for d in _axes(dim, len(shape)):
        x = op("unsqueeze", x, d)
    return x


def _count(dim: Any, shape: list[int]) -> int:
    return math.prod([shape[d] for d in _axes(dim, len(shape))]) if shape else 1


rule("sum.default", self=lambda grad, self_shape: op("expand", grad, self_shape))
rule("sum.dim_IntList", self=lambda grad, dim, keepdim, self_shape: op(
    "expand", _restored(grad, dim, self_shape, keepdim), self_shape))
rule("mean.default", self=lambda grad, self_shape: scalar("div", op("expand", grad, self_shape), math.prod(self_shape)))
rule("mean.dim", self=lambda grad, dim, keepdim, self_shape: scalar(
    "div", op("expand", _restored(grad, dim, self_shape, keepdim), self_shape), _count(dim, self_shape)))
rule("nansum", self=lambda grad, self, self_shape, dim, keepdim: op("mul", *reversed(
    [op("logical_not", op("isnan", self)), op("expand", _restored(grad, dim, self_shape, keepdim) if dim is not None else grad,
                                              self_shape)])))


def _variance(grad: Tensor, self: Tensor, dim: Any, correction: Any, keepdim: bool) -> Tensor:
    shape = list(self.shape)
    freedom = max(_count(dim, shape) - (1 if correction is None else correction), 0)
    if dim is None:
        apart = op("sub", self, op("mean", self))
    else:
        grad = _restored(grad, dim, shape, keepdim)
        apart = op("sub", self, op("mean", self, _axes(dim, len(shape)), True))
    return op("mul", scalar("mul", grad, 2 / freedom if freedom else math.nan), apart)


def _deviation(grad: Tensor, self: Tensor, result: Tensor, dim: Any, correction: Any, keepdim: bool) -> Tensor:
    through = op("div", grad, scalar("mul", result, 2))
    op("masked_fill_", through, op("eq", result, 0), 0)
    return _variance(through, self, dim, correction, keepdim)


rule("var.correction", self=_variance)
rule("std.correction", self=_deviation)


def _evenly(grad: Tensor, self: Tensor, result: Tensor) -> Tensor:
    mask = op("logical_and", op("isnan", self), op("isnan", result))
    mask = op("logical_or_", mask, op("eq", self, result))
    return op("mul", op("div", grad, op("sum", mask)), mask)


def _picked(grad: Tensor, result1: Tensor, dim: int, self_shape: list[int], keepdim: bool) -> Tensor:
    if not self_shape:
        return grad
    if not keepdim:
        grad, result1 = op("unsqueeze", grad, dim), op("unsqueeze", result1, dim)
    return op("scatter", op("new_zeros", grad, self_shape), dim, result1, grad)


rule("max.default min.default median.default nanmedian.default", self=_evenly)
rule("max.dim min.dim median.dim mode kthvalue nanmedian.dim", (1,), self=_picked)
rule("topk sort.default sort.stable", (1,), self=lambda grad, result1, dim, self_shape: op(
    "scatter", op("new_zeros", grad, self_shape), -1 if dim is None else dim, result1, grad))


def _extreme(grad: Tensor, self: Tensor, result: Tensor, dim: Any, keepdim: bool) -> Tensor:
    shape = list(self.shape)
    kept = [1 if d in _axes(dim, len(shape)) else n for d, n in enumerate(shape)]
    mask = op("eq", self, result if keepdim else op("view", result, kept))
    grad = grad if keepdim else op("view", grad, kept)
    return op("mul", op("div", grad, op("sum", mask, _axes(dim, len(shape)), True)), mask)


rule("amax amin", self=_extreme)


def _normed(grad: Tensor, self: Tensor, result: Tensor, ord: Any, dim: Any, keepdim: bool) -> Any:
    shape = list(self.shape)
    if dim is not None:
        grad, result = _restored(grad, dim, shape, keepdim), _restored(result, dim, shape, keepdim)
    unit = op("masked_fill_", op("div", self, result), op("eq", result, 0), 0)
    return op("mul", unit, grad)


rule("linalg_vector_norm", only=lambda values: values.get("ord", 2) == 2, self=_normed)
rule("logsumexp", self=lambda grad, self, result, dim, keepdim, self_shape: op("mul", _restored(
    grad, dim, self_shape, keepdim), op("exp", op("sub", self, _restored(result, dim, self_shape, keepdim)))))
rule("cumsum", self=lambda grad, dim: grad if grad.numel() <= 1 or grad.shape[dim] == 1 else op(
    "flip", op("cumsum", op("flip", grad, [dim]), dim), [dim]))


# ------------------------------------------------------------------------------------------------------------- views
def _unsqueezed(grad: Tensor, dim: Any, self_shape: list[int]) -> Tensor:
    dims = [dim] if isinstance(dim, int) else range(len(self_shape)) if dim is None else dim
    for d in sorted([d % max(len(self_shape), 1) for d in dims]):
        if self_shape and self_shape[d] == 1:
            grad = op("unsqueeze", grad, d)
    return grad


def _inverse(dims: list[int]) -> list[int]:
    dims = [d % len(dims) for d in dims]
    return [dims.index(d) for d in range(len(dims))]


rule("view _unsafe_view view.default", self=lambda grad, self_shape: reshape(grad, self_shape))
rule("t", self=lambda grad: op("t", grad))
rule("transpose", self=lambda grad, dim0, dim1: op("transpose", grad, dim0, dim1))
rule("permute", self=lambda grad, dims: op("permute", grad, _inverse(dims)))
rule("expand", self=lambda grad, self_shape: sum_to_size(grad, self_shape))
rule("unsqueeze", self=lambda grad, dim: op("squeeze", grad, dim))
rule("squeeze", self=_unsqueezed)
rule("slice", self=lambda grad, self_shape, dim, start, end, step: op(
    "slice_backward", grad, self_shape, dim, 0 if start is None else start, 9223372036854775807 if end is None else end, step))
rule("diag_embed", self=lambda grad, offset, dim1, dim2: op("diagonal", grad, offset, dim1, dim2))
rule("flip", self=lambda grad, dims: op("flip", grad, dims))
rule("roll", self=lambda grad, shifts, dims: op("roll", grad, [-s for s in shifts], dims))
rule("tril", self=lambda grad, diagonal: op("tril", grad, diagonal))
rule("triu", self=lambda grad, diagonal: op("triu", grad, diagonal))
rule("constant_pad_nd", self=lambda grad, pad: op("constant_pad_nd", grad, [-p for p in pad]))


def _complete(grads: list[Any], shapes: list[list[int]]) -> list[Tensor]:
    """Zeros for the pieces that no gradient came to."""
    some = next(g for g in grads if g is not None)
    return [op("zeros", shape, dtype=some.dtype, device=some.device) if g is None else g for g, shape in zip(grads, shapes)]


def _joined(grads: list[Any], self_shape: list[int], dim: int, sizes: list[int]) -> Tensor:
    shapes = [[n if d == dim % len(self_shape) else s for d, s in enumerate(self_shape)] for n in sizes]
    return op("cat", _complete(grads, shapes), dim)


rule("split.Tensor unsafe_split.Tensor", self=lambda grads, self_shape, split_size, dim: _joined(grads, self_shape, dim, [
    min(split_size, self_shape[dim] - at) for at in range(0, self_shape[dim], split_size)]))
rule("split_with_sizes", self=lambda grads, self_shape, split_sizes, dim: _joined(grads, self_shape, dim, split_sizes))


def _stacked(grads: list[Any], self_shape: list[int], dim: int) -> Tensor:
    some = next(g for g in grads if g is not None)
    shape = [n for d, n in enumerate(self_shape) if d != dim % len(self_shape)]
    return op("stack", [op("expand", op("zeros", [], dtype=some.dtype, device=some.device), shape) if g is None else g
                        for g in grads], dim)


rule("unbind", self=_stacked)


def _cut_apart(grad: Tensor, tensors_shape: Any, dim: int) -> list[Tensor]:
    found, at = [], 0
    for shape in tensors_shape:
        found.append(op("slice", grad, dim, at, at + shape[dim]))
        at += shape[dim]
    return found


rule("cat", tensors=_cut_apart)
rule("stack", tensors=lambda grad, tensors_shape, dim: [op("select", grad, dim, i) for i in range(len(tensors_shape))])


def _repeated(grad: Tensor, self_shape: list[int], repeats: list[int]) -> Tensor:
    lead = len(repeats) - len(self_shape)
    if lead:
        grad = op("sum", reshape(grad, [math.prod(repeats[:lead]), *grad.shape[lead:]]), [0])
    sizes, dims = [], []
    for times, n in zip(repeats[lead:], self_shape):
        if times != 1:
            dims.append(len(sizes))
            sizes.append(times)
        sizes.append(n)
    return grad if not dims else op("sum", reshape(grad, sizes), dims)


rule("repeat", self=_repeated)


# ---------------------------------------------------------------------------------------------------------- indexing
rule("index", self=lambda grad, self_shape, indices: op("index_put", op("new_zeros", grad, self_shape), indices, grad, True))
rule("gather", self=lambda grad, self_shape, dim, index: op("scatter_add", op("new_zeros", grad, self_shape), dim, index, grad))
rule("index_select", self=lambda grad, self_shape, dim, index: op(
    "index_add", op("new_zeros", grad, self_shape), dim, index, grad))
rule("index_put", self=lambda grad, indices, accumulate: grad if accumulate else op(
    "index_put", grad, indices, op("zeros", [], dtype=grad.dtype, device=grad.device)),
    values=lambda grad, indices: op("index", grad, list(indices)))
rule("embedding", weight=lambda grad, indices, weight_shape, padding_idx, scale_grad_by_freq: op(
    "embedding_dense_backward", grad, indices, weight_shape[0], padding_idx, scale_grad_by_freq))
rule("select_backward", grad_output=lambda grad, dim, index: op("select", grad, dim, index))
rule("slice_backward", grad_output=lambda grad, dim, start, end, step: op("slice", grad, dim, start, end, step))


# ---------------------------------------------------------------------------------------------------------- products
def _column_major(x: Tensor) -> bool:
    return x.ndim == 2 and tuple(x.stride()) == (1, x.shape[0])


def _first_factor(grad: Tensor, mat1: Any, mat2: Tensor, factor: Any = 1) -> Tensor:
    if mat1 is not None:
        return _times(op("t", op("mm", _conj(mat2), op("t", grad))), factor)
    return _times(op("mm", grad, _conj(op("t", mat2))), factor)


def _second_factor(grad: Tensor, mat1: Tensor, column_major: bool, factor: Any = 1) -> Tensor:
    if column_major:
        return _times(op("t", op("mm", op("t", grad), _conj(mat1))), factor)
    return _times(op("mm", _conj(op("t", mat1)), grad), factor)


rule("mm", self=lambda grad, self, mat2: _first_factor(grad, self if _column_major(self) else None, mat2),
     mat2=lambda grad, self, mat2: _second_factor(grad, self, _column_major(mat2)))
rule("addmm", self=lambda grad, beta: _times(grad, beta),
     mat1=lambda grad, mat1, mat2, alpha: _first_factor(grad, mat1 if _column_major(mat1) else None, mat2, alpha),
     mat2=lambda grad, mat1, mat2, alpha: _second_factor(grad, mat1, _column_major(mat2), alpha))
rule("bmm", self=lambda grad, mat2: op("bmm", grad, _conj(op("transpose", mat2, 1, 2))),
     mat2=lambda grad, self: op("bmm", _conj(op("transpose", self, 1, 2)), grad))
rule("baddbmm", self=lambda grad, beta: _times(grad, beta),
     batch1=lambda grad, batch2, alpha: _times(op("bmm", grad, op("transpose", batch2, 1, 2)), alpha),
     batch2=lambda grad, batch1, alpha: _times(op("bmm", op("transpose", batch1, 1, 2), grad), alpha))
rule("mv", self=lambda grad, vec: op("mul", reshape(grad, [grad.shape[0], 1]), _conj(vec)),
     vec=lambda grad, self: op("mv", _conj(op("t", self)), grad))
rule("dot", self=lambda grad, tensor: op("mul", grad, _conj(tensor)), tensor=lambda grad, self: op("mul", grad, _conj(self)))


# ------------------------------------------------------------------------------------------------------------ losses
def _logits(grad: Tensor, self: Tensor, target: Tensor, weight: Any, pos_weight: Any, reduction: int) -> Tensor:
    if pos_weight is not None:
        slope = op("mul", pos_weight, target)
        made = op("sub", op("mul", op("sub", scalar("add", slope, 1), target), op("sigmoid", self)), slope)
        made = op("mul", made, grad)
    else:
        made = op("mul", op("sub", op("sigmoid", self), target), grad)
    if weight is not None:
        made = op("mul", made, weight)
    return scalar("div_", made, self.numel()) if reduction == 1 else made


rule("binary_cross_entropy_with_logits", self=_logits)
