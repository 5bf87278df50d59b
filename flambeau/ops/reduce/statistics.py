"""Variance, medians, quantiles, covariance; integrals and differences of sampled functions."""

from __future__ import annotations

import math
from typing import Any

from ...autograd.state import BATCHED, state
from ...creation.factories import full
from ...tensors import dtypes as _dtypes
from ...tensors import return_types
from ...tensors.shapes import wrap_dim
from ...tensors.tensor import Tensor
from .. import rules
from ..core.row import FUNCTIONS, along, row
from .reductions import (
    check_nonempty,
    count,
    dims_of,
    keep,
    one_dim,
    picked_grad,
    reduction,
    whole_tied_grad,
)


# ---------------------------------------------------------------------------------------------------- variance
def _var_grad(grad: Tensor, self: Tensor, dim: Any, correction: float, keepdim: bool) -> Tensor:
    grad = keep(grad, self.shape, dim, keepdim)
    free = count(self.shape, dim) - correction
    if free <= 0:
        if dim is None:
            return grad * FUNCTIONS["where"](self == self.mean(), math.nan, math.inf)
        free = math.nan if free == 0 else free
    apart = self - (self.mean(dim, True) if self.ndim else self.mean())
    return (2.0 / free) * grad * apart


def _std_grad(grad: Tensor, self: Tensor, result: Tensor, dim: Any, correction: float, keepdim: bool) -> Tensor:
    return _var_grad((grad / (result * 2)).masked_fill(result == 0, 0), self, dim, correction, keepdim)


def _mean_grad(grad: Tensor, self: Tensor, dim: Any, keepdim: bool) -> Tensor:
    return keep(grad, self.shape, dim, keepdim).expand(self.shape) / count(self.shape, dim)


def _var_mean_grad(grads, self, dim, correction, keepdim):
    parts = []
    if grads[0] is not None:
        parts.append(_var_grad(grads[0], self, dim, correction, keepdim))
    if grads[1] is not None:
        parts.append(_mean_grad(grads[1], self, dim, keepdim))
    return parts[0] + parts[1] if len(parts) == 2 else parts[0] if parts else None


def _std_mean_grad(grads, self, result0, dim, correction, keepdim):
    parts = []
    if grads[0] is not None:
        parts.append(_std_grad(grads[0], self, result0, dim, correction, keepdim))
    if grads[1] is not None:
        parts.append(_mean_grad(grads[1], self, dim, keepdim))
    return parts[0] + parts[1] if len(parts) == 2 else parts[0] if parts else None


_var = along("var", "self dim correction keepdim", takes="bifch", shape=rules.spread, backward=dict(self=_var_grad))
_std = along("std", "self dim correction keepdim", takes="bifch", shape=rules.spread, backward=dict(self=_std_grad))
_var_mean = along("var_mean", "self dim correction keepdim", takes="bifch", shape=rules.spread_mean,
                  backward=dict(self=_var_mean_grad))
_std_mean = along("std_mean", "self dim correction keepdim", takes="bifch", shape=rules.spread_mean,
                  backward=dict(self=_std_mean_grad))


def _spread_arguments(name: str, input: Tensor, dim: Any, unbiased: Any, keepdim: Any, correction: Any) -> tuple:
    """PyTorch's three overloads: (unbiased), (dim, unbiased, keepdim) and (dim, *, correction, keepdim)."""
    if dim.__class__ is bool:
        if unbiased is not None:
            raise TypeError(f"{name}(): argument 'dim' must be int or tuple of ints, not bool")
        dim, unbiased = None, dim
    if unbiased is not None and unbiased.__class__ is not bool:
        raise TypeError(f"{name}(): argument 'unbiased' must be bool, not {type(unbiased).__name__}")
    if unbiased is not None and correction is not None:
        raise TypeError(f"{name}() received an invalid combination of arguments: unbiased and correction exclude each other")
    if not (input.is_floating_point() or input.is_complex()):
        what = f"{name}: std and var" if name in ("std", "var") else name
        raise RuntimeError(f"{what} only support floating point and complex dtypes")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    dims = dims_of(dim, input.ndim, name)
    if count(input.shape, dims) - correction <= 0:
        import warnings
        warnings.warn(f"{name}(): degrees of freedom is <= 0. Correction should be strictly less than the reduction "
                      "factor (input numel divided by output numel).", UserWarning, stacklevel=4)
    return input, dims, correction, keepdim


@reduction
def var(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
        correction: Any = None) -> Tensor:
    """The variance over dim, divided by n - correction (1 by default)."""
    return _var(*_spread_arguments("var", input, dim, unbiased, keepdim, correction))


