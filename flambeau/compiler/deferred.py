"""Which kernel calls may wait: those of which it is known beforehand what shape they give and that they do not fail.

A kernel that fails must fail at its line. So one that depends on values there (positions out of range, division by zero) waits
only where a look at the values, which must be there already, says that it is all right.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy import ndarray

from ..backends import registry
from . import lowerings
from .lower import _load as load_lowerings
from .promises import Promise

VIEW, LATER, CHECKED, NOW = "view", "later", "checked", "now"  # a window onto the same memory; may wait; perhaps; may not

# Without native form, but no values can make them fail.
_SAFE = frozenset("""
    _to_copy addbmm addmv addr alias_copy all aminmax any as_strided_copy as_strided_scatter block_diag cat cdist
    channel_shuffle clamp_within clone clone_strided col2im complex concatenate conj constant_pad_nd copied
    count_nonzero cummax cummin diag_embed diagonal_backward diagonal_copy diagonal_scatter dist dot drawn
    drawn_third expand_copy expit fft_c2c fft_c2r fft_r2c fill flip glu im2col isin kl_log_term kl_term logcumsumexp
    median mode nansum narrow_copy pad_edges pad_edges_backward permute_copy pixel_shuffle pixel_unshuffle polar prod
    repeat roll rot90 searchsorted select_backward select_copy select_scatter slice_backward slice_copy
    slice_scatter sort split_copy split_with_sizes_copy squeeze_copy stack t_copy topk trace transpose_copy tril triu
    unbind_copy unfold_backward unfold_copy unsafe_view unsqueeze_copy upsample upsample_grad vdot view_copy
    """.split())
# With native form, but they may fail in ways that are not worth a look.
_NEVER = frozenset(("binary_cross_entropy", "frexp", "view_dtype"))
_kinds: dict[str, str] = {}


def kind_of(kernel: str) -> str:
    found = _kinds.get(kernel)
    if found is None:
        load_lowerings()
        known = kernel in lowerings.LOWERINGS or kernel in registry.POINTWISE or kernel in _SAFE or kernel[0] == "~"
        found = VIEW if kernel in registry.VIEWS else NOW if not known or kernel in _NEVER else LATER
        if found is LATER and (kernel in _CHECKS or kernel == "pow" or kernel.startswith(("draw_", "index"))):
            found = CHECKED
        _kinds[kernel] = found
    return found


# ------------------------------------------------------------------------------------------------- what depends on values
Check = tuple[tuple[int, ...], Callable[..., bool]]  # arguments whose values are looked at; whether all is well


def _within(at: Any, low: int, high: int) -> bool:
    return not at.size or (at.dtype.char != "?" and bool(at.min() >= low) and bool(at.max() < high))


def _classes(target: ndarray, count: int, ignore: int) -> bool:
    if target.dtype.char != "l" or _within(target, 0, count):
        return target.dtype.char == "l"
    return bool(((target >= 0) & (target < count) | (target == ignore)).all())


def _index(x: Any, indices: Any, *rest: Any) -> bool:
    """One position per element: masks decide about the shape."""
    given = [(d, i) for d, i in enumerate(indices) if i is not None]
    return all([i.dtype.char in "lihbq" and _within(i, -x.shape[d], x.shape[d]) for d, i in given])


def _divides(x: Any, y: Any, *rest: Any) -> bool:
    """Integers are not divided by zero."""
    kinds = {a.dtype.kind for a in (x, y) if isinstance(a, ndarray)}
    return "f" in kinds or "V" in kinds or (isinstance(y, ndarray) and bool(y.all()))


def _along(x: Any, dim: int, at: Any, *rest: Any) -> bool:
    return bool(x.shape) and _within(at, 0, x.shape[dim])


_CHECKS: dict[str, Check] = {
    "embedding": ((1,), lambda weight, at, *rest: _within(at, 0, weight.shape[0])),
    "embedding_dense_backward": ((1,), lambda grad, at, count, *rest: _within(at, 0, count)),
    "index_select": ((2,), _along),
    "index_add": ((2,), _along),
    "gather": ((2,), _along),
    "scatter": ((2,), _along),
    "scatter_add": ((2,), _along),
    "scatter_added": ((2,), lambda source, dim, at, shape: _within(at, 0, shape[dim])),
    "added_rows": ((1,), lambda grad, at, shape: _within(at, 0, shape[0])),
    "take": ((1,), lambda x, at: _within(at, -x.size, x.size)),
    "one_hot": ((0,), lambda at, classes: _within(at, 0, classes)),
    "index": ((1,), _index),
    "cross_entropy": ((1,), lambda x, target, weight, reduction, ignore, keep: _classes(target, x.shape[1], ignore)),
    "nll_loss": ((1,), lambda x, target, weight, reduction, ignore: _classes(target, x.shape[1 if x.ndim > 1 else 0], ignore)),
    "sparse_adam": ((3,), lambda table, average, squares, at, *rest: _within(at, 0, table.shape[0])),
    **dict.fromkeys(("floor_divide", "div_floor", "div_trunc", "remainder", "fmod"), ((1,), _divides)),
}


def _arrays_of(args: Any) -> list[Any]:
    return [a for x in args for a in (x if x.__class__ in (list, tuple) else (x,)) if isinstance(a, ndarray)]


def needs(kernel: str, args: tuple[Any, ...]) -> list[Any] | None:
    """The arrays whose values must be there before it is known whether a call may wait; None: it may."""
    found = _CHECKS.get(kernel)
    if found is None:
        return None
    if found[1] is _divides and not (isinstance(args[0], ndarray) and args[0].dtype.kind in "iu"):
        return None
    return _arrays_of([args[i] for i in found[0]])


def passes(kernel: str, args: tuple[Any, ...]) -> bool:
    """Whether a call of a kernel with values to look at does not fail."""
    return _CHECKS[kernel][1](*args)


def refused(kernel: str, args: tuple[Any, ...]) -> bool:
    """Calls that cannot wait for another reason: integers to negative powers, draws with probabilities of their own."""
    if kernel == "pow":
        return any([isinstance(a, ndarray) and a.dtype.kind in "iub" for a in args])
    if kernel.startswith("draw_"):
        return kernel != "draw_dropout" and any([isinstance(a, ndarray) for a in args[1:]])
    return kernel.startswith("index") and any([a.dtype.char in "?B" for a in _arrays_of(args[1:])])


def numeric(kernel: str) -> bool:
    """Whether the floats among a kernel's arguments enter nothing but arithmetic: a program can read them at each run."""
    return kernel in registry.POINTWISE or kernel == "masked_fill"


def promised(arrays: list[Any]) -> bool:
    return any([type(a) is Promise for a in arrays])


_LASTING = (int, float, bool, complex, str, bytes, type(None), type(Ellipsis), type, np.dtype, np.generic)


def lasting(value: Any) -> bool:
    """Whether a plain argument stays what it is: others may be changed after they were noted."""
    if isinstance(value, tuple):
        return all(map(lasting, value))
    if value.__class__ is slice:
        return lasting((value.start, value.stop, value.step))
    return isinstance(value, _LASTING)


def same(a: Any, b: Any) -> bool:
    """Whether two plain arguments are the same for a kernel: their types, and every bit of them."""
    if a is b:
        return True
    kind = a.__class__
    if kind is not b.__class__:
        return False
    if kind is int or kind is str or kind is bool:
        return a == b
    if kind is float:
        return a.hex() == b.hex()
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(same, a, b))
    if kind is complex or kind is slice:
        return repr(a) == repr(b)
    return isinstance(a, (np.dtype, np.generic)) and a == b and repr(a) == repr(b)
