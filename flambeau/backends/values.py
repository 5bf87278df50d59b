"""Which values make kernels fail, for those that do: positions out of range, integers divided by zero (facts.SAFE).

Each gives a `Check` for the arguments' numbers that it is told.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from numpy import ndarray

from .facts import Check


def _is_array(a: Any) -> bool:
    return hasattr(a, "strides")


def _masks(args: Any) -> bool:
    return any([_masks(a) if a.__class__ in (list, tuple) else hasattr(a, "dtype") and a.dtype.char in "?B" for a in args])


def has_masks(x: Any, *rest: Any) -> bool:
    """Whether there are masks among the arguments after the first (facts.DYNAMIC)."""
    return _masks(rest)


def by_one_mask(x: Any, indices: Any, shape: tuple[int, ...]) -> bool:
    """Whether x[indices] = put, of that shape, with a single mask puts the same at each place that this chooses: a choice
    between two arrays, of which nothing but the elements depends on values."""
    at = [i for i, index in enumerate(indices) if index is not None]
    if len(at) != 1 or indices[at[0]].dtype.char != "?":
        return False
    behind = len(x.shape) - at[0] - len(indices[at[0]].shape)  # dimensions after those of the mask, which become one
    return len(shape) <= behind or shape[len(shape) - behind - 1] == 1


def puts_by_values(x: Any, indices: Any, put: Any, accumulate: bool) -> bool:
    """Whether what `index_put` needs, or whether it fails, depends on the values of masks (facts.DYNAMIC)."""
    return _masks(indices) and (accumulate or not by_one_mask(x, indices, put.shape))


_quick_within: Any = None  # the same natively, of contiguous int64 arrays (compiler/follow/matching.py)


def within(at: Any, low: int, high: int) -> bool:
    """Whether all positions are in low..high - 1."""
    if _quick_within is not None and type(at) is ndarray and at.dtype.char == "l" and at.flags.c_contiguous:
        return bool(_quick_within(at, low, high))
    return not at.size or (at.dtype.char != "?" and bool(at.min() >= low) and bool(at.max() < high))


def positions(at: int, size: Callable[..., int], wraps: bool = False, again: bool = False) -> Check:
    """Argument number `at` holds positions below size(*args); wraps: negative ones count from the end."""
    def holds(*args: Any) -> bool:
        high = size(*args)
        return args[at].dtype.char not in "?B" and within(args[at], -high if wraps else 0, high)

    return Check((at,), holds, again=again)


# (x, dim, positions, ...): along a dimension
ALONG = Check((2,), lambda x, dim, at, *rest: bool(x.shape) and at.dtype.char not in "?B" and within(at, 0, x.shape[dim]))
# (x, [positions or None per dimension], ...): masks decide about the shape
BY_DIMENSION = Check((1,), lambda x, at, *rest: all([
    i.dtype.char in "lihbq" and within(i, -x.shape[d], x.shape[d]) for d, i in enumerate(at) if i is not None]))
# (x, [masks or positions or None per dimension], what is put there, accumulate)
PUT = Check((1,), lambda x, at, *rest: BY_DIMENSION.holds(x, at), lambda x, at, put, accumulate: accumulate or not by_one_mask(
    x, at, put.shape))


def classes(count: Callable[..., int], ignore: int) -> Check:
    """The second argument holds numbers of classes below count(x), or the number given as argument number `ignore`."""
    def holds(*args: Any) -> bool:
        target, high = args[1], count(args[0])
        if target.dtype.char != "l" or within(target, 0, high):
            return target.dtype.char == "l"
        return bool(((target >= 0) & (target < high) | (target == args[ignore])).all())

    return Check((1,), holds)


def _divides(x: Any, y: Any, *rest: Any) -> bool:
    kinds = {a.dtype.kind for a in (x, y) if _is_array(a)}
    return "f" in kinds or "V" in kinds or (_is_array(y) and bool(y.all()))


DIVISION = Check((1,), _divides, lambda x, *rest: _is_array(x) and x.dtype.kind in "iu")  # integers, not by zero
NO_INTEGERS = Check((), lambda *args: not any([_is_array(a) and a.dtype.kind in "iub" for a in args]))
NUMBERS_ONLY = Check((), lambda first, *rest: not any(map(_is_array, rest)))  # draws: parameters in arrays are checked
