"""Reductions and normalisations that leave out the elements where a mask is False (`torch.masked`).

Each one fills the masked-out elements with its own neutral value and runs the plain operation, so derivatives and error
checks are those of the plain operation. A result of nothing but masked-out elements is that neutral value.
"""

from __future__ import annotations

import functools
import importlib
import math
import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import flambeau as _f

from .ops.reduce.scans import softmin as _softmin
from .ops.reduce.vector_norms import vector_norm as _vector_norm
from .tensors import dtypes as _dtypes
from .tensors.formats import sparse_coo, sparse_csr, strided
from .tensors.shapes import wrap_dim
from .tensors.tensor import Tensor

__path__: list[str] = []  # private modules below it are found by name (internals.py)

__all__ = ["amax", "amin", "argmax", "argmin", "cumprod", "cumsum", "log_softmax", "logaddexp", "logsumexp", "mean",
           "median", "norm", "normalize", "prod", "softmax", "softmin", "std", "sum", "var"]


def __getattr__(name: str) -> Any:
    if name in ("MaskedTensor", "masked_tensor", "as_masked_tensor", "is_masked_tensor", "maskedtensor"):
        from . import masked_tensors
        if name == "maskedtensor":
            return masked_tensors
        return getattr(masked_tensors, name)
    if name == "_ops":  # PyTorch's file of these functions
        return importlib.import_module(f"{__name__}._ops")
    raise AttributeError(f"module 'flambeau.masked' has no attribute '{name}'")


class _Later(ModuleType):
    """PyTorch's modules below this one: the class of masked tensors, imported when it is asked for."""

    def __getattr__(self, name: str) -> Any:
        from . import masked_tensors
        return getattr(masked_tensors, name)


for _name in ("maskedtensor", "maskedtensor.core", "maskedtensor.creation"):
    sys.modules[f"{__name__}.{_name}"] = _Later(f"{__name__}.{_name}")
sys.modules[f"{__name__}.maskedtensor"].__path__ = []  # more below it is found by name (internals.py)


# --------------------------------------------------------------------------------------------------- arguments
def _input_mask(input: Tensor, *args: Any, mask: Tensor | None = None, **kwargs: Any) -> Tensor:
    """The mask of an input, spread over it. (PyTorch's tests call it.)"""
    if mask is None:
        raise ValueError("_input_mask requires explicit mask")
    if mask.ndim > input.ndim:
        raise IndexError("_input_mask expected broadcastable mask (got mask dimensionality higher than of the input)")
    kept = _mask_for(input, _dense(mask))
    return kept if input.layout is strided else kept.to_sparse(layout=input.layout)


def _output_mask(op: Callable, input: Tensor, *args: Any, **kwargs: Any) -> Tensor:
    """Which elements of a result come from at least one element that counts. (PyTorch's tests call it.)"""
    name = op.__name__
    if getattr(globals().get(name), "_same_shape", False):
        return _input_mask(input, *args, **kwargs)
    if name not in __all__:
        raise ValueError(f"_output_mask expected masked operation (got callable {op.__module__}.{name})")
    args = args[1:] if name == "norm" else args
    kept = _input_mask(input, *args, **kwargs)
    dim = args[0] if args else kwargs.get("dim")
    return _any_of(kept, _dims(dim, input.ndim), bool(kwargs.get("keepdim", False)))


def _any_of(mask: Tensor, dims: tuple[int, ...], keepdim: bool) -> Tensor:
    for d in reversed(dims):
        mask = mask.any(d, keepdim)
    return mask


def _where(mask: Tensor, input: Tensor, fill_value: Tensor) -> Tensor:
    """The input where the mask is True, else a number; of a sparse mask only the elements that it has exist."""
    if mask.layout is strided:
        return _f.where(mask, input, fill_value)
    return _dense(input).sparse_mask(mask)


def _reduction_identity(op_name: str, input: Tensor, *args: Any) -> Tensor | None:
    """What an element that does not count is replaced by."""
    dtype, short = input.dtype, op_name.rpartition(".")[2]
    if short in ("sum", "cumsum"):
        value = 0
    elif short in ("prod", "cumprod"):
        value = 1
    elif short in ("amax", "argmax", "logaddexp", "logsumexp"):
        value = _least(dtype)
    elif short in ("amin", "argmin"):
        value = _most(dtype)
    elif short in ("mean", "var", "std"):
        return None
    elif short == "norm":
        value = math.inf if args and args[0] < 0 else 0
    elif short == "median":
        dtype, value = dtype if dtype.is_floating_point else _dtypes.float32, math.nan
    else:
        raise NotImplementedError(f"identity of {op_name} on {dtype} input")
    return _f.tensor(value, dtype=dtype, device=input.device)