@reduction
def std(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
        correction: Any = None) -> Tensor:
    """The standard deviation over dim."""
    return _std(*_spread_arguments("std", input, dim, unbiased, keepdim, correction))


@reduction(out=None, method=False)
def var_mean(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
             correction: Any = None) -> tuple[Tensor, Tensor]:
    """The variance and the mean over dim."""
    return _var_mean(*_spread_arguments("var_mean", input, dim, unbiased, keepdim, correction))


@reduction(out=None, method=False)
def std_mean(input: Tensor, dim: Any = None, unbiased: Any = None, keepdim: bool = False, *,
             correction: Any = None) -> tuple[Tensor, Tensor]:
    """The standard deviation and the mean over dim."""
    return _std_mean(*_spread_arguments("std_mean", input, dim, unbiased, keepdim, correction))


# ------------------------------------------------------------------------------------------- median and mode
def _picked_rule(grad, self_shape, dim, result1, keepdim):
    return picked_grad(grad, self_shape, dim, result1, keepdim)


_median = row("median", "self ignore_nan", safe=True, shape=rules.one_element, backward=dict(self=whole_tied_grad))
_nanmedian = row("nanmedian", "self ignore_nan", kernel="median", backward=dict(self=whole_tied_grad))
_median_dim = along("median_dim", "self dim keepdim ignore_nan", shape=rules.with_position,
                    node="MedianBackward1", constant=(1,),
                    backward=dict(self=_picked_rule))
_nanmedian_dim = row("nanmedian_dim", "self dim keepdim ignore_nan", kernel="median_dim", node="NanmedianBackward1",
                     constant=(1,), backward=dict(self=_picked_rule))
_mode = along("mode", "self dim keepdim", safe=True, shape=rules.with_position, constant=(1,), backward=dict(self=_picked_rule))


def _middle(name: str, of_all: Any, along: Any, input: Tensor, dim: int | None, keepdim: bool) -> Any:
    if input.is_complex() or input.dtype is _dtypes.bool_:
        raise NotImplementedError(f'"median_cpu" not implemented for \'{input.dtype.word}\'')
    ignore_nan = name == "nanmedian"
    if dim is None:
        return of_all(input, ignore_nan)
    dim = one_dim(dim, input.ndim, name)
    check_nonempty(input, (dim,), name)
    return getattr(return_types, name)(*along(input, dim, keepdim, ignore_nan))


