"""How functions are mostly called: the table from which core/generate_calls.py makes code that does those calls, in about a
microsecond each."""

from __future__ import annotations

from typing import Any

from ..autograd.state import FOLLOWED, state
from ..backends import registry
from ..backends.cpu.reduce import reductions as kernels
from ..backends.cpu.reduce.extremes import extreme_one
from ..backends.cpu.reduce.scans import running_sum
from ..backends.cpu.reduce.statistics import spread_one
from ..backends.cpu.table import KERNELS
from ..tensors import dtypes, return_types
from ..tensors.parameter import Parameter
from ..tensors.tensor import Tensor
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


def _dims(dims: Any, n: int) -> tuple[int, ...]:
    """permute(1, 0) and permute((1, 0)): which dimensions, counted from the front."""
    return tuple([d % n for d in (dims if dims[0].__class__ is int else dims[0])])


fast_call(ordering.t, v._t, "self", when="n == 2", made="x.T")
fast_call(ordering.transpose, v._transpose, "self dim0 dim1", made="x.swapaxes(dim0, dim1)", given="dim0 % n; dim1 % n",
          when="dim0.__class__ is int is dim1.__class__ and -n <= dim0 < n and -n <= dim1 < n")
fast_call(ordering.permute, v._permute, "self *dims", made="permuted(x, dims)", or_none=True, given="counted(dims, n)",
          counted=_dims)
fast_call(reshaping.view, v._view, "self *shape", made="reshaped(x, shape, False)", or_none=True, given="None", toplevel=False)
fast_call(reshaping.reshape, v._view, "self *shape", made="reshaped(x, shape, True)", or_none=True, given="None")
fast_call(reshaping.expand, v._expand, "self *size", made="expanded(x, size)", or_none=True, given="None", toplevel=False)
fast_call(reshaping.unsqueeze, v._unsqueeze, "self dim", made="unsqueezed(x, dim)", or_none=True, given="dim % (n + 1)")
fast_call(v.select, v._select, "self dim index", given="dim; index", every=_ALL,
          when="dim.__class__ is int is index.__class__ and -n <= dim < n and -x.shape[dim] <= index < x.shape[dim]",
          made=["dim, index = dim % n, index % x.shape[dim]", "x[(*every[:dim], index, ...)]"])
fast_call(v.narrow, v._slice, "self dim start length", given="dim; start; start + length; 1", every=_ALL,
          when="dim.__class__ is int is start.__class__ and length.__class__ is int and -n <= dim < n and length > 0 and "
               "0 <= start <= x.shape[dim] - length",
          made=["dim %= n", "x[(*every[:dim], slice(start, start + length))]"])
_flatten = fast_call(
    reshaping.flatten, v._view, "self start_dim=0 end_dim=-1", given="None",
    when="n > 1 and -n <= start_dim < n and -n <= end_dim < n and start_dim % n < end_dim % n and "
         "(made := reshaped(x, (*x.shape[:start_dim % n], -1, *x.shape[end_dim % n + 1:]), True)) is not None", made="made")
fast_call(_flatten, v._view, "self", given="None", made="reshaped(x, (-1,), True)", when="n > 1", or_none=True)
_squeeze = fast_call(reshaping.squeeze, v._squeeze_all, "self", when="n", made="x.squeeze()", given="None")
fast_call(_squeeze, v._squeeze_dim, "self dim", when="dim.__class__ is int and -n <= dim < n", given="(dim % n,)",
          made="x.squeeze(dim) if x.shape[dim] == 1 else x.view()")


fast_call(splitting.split, v._split, "self size dim=0", made="parted(x, size, dim, False)", or_none=True, given="size; dim % n",
          gives=tuple)
fast_call(splitting.chunk, v._split, "self chunks dim=0", made="parted(x, chunks, dim, True)", or_none=True, gives=tuple,
          given="-(-x.shape[dim] // chunks); dim % n")


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
for _general, _row, _least in ((reductions.amax, reductions._amax, False), (reductions.amin, reductions._amin, True)):
    fast_call(_general, _row, "input dim=None", when=_DIM, given="(dim % n,); False", chars="fd", kernel=_row.cpu, least=_least,
              made=["made = extreme(x, dim, least) if mode < 2 else None",
                    "array(kernel(x, (dim % n,))) if made is None else made"], array=registry.cpu.asarray)
fast_call(joining.flip, joining._flip, "input dim", chars="fd", when=_DIM, given="(dim % n,)", made="flipped(x, (dim % n,))",
          flipped=KERNELS["flip"])
fast_call(vector_norms.norm, vector_norms.vector_norm_row, "input p=2", chars="fd", norm=kernels.small_norm,
          when="p == 2 and x.size < SMALL and x.flags.c_contiguous", made="norm(x)", given="2.0; None; False; None",
          SMALL=kernels.SMALL)
_dense = "x.flags.c_contiguous and 1 not in x.shape"  # so that NumPy's strides are PyTorch's
fast_call(convert.clone, convert._clone, "input", chars="fd", made="x.copy()",
          when=f"x.size < LARGE and {_dense}", given="None")
# (not to integers: such a result is no part of the graph, and this records without asking)
fast_call(convert.to, convert._to_copy, "self dtype", chars="fdlbhiB?", made="x.astype(dtype.native)", toplevel=False,
          when="dtype.__class__ is Dtype and dtype.native.char in 'fd' and dtype.native is not x.dtype and x.size < LARGE and "
               f"{_dense}", given="dtype.native; 'preserve'", Dtype=dtypes.dtype)


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
          made=["dim %= n", "gathered(x, dim, index._array)"], gathered=KERNELS["gather"], fits=_fits)


_where_number = fast_call(
    comparison.where, where_row, "condition input other", chars="?", tensors="input", method=False, given="input; other",
    when="mode < 2 and n and other.__class__ in REAL and ordinary_floats(input, mode) and input._array.shape == x.shape",
    made="where(x, input._array, constant(other, input._array.dtype))", REAL=_REAL, ordinary_floats=ordinary_floats,
    where=KERNELS["where"])
where = fast_call(
    _where_number, where_row, "condition input other", chars="?", tensors="input other", method=False, given="input; other",
    when="mode < 2 and input.__class__ in OURS and other.__class__ in OURS and "
         "(made := selected(x, input._array, other._array)) is not None", made="made", OURS=_OURS)


# ------------------------------------------------------------------------------------------------------- joining
def _alike(tensors: Any) -> bool:
    """Whether a follower takes these: contiguous floats of one shape and dtype."""
    if tensors.__class__ not in (list, tuple) or not all([ordinary_floats(t, state.mode) for t in tensors]):
        return False
    xs = [t._array for t in tensors]
    return bool(xs) and all([a.shape == xs[0].shape and a.dtype is xs[0].dtype and a.flags.c_contiguous for a in xs])


for _general, _row, _fresh, _n, _layout in ((joining.cat, joining._cat, False, "n", "; 'contiguous'"),
                                            (joining.stack, joining._stack, True, "(n + 1)", "")):
    _made = fast_call(_general, _row, "tensors dim=0", method=False, aliases=() if _fresh else ("concat",), alike=_alike,
                      made=f"joined(tensors, dim, {_fresh})", or_none=True, given=f"dim % {_n}; x.dtype{_layout}",
                      when=f"mode < 2 or (n and dim.__class__ is int and -{_n} <= dim < {_n})")
    setattr(joining, _general.__name__, _made)

__all__ = ["clamp", "cumsum", "log_softmax", "mean", "softmax", "where"]