def _combine_input_and_mask(op: Any, input: Tensor, mask: Tensor | None, *args: Any) -> Tensor:
    """The input with what does not count replaced by what changes nothing."""
    if mask is None:
        return input
    name = op if isinstance(op, str) else op.__name__
    return _where(_input_mask(input, mask=mask), input, _reduction_identity(name, input, *args))


def _dense(t: Tensor) -> Tensor:
    return t if t.layout is strided else t.to_dense()


def _mask_for(input: Tensor, mask: Tensor | None) -> Tensor | None:
    """The mask as bool, broadcast to the input."""
    if mask is None:
        return None
    if mask.ndim > input.ndim:
        raise IndexError("expected a mask that broadcasts to the input, got one of higher dimensionality "
                         f"({mask.ndim}) than the input ({input.ndim})")
    if mask.shape != input.shape:
        mask = mask.expand(input.shape)
    return mask if mask.dtype is _dtypes.bool_ else mask != 0


def _filled(input: Tensor, mask: Tensor | None, value: Any) -> Tensor:
    mask = _mask_for(input, mask)
    return input if mask is None else input.masked_fill(mask.logical_not(), value)


def _dims(dim: Any, ndim: int) -> tuple[int, ...]:
    if dim is None or (isinstance(dim, (tuple, list)) and not dim):
        return tuple(range(ndim))
    dims: list[int] = []
    for d in (dim,) if isinstance(dim, int) else dim:
        wrapped = wrap_dim(d, ndim)
        if wrapped in dims:
            raise RuntimeError(f"dim={d} appears multiple times in the list of dims")
        dims.append(wrapped)
    return tuple(sorted(dims))


def _least(dtype: Any) -> Any:
    return -math.inf if dtype.is_floating_point or dtype.is_complex else _dtypes.iinfo(dtype).min


def _least_real(dtype: Any) -> Any:
    return -math.inf if dtype.is_floating_point else _dtypes.iinfo(dtype).min


def _most(dtype: Any) -> Any:
    return math.inf if dtype.is_floating_point else _dtypes.iinfo(dtype).max


def _without(input: Tensor, mask: Tensor | None, name: str, identity: Callable) -> Tensor:
    """The input with masked-out elements that change nothing in a reduction."""
    if mask is None:
        return input
    if input.dtype is _dtypes.bool_:
        raise NotImplementedError(f"identity of {name} on torch.bool input")
    return _filled(input, mask, identity(input.dtype))


def _sum_dtype(input: Tensor, dtype: Any) -> Any:
    if dtype is not None:
        return dtype
    return input.dtype if input.is_floating_point() or input.is_complex() else _dtypes.int64


def _converted(function: Callable) -> Callable:
    """The element type is settled first: dtype, or the input's own."""

    @functools.wraps(function)
    def wrapper(input: Tensor, *args: Any, dtype: Any = None, **kwargs: Any) -> Tensor:
        dtype = dtype or input.dtype
        return function(input if input.dtype is dtype else input.to(dtype), *args, **kwargs)

    return wrapper


def _takes(*layouts: Any) -> Callable:
    """Says of a reduction which sparse layouts it takes."""
    def say(function: Callable) -> Callable:
        function._layouts = layouts
        return function

    return say


def _keeps_shape(function: Callable) -> Callable:
    """Says of a function that it is no reduction."""
    function._same_shape = True
    return function


# -------------------------------------------------------------------------------------------------- reductions
@_takes(sparse_coo, sparse_csr)
def sum(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
        mask: Tensor | None = None) -> Tensor:
    """The sum of the elements whose mask is True."""
    return _f.sum(_filled(input, mask, 0), _dims(dim, input.ndim), bool(keepdim), dtype=_sum_dtype(input, dtype))


@_takes(sparse_coo, sparse_csr)
def prod(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
         mask: Tensor | None = None) -> Tensor:
    """The product of the elements whose mask is True."""
    result = _filled(input, mask, 1).to(_sum_dtype(input, dtype))
    for d in reversed(_dims(dim, input.ndim)):
        result = result.prod(d, keepdim=bool(keepdim))
    return result


@_takes(sparse_csr)
def mean(input: Tensor, dim: Any = None, *, keepdim: bool = False, dtype: Any = None,
         mask: Tensor | None = None) -> Tensor:
    """The mean of the elements whose mask is True; NaN where there are none."""
    kind = dtype or input.dtype
    if not (kind.is_floating_point or kind.is_complex):
        what = "Input" if dtype is None else "Optional"
        raise ValueError(f"mean(): Could not infer output dtype. {what} dtype must be either a floating point or "
                         f"complex dtype. Got: {kind}")
    dims = _dims(dim, input.ndim)
    if mask is None:
        return _f.mean(input, dims, bool(keepdim), dtype=dtype)
    count = _f.sum(_mask_for(input, mask), dims, bool(keepdim))
    return sum(input, dims, keepdim=keepdim, dtype=dtype, mask=mask) / count


