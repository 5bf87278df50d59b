"""Reductions: sum, mean, prod, extremes, any/all, norms."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ...autograd.state import BATCHED, CAPTURE, state
from ...backends import registry
from ...backends.batched.arrays import innermost
from ...backends.cpu.reduce.reductions import sum_all, sum_one
from ...backends.facts import Fold
from ...tensors import dtypes as _dtypes
from ...tensors import return_types
from ...tensors.parameter import Parameter
from ...tensors.shapes import wrap_dim
from ...tensors.tensor import Tensor
from .. import rules
from ..core import overrides as _overrides
from ..core.row import FUNCTIONS, along, export, fact, other_names, public, row, write_out
from ..pointwise.functions import conj

_new = object.__new__
ndarray = registry.CPU_ARRAY


# ---------------------------------------------------------------------------------------- arguments and shapes
def reduction(function: Callable | None = None, *, out: str | None = "cast", **options: Any) -> Callable:
    """`public`, with NumPy's argument names (axis, keepdims), as PyTorch has, and checks of the common arguments.

    out: what `out=` may be. "cast": any dtype that the result converts to; "typed": its dtype is the dtype of the work;
    "same" and "exact": exactly the result's dtype (in other words); "bool": bool or uint8; None: there is no out=.
    """
    if function is None:
        return functools.partial(reduction, out=out, **options)
    name = options.get("name") or function.__name__.rstrip("_")
    code = function.__code__
    positional = code.co_varnames[:code.co_argcount]
    flag = positional.index("keepdim") if "keepdim" in positional else 99

    def checked(*args, **kwargs):
        first = args[0] if args else kwargs.get("input")
        if not isinstance(first, Tensor):
            if not args and "input" not in kwargs:
                raise TypeError(f"{name}() missing 1 required positional arguments: \"input\"")
            raise TypeError(f"{name}(): argument 'input' (position 1) must be Tensor, not {type(first).__name__}")
        if len(args) > flag:
            check_bool(name, "keepdim", args[flag])
        if kwargs and out is not None and "out" in kwargs:
            target = kwargs.pop("out")
            if target is not None:
                return _into(name, out, target, function, args, kwargs)
        return function(*args, **kwargs)

    fact(name, out="exact" if out == "exact" else True)
    return public(functools.update_wrapper(checked, function), out=False, **options)


def _into(name: str, kind: str, target: Any, function: Callable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Calls a reduction and writes its result into out=, by the rules for its kind of out."""
    if kind == "typed" and isinstance(target, Tensor):
        kwargs["dtype"] = out_dtype(name, target, kwargs.get("dtype"))
    if kind == "bool" and isinstance(target, Tensor) and target.dtype not in (_dtypes.bool_, _dtypes.uint8):
        raise RuntimeError(f"{name} only supports bool tensor for result, got: {target.dtype.word}")
    result = function(*args, **kwargs)
    if kind == "same":
        _check_same_dtype(name, result, target)
    return write_out(name, target, result, args, kwargs)


def _check_same_dtype(name: str, result: Any, target: Any) -> None:
    if isinstance(result, tuple) and isinstance(target, (tuple, list)):
        for what, r, o in zip(("values", "indices"), result, target):
            if isinstance(o, Tensor) and o.dtype is not r.dtype:
                raise RuntimeError(f"{name}(): {what}: expected scalar_type {r.dtype.word} but found {o.dtype.word}")
    elif isinstance(target, Tensor) and isinstance(result, Tensor) and target.dtype is not result.dtype and (
            name not in ("max", "min")):
        raise RuntimeError(f"Expected the dtype for input and out to match, but got {result.dtype.word} for input's "
                           f"dtype and {target.dtype.word} for out's dtype: {name}(): expected {result.dtype}, got "
                           f"{target.dtype}")


def out_dtype(name: str, target: Tensor, dtype: Any) -> Any:
    """The dtype of a reduction into `target`; a dtype= that says otherwise is an error."""
    if dtype is not None and dtype is not target.dtype:
        raise RuntimeError(f"{name}(): Expected out tensor to have dtype {dtype}, but got {target.dtype} instead")
    return target.dtype