@reduction(out="same")
def median(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle element (the lower of two); along dim with its index. NaN if there is one."""
    return _middle("median", _median, _median_dim, input, dim, keepdim)


@reduction(out="same")
def nanmedian(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Any:
    """The middle element of those that are not NaN."""
    return _middle("nanmedian", _nanmedian, _nanmedian_dim, input, dim, keepdim)


@reduction(out="same")
def mode(input: Tensor, dim: int = -1, keepdim: bool = False) -> Any:
    """The most frequent value along dim (the smallest of several) and its last index."""
    if input.is_complex():
        raise NotImplementedError(f'"mode_cpu" not implemented for \'{input.dtype.word}\'')
    dim = one_dim(dim, input.ndim, "mode")
    check_nonempty(input, (dim,), "mode")
    return return_types.mode(*_mode(input, dim, keepdim))


# -------------------------------------------------------------------------------------------------- quantiles
_INTERPOLATIONS = ("linear", "lower", "higher", "midpoint", "nearest")


def _check_quantile(name: str, input: Tensor, q: Any, dim: Any, interpolation: str) -> Tensor:
    if not input.numel():
        raise RuntimeError(f"{name}() input tensor must be non-empty")
    if input.dtype not in (_dtypes.float32, _dtypes.float64):
        raise RuntimeError(f"{name}() input tensor must be either float or double dtype")
    if interpolation not in _INTERPOLATIONS:
        raise RuntimeError(f"{name}() interpolation must be one of linear, lower, higher, midpoint or nearest, but got "
                           f"{interpolation}")
    if not isinstance(q, Tensor):
        if not isinstance(q, (int, float)):
            raise TypeError(f"{name}(): argument 'q' must be Tensor or float, not {type(q).__name__}")
        if not 0 <= q <= 1:
            raise RuntimeError(f"{name}() q must be in the range [0, 1] but got {q:g}")
        return full((), float(q), dtype=input.dtype, device=input.device)
    if q.ndim > 1:
        raise RuntimeError(f"{name}() q must be a scalar or 1D tensor")
    if q.dtype is not input.dtype:
        raise RuntimeError(f"{name}() q tensor must be same dtype as the input tensor")
    if not state.mode & BATCHED and not q.is_meta and not ((q >= 0).logical_and(q <= 1)).all().item():
        raise RuntimeError(f"{name}() q values must be in the range [0, 1]")
    return q


def _quantile(name: str, input: Tensor, q: Any, dim: Any, keepdim: bool, interpolation: str,
              ignore_nan: bool) -> Tensor:
    q = _check_quantile(name, input, q, dim, interpolation)
    ndim = input.ndim
    if dim is None:
        values, dim, shape = input.reshape(-1), 0, (1,) * ndim if keepdim else ()
    else:
        dim = one_dim(dim, ndim, name)
        values = input if ndim else input.reshape(1)
        shape = tuple(n if i != dim else 1 for i, n in enumerate(input.shape) if keepdim or i != dim)
    ordered = values.sort(dim)[0].movedim(dim, -1)
    made = _interpolated(ordered, q, interpolation, ignore_nan)
    if q.ndim:
        return made.movedim(-1, 0).reshape((q.numel(), *shape))
    return made.squeeze(-1).reshape(shape)


def _interpolated(ordered: Tensor, q: Tensor, interpolation: str, ignore_nan: bool) -> Tensor:
    """The quantiles q of sorted rows, as a last dimension."""
    n = ordered.shape[-1]
    nan = ordered.isnan()
    q = q.reshape(-1)
    if ignore_nan:
        known = nan.logical_not().sum(-1, keepdim=True)
        ranks = (q * (known - 1).to(q.dtype)).clamp(min=0)
    else:
        ranks = (q * (n - 1)).expand((*ordered.shape[:-1], q.numel())).masked_fill(nan.any(-1, keepdim=True), n - 1)
    if interpolation == "lower":
        ranks = ranks.floor()
    elif interpolation == "higher":
        ranks = ranks.ceil()
    elif interpolation == "nearest":
        ranks = ranks.round()
    below = ranks.to(_dtypes.int64)
    low = ordered.gather(-1, below)
    if interpolation not in ("linear", "midpoint"):
        return low
    weight = ranks * 0 + 0.5 if interpolation == "midpoint" else ranks - below.to(ranks.dtype)
    above = ranks.ceil().to(_dtypes.int64)
    return low.lerp(ordered.gather(-1, above), weight)


@reduction(out="same", autocast="float32")
def quantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *,
             interpolation: str = "linear") -> Tensor:
    """The q-th quantiles of the elements (along dim); NaN where there is one."""
    return _quantile("quantile", input, q, dim, keepdim, interpolation, False)


@reduction(out="same", autocast="float32")
def nanquantile(input: Tensor, q: Any, dim: int | None = None, keepdim: bool = False, *,
                interpolation: str = "linear") -> Tensor:
    """The q-th quantiles of the elements that are not NaN."""
    return _quantile("nanquantile", input, q, dim, keepdim, interpolation, True)


# ------------------------------------------------------------------------------------------------- covariance
def _check_weights(name: str, weights: Tensor, what: str, n: int) -> None:
    if weights.ndim > 1:
        raise RuntimeError(f"cov(): expected {name} to have one or fewer dimensions but got {name} with {weights.ndim} "
                           "dimensions")
    integral = not (weights.is_floating_point() or weights.is_complex()) and weights.dtype is not _dtypes.bool_
    if integral != (what == "integral"):
        raise RuntimeError(f"cov(): expected {name} to have {what} dtype but got {name} with {weights.dtype.word} dtype")
    if weights.numel() != n:
        raise RuntimeError(f"cov(): expected {name} to have the same numel as there are observations in the input but "
                           f"got {weights.numel()} != {n}")
    if weights.numel() and weights.min().item() < 0:
        raise RuntimeError(f"cov(): {name} cannot be negative")


@reduction(out=None)
def cov(input: Tensor, *, correction: int = 1, fweights: Tensor | None = None,
        aweights: Tensor | None = None) -> Tensor:
    """The covariance matrix of variables (rows) over observations (columns)."""
    if input.ndim > 2:
        raise RuntimeError(f"cov(): expected input to have two or fewer dimensions but got an input with {input.ndim} "
                           "dimensions")
    if input.dtype is _dtypes.bool_:
        raise RuntimeError("cov(): bool dtype is not supported for input")
    x = input.reshape(1, -1) if input.ndim < 2 else input
    n = x.shape[1]
    weights = None
    if fweights is not None:
        _check_weights("fweights", fweights, "integral", n)
        weights = fweights
    if aweights is not None:
        _check_weights("aweights", aweights, "floating point", n)
        weights = aweights if weights is None else weights * aweights
    total = float(n) if weights is None else weights.sum()
    if weights is not None and not n == 0 and total.item() == 0:
        raise RuntimeError("cov(): weights sum to zero, can't be normalized")
    middle = x.sum(1) / n if weights is None else (x * weights).sum(1) / total
    free = _freedom(total, weights, aweights, correction)
    apart = x - middle.unsqueeze(1)
    other = apart if weights is None else apart * weights
    return (apart.to(other.dtype).matmul(other.t().conj()) / free).squeeze()


def _freedom(total: Any, weights: Any, aweights: Any, correction: int) -> Any:
    """The divisor: the number of observations, less the correction (scaled by the weights)."""
    if weights is None:
        return max(total - correction, 0)
    if aweights is None:
        free = total - correction
    else:
        free = total - correction * (weights * aweights).sum() / total
    if free.item() <= 0:
        import warnings
        warnings.warn("cov(): degrees of freedom is <= 0. Correction should be strictly less than the number of "
                      "observations.", UserWarning, stacklevel=4)
        return free * 0
    return free


@reduction(out=None)
def corrcoef(input: Tensor) -> Tensor:
    """Pearson's correlation coefficients of variables (rows), clipped to [-1, 1]."""
    if input.ndim > 2:
        raise RuntimeError("corrcoef(): expected input to have two or fewer dimensions but got an input with "
                           f"{input.ndim} dimensions")
    made = cov(input)
    if not made.ndim:
        return made / made
    spread = made.diag()
    if spread.is_complex():
        spread = spread.real
    deviation = spread.sqrt()
    made = made / deviation.unsqueeze(1) / deviation.unsqueeze(0)
    if made.is_complex():
        return FUNCTIONS["complex"](made.real.clip(-1, 1), made.imag.clip(-1, 1))
    return made.clip(-1, 1)


# ---------------------------------------------------------------------------- integrals and differences
def _piece(x: Tensor, dim: int, start: int, stop: int | None) -> Tensor:
    n = x.shape[dim]
    stop = n if stop is None else stop if stop >= 0 else n + stop
    return x.narrow(dim, start, max(stop - start, 0))


def _widths(y: Tensor, x: Tensor, dim: int, name: str) -> Tensor:
    """The distances between sample points, shaped to go with y."""
    if x.ndim == 0 or y.ndim == 0:
        raise RuntimeError(f"{name}: expected tensors with dimensions")
    if x.ndim == 1:
        if x.shape[0] != y.shape[dim]:
            raise RuntimeError(f"{name}: There must be one `x` value for each sample point")
        wide = (x.narrow(0, 1, max(x.shape[0] - 1, 0)) - x.narrow(0, 0, max(x.shape[0] - 1, 0))) if x.shape[0] else x
        return wide.reshape([-1 if i == dim else 1 for i in range(y.ndim)])
    own = dim - y.ndim + x.ndim
    if x.ndim < y.ndim:
        x = x.reshape((1,) * (y.ndim - x.ndim) + tuple(x.shape))
        own = dim
    return _piece(x, own, 1, None) - _piece(x, own, 0, -1)


def _trapezoid_args(name: str, y: Tensor, x: Any, dx: Any, dim: int) -> tuple[Tensor, Any, int]:
    if not y.ndim:
        raise IndexError(f"Dimension specified as {dim} but tensor has no dimensions")
    dim = one_dim(dim, y.ndim, name)
    if y.dtype is _dtypes.bool_:
        raise RuntimeError(f"{name}: received a bool input for `y`, but bool is not supported")
    if x is not None and dx is not None:
        raise TypeError(f"{name}() received an invalid combination of arguments: x and dx exclude each other")
    if x is not None and x.dtype is _dtypes.bool_:
        raise RuntimeError(f"{name}: received a bool input for `x`, but bool is not supported")
    return y, x, dim


@reduction(method=False, out=None, aliases=("trapz",), also={"y": "input"})
def trapezoid(input: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """The integral of sampled values by the trapezoidal rule; x: where they were sampled, dx: how far apart."""
    y, x, dim = _trapezoid_args("trapezoid", input, x, dx, dim)
    if not y.shape[dim]:
        return y.sum(dim)
    if x is not None:
        wide = _widths(y, x, dim, "trapezoid")
        return (wide * (_piece(y, dim, 0, -1) + _piece(y, dim, 1, None))).sum(dim) / 2.0
    ends = y.select(dim, 0) + y.select(dim, -1)
    return (y.sum(dim) - ends * 0.5) * (1 if dx is None else dx)


@reduction(method=False, out=None, also={"y": "input"})
def cumulative_trapezoid(input: Tensor, x: Tensor | None = None, *, dx: Any = None, dim: int = -1) -> Tensor:
    """Running integrals by the trapezoidal rule."""
    y, x, dim = _trapezoid_args("cumulative_trapezoid", input, x, dx, dim)
    pairs = _piece(y, dim, 0, -1) + _piece(y, dim, 1, None)
    if x is not None:
        return (_widths(y, x, dim, "cumulative_trapezoid") * pairs).cumsum(dim) / 2.0
    return ((1 if dx is None else dx) / 2.0 * pairs).cumsum(dim)


@reduction(method=False, out=None)
def gradient(input: Tensor, *, spacing: Any = None, dim: Any = None, edge_order: int = 1) -> list[Tensor]:
    """Second-order finite differences along each dim; spacing: a number, one per dim, or coordinates per dim."""
    if input.dtype is _dtypes.uint8:
        raise RuntimeError("torch.gradient does not support uint8 input.")
    dims = tuple(range(input.ndim)) if dim is None else (dim,) if isinstance(dim, int) else tuple(dim)
    dims = tuple(wrap_dim(d, input.ndim) for d in dims)
    if len(set(dims)) != len(dims):
        twice = next(d for d in dims if dims.count(d) > 1)
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
    if edge_order not in (1, 2):
        raise RuntimeError("torch.gradient only supports edge_order=1 and edge_order=2.")
    steps = _spacings(spacing, dim, dims)
    for step in steps:
        if isinstance(step, Tensor) and step.device != input.device:
            raise RuntimeError("torch.gradient expected each tensor to be on the same device, but got devices "
                               f"{step.device} and {input.device}.")
    for d in dims:
        if input.shape[d] < edge_order + 1:
            raise RuntimeError("torch.gradient expected each dimension size to be at least edge_order+1")
    return tuple(_difference(input, d, s, edge_order) for d, s in zip(dims, steps))


def _spacings(spacing: Any, dim: Any, dims: tuple[int, ...]) -> list[Any]:
    if spacing is None:
        return [1.0] * len(dims)
    if isinstance(spacing, (int, float, complex)):
        return [spacing] * len(dims)
    steps = [spacing] if isinstance(spacing, Tensor) else list(spacing)
    if len(steps) != len(dims):
        raise RuntimeError("torch.gradient expected spacing to be unspecified, a scalar or a list of length "
                           f"{len(dims)}, but got a list of length {len(steps)}")
    return steps


def _difference(f: Tensor, dim: int, step: Any, edge_order: int) -> Tensor:
    n = f.shape[dim]

    def at(i: int) -> Tensor:
        return f.narrow(dim, i % n, 1)

    if not isinstance(step, Tensor):
        inner = (_piece(f, dim, 2, None) - _piece(f, dim, 0, -2)) / (2 * step)
        if edge_order == 1:
            first, last = (at(1) - at(0)) / step, (at(-1) - at(-2)) / step
        else:
            first = (-1.5 * at(0) + 2 * at(1) - 0.5 * at(2)) / step
            last = (0.5 * at(-3) - 2 * at(-2) + 1.5 * at(-1)) / step
        return FUNCTIONS["cat"]([first, inner, last], dim)
    shape = [-1 if i == dim else 1 for i in range(f.ndim)]
    gaps = step.narrow(0, 1, n - 1) - step.narrow(0, 0, n - 1)
    left, right = gaps.narrow(0, 0, n - 2).reshape(shape), gaps.narrow(0, 1, n - 2).reshape(shape)
    a, b, c = -right / (left * (left + right)), (right - left) / (left * right), left / (right * (left + right))
    inner = a * _piece(f, dim, 0, -2) + b * _piece(f, dim, 1, -1) + c * _piece(f, dim, 2, None)
    h0, h1 = gaps.narrow(0, 0, 1).reshape(shape), gaps.narrow(0, n - 2, 1).reshape(shape)
    if edge_order == 1:
        first, last = (at(1) - at(0)) / h0, (at(-1) - at(-2)) / h1
    else:
        g0, g1 = gaps.narrow(0, 1, 1).reshape(shape), gaps.narrow(0, n - 3, 1).reshape(shape)
        first = (-(2 * h0 + g0) / (h0 * (h0 + g0)) * at(0) + (h0 + g0) / (h0 * g0) * at(1)
                 - h0 / (g0 * (h0 + g0)) * at(2))
        last = (h1 / (g1 * (g1 + h1)) * at(-3) - (h1 + g1) / (g1 * h1) * at(-2)
                + (2 * h1 + g1) / (h1 * (g1 + h1)) * at(-1))
    return FUNCTIONS["cat"]([first, inner, last], dim)
