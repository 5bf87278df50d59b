"""How functions are mostly called: the table from which core/generate_calls.py makes code that does those calls, in about a
microsecond each."""

from __future__ import annotations

from typing import Any

from ..autograd.state import FOLLOWED, state
from ..backends import registry
from ..backends.cpu.pointwise.functions import chosen
from ..backends.cpu.reduce import reductions as kernels
from ..backends.cpu.reduce.extremes import extreme_one
from ..backends.cpu.reduce.scans import running_sum
from ..backends.cpu.reduce.statistics import spread_one
from ..backends.cpu.table import KERNELS
from ..tensors import return_types
from ..tensors.parameter import Parameter
from ..tensors.tensor import Size, Tensor
from .core import generate
from .core import overrides as _overrides
from .core.generate_calls import fast_call, stands_for
from .core.row import LARGE
from .index import masks, scatter
from .pointwise import arithmetic, comparison, convert
from .pointwise.functions import where_row
from .reduce import reductions as reductions
from .reduce import scans, statistics, vector_norms
from .shape import joining, ordering, reshaping, splitting
from .shape import views as v

_new = object.__new__
ndarray = registry.CPU_ARRAY


def ordinary_floats(input: Any, mode: int) -> bool:
    """A float32 or float64 tensor that is not empty, on the CPU, or in a call that is followed; in no other mode."""
    kind = input.__class__
    if kind is Tensor or kind is Parameter:
        x = input._array
        return x.dtype.char in "fd" and x.size > 0 and (
            type(x) is ndarray if mode < 2 else mode in FOLLOWED and type(x) in registry.FOLLOWABLE)
    return False


# ------------------------------------------------------------------------------------------------------------ views
_ALL = (slice(None),) * 64
_SHAPES = (tuple, list, Size)


class _Remembered(dict):
    """What a function makes of its arguments, as a dict: geometry of few shapes, asked again and again. None is not kept.

    (functools.lru_cache takes three times as long over an answer that it has.)
    """

    def __init__(self, function: Any):
        self.function = function

    def __missing__(self, key: tuple[Any, ...]) -> Any:
        made = self.function(*key)
        if made is not None:
            if len(self) > 4096:
                self.clear()
            self[key] = made
        return made


def _unpacked(sizes: Any) -> Any:
    """view(2, 3) and view((2, 3))."""
    return tuple(sizes[0]) if len(sizes) == 1 and sizes[0].__class__ in _SHAPES else sizes


def _filled(sizes: tuple[int, ...], shape: Any) -> bool:
    """Whether sizes are what was asked for, with a number in the place of -1."""
    return len(sizes) == len(shape) and all([n == m or (n.__class__ is int and n == -1) for m, n in zip(sizes, shape)])


@_Remembered
def _unsqueezed(shape: tuple[int, ...], dim: Any, kind: type) -> tuple[int, ...] | None:
    if kind is not int or not -len(shape) - 1 <= dim <= len(shape) or 0 in shape or 1 in shape:
        return None
    at = dim % (len(shape) + 1)
    return (*shape[:at], 1, *shape[at:])


@_Remembered
def _expanded(shape: tuple[int, ...], strides: tuple[int, ...], size: tuple[Any, ...]) -> tuple[int, ...] | None:
    """The strides of an array that is repeated by strides of zero; leading ones have strides of their own in PyTorch."""
    extra = len(size) - len(shape)
    shape, strides = (1,) * extra + shape, (0,) * extra + strides
    if extra < 0 or 1 in size[:extra] or not all([n.__class__ is int and n > 0 and m in (1, n) for m, n in zip(shape, size)]):
        return None
    return tuple([step if m == n else 0 for m, n, step in zip(shape, size, strides)])


def _strided(x: Any, sizes: Any) -> Any:
    """A view of what need not be contiguous; not with sizes of one, to which NumPy gives strides of its own."""
    return None if 1 in x.shape or 1 in sizes else ndarray.reshape(x, sizes, copy=False)


_simple = "x.flags.c_contiguous and 1 not in x.shape"  # so that NumPy's strides are PyTorch's
fast_call(ordering.t, v._t, "self", when="n == 2", made="x.T")
fast_call(ordering.transpose, v._transpose, "self dim0 dim1", made="x.swapaxes(dim0, dim1)", given="dim0 % n; dim1 % n",
          when="dim0.__class__ is int is dim1.__class__ and -n <= dim0 < n and -n <= dim1 < n")
_sized = ["sizes = shape if len(shape) != 1 or shape[0].__class__ is int else unpacked(shape)",
          f"made = None if not sizes else x.reshape(sizes) if {_simple} else OTHERWISE"]