def dims_of(dim: Any, ndim: int, name: str = "sum") -> tuple[int, ...] | None:
    """Sorted dimension numbers; None for all of them (dim=None or an empty list)."""
    if dim is None:
        return None
    if dim.__class__ is int:
        return (wrap_dim(dim, ndim),)
    if dim.__class__ is bool or isinstance(dim, (str, float)):
        raise TypeError(f"{name}(): argument 'dim' must be int or tuple of ints, not {type(dim).__name__}")
    if hasattr(dim, "__index__") and not isinstance(dim, (tuple, list)):
        return (wrap_dim(dim.__index__(), ndim),)
    try:
        dims = [wrap_dim(d.__index__(), ndim) for d in dim]
    except AttributeError:
        raise TypeError(f"{name}(): argument 'dim' must be int or tuple of ints, not {dim!r}") from None
    if not dims:
        return None
    if len(set(dims)) != len(dims):
        twice = next(d for d in dims if dims.count(d) > 1)
        raise RuntimeError(f"dim {twice} appears multiple times in the list of dims")
    return tuple(sorted(dims))


def keep(tensor: Tensor, shape: Any, dim: Any, keepdim: bool) -> Tensor:
    """A reduced tensor with its lost dimensions back as ones."""
    if not keepdim and shape:
        for d in dim if dim is not None else range(len(shape)):
            tensor = tensor.unsqueeze(d)
    return tensor


def spread(grad: Tensor, shape: Any, dim: Any, keepdim: bool) -> Tensor:
    """A gradient of a reduced tensor, repeated over the dimensions that were reduced."""
    return keep(grad, shape, dim, keepdim).expand(shape)


def native(dtype: Any) -> Any:
    if dtype is None:
        return None
    if dtype.__class__ is not _dtypes.dtype:
        raise TypeError(f"argument 'dtype' must be torch.dtype, not {type(dtype).__name__}")
    if dtype is _dtypes.complex32:
        raise NotImplementedError("reductions are not implemented for 'ComplexHalf'")
    return dtype.native


def count(shape: Any, dim: Any) -> int:
    total = 1
    for i, n in enumerate(shape):
        if dim is None or i in dim:
            total *= n
    return total


def check_bool(name: str, argument: str, value: Any) -> None:
    if value.__class__ is not bool:
        raise TypeError(f"{name}(): argument '{argument}' must be bool, not {type(value).__name__}")


# ------------------------------------------------------------------------------------------------ sum and mean
_sum = along("sum", "self axes keepdim dtype", fold=Fold("sum"), shape=rules.total, forward="linear", backward=dict(
    self=lambda grad, self_shape: grad.expand(self_shape)))
_sum_dim = row("sum_dim", "self dim keepdim dtype", kernel="sum", node="SumBackward1", forward="linear", backward=dict(
    self=lambda grad, self_shape, dim, keepdim: spread(grad, self_shape, dim, keepdim)))
_mean = along("mean", "self axes keepdim dtype", fold=Fold("sum", total="mean"), shape=rules.picked,
              forward="linear", backward=dict(
    self=lambda grad, self_shape: (grad / count(self_shape, None)).expand(self_shape)))
_mean_dim = row(
    "mean_dim", "self dim keepdim dtype", kernel="mean", node="MeanBackward1", forward="linear", backward=dict(
        self=lambda grad, self_shape, dim, keepdim: spread(grad / count(self_shape, dim), self_shape, dim, keepdim)))


def sum_(input, dim=None, keepdim=False, *, dtype=None, out=None, **names):
    """The sum of all elements, or over the dimensions `dim`. Integers add up as int64."""
    mode = state.mode
    kind = input.__class__
    if mode < 2 and dtype is None and out is None and (kind is Tensor or kind is Parameter) and not names:
        if dim is not None:
            if dim.__class__ is int and keepdim.__class__ is bool:
                x = input._array
                if type(x) is ndarray and x.dtype.char in "fd" and -x.ndim <= dim < x.ndim:
                    dim %= x.ndim
                    return _sum_dim.tensor(mode, sum_one(x, dim, keepdim), input, (dim,), keepdim, None)
            if keepdim.__class__ is bool:
                return _sum_dim(input, dims_of(dim, input._array.ndim), keepdim, None)
            return _sum_slowly(input, dim, keepdim, dtype, out, names)
        x = input._array
        if type(x) is ndarray and x.dtype.char in "fd" and not keepdim:
            return _sum.tensor(mode, sum_all(x), input, None, False, None)
    return _sum_slowly(input, dim, keepdim, dtype, out, names)


