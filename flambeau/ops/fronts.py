"""The most frequent calls of plain tensors, in about a microsecond.

A function of many forms takes any argument under any name, which costs four to eight times as much as a small kernel. Here a
table says how each function is mostly called; `front` makes the code that does those calls, and passes the others on.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable
from typing import Any

from ..autograd.state import FOLLOWED, NO_GRAD, state
from ..backends import registry
from ..backends.cpu.pointwise.functions import chosen
from ..backends.cpu.reduce import reductions as kernels
from ..backends.cpu.reduce.scans import running_sum
from ..backends.cpu.reduce.statistics import spread_one
from ..backends.cpu.table import KERNELS
from ..tensors import return_types
from ..tensors.parameter import Parameter
from ..tensors.tensor import Size, Tensor
from .core import generate
from .core import overrides as _overrides
from .core.row import LARGE, constant, export
from .index import indexing, scatter
from .pointwise import arithmetic, comparison, convert
from .pointwise.functions import where_row
from .reduce import reductions as slow
from .reduce import scans, statistics, vector_norms
from .shape import joining as shape
from .shape import splitting as pieces
from .shape import views as v
from .shape.views import viewable

_new = object.__new__
ndarray = registry.CPU_ARRAY


def plain(input: Any) -> bool:
    """A float32 or float64 CPU tensor that is not empty; the caller has looked at the mode."""
    kind = input.__class__
    if kind is Tensor or kind is Parameter:
        x = input._array
        return type(x) is ndarray and x.dtype.char in "fd" and x.size > 0
    return False


def windowed(input: Any) -> bool:
    """`plain` in a call that is followed."""
    kind = input.__class__
    if kind is Tensor or kind is Parameter:
        x = input._array
        return type(x) in registry.WINDOWS and x.dtype.char in "fd" and x.size > 0
    return False


def in_front(of: Any, *, method: bool = True, toplevel: bool = True, aliases: tuple[str, ...] = ()) -> Any:
    """Exports a function in place of a general one, under its name and with its text."""
    def decorate(function: Any) -> Any:
        functools.update_wrapper(function, of)
        inner = of
        while inner is not None:  # `of` may itself stand in front of another
            _overrides.FRONTS[inner] = function
            inner = getattr(inner, "__wrapped__", None)
        export(of.__name__, function, method=method, toplevel=toplevel, aliases=aliases)
        return function

    return decorate


def front(of: Any, row: Any, takes: str, *, method: bool = True, toplevel: bool = True, aliases: tuple[str, ...] = (),
          **options: Any) -> Any:
    return in_front(of, method=method, toplevel=toplevel, aliases=aliases)(_front(of, row, takes, **options))


def _front(of: Callable[..., Any], row: Any, takes: str, *, made: Any, when: str = "", given: str = "", chars: str = "",
          prepare: Iterable[str] = (), tensors: str = "", **using: Any) -> Callable[..., Any]:
    """A function that does the plain calls of another one by itself, and passes every other call on as it came.

    takes: its arguments, the first of them a tensor: "self dim0 dim1", "self *shape", or "self dim keepdim=False", which may be
    given by name. when: what has to be true of them; x is the tensor's array, which is not empty, n its number of dimensions;
    prepare: lines before that, which may raise a TypeError or ValueError. made: an expression of the result's array, or lines
    that end with one. given: the row's further arguments. chars: dtypes; none where a view is made. tensors: arguments that are
    tensors; using: names in these texts. In a call that is followed the row's kernel is asked instead, unless it makes a view.
    """
    parts = takes.split()
    names = [t.partition("=")[0].lstrip("*") for t in parts]
    first, rest = names[0], [g.strip() for g in given.split(";")] if given else []
    *before, last = [made] if made.__class__ is str else made
    signature, call, bound = _arguments(parts, names)
    inner = [f"if {when}:"] if when else []
    if prepare:
        inner = ["try:", *["    " + line for line in prepare], "except (TypeError, ValueError):", f"    return {call}", *inner]
    body = list(before)
    if row.view:
        body += [f"made = {last}", *generate.view_of(first, "mode")]
    else:
        asked = generate.in_tuple(["x", *[f"{r}._array" if r in tensors.split() else r for r in rest]])
        body += ["if mode > 1:", "    mode &= NO_GRAD", f"    made = state.follower.call(kernel_name, {asked})", "else:",
                 f"    made = {last}", "t = new(Tensor)", "t._array = made", "t._node = t._counter = None"]
    sure = {i for i, a in enumerate([first, *rest]) if i == 0 or a in tensors.split()}
    if lines := generate.recording(row, [first, *rest], sure, set(range(len(row.args))) - sure):
        body += ["if mode == 0:", *["    " + line for line in lines]]
    body.append("return t")
    inner += ["    " * bool(when) + line for line in body]
    if "=" in parts[-1]:
        using["bind"] = eval(f"lambda {', '.join(parts)}: {generate.in_tuple(names)}")
    text = ["mode = state.mode", *bound,
            f"    kind = {first}.__class__", "    if kind is Tensor or kind is Parameter:",
            f"        x = {first}._array", f"        if {_plain_array(row, first, chars)}:", "            n = x.ndim",
            *["            " + line for line in inner], f"return {call}"]
    return generate.later(row.name, signature, text, of=of, Node=row.node, kernel_name=row.kernel, chars=chars, **using)


def _plain_array(row: Any, first: str, chars: str) -> str:
    if row.view:
        return f"type(x) in WINDOWS and {first}._view_fn is None and not {first}._inference and x.size"
    return "x.dtype.char in chars and (type(x) is ndarray or (mode > 1 and type(x) in WINDOWS)) and x.size"


def _arguments(takes: list[str], names: list[str]) -> tuple[str, str, list[str]]:
    """The signature, a call of the other function, and lines that bind the arguments to names, up to the `if` that holds where
    that could be done."""
    plain, call = "(mode < 2 or mode in FOLLOWED)", "of(*args, **kwargs)"
    if takes[-1].startswith("*"):
        first, rest = names
        call = f"of(**kwargs) if {first} is None else of({first}, *{rest}, **kwargs)"
        return f"{first}=None, *{rest}, **kwargs", call, [f"if not kwargs and {plain}:"]
    exactly = f"len(args) == {len(names)} and not kwargs"
    if "=" not in takes[-1]:
        return "*args, **kwargs", call, [f"if {exactly} and {plain}:", f"    {generate.in_tuple(names)} = args"]
    return "*args, **kwargs", call, [
        f"if {plain}:", "    try:", f"        {generate.in_tuple(names)} = args if {exactly} else bind(*args, **kwargs)",
        "    except TypeError:", f"        return {call}"]


# ------------------------------------------------------------------------------------------------------------ views
_WHOLE = (slice(None),) * 64
_SHAPES = (tuple, list, Size)


def _filled(sizes: tuple[int, ...], shape: Any) -> bool:
    """Whether sizes are what was asked for, with a number in the place of -1."""
    return len(sizes) == len(shape) and all([n == m or (n.__class__ is int and n == -1) for m, n in zip(sizes, shape)])


def _unpacked(sizes: Any) -> Any:
    """view(2, 3) and view((2, 3))."""
    return tuple(sizes[0]) if len(sizes) == 1 and sizes[0].__class__ in _SHAPES else sizes


def _strided(x: Any, sizes: Any) -> Any:
    """A view of what need not be contiguous; None where there are sizes of one, to which NumPy gives strides of its own."""
    return None if 1 in x.shape or 1 in sizes else ndarray.reshape(x, sizes, copy=False)


def _expanded(x: Any, size: tuple[Any, ...]) -> Any:
    """The array repeated by strides of zero, if sizes are plain; leading ones have strides of their own in PyTorch."""
    shape, steps = x.shape, x.strides
    extra = len(size) - len(shape)
    if extra:
        if extra < 0 or 1 in size[:extra]:
            return None
        shape, steps = (1,) * extra + shape, (0,) * extra + steps
    if not x.flags.c_contiguous:
        return None
    made = []
    for m, n, step in zip(shape, size, steps):
        if m != n and m != 1:
            return None
        made.append(step if m == n else 0)
    made = ndarray(size, x.dtype, x, 0, made)
    return (made if type(x) is ndarray else made.view(type(x))) if made.size else None


_simple = "x.flags.c_contiguous and 1 not in x.shape"  # so that NumPy's strides are PyTorch's
front(v.t, v._t, "self", when="n == 2", made="x.T")
front(v.transpose, v._transpose, "self dim0 dim1", made="x.swapaxes(dim0, dim1)", given="dim0 % n; dim1 % n",
      when="dim0.__class__ is int is dim1.__class__ and -n <= dim0 < n and -n <= dim1 < n")
_sized = ["sizes = shape if len(shape) != 1 or shape[0].__class__ is int else unpacked(shape)",
          f"made = None if not sizes else x.reshape(sizes) if {_simple} else OTHERWISE"]
_shaped = dict(when="made is not None and (made.shape == sizes or filled(made.shape, sizes))", made="made", given="None",
               unpacked=_unpacked, filled=_filled)
front(v.permute, v._permute, "self *dims", when="made is not None", made="made", given="tuple([d % n for d in axes])",
      prepare=["axes = dims if len(dims) > 1 else unpacked(dims)", "made = x.transpose(axes) if len(axes) == n else None"],
      unpacked=_unpacked)
front(v.view, v._view, "self *shape", toplevel=False, prepare=[s.replace("OTHERWISE", "strided(x, sizes)") for s in _sized],
      strided=_strided, **_shaped)
front(v.reshape, v._view, "self *shape", prepare=[s.replace("OTHERWISE", "None") for s in _sized], **_shaped)
front(v.expand, v._expand, "self *size", prepare=["made = expanded(x, size if len(size) > 1 else unpacked(size))"],
      when="made is not None", made="made", given="None", expanded=_expanded, unpacked=_unpacked, toplevel=False)
front(v.unsqueeze, v._unsqueeze, "self dim", when=f"dim.__class__ is int and -n - 1 <= dim <= n and {_simple}",
      made=["dim, shape = dim % (n + 1), x.shape", "x.reshape((*shape[:dim], 1, *shape[dim:]))"], given="dim")
front(v.select, v._select, "self dim index", given="dim; index", whole=_WHOLE,
      when="dim.__class__ is int is index.__class__ and -n <= dim < n and -x.shape[dim] <= index < x.shape[dim]",
      made=["dim, index = dim % n, index % x.shape[dim]", "x[(*whole[:dim], index, ...)]"])
front(v.narrow, v._slice, "self dim start length", given="dim; start; start + length; 1", whole=_WHOLE,
      when="dim.__class__ is int is start.__class__ and length.__class__ is int and -n <= dim < n and length > 0 and "
           "0 <= start <= x.shape[dim] - length",
      made=["dim %= n", "x[(*whole[:dim], slice(start, start + length))]"])
_flatten = front(v.flatten, v._view, "self start_dim=0 end_dim=-1", given="None",
      when=f"n > 1 and -n <= start_dim < n and -n <= end_dim < n and start_dim % n < end_dim % n and {_simple}",
      made="x.reshape((*x.shape[:start_dim % n], -1, *x.shape[end_dim % n + 1:]))")
front(_flatten, v._view, "self", given="None", when=f"n > 1 and {_simple}", made="x.reshape(-1)")
_squeeze = front(v.squeeze, v._squeeze_all, "self", when="n", made="x.squeeze()", given="None")
front(_squeeze, v._squeeze_dim, "self dim", when="dim.__class__ is int and -n <= dim < n", given="(dim % n,)",
      made="x.squeeze(dim) if x.shape[dim] == 1 else x.view()")


# --------------------------------------------------------------------------------------------------- several at a time
def _cutting(of: Any, size_of: Any) -> None:
    """split and chunk into pieces of one size."""
    @in_front(of)
    def cutting(*args, **kwargs):
        mode = state.mode
        if (mode < 2 or mode in FOLLOWED) and 1 < len(args) < 4 and viewable(args[0]) and (
                not kwargs or (len(kwargs) == 1 and "dim" in kwargs and len(args) == 2)):
            x, size, dim = args[0]._array, args[1], args[2] if len(args) == 3 else kwargs.get("dim", 0)
            n = x.ndim
            if size.__class__ is int is dim.__class__ and size > 0 and -n <= dim < n and x.size:
                size, before, whole = size_of(x.shape[dim], size), _WHOLE[:dim % n], x.shape[dim]
                made = [x[(*before, slice(at, at + size))] for at in range(0, whole, size)]
                return v._split.tensors(mode & NO_GRAD, made, args[0], size, dim % n)
        return of(*args, **kwargs)


_cutting(pieces.split, lambda whole, size: size)
_cutting(pieces.chunk, lambda whole, chunks: -(-whole // chunks))


# --------------------------------------------------------------------------------------------------- arithmetic
def _of_two(general: Any, row: Any, aliases: tuple[str, ...] = ()) -> None:
    """add, sub and div of two tensors, or of a tensor and a number, without their options."""
    @in_front(general, aliases=aliases)
    def operation(*args, **kwargs):
        if len(args) == 2 and not kwargs and state.mode < 2 and args[0].__class__ in _OURS and args[1].__class__ in _TAKEN:
            return row(*args)
        return general(*args, **kwargs)

    _overrides.FRONTS[row] = operation  # what `x + y` is called where classes have their own say


_OURS = frozenset((Tensor, Parameter))
_TAKEN = frozenset((Tensor, Parameter, int, float))
_of_two(arithmetic.add, arithmetic._add)
_of_two(arithmetic.sub, arithmetic._sub, ("subtract",))
_of_two(arithmetic.div, arithmetic._div, ("divide",))


# --------------------------------------------------------------------------------------------------- reductions
_DIM = "dim.__class__ is int and -n <= dim < n"
_mean_dim = front(slow.mean, slow._mean_dim, "input dim keepdim=False", chars="fd", mean_one=kernels.mean_one,
                  when=f"{_DIM} and keepdim.__class__ is bool", given="(dim,); keepdim; None",
                  made=["dim %= n", "mean_one(x, dim, keepdim)"])
mean = front(_mean_dim, slow._mean, "input", chars="fd", made="mean_all(x)", given="None; False; None",
             mean_all=kernels.mean_all)


def _bare(array: Any) -> Tensor:
    t = _new(Tensor)
    t._array = array
    t._node = t._counter = None
    return t


def _extreme(general: Any, whole: Any, kernel: Any, along: Any, pair: type) -> None:
    """max and min over one dimension, and over all."""
    def extreme(*args, **kwargs):
        mode = state.mode
        if mode < 2 and not kwargs and len(args) == 2 and args[1].__class__ is int and plain(args[0]):
            input, dim = args
            x = input._array
            if -x.ndim <= dim < x.ndim:
                dim %= x.ndim
                return pair(*along.tensors(mode, along.cpu(x, dim), input, dim, False))
        return general(*args, **kwargs)

    extreme = in_front(general)(extreme)
    front(extreme, whole, "input", chars="fd", when="x.flags.c_contiguous and x.size < LARGE", made="kernel(x)", kernel=kernel)


_extreme(slow.max_, slow._max_all, kernels.max_all, slow._max_dim, return_types.max)
_extreme(slow.min_, slow._min_all, kernels.min_all, slow._min_dim, return_types.min)
for _general, _row in ((slow.amax, slow._amax), (slow.amin, slow._amin)):
    front(_general, _row, "input dim", when=_DIM, given="(dim % n,); False", made="array(kernel(x, (dim % n,)))",
          kernel=_row.cpu, chars="fd", array=registry.cpu.asarray)
front(shape.flip, shape._flip, "input dim", chars="fd", when=_DIM, given="(dim % n,)", made="flipped(x, (dim % n,))",
      flipped=KERNELS["flip"])
front(vector_norms.norm, vector_norms.vector_norm_row, "input p=2", chars="fd", norm=kernels.small_norm, SMALL=kernels.SMALL,
      when="p == 2 and x.size < SMALL and x.flags.c_contiguous", made="norm(x)", given="2.0; None; False; None")
front(convert.clone, convert._clone, "input", chars="fd", when=f"x.size < LARGE and {_simple}", made="x.copy()", given="None")


def _arg_extreme(general: Any, pick: Any) -> None:
    @in_front(general)
    def arg_extreme(*args, **kwargs):
        if state.mode < 2 and not kwargs and args and plain(args[0]):
            x = args[0]._array
            if x.size < LARGE:
                if len(args) == 1:
                    return _bare(registry.cpu.asarray(pick(x)))
                if len(args) == 2 and args[1].__class__ is int and -x.ndim <= args[1] < x.ndim:
                    return _bare(registry.cpu.asarray(pick(x, args[1])))
        return general(*args, **kwargs)


_arg_extreme(slow.argmax, ndarray.argmax)
_arg_extreme(slow.argmin, ndarray.argmin)


def _along(general: Any, r: Any) -> Any:
    """cumsum, softmax, log_softmax: one dimension, the same shape."""
    return front(general, r, "input dim=None", chars="fd", when=_DIM, given="dim; None", made=["dim %= n", "kernel(x, dim)"],
                 kernel=r.cpu if r is not scans._cumsum else running_sum)


for _general, _row in ((statistics.var, statistics._var), (statistics.std, statistics._std)):  # of more than one element
    _one = front(_general, _row, "input dim", chars="fd", when=f"{_DIM} and x.shape[dim] > 1", root=_row is statistics._std,
                 given="(dim,); 1; False", made=["dim %= n", "spread_one(x, dim, root)"], spread_one=spread_one)
    front(_one, _row, "input", chars="fd", when="x.size > 1", kernel=_row.cpu, given="None; 1; False",
          made="kernel(x, None, 1, False)")
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


clamp = front(
    comparison.clamp, comparison._clamp_numbers, "input min=None max=None", chars="fd", aliases=("clip",), constant=constant,
    when="mode < 2 and x.size < LARGE and bounds(min, max)", given="min; max", bounds=_bounds,
    made="clamped(x, None if min is None else constant(min, x.dtype), None if max is None else constant(max, x.dtype))",
    clamped=KERNELS["clamp"])
front(indexing.masked_fill, indexing._masked_fill, "input mask value", chars="fd", given="mask; value", tensors="mask",
      when="mask.__class__ is Tensor and value.__class__ in REAL and mask._array.dtype.char == '?' and abs(value) < WITHIN and "
           "mask._array.shape == x.shape and type(mask._array) in WINDOWS",
      made="fill(x, mask._array, value)", REAL=_REAL, WITHIN=_WITHIN, fill=KERNELS["masked_fill"])


def _fits(shape: tuple[int, ...], dim: int, at: Any) -> bool:
    """Whether positions are plain, and within a shape but for one dimension."""
    return at.ndim == len(shape) and at.dtype.char == "l" and type(at) in registry.WINDOWS and at.size > 0 and all(
        [d == dim or b <= a for d, (a, b) in enumerate(zip(shape, at.shape))])


front(scatter.gather, scatter._gather, "input dim index", chars="fd", tensors="index", given="dim; index",
      when=f"{_DIM} and index.__class__ is Tensor and fits(x.shape, dim % n, index._array)",
      made=["dim %= n", "gathered(x, dim, index._array)"], gathered=KERNELS["gather"],
      fits=_fits)


_where_number = front(
    comparison.where, where_row, "condition input other", chars="?", tensors="input", method=False, given="input; other",
    when="mode < 2 and n and other.__class__ in REAL and plain(input) and input._array.shape == x.shape",
    made="where(x, input._array, constant(other, input._array.dtype))", constant=constant, REAL=_REAL, plain=plain,
    where=KERNELS["where"])
where = front(
    _where_number, where_row, "condition input other", chars="?", tensors="input other", method=False, given="input; other",
    when="mode < 2 and n and input.__class__ in OURS and other.__class__ in OURS and x.size < LARGE and "
         "(a := input._array).dtype is (b := other._array).dtype and a.dtype.char in 'fd' and "
         "a.shape == x.shape == b.shape and type(a) is type(b) is ndarray and a.flags.c_contiguous and b.flags.c_contiguous",
    made="chosen(x, a, b)", chosen=chosen, OURS=_OURS)
_concatenate = KERNELS["concatenate"]


# ------------------------------------------------------------------------------------------------------- joining
def _joined(general: Any, r: Any, join: Callable[[list[Any], int], Any], options: tuple[Any, ...],
            aliases: tuple[str, ...] = ()) -> None:
    """cat and stack of small plain tensors. join: of arrays; None, or a ValueError, where that is not so simple."""
    @in_front(general, method=False, aliases=aliases)
    def joined(*args, **kwargs):
        mode = state.mode
        if mode < 2 and not kwargs and 0 < len(args) < 3 and (args[0].__class__ is list or args[0].__class__ is tuple):
            tensors, dim, arrays, quiet = args[0], 0 if len(args) == 1 else args[1], [], NO_GRAD
            for t in tensors:
                if t.__class__ not in _OURS or type(t._array) is not ndarray:
                    return general(*args)
                if t._node is not None or t._counter is not None:
                    quiet = mode  # there may be something to record
                arrays.append(t._array)
            if not arrays or dim.__class__ is not int:
                return general(*args)
            native = arrays[0].dtype
            if native.char in "fd" and arrays[0].ndim and 0 < arrays[0].size * len(arrays) < LARGE:
                try:
                    made = join(arrays, dim)
                except ValueError:
                    made = None
                if made is not None and made.dtype is native and made.flags.c_contiguous:
                    return r.tensor(quiet, made, tensors, dim % made.ndim, native, *options)
        return general(*args, **kwargs)


def _stacked(arrays: list[Any], dim: int) -> Any:
    shape = arrays[0].shape
    for x in arrays:
        if x.shape != shape:
            return None
    if dim:
        n = len(shape) + 1
        return KERNELS["stack"](arrays, dim % n, arrays[0].dtype) if -n <= dim < n else None
    return _concatenate(arrays).reshape((len(arrays), *shape))


_joined(shape.cat, shape._cat, _concatenate, ("contiguous",), ("concat",))
_joined(shape.stack, shape._stack, _stacked, ())

__all__ = ["clamp", "cumsum", "log_softmax", "mean", "softmax", "where"]
