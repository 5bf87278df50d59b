"""Decompositions: operations written with simpler ones, for `make_fx(decomposition_table=...)`."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

from ..ops import aten
from ..ops.aten import OpOverload, OpOverloadPacket

__all__ = ["core_aten_decompositions", "decomposition_table", "get_decompositions", "register_decomposition",
           "remove_decompositions"]

decomposition_table: dict[Any, Callable[..., Any]] = {}


def register_decomposition(aten_op: Any, registry: dict[Any, Callable[..., Any]] | None = None, *, type: str = "post_autograd",
                           unsafe: bool = False) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    """A decorator: the function stands for an operation, for all its overloads, or for several operations."""
    if type != "post_autograd":
        raise NotImplementedError(f"register_decomposition: type={type!r} is not implemented in flambeau: decompositions are "
                                  "used below autograd")
    table = decomposition_table if registry is None else registry

    def register(function: Callable[..., Any]) -> Callable[..., Any]:
        for op in _overloads(aten_op):
            if op in table:
                raise RuntimeError(f"duplicate registrations for {op}")
            table[op] = function
        return function

    return register


def _overloads(ops: Any) -> list[Any]:
    if isinstance(ops, (list, tuple)):
        return [one for op in ops for one in _overloads(op)]
    if isinstance(ops, OpOverloadPacket):
        return [getattr(ops, name) for name in ops.overloads() if not name.endswith("out")]
    if not isinstance(ops, OpOverload):
        raise TypeError(f"expected an operation of torch.ops, got {ops} of type {type(ops)}")
    return [ops]


def get_decompositions(aten_ops: Sequence[Any], type: str = "post_autograd") -> dict[Any, Callable[..., Any]]:
    """The decompositions of some operations; those that have none are left out."""
    if type != "post_autograd":
        raise NotImplementedError(f"get_decompositions: type={type!r} is not implemented in flambeau")
    return {op: decomposition_table[op] for op in _overloads(list(aten_ops)) if op in decomposition_table}


def remove_decompositions(decompositions: dict[Any, Callable[..., Any]], aten_ops: Sequence[Any]) -> None:
    """Takes the decompositions of some operations out of a table."""
    for op in _overloads(list(aten_ops)):
        decompositions.pop(op, None)


def core_aten_decompositions() -> dict[Any, Callable[..., Any]]:
    """All decompositions that there are."""
    return dict(decomposition_table)


def _torch() -> Any:
    import flambeau
    return flambeau


_decomposed = functools.partial(register_decomposition)


@_decomposed(aten.silu_backward.default)
def _silu_backward(grad: Any, self: Any) -> Any:
    gate = self.sigmoid()
    return grad * gate * (1 + self * (1 - gate))


@_decomposed(aten._softmax.default)
def _softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    shifted = (self - self.amax(dim, keepdim=True)).exp() if self.numel() else self.exp()
    return shifted / shifted.sum(dim, keepdim=True)


@_decomposed(aten._log_softmax.default)
def _log_softmax(self: Any, dim: int, half_to_float: bool) -> Any:
    shifted = self - self.amax(dim, keepdim=True) if self.numel() else self
    return shifted - shifted.exp().sum(dim, keepdim=True).log()


@_decomposed(aten._softmax_backward_data.default)
def _softmax_backward(grad: Any, output: Any, dim: int, input_dtype: Any) -> Any:
    product = grad * output
    return product - output * product.sum(dim, keepdim=True)


@_decomposed(aten.addmm.default)
def _addmm(self: Any, mat1: Any, mat2: Any, *, beta: Any = 1, alpha: Any = 1) -> Any:
    product = mat1.mm(mat2)
    return (product if alpha == 1 else product * alpha) + (self if beta == 1 else self * beta)


@_decomposed(aten.logsumexp.default)
def _logsumexp(self: Any, dim: Any, keepdim: bool = False) -> Any:
    largest = self.amax(dim, keepdim=True)
    largest = _torch().where(largest.abs() == float("inf"), 0.0, largest)
    total = (self - largest).exp().sum(dim, keepdim=keepdim).log()
    return total + (largest if keepdim else largest.squeeze(tuple(dim) if isinstance(dim, list) else dim))


@_decomposed(aten.mse_loss.default)
def _mse_loss(self: Any, target: Any, reduction: int = 1) -> Any:
    loss = (self - target) ** 2
    return loss if not reduction else loss.mean() if reduction == 1 else loss.sum()


@_decomposed(aten.native_layer_norm.default)
def _native_layer_norm(input: Any, normalized_shape: Any, weight: Any, bias: Any, eps: float) -> Any:
    dims = tuple(range(input.ndim - len(normalized_shape), input.ndim))
    mean = input.mean(dims, keepdim=True)
    rstd = (((input - mean) ** 2).mean(dims, keepdim=True) + eps).rsqrt()
    made = (input - mean) * rstd
    made = made if weight is None else made * weight
    return made if bias is None else made + bias, mean, rstd


# Those that are one expression.
_FORMULAS: dict[Any, Callable[..., Any]] = {
    aten.sigmoid_backward: lambda grad, output: grad * (output * (1 - output)),
    aten.tanh_backward: lambda grad, output: grad * (1 - output * output),
    aten.threshold_backward: lambda grad, self, threshold: _torch().where(self <= threshold, 0.0, grad),
    aten.silu.default: lambda self: self * self.sigmoid(),
    aten.leaky_relu.default: lambda self, negative_slope=0.01: _torch().where(self > 0, self, self * negative_slope),
    aten.hardtanh.default: lambda self, min_val=-1, max_val=1: self.clamp(min_val, max_val),
    aten.softplus.default: lambda self, beta=1, threshold=20:
        _torch().where(self * beta > threshold, self, (self * beta).exp().log1p() / beta),
    aten._log_softmax_backward_data.default: lambda grad, output, dim, input_dtype:
        grad - output.exp() * grad.sum(dim, keepdim=True),
    aten.addcmul.default: lambda self, tensor1, tensor2, *, value=1:
        self + (tensor1 * tensor2 if value == 1 else value * tensor1 * tensor2),
    aten.addcdiv.default: lambda self, tensor1, tensor2, *, value=1: self + value * (tensor1 / tensor2),
    (aten.lerp.Scalar, aten.lerp.Tensor): lambda self, end, weight: self + weight * (end - self),
    aten.rsub: lambda self, other, alpha=1: (-self if alpha == 1 else self * -alpha) + other,
    aten.t.default: lambda self: self.transpose(0, 0 if self.ndim < 2 else 1) if self.ndim else self,
    aten.select_backward.default: lambda grad, input_sizes, dim, index:
        _torch().select_scatter(grad.new_zeros(input_sizes), grad, dim, index),
    aten.slice_backward.default: lambda grad, input_sizes, dim, start, end, step:
        _torch().slice_scatter(grad.new_zeros(input_sizes), grad, dim, start, min(end, input_sizes[dim]), step)}
for _op, _formula in _FORMULAS.items():
    _decomposed(_op)(_formula)