_shaped = dict(when="made is not None and (made.shape == sizes or filled(made.shape, sizes))", made="made", given="None",
               unpacked=_unpacked, filled=_filled)
fast_call(ordering.permute, v._permute, "self *dims", when="made is not None", made="made",
          given="tuple([d % n for d in axes])",
          prepare=["axes = dims if len(dims) > 1 else unpacked(dims)", "made = x.transpose(axes) if len(axes) == n else None"],
          unpacked=_unpacked)
fast_call(reshaping.view, v._view, "self *shape", toplevel=False, strided=_strided, **_shaped,
          prepare=[line.replace("OTHERWISE", "strided(x, sizes)") for line in _sized])
fast_call(reshaping.reshape, v._view, "self *shape", prepare=[line.replace("OTHERWISE", "None") for line in _sized], **_shaped)
fast_call(reshaping.expand, v._expand, "self *size", when="made is not None", made="made", given="None", toplevel=False,
          prepare=["sizes = size if len(size) > 1 else unpacked(size)", "strides = expanded[x.shape, x.strides, sizes]",
                   "made = None if strides is None or not x.flags.c_contiguous else ndarray(sizes, x.dtype, x, 0, strides)",
                   "if type(x) is not ndarray and made is not None:", "    made = made.view(type(x))"],
          expanded=_expanded, unpacked=_unpacked)
fast_call(reshaping.unsqueeze, v._unsqueeze, "self dim", prepare=["sizes = unsqueezed[x.shape, dim, dim.__class__]"],
          when="sizes is not None and x.flags.c_contiguous", made="x.reshape(sizes)", given="dim % (x.ndim + 1)",
          unsqueezed=_unsqueezed, any_size=True)
fast_call(v.select, v._select, "self dim index", given="dim; index", every=_ALL,
          when="dim.__class__ is int is index.__class__ and -n <= dim < n and -x.shape[dim] <= index < x.shape[dim]",
          made=["dim, index = dim % n, index % x.shape[dim]", "x[(*every[:dim], index, ...)]"])
fast_call(v.narrow, v._slice, "self dim start length", given="dim; start; start + length; 1", every=_ALL,
          when="dim.__class__ is int is start.__class__ and length.__class__ is int and -n <= dim < n and length > 0 and "
               "0 <= start <= x.shape[dim] - length",
          made=["dim %= n", "x[(*every[:dim], slice(start, start + length))]"])
_flatten = fast_call(
    reshaping.flatten, v._view, "self start_dim=0 end_dim=-1", given="None",
    when=f"n > 1 and -n <= start_dim < n and -n <= end_dim < n and start_dim % n < end_dim % n and {_simple}",
    made="x.reshape((*x.shape[:start_dim % n], -1, *x.shape[end_dim % n + 1:]))")
fast_call(_flatten, v._view, "self", given="None", when=f"n > 1 and {_simple}", made="x.reshape(-1)")
_squeeze = fast_call(reshaping.squeeze, v._squeeze_all, "self", when="n", made="x.squeeze()", given="None")
fast_call(_squeeze, v._squeeze_dim, "self dim", when="dim.__class__ is int and -n <= dim < n", given="(dim % n,)",
          made="x.squeeze(dim) if x.shape[dim] == 1 else x.view()")


for _general, _size in ((splitting.split, "size"), (splitting.chunk, "-(-x.shape[dim] // size)")):  # parts of one size
    fast_call(_general, v._split, "self size dim=0", given="size; dim", every=_ALL, gives=tuple,
              when="size.__class__ is int is dim.__class__ and size > 0 and -n <= dim < n",
              made=["dim %= n", f"size, before = {_size}, every[:dim]",
                    "[x[(*before, slice(at, at + size))] for at in range(0, x.shape[dim], size)]"])


# --------------------------------------------------------------------------------------------------- arithmetic
def _of_two(general: Any, row: Any, aliases: tuple[str, ...] = ()) -> None:
    """add, sub and div of two tensors, or of a tensor and a number, without their options."""
    @stands_for(general, aliases=aliases)
    def operation(*args, **kwargs):
        if len(args) == 2 and not kwargs and state.mode < 2 and args[0].__class__ in _OURS and args[1].__class__ in _TAKEN:
            return row(*args)
        return general(*args, **kwargs)

    _overrides.STAND_INS[row] = operation  # what `x + y` is called where classes have their own say


_OURS = frozenset((Tensor, Parameter))
_TAKEN = frozenset((Tensor, Parameter, int, float))
_of_two(arithmetic.add, arithmetic._add)
_of_two(arithmetic.sub, arithmetic._sub, ("subtract",))
_of_two(arithmetic.div, arithmetic._div, ("divide",))


