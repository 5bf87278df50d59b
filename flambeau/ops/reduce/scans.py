"""Running sums, products and extremes; softmax."""

from __future__ import annotations

import functools
from typing import Any

from ...autograd.state import grad_enabled
from ...tensors import dtypes as _dtypes
from ...tensors import return_types
from ...tensors.shapes import wrap_dim
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import FUNCTIONS, along, export, export_inplace
from ..pointwise.functions import conj
from .reductions import check_ordered, native, one_dim, possible, reduction


def from_end(operation: Any, x: Tensor, dim: int) -> Tensor:
    """A running operation from the last element to the first."""
    return operation(x.flip(dim), dim).flip(dim) if x.ndim else x


# --------------------------------------------------------------------------------------------- sum and product
_cumsum = along("cumsum", "self dim dtype", shape=rules.scan, forward="linear", backward=dict(
    self=lambda grad, dim: _cumsum_from_end(grad, dim)))
_cumsum_from_end = along("cumsum_from_end", "self dim", shape=rules.same, forward="linear", backward=dict(
    self=lambda grad, dim: _cumsum(grad, dim, None)))


def _not_bool(name: str, dtype: Any) -> None:
    if dtype is _dtypes.bool_:
        raise NotImplementedError(f"\"{name}_out_cpu\" not implemented for 'Bool'")