def _sum_slowly(input, dim, keepdim, dtype, out, names):
    if _overrides.active:
        given = {"dim": dim, "keepdim": keepdim, "dtype": dtype, "out": out, **names}
        done, value = _overrides.dispatch(sum_, (input,), {k: v for k, v in given.items() if v is not None and v is not False})
        if done:
            return value
    given = {"dim": dim, "keepdim": keepdim, **{_SUM_NAMES.get(k, k): v for k, v in names.items()}}
    dim, keepdim = given.pop("dim"), given.pop("keepdim")
    if given:
        raise TypeError(f"sum() got an unexpected keyword argument '{next(iter(given))}'")
    if not isinstance(input, Tensor):
        raise TypeError(f"sum(): argument 'input' (position 1) must be Tensor, not {type(input).__name__}")
    if dim.__class__ is _dtypes.dtype:
        raise TypeError("sum(): argument 'dim' must be int or tuple of ints, not torch.dtype")
    check_bool("sum", "keepdim", keepdim)
    if out is not None and isinstance(out, Tensor):
        dtype = out_dtype("sum", out, dtype)
    dims = dims_of(dim, input.ndim, "sum")
    input = input.to(dtype) if dtype is not None and input.dtype is _dtypes.complex32 else input
    if dim is None and not keepdim:
        made = _sum(input, None, False, native(dtype))
    else:
        made = _sum_dim(input, dims, keepdim, native(dtype))
    return made if out is None else write_out("sum", out, made, (input,), {})


sum_.__name__ = "sum"
_SUM_NAMES = other_names(sum_)
export("sum", sum_)


@reduction(out="typed")
def mean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean of all elements, or over the dimensions `dim`; floating and complex only."""
    wanted = dtype or input.dtype
    if not (wanted.is_floating_point or wanted.is_complex):
        what = "Input" if dtype is None else "Optional"
        raise RuntimeError(f"mean(): could not infer output dtype. {what} dtype must be either a floating point or "
                           f"complex dtype. Got: {wanted.word}")
    dims = dims_of(dim, input.ndim, "mean")
    if dim is None and not keepdim:
        return _mean(input, None, False, native(dtype))
    return _mean_dim(input, dims, keepdim, native(dtype))


def _nansum_grad(grad: Tensor, self: Tensor, dim: Any, keepdim: bool) -> Tensor:
    return spread(grad, self.shape, dim, keepdim) * self.isnan().logical_not()


_nansum = along("nansum", "self dim keepdim dtype", safe=True, shape=rules.total, backward=dict(self=_nansum_grad))


@reduction(out="typed")
def nansum(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The sum with NaN counted as zero."""
    if input.is_complex():
        raise RuntimeError("nansum on CPU does not support complex inputs")
    return _nansum(input, dims_of(dim, input.ndim, "nansum"), keepdim, native(dtype))