# --------------------------------------------------------------------------------------------------- reductions
_DIM = "dim.__class__ is int and -n <= dim < n"
_mean_dim = fast_call(reductions.mean, reductions._mean_dim, "input dim keepdim=False", chars="fd", mean_one=kernels.mean_one,
                      when=f"{_DIM} and keepdim.__class__ is bool", given="(dim,); keepdim; None",
                      made=["dim %= n", "mean_one(x, dim, keepdim)"])
mean = fast_call(_mean_dim, reductions._mean, "input", chars="fd", made="mean_all(x)", given="None; False; None",
                 mean_all=kernels.mean_all)


def _bare(array: Any) -> Tensor:
    t = _new(Tensor)
    t._array = array
    t._node = t._counter = None
    return t


for _general, _row, _all, _least in ((reductions.max_, reductions._max_dim, reductions._max_all, False),
                                     (reductions.min_, reductions._min_dim, reductions._min_all, True)):
    _one = fast_call(_general, _row, "input dim=None", chars="fd", when=f"{_DIM} and x.shape[dim] > 1", given="dim; False",
                     made=["dim %= n", "extreme_one(x, dim, least)"], extreme_one=extreme_one, least=_least,
                     gives=return_types.min if _least else return_types.max)
    fast_call(_one, _all, "input", chars="fd", when="x.flags.c_contiguous and x.size < LARGE", made="kernel(x)",
              kernel=kernels.min_all if _least else kernels.max_all)
for _general, _row in ((reductions.amax, reductions._amax), (reductions.amin, reductions._amin)):
    fast_call(_general, _row, "input dim=None", when=_DIM, given="(dim % n,); False", made="array(kernel(x, (dim % n,)))",
              kernel=_row.cpu, chars="fd", array=registry.cpu.asarray)
fast_call(joining.flip, joining._flip, "input dim", chars="fd", when=_DIM, given="(dim % n,)", made="flipped(x, (dim % n,))",
          flipped=KERNELS["flip"])
fast_call(vector_norms.norm, vector_norms.vector_norm_row, "input p=2", chars="fd", norm=kernels.small_norm,
          when="p == 2 and x.size < SMALL and x.flags.c_contiguous", made="norm(x)", given="2.0; None; False; None",
          SMALL=kernels.SMALL)
fast_call(convert.clone, convert._clone, "input", chars="fd", when=f"x.size < LARGE and {_simple}", made="x.copy()",
          given="None")


def _arg_extreme(general: Any, pick: Any) -> None:
    @stands_for(general)
    def arg_extreme(*args, **kwargs):
        if state.mode < 2 and not kwargs and args and ordinary_floats(args[0], 0):
            x = args[0]._array
            if x.size < LARGE:
                if len(args) == 1:
                    return _bare(registry.cpu.asarray(pick(x)))
                if len(args) == 2 and args[1].__class__ is int and -x.ndim <= args[1] < x.ndim:
                    return _bare(registry.cpu.asarray(pick(x, args[1])))
        return general(*args, **kwargs)


_arg_extreme(reductions.argmax, ndarray.argmax)
_arg_extreme(reductions.argmin, ndarray.argmin)


def _along(general: Any, r: Any) -> Any:
    """cumsum, softmax, log_softmax: one dimension, the same shape."""
    return fast_call(general, r, "input dim=None", chars="fd", when=_DIM, given="dim; None",
                     made=["dim %= n", "kernel(x, dim)"], kernel=r.cpu if r is not scans._cumsum else running_sum)


for _general, _row in ((statistics.var, statistics._var), (statistics.std, statistics._std)):  # of more than one element
    _total = fast_call(_general, _row, "input", chars="fd", when="x.size > 1", kernel=_row.cpu, given="None; 1; False",
                       made="kernel(x, None, 1, False)")
    fast_call(_total, _row, "input dim=None", chars="fd", when=f"{_DIM} and x.shape[dim] > 1", root=_row is statistics._std,
              given="(dim,); 1; False", made=["dim %= n", "spread_one(x, dim, root)"], spread_one=spread_one)
cumsum = _along(scans.cumsum, scans._cumsum)
softmax = _along(scans.softmax, scans._softmax)
log_softmax = _along(scans.log_softmax, scans._log_softmax)


# ------------------------------------------------------------------------------------------------------- choices
_REAL = frozenset((int, float))
_WITHIN = 3e38  # in either dtype