@reduction(out="typed")
def cumsum(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running sums along dim."""
    _not_bool("cumsum", dtype)
    return _cumsum(input, one_dim(dim, input.ndim, "cumsum"), native(dtype))


def _cumprod_grad(grad: Tensor, self: Tensor, result: Tensor, dim: int) -> Tensor:
    """d y_j / d x_k = y_j / x_k for k <= j, unless there are zeros."""
    if not self.ndim or not self.numel():
        return grad
    x, y = conj(self), conj(result)
    zero = self == 0
    if not possible(zero):
        return from_end(cumsum, grad * y, dim) / x
    if grad_enabled():
        return _cumprod_grad_exact(grad, x, dim)
    # Before the first zero as above (y is 0 from there on); at the first zero, with it left out; nothing behind it.
    first = zero.logical_and(zero.to(_dtypes.int64).cumsum(dim) == 1)
    before = zero.to(_dtypes.int64).cumsum(dim) == 0
    without = x.masked_fill(first, 1).cumprod(dim)
    after = before.logical_not()
    at_zero = (grad * without).masked_fill(before, 0).sum(dim, keepdim=True)
    away_from_zeros = from_end(cumsum, (grad * y).masked_fill(after, 0), dim) / x.masked_fill(zero, 1)
    return away_from_zeros.masked_fill(after, 0) + first * at_zero


def _cumprod_grad_exact(grad: Tensor, x: Tensor, dim: int) -> Tensor:
    """The same element by element, so that it can be differentiated again at zeros."""
    n = x.shape[dim]
    parts = []
    for k in range(n):
        rest = x.narrow(dim, k + 1, n - k - 1).cumprod(dim)
        upto = x.narrow(dim, 0, k).prod(dim, keepdim=True)
        total = grad.narrow(dim, k, 1)
        if k + 1 < n:
            total = total + (grad.narrow(dim, k + 1, n - k - 1) * rest).sum(dim, keepdim=True)
        parts.append(upto * total)
    return FUNCTIONS["cat"](parts, dim)


_cumprod = along("cumprod", "self dim dtype", shape=rules.scan, backward=dict(self=_cumprod_grad))


@reduction(out="typed")
def cumprod(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
    """Running products along dim."""
    _not_bool("cumprod", dtype)
    return _cumprod(input, one_dim(dim, input.ndim, "cumprod"), native(dtype))


def _in_own_dtype(function: Any) -> Any:
    """The in-place forms work in the tensor's own dtype: an int32 tensor stays one."""
    def scan(input: Tensor, dim: int, *, dtype: Any = None) -> Tensor:
        if input.dtype is _dtypes.bool_:
            raise NotImplementedError(f'"{function.__name__}_out_cpu" not implemented for \'Bool\'')
        return function(input, dim, dtype=input.dtype if dtype is None else dtype)

    return functools.update_wrapper(scan, function)


export_inplace("cumsum", _in_own_dtype(cumsum))
export_inplace("cumprod", _in_own_dtype(cumprod))


# --------------------------------------------------------------------------------------------------- extremes
def _running_grad(grad, self, result1, dim):
    return grad.new_zeros(self.shape).scatter_add(dim, result1, grad) if self.ndim else grad


_cummax = along("cummax", "self dim", safe=True, shape=rules.scan_with_position, constant=(1,),
                backward=dict(self=_running_grad))
_cummin = along("cummin", "self dim", safe=True, shape=rules.scan_with_position, constant=(1,),
                backward=dict(self=_running_grad))


@reduction(out="same")
def cummax(input: Tensor, dim: int) -> Any:
    """Running maxima along dim, and where the latest of them is."""
    check_ordered(input, "cummax_cpu")
    return return_types.cummax(*_cummax(input, one_dim(dim, input.ndim, "cummax")))


@reduction(out="same")
def cummin(input: Tensor, dim: int) -> Any:
    """Running minima along dim, and where the latest of them is."""
    check_ordered(input, "cummin_cpu")
    return return_types.cummin(*_cummin(input, one_dim(dim, input.ndim, "cummin")))


# ------------------------------------------------------------------------------------------------ logcumsumexp
def _logcumsumexp_grad(grad: Tensor, self: Tensor, result: Tensor, dim: int) -> Tensor:
    """exp(x_k) * sum of grad_j * exp(-y_j) over j >= k, in logarithms, the two signs of grad apart."""
    if not self.ndim or not self.numel():
        return grad
    if grad.is_complex():
        inner = from_end(logcumsumexp, conj(grad).log() - result, dim) + self
        return conj(inner.exp())
    least = _dtypes.finfo(grad.dtype).min  # not -inf: a difference of two would be NaN in the second derivative
    where = FUNCTIONS["where"]
    positive = where(grad > 0, grad.log(), least)
    negative = where(grad < 0, (-grad).log(), least)
    up = (from_end(logcumsumexp, positive - result, dim) + self).exp()
    down = (from_end(logcumsumexp, negative - result, dim) + self).exp()
    return up - down


_logcumsumexp = along("logcumsumexp", "self dim", safe=True, shape=rules.same, backward=dict(self=_logcumsumexp_grad))


@reduction(out="exact")
def logcumsumexp(input: Tensor, dim: int) -> Tensor:
    """The logarithm of running sums of exp(x)."""
    if not (input.is_floating_point() or input.is_complex()):
        raise NotImplementedError(f'"logcumsumexp_out_cpu" not implemented for \'{input.dtype.word}\'')
    return _logcumsumexp(input, one_dim(dim, input.ndim, "logcumsumexp"))


# ----------------------------------------------------------------------------------------------------- softmax
_softmax_grad = along("softmax_backward", "grad_output output dim", shape=rules.same,
                      node="SoftmaxBackwardDataBackward0", backward=dict(
    grad_output=lambda grad, output, dim: _softmax_grad(grad, output, dim),
    output=lambda grad, grad_output, output, dim: grad_output * grad - (
        (output * grad_output).sum(dim, True) * grad + grad_output * (output * grad).sum(dim, True))))
_log_softmax_grad = along(
    "log_softmax_backward", "grad_output output dim", shape=rules.same, node="LogSoftmaxBackwardDataBackward0", backward=dict(
        grad_output=lambda grad, output, dim: grad - (grad * output.exp()).sum(dim, True),
        output=lambda grad, grad_output, output, dim: -(grad_output.sum(dim, True) * output.exp() * grad)))

_softmax = along("softmax", "self dim dtype", shape=rules.normalised, backward=dict(
    self=lambda grad, result, dim: _softmax_grad(grad, result, dim)))
_log_softmax = along("log_softmax", "self dim dtype", shape=rules.normalised, backward=dict(
    self=lambda grad, result, dim: _log_softmax_grad(grad, result, dim)))


def _normalise(r: Any, name: str, input: Tensor, dim: int, dtype: Any) -> Tensor:
    kind = dtype or input.dtype
    dim = one_dim(dim, input.ndim, name)
    if not kind.is_floating_point and input.numel():
        raise NotImplementedError(f'"{name}_lastdim_kernel_impl" not implemented for \'{kind.word}\'')
    return r(input, dim, native(dtype))


@reduction(out="exact")
def softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """exp(x) / sum(exp(x)) along dim; dtype: convert first."""
    return _normalise(_softmax, "softmax", input, dim, dtype)


@reduction(out="exact")
def log_softmax(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """log(softmax(x)) along dim, accurately; dtype: convert first."""
    return _normalise(_log_softmax, "log_softmax", input, dim, dtype)


@reduction(toplevel=False, method=False)
def softmin(input: Tensor, dim: int, dtype: Any = None) -> Tensor:
    """softmax(-x) along dim."""
    return softmax(-input, dim, dtype)


def _under(name: str, function: Any) -> None:
    """torch._softmax(x, dim, half_to_float) and the like, which some programs call."""
    def low(input: Tensor, dim: int, half_to_float: bool = False) -> Tensor:
        return function(input, dim, dtype=_dtypes.float32 if half_to_float else None)

    functools.update_wrapper(low, function)
    export(name, low, method=False)


_under("_softmax", softmax)
_under("_log_softmax", log_softmax)
for _name, _grad in (("_softmax_backward_data", _softmax_grad), ("_log_softmax_backward_data", _log_softmax_grad)):
    export(_name, lambda grad_output, output, dim, input_dtype, _grad=_grad: _grad(
        grad_output, output, wrap_dim(dim, output.ndim)), method=False)