@_takes(sparse_coo, sparse_csr)
@_converted
def amax(input: Tensor, dim: Any = None, *, keepdim: bool = False, mask: Tensor | None = None) -> Tensor:
    """The largest of the elements whose mask is True."""
    return _f.amax(_without(input, mask, "amax", _least_real), _dims(dim, input.ndim), bool(keepdim))


@_takes(sparse_coo, sparse_csr)
@_converted
def amin(input: Tensor, dim: Any = None, *, keepdim: bool = False, mask: Tensor | None = None) -> Tensor:
    """The smallest of the elements whose mask is True."""
    return _f.amin(_without(input, mask, "amin", _most), _dims(dim, input.ndim), bool(keepdim))


def argmax(input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None,
           mask: Tensor | None = None) -> Tensor:
    """Where the largest of the elements whose mask is True is, as a number of the input's dtype."""
    return _f.argmax(_filled(input, mask, _least(input.dtype)), dim, bool(keepdim)).to(dtype or input.dtype)


def argmin(input: Tensor, dim: int | None = None, *, keepdim: bool = False, dtype: Any = None,
           mask: Tensor | None = None) -> Tensor:
    """Where the smallest of the elements whose mask is True is, as a number of the input's dtype."""
    return _f.argmin(_filled(input, mask, _most(input.dtype)), dim, bool(keepdim)).to(dtype or input.dtype)


@_converted
def norm(input: Tensor, ord: float | None = 2.0, dim: Any = None, *, keepdim: bool = False,
         mask: Tensor | None = None) -> Tensor:
    """The vector norm of the elements whose mask is True."""
    ord = 2.0 if ord is None else ord
    if ord == -math.inf and mask is not None and not input.is_floating_point():
        raise AssertionError(f"input must be floating point, got {input.dtype}")
    return _vector_norm(_filled(input, mask, 0 if ord >= 0 else math.inf), ord, _dims(dim, input.ndim), bool(keepdim))


@_converted
def median(input: Tensor, dim: int = -1, *, keepdim: bool = False, mask: Tensor | None = None) -> Tensor:
    """The median along dim of the elements whose mask is True."""
    dim = wrap_dim(dim, input.ndim)
    if input.is_floating_point():
        return _f.nanmedian(_filled(input, mask, math.nan), dim, bool(keepdim)).values
    kept = _mask_for(input, mask)
    if kept is not None and not kept.any(dim).all().item():
        raise ValueError("masked median expects no fully masked out rows if dtype is not floating point")
    values = _filled(input.to(_dtypes.float64), mask, math.nan)
    return _f.nanmedian(values, dim, bool(keepdim)).values.to(input.dtype)


@_converted
def logsumexp(input: Tensor, dim: Any = None, *, keepdim: bool = False, mask: Tensor | None = None) -> Tensor:
    """log(sum(exp)) of the elements whose mask is True."""
    values = _without(input, mask, "logsumexp", _least)
    return _f.logsumexp(values, _dims(dim, input.ndim), keepdim=bool(keepdim)).to(input.dtype)


