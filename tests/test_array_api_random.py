"""The array API standard on random arrays, beside array-api-strict: of any dtype, without dimensions, with empty ones."""

from __future__ import annotations

import math

import numpy as np
import pytest
from array_api_both import ALL, DTYPES, double_by_default, ours, same, strict  # noqa: F401  (a fixture among them)
from hypothesis import given, settings
from hypothesis import strategies as st

REAL = DTYPES["i"] + DTYPES["u"] + DTYPES["f"]
NUMERIC = REAL + DTYPES["c"]
SHAPES = st.lists(st.integers(0, 4), max_size=4).map(tuple)
RUNS = settings(max_examples=150)


@st.composite
def arrays(draw, dtypes, shapes=SHAPES):
    """An array of small numbers, so that sums and products are exact in every order, or nearly."""
    dtype, shape = np.dtype(draw(st.sampled_from(dtypes))), draw(shapes)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    numbers = rng.integers(0 if dtype.kind == "u" else -4, 6, shape)
    return (numbers * (0.5 + 0.25j) if dtype.kind == "c" else numbers % 2 if dtype.kind == "b" else numbers).astype(dtype)


def compare(function, *parts, **options):
    """function(namespace, arrays of that namespace...) gives the same here and there."""
    made = [function(xp, *(xp.asarray(part.copy()) for part in parts), **options) for xp in (ours, strict)]
    same(made[0], made[1], 1e-5, f"{[(part.dtype, part.shape) for part in parts]} {options}")


@st.composite
def axes_of(draw, dimensions):
    """None, one axis, or some of them in any order, counted from either end."""
    chosen = draw(st.none() | st.permutations(range(dimensions)).flatmap(
        lambda order: st.integers(0, dimensions).map(lambda n: tuple(order[:n]))))
    if chosen is None:
        return None
    chosen = tuple(axis - dimensions * draw(st.booleans()) for axis in chosen)
    return chosen[0] if len(chosen) == 1 and draw(st.booleans()) else chosen


@pytest.mark.parametrize("name", ["all", "any", "count_nonzero", "sum", "prod", "mean", "var", "std", "max", "min"])
@RUNS
@given(data=st.data())
def test_folds(name, data):
    sizes = st.lists(st.integers(1, 4), max_size=4).map(tuple)  # (nothing has no largest element)
    empty_too = name not in ("max", "min", "mean", "var", "std")
    kinds = DTYPES["f"] if name in ("mean", "var", "std") else REAL if name in ("max", "min") else NUMERIC
    x = data.draw(arrays(kinds, SHAPES if empty_too else sizes))
    options = {"axis": data.draw(axes_of(x.ndim)), "keepdims": data.draw(st.booleans())}
    compare(lambda xp, x, **options: getattr(xp, name)(x, **options), x, **options)


@pytest.mark.parametrize("name", ["add", "subtract", "multiply", "equal", "not_equal", "where"])
@RUNS
@given(data=st.data())
def test_two_arrays_of_related_dtypes(name, data):
    shape = data.draw(SHAPES)
    narrower = st.integers(0, len(shape)).flatmap(lambda n: st.tuples(*[st.sampled_from([1, size]) for size in shape[n:]]))
    x = data.draw(arrays(NUMERIC, narrower))
    related = DTYPES["f"] + DTYPES["c"] if x.dtype.kind in "fc" else DTYPES[x.dtype.kind]
    y = data.draw(arrays(related, narrower))
    if name == "where":
        compare(lambda xp, x, y: xp.where(xp.asarray(False), x, y), x, y)
    else:
        compare(lambda xp, x, y: getattr(xp, name)(x, y), x, y)


@RUNS
@given(data=st.data())
def test_shapes(data):
    x = data.draw(arrays(ALL, st.lists(st.integers(0, 4), min_size=1, max_size=4).map(tuple)))
    axis = data.draw(st.integers(-x.ndim, x.ndim - 1))
    order, shift = tuple(data.draw(st.permutations(range(x.ndim)))), data.draw(st.integers(-9, 9))
    compare(lambda xp, x: xp.permute_dims(x, order), x)
    compare(lambda xp, x: xp.flip(x, axis=axis), x)
    compare(lambda xp, x: xp.roll(x, shift, axis=axis), x)
    compare(lambda xp, x: xp.concat([x, x], axis=axis), x)
    compare(lambda xp, x: xp.stack([x, x], axis=axis), x)
    compare(lambda xp, x: xp.unstack(x, axis=axis), x)
    compare(lambda xp, x: xp.repeat(x, abs(shift) % 3, axis=axis), x)
    compare(lambda xp, x: xp.tile(x, order), x)
    compare(lambda xp, x: xp.reshape(x, (math.prod(x.shape),)), x)
    compare(lambda xp, x: xp.nonzero(x), x)
    compare(lambda xp, x: xp.unique_all(x), x if x.dtype.kind != "c" else x.real)


@RUNS
@given(data=st.data())
def test_along_an_axis(data):
    x = data.draw(arrays(REAL, st.lists(st.integers(1, 4), min_size=1, max_size=4).map(tuple)))
    axis, flag = data.draw(st.integers(-x.ndim, x.ndim - 1)), data.draw(st.booleans())
    places = np.asarray(data.draw(st.lists(st.integers(-x.shape[axis], x.shape[axis] - 1), max_size=3)), "int64")
    compare(lambda xp, x: xp.sort(x, axis=axis, descending=flag), x)
    compare(lambda xp, x: xp.argsort(x, axis=axis, descending=flag), x)
    compare(lambda xp, x: xp.argmax(x, axis=axis, keepdims=flag), x)
    compare(lambda xp, x: xp.cumulative_sum(x, axis=axis, include_initial=flag), x)
    compare(lambda xp, x: xp.cumulative_prod(x, axis=axis, include_initial=flag), x)
    compare(lambda xp, x: xp.diff(x, axis=axis), x)
    compare(lambda xp, x, places: xp.take(x, places, axis=axis), x, places)