@reduction
def nanmean(input: Tensor, dim: Any = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The mean of the elements that are not NaN."""
    if not (input.is_floating_point() or input.is_complex()):
        raise RuntimeError(f"nanmean(): expected input to have floating point or complex dtype but got {input.dtype.word}")
    factor = input.detach().isnan().logical_not().sum(dim, keepdim)
    return nansum(input, dim, keepdim, dtype=dtype) / factor


# ----------------------------------------------------------------------------------------------------- product
def _prod_grad(grad: Tensor, self: Tensor, result: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """result / x, except where x has zeros: there, the product of all others, from both sides."""
    if not self.ndim:
        return grad
    if dim is not None and not keepdim:
        grad, result = grad.unsqueeze(dim[0]), result.unsqueeze(dim[0])
    zero = self == 0
    if not possible(zero):
        return grad * conj(result / self)
    others = _prod_others(self.reshape(-1), grad, 0).reshape(self.shape) if dim is None else _prod_others(self, grad, dim[0])
    if not state.mode & CAPTURE:
        return others
    return FUNCTIONS["where"](zero.any(), others, grad * conj(result / self.masked_fill(zero, 1)))


def possible(mask: Tensor) -> bool:
    """Whether an element is set. A captured program has to serve all values, and without memory nobody knows: there it may."""
    if state.mode & BATCHED:  # in any of the examples
        return bool(innermost(mask.any()._array).any())
    return bool(state.mode & CAPTURE) or mask.is_meta or mask.any().item()


def _prod_others(x: Tensor, grad: Tensor, dim: int) -> Tensor:
    n = x.shape[dim]
    if n < 2:
        return grad.expand(x.shape)
    ones = x.narrow(dim, 0, 1).detach() * 0 + 1
    before = _joined([ones, x.narrow(dim, 0, n - 1)], dim).cumprod(dim)
    after = _joined([ones, x.narrow(dim, 1, n - 1).flip(dim)], dim).cumprod(dim).flip(dim)
    return grad * conj(before * after)


def _joined(tensors: list[Tensor], dim: int) -> Tensor:
    return FUNCTIONS["cat"](tensors, dim)


def _prod_all_grad(grad, self, result):
    return _prod_grad(grad, self, result, None, False)


_prod = along("prod", "self axes keepdim dtype", safe=True, shape=rules.total, backward=dict(self=_prod_all_grad))
_prod_dim = row("prod_dim", "self dim keepdim dtype", kernel="prod", node="ProdBackward1",
                backward=dict(self=_prod_grad))


@reduction(out="typed", autocast="float32")
def prod(input: Tensor, dim: int | None = None, keepdim: bool = False, *, dtype: Any = None) -> Tensor:
    """The product of all elements, or over one dimension. Integers multiply as int64."""
    if dim is None:
        return _prod(input, None, False, native(dtype))
    return _prod_dim(input, (one_dim(dim, input.ndim, "prod"),), keepdim, native(dtype))


def one_dim(dim: Any, ndim: int, name: str) -> int:
    """A single dimension number; TypeError for lists."""
    if dim.__class__ is not int:
        if dim.__class__ is bool or not hasattr(dim, "__index__"):
            raise TypeError(f"{name}() received an invalid combination of arguments: 'dim' must be int, not "
                            f"{type(dim).__name__}")
        dim = dim.__index__()
    return wrap_dim(dim, ndim)


# ------------------------------------------------------------------------------------------------------- logic
_any = along("any", "self dim keepdim", takes="bifch", safe=True, shape=rules.truth)
_all = along("all", "self dim keepdim", takes="bifch", safe=True, shape=rules.truth)
_count_nonzero = along("count_nonzero", "self dim", takes="bifch", safe=True, shape=rules.position)


def _logical(r: Any, input: Tensor, dim: Any, keepdim: bool, name: str) -> Tensor:
    if isinstance(dim, (tuple, list)) and not dim:  # nothing to reduce, unlike in a sum
        made = input != 0
        return made.to(input.dtype) if input.dtype is _dtypes.uint8 else made
    return r(input, dims_of(dim, input.ndim, name), keepdim)


@reduction(out="bool", name="any")
def any_(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether any element (along dim) is not zero."""
    return _logical(_any, input, dim, keepdim, "any")


@reduction(out="bool", name="all")
def all_(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """Whether all elements (along dim) are not zero."""
    return _logical(_all, input, dim, keepdim, "all")


@reduction(out=None)
def count_nonzero(input: Tensor, dim: Any = None) -> Tensor:
    """How many elements (along dim) are not zero."""
    return _count_nonzero(input, dims_of(dim, input.ndim, "count_nonzero"))


_hash = along("hash_tensor", "self dim keepdim", shape=rules.hashed)


@reduction(out="exact")
def hash_tensor(input: Tensor, dim: Any = (), keepdim: bool = False, *, mode: int = 0) -> Tensor:
    """The exclusive or of the elements' bits (floating ones as float64), as uint64."""
    if mode != 0:
        raise RuntimeError(f"hash_tensor: expected mode 0 (xor), got {mode}")
    if input.is_complex():
        raise NotImplementedError(f'"xor_sum_cpu" not implemented for \'{input.dtype.word}\'')
    dims = dims_of(dim, input.ndim, "hash_tensor")
    check_nonempty(input, dims, "hash_tensor")
    return _hash(input, dims, keepdim)


# ---------------------------------------------------------------------------------------------------- extremes
def check_nonempty(input: Tensor, dims: tuple[int, ...] | None, name: str) -> None:
    """An extreme of nothing is an error."""
    if dims is None:
        if not input.numel():
            raise RuntimeError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
                               "reduction dim with the 'dim' argument.")
        return
    for d in dims:
        if input.ndim and not input.shape[d]:
            raise IndexError(f"{name}(): Expected reduction dim {d} to have non-zero size.")


def check_ordered(input: Tensor, what: str) -> None:
    if input.is_complex():
        raise NotImplementedError(f'"{what}" not implemented for \'{input.dtype.word}\'')


def _tied_grad(grad: Tensor, self: Tensor, result: Tensor, dim: Any, keepdim: bool) -> Tensor:
    """Shared evenly among the elements that are the extreme."""
    mask = self == keep(result, self.shape, dim, keepdim)
    return keep(grad, self.shape, dim, keepdim) * mask / mask.sum(dim, True)


def whole_tied_grad(grad: Tensor, self: Tensor, result: Tensor) -> Tensor:
    """The same for an element picked from all, which may be nan."""
    mask, nan = self == result, result.isnan()
    if possible(nan):
        mask = FUNCTIONS["where"](nan, self.isnan(), mask)
    return FUNCTIONS["where"](mask, grad / mask.sum(), 0.0)  # a gradient that is not a number stays where it belongs


def picked_grad(grad: Tensor, self_shape: Any, dim: int, indices: Tensor, keepdim: bool) -> Tensor:
    """To the element that was picked."""
    if not self_shape:
        return grad
    if not keepdim:
        grad, indices = grad.unsqueeze(dim), indices.unsqueeze(dim)
    return grad.new_zeros(self_shape).scatter(dim, indices, grad)


def _picked_rule(grad, self_shape, dim, result1, keepdim):
    return picked_grad(grad, self_shape, dim, result1, keepdim)


_amax = along("amax", "self dim keepdim", fold=Fold("max"), shape=rules.picked, backward=dict(self=_tied_grad))
_amin = along("amin", "self dim keepdim", fold=Fold("min"), shape=rules.picked, backward=dict(self=_tied_grad))
_max_all = row("max_all", "self", kernel="amax", node="MaxBackward1", backward=dict(self=whole_tied_grad))
_min_all = row("min_all", "self", kernel="amin", node="MinBackward1", backward=dict(self=whole_tied_grad))
_max_dim = along("max_dim", "self dim keepdim", shape=rules.with_position,
                 node="MaxBackward0", constant=(1,), backward=dict(self=_picked_rule))
_min_dim = along("min_dim", "self dim keepdim", shape=rules.with_position,
                 node="MinBackward0", constant=(1,), backward=dict(self=_picked_rule))
_argmax = row("argmax", "self dim keepdim", batch="argument_of_extreme", shape=rules.position)
_argmin = row("argmin", "self dim keepdim", batch="argument_of_extreme", shape=rules.position)


def _aminmax_grad(grads, self, dim, keepdim, result0, result1):
    parts = [_tied_grad(g, self, r, dim, keepdim) for g, r in zip(grads, (result0, result1)) if g is not None]
    return parts[0] + parts[1] if len(parts) == 2 else parts[0] if parts else None


_aminmax = along("aminmax", "self dim keepdim", safe=True, shape=rules.extremes, backward=dict(self=_aminmax_grad))


@reduction(out="same")
def amax(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The largest elements over dim; ties share the gradient."""
    return _extreme(_amax, input, dim, keepdim, "amax", "max_values_cpu")


@reduction(out="same")
def amin(input: Tensor, dim: Any = None, keepdim: bool = False) -> Tensor:
    """The smallest elements over dim; ties share the gradient."""
    return _extreme(_amin, input, dim, keepdim, "amin", "min_values_cpu")


def _extreme(r: Any, input: Tensor, dim: Any, keepdim: bool, name: str, what: str) -> Tensor:
    dims = dims_of(dim, input.ndim, name)
    check_nonempty(input, dims, name)
    check_ordered(input, what)
    return r(input, dims, keepdim)


@reduction(out="same")
def aminmax(input: Tensor, *, dim: int | None = None, keepdim: bool = False) -> Any:
    """The smallest and the largest elements, over one dimension or all."""
    if dim is None:
        if not input.numel():
            raise RuntimeError("aminmax(): cannot compute aminmax over an empty dimension as the operation has no identity.")
        dims = None
    else:
        dims = (one_dim(dim, input.ndim, "aminmax"),)
        check_nonempty(input, dims, "aminmax")
    check_ordered(input, "aminmax_cpu")
    return return_types.aminmax(*_aminmax(input, dims, keepdim))


def _max_or_min(name: str, of_all: Any, along: Any, pair: type, input: Tensor, dim: Any, keepdim: bool) -> Any:
    if isinstance(dim, Tensor):
        return FUNCTIONS[name + "imum"](input, dim)
    if dim is None:
        check_nonempty(input, None, name)
        check_ordered(input, f"{name}_all")
        return of_all(input)
    dim = one_dim(dim, input.ndim, name)
    check_nonempty(input, (dim,), name)
    if input.is_complex():
        raise RuntimeError(f"{name}(): does not support complex input")
    return pair(*along(input, dim, keepdim))


@reduction(out="same", name="max", foreach=1)
def max_(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """max(x): the largest element; max(x, dim): (values, indices) along dim; max(x, y): the larger of each two."""
    return _max_or_min("max", _max_all, _max_dim, return_types.max, input, dim if other is None else other, keepdim)


@reduction(out="same", name="min")
def min_(input: Tensor, dim: Any = None, keepdim: bool = False, *, other: Tensor | None = None) -> Any:
    """min(x): the smallest element; min(x, dim): (values, indices) along dim; min(x, y): the smaller of each two."""
    return _max_or_min("min", _min_all, _min_dim, return_types.min, input, dim if other is None else other, keepdim)


def _arg_extreme(r: Any, name: str, input: Tensor, dim: Any, keepdim: bool) -> Tensor:
    if input.is_complex() or input.dtype is _dtypes.bool_:
        raise RuntimeError(f"{name}(): does not support {'complex' if input.is_complex() else 'bool'} input")
    if dim is None:
        if not input.numel():
            raise IndexError(f"{name}(): Expected reduction dim to be specified for input.numel() == 0.")
        return r(input, None, keepdim)
    dim = one_dim(dim, input.ndim, name)
    check_nonempty(input, (dim,), name)
    return r(input, dim, keepdim)


@reduction(out="same")
def argmax(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the largest element is; the first of several."""
    return _arg_extreme(_argmax, "argmax", input, dim, keepdim)


@reduction(out="same")
def argmin(input: Tensor, dim: int | None = None, keepdim: bool = False) -> Tensor:
    """Where the smallest element is; the first of several."""
    return _arg_extreme(_argmin, "argmin", input, dim, keepdim)


# --------------------------------------------------------------------------------------------------- logsumexp
_logsumexp = along("logsumexp", "self dim keepdim", shape=rules.picked, backward=dict(
    self=lambda grad, self, result, dim, keepdim: keep(grad, self.shape, dim, keepdim) * conj(
        (self - keep(result, self.shape, dim, keepdim)).exp())))


@reduction
def logsumexp(input: Tensor, dim: Any, keepdim: bool = False) -> Tensor:
    """log(sum(exp(x))) over dim, without overflow."""
    if not (input.is_floating_point() or input.is_complex()):
        input = input.to(_dtypes.get_default_dtype())
    return _logsumexp(input, dims_of(dim, input.ndim, "logsumexp"), keepdim)