def _bounds(low: Any, high: Any) -> bool:
    """Whether these are numbers, none of them nan; one may be missing."""
    return (low is None or (low.__class__ in _REAL and low == low)) and (
        high is None or (high.__class__ in _REAL and high == high)) and (low is not None or high is not None)


clamp = fast_call(
    comparison.clamp, comparison._clamp_numbers, "input min=None max=None", chars="fd", aliases=("clip",),
    when="mode < 2 and x.size < LARGE and bounds(min, max)", given="min; max", bounds=_bounds,
    made="clamped(x, None if min is None else constant(min, x.dtype), None if max is None else constant(max, x.dtype))",
    clamped=KERNELS["clamp"])
fast_call(masks.masked_fill, masks._masked_fill, "input mask value", chars="fd", given="mask; value", tensors="mask",
          when="mask.__class__ is Tensor and value.__class__ in REAL and mask._array.dtype.char == '?' and abs(value) < WITHIN "
               f"and mask._array.shape == x.shape and {generate.ours('mask._array')}",
          made="fill(x, mask._array, value)", REAL=_REAL, WITHIN=_WITHIN, fill=KERNELS["masked_fill"])


def _fits(shape: tuple[int, ...], dim: int, at: Any) -> bool:
    """Whether positions are integers, and within a shape but for one dimension."""
    return at.ndim == len(shape) and at.dtype.char == "l" and at.size > 0 and all(
        [d == dim or b <= a for d, (a, b) in enumerate(zip(shape, at.shape))])


fast_call(scatter.gather, scatter._gather, "input dim index", chars="fd", tensors="index", given="dim; index",
          when=f"{_DIM} and index.__class__ is Tensor and {generate.ours('index._array')} and "
               "fits(x.shape, dim % n, index._array)",
          made=["dim %= n", "gathered(x, dim, index._array)"], gathered=KERNELS["gather"],
          fits=_fits)


_where_number = fast_call(
    comparison.where, where_row, "condition input other", chars="?", tensors="input", method=False, given="input; other",
    when="mode < 2 and n and other.__class__ in REAL and ordinary_floats(input, mode) and input._array.shape == x.shape",
    made="where(x, input._array, constant(other, input._array.dtype))", REAL=_REAL, ordinary_floats=ordinary_floats,
    where=KERNELS["where"])
where = fast_call(
    _where_number, where_row, "condition input other", chars="?", tensors="input other", method=False, given="input; other",
    when="mode < 2 and n and input.__class__ in OURS and other.__class__ in OURS and x.size < LARGE and "
         "(a := input._array).dtype is (b := other._array).dtype and a.dtype.char in 'fd' and "
         "a.shape == x.shape == b.shape and type(a) is type(b) is ndarray and a.flags.c_contiguous and b.flags.c_contiguous",
    made="chosen(x, a, b)", chosen=chosen, OURS=_OURS)


# ------------------------------------------------------------------------------------------------------- joining
_concatenate = KERNELS["concatenate"]


def _alike(xs: list[Any]) -> bool:
    """Whether contiguous arrays have one shape and one dtype."""
    x = xs[0]
    return all([a.shape == x.shape and a.dtype is x.dtype and a.flags.c_contiguous for a in xs])


@_Remembered
def _first_moved(n: int, dim: int) -> tuple[int, ...] | None:
    """The order of n dimensions in which the first comes to stand at another place."""
    return (*range(1, dim % n + 1), 0, *range(dim % n + 1, n)) if -n <= dim < n else None


def _stacked(xs: list[Any], dim: int) -> Any:
    made = registry.cpu.asarray(xs)  # raises where shapes differ
    if dim:
        order = _first_moved[made.ndim, dim]
        return None if order is None else made.transpose(order).copy()
    return made


for _general, _row, _join, _options in ((joining.cat, joining._cat, _concatenate, "; 'contiguous'"),
                                        (joining.stack, joining._stack, _stacked, "")):
    _made = fast_call(
        _general, _row, "tensors dim=0", chars="fd", method=False, aliases=("concat",) if _options else (),
        join=_join, alike=_alike,
        prepare=["made = join(xs, dim) if mode < 2 and x.size * len(xs) < LARGE and dim.__class__ is int else None"],
        when="n and (made.dtype is x.dtype and made.flags.c_contiguous if made is not None else mode > 1 and alike(xs) and "
             f"dim.__class__ is int and -{'n' if _options else 'n - 1'} <= dim < {'n' if _options else 'n + 1'})",
        given=f"dim % {'n' if _options else '(n + 1)'}; x.dtype{_options}", made="made")
    setattr(joining, _general.__name__, _made)

__all__ = ["clamp", "cumsum", "log_softmax", "mean", "softmax", "where"]