def var(input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: Any = None, keepdim: bool = False,
        dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The variance of the elements whose mask is True."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask, root=False)


def std(input: Tensor, dim: Any = None, unbiased: bool | None = None, *, correction: Any = None, keepdim: bool = False,
        dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """The standard deviation of the elements whose mask is True."""
    return _spread(input, dim, unbiased, correction, keepdim, dtype, mask, root=True)


def _spread(input: Tensor, dim: Any, unbiased: Any, correction: Any, keepdim: bool, dtype: Any, mask: Tensor | None,
            root: bool) -> Tensor:
    if unbiased is not None and correction is not None:
        raise ValueError("only one of unbiased and correction may be given")
    if correction is None:
        correction = 1 if unbiased is None else int(unbiased)
    dtype = dtype or input.dtype
    if dtype is _dtypes.bool_:
        raise RuntimeError("Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert a "
                           "mask, use the `~` or `logical_not()` operator instead.")
    if not (dtype.is_floating_point or dtype.is_complex):
        dtype = _dtypes.float32
    x = input if input.dtype is dtype else input.to(dtype)
    dims = _dims(dim, input.ndim)
    if mask is None:
        return (_f.std if root else _f.var)(x, dims, correction=correction, keepdim=bool(keepdim)).to(dtype)
    kept = _mask_for(input, mask)
    count = _f.sum(kept, dims, True)
    apart = x - sum(x, dims, keepdim=True, mask=kept) / count
    total = sum(apart * apart.conj() if apart.is_complex() else apart * apart, dims, keepdim=keepdim, mask=kept)
    if total.is_complex():
        total = total.real
    count = count if keepdim else count.reshape(total.shape)
    made = total / (count - correction).clamp(min=0)
    return (made.sqrt() if root else made).to(dtype)


# ----------------------------------------------------------------------------------------------- along one dim
@_keeps_shape
@_converted
def softmax(input: Tensor, dim: int, *, mask: Tensor | None = None) -> Tensor:
    """softmax along dim over the elements whose mask is True."""
    return _f.softmax(_filled(input, mask, _least(input.dtype)), dim)


@_keeps_shape
@_converted
def log_softmax(input: Tensor, dim: int, *, mask: Tensor | None = None) -> Tensor:
    """log_softmax along dim over the elements whose mask is True."""
    return _f.log_softmax(_filled(input, mask, _least(input.dtype)), dim)


@_keeps_shape
@_converted
def softmin(input: Tensor, dim: int, *, mask: Tensor | None = None) -> Tensor:
    """softmin along dim over the elements whose mask is True."""
    return _softmin(_filled(input, mask, _most(input.dtype)), dim)


@_keeps_shape
@_converted
def normalize(input: Tensor, ord: float, dim: int, *, eps: float = 1e-12, mask: Tensor | None = None) -> Tensor:
    """x / max(norm(x), eps) along dim over the elements whose mask is True."""
    dim = wrap_dim(dim, input.ndim)
    return _filled(input, mask, 0) / norm(input, ord, dim, keepdim=True, mask=mask).clamp(min=eps)


@_keeps_shape
def cumsum(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Running sums of the elements whose mask is True."""
    return _f.cumsum(_filled(input, mask, 0), dim, dtype=dtype or input.dtype)


@_keeps_shape
def cumprod(input: Tensor, dim: int, *, dtype: Any = None, mask: Tensor | None = None) -> Tensor:
    """Running products of the elements whose mask is True."""
    return _f.cumprod(_filled(input, mask, 1), dim, dtype=dtype or input.dtype)


def logaddexp(input: Tensor, other: Tensor, *, dtype: Any = None, input_mask: Tensor | None = None,
              other_mask: Tensor | None = None) -> Tensor:
    """log(exp(input) + exp(other)), where masked-out elements add nothing."""
    dtype = dtype or input.dtype
    if dtype.is_complex and (input_mask is not None or other_mask is not None):
        raise TypeError("logaddexp of masked tensors is for real numbers: nothing complex is less than all others")
    least = _least(dtype)
    return _f.logaddexp(_filled(input.to(dtype), input_mask, least), _filled(other.to(dtype), other_mask, least))


# ------------------------------------------------------------------------------------------------------ other layouts
def _of_layouts(function: Callable) -> Callable:
    """A function that takes masks of any layout, and sparse inputs where PyTorch does: the result is as sparse as the mask."""
    name = function.__name__
    taken = getattr(function, "_layouts", ())
    words = ["strided", *(str(x).rpartition(".")[2] for x in taken)]
    words = f"{', '.join(words[:-1])} or {words[-1]}" if len(words) > 1 else words[0]

    @functools.wraps(function)
    def called(input: Tensor, *args: Any, mask: Tensor | None = None, **kwargs: Any) -> Tensor:
        layout = input.layout
        if layout is strided:
            return function(input, *args, mask=mask if mask is None else _dense(mask), **kwargs)
        if layout not in taken:
            shown = "std/var" if name in ("std", "var") else name
            raise ValueError(f"masked {shown} expects {words} tensor (got {layout} tensor)")
        if mask is None and name != "sum":
            raise ValueError(f"masked {name} expects explicit mask for {str(layout).rpartition('.')[2]} tensor input")
        dims, keepdim = _dims(args[0] if args else kwargs.get("dim"), input.ndim), bool(kwargs.get("keepdim", False))
        if layout is sparse_csr and not keepdim:
            raise RuntimeError("reduction operations on CSR tensors with keepdim=False is unsupported")
        pattern = input._rebuilt(_f.ones_like(input._held_values, dtype=_dtypes.bool_)).to_dense()
        kept = pattern if mask is None else _mask_for(pattern, _dense(mask))
        made = function(input.to_dense(), *args, mask=kept, **kwargs)
        return made.sparse_mask(_any_of(kept, dims, keepdim).to_sparse(layout=layout))

    return called


for _name in __all__:
    if _name != "logaddexp":
        globals()[_name] = _of_layouts(globals()[_name])
