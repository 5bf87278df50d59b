"""native/arrays.c: windows, joins and choices of small arrays are PyTorch's and the general way's, in values and strides."""

from __future__ import annotations

import gc
import sys

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import flambeau
from flambeau.native import arrays, toolchain

pytestmark = pytest.mark.skipif(not toolchain.usable(), reason="no C compiler and no built library")
SIZES = st.lists(st.integers(0, 4), max_size=4)
DTYPES = st.sampled_from(("float32", "float64", "int64", "bool", "bfloat16"))


def pair(shape, steps, swapped, dtype="float32"):
    """The same tensor in both: every so-and-so-many element of a larger one, its first two dimensions swapped or not."""
    made = []
    for T in (flambeau, torch):
        larger = [n * s for n, s in zip(shape, steps)]
        x = T.arange(int(np.prod(larger)) or 0).remainder(7).to(getattr(T, dtype)).reshape(larger)
        for dim, step in enumerate(steps):
            x = x[(slice(None),) * dim + (slice(None, None, step),)]
        made.append(x.transpose(0, 1) if swapped and len(shape) > 1 else x)
    return made


@st.composite
def tensors(draw, dtypes=DTYPES):
    shape = draw(SIZES)
    steps = [draw(st.sampled_from((1, 1, 1, 2))) for _ in shape]
    return pair(shape, steps, draw(st.booleans()), draw(dtypes))


def outcome(function, x):
    """Values, strides and graph of what a call gives; or that it raises."""
    try:
        made = function(x)
    except (RuntimeError, IndexError, TypeError, ValueError):
        return "error"
    parts = made if isinstance(made, (tuple, list)) else (made,)
    return [(p.tolist(), tuple(p.shape), str(p.dtype), type(p.grad_fn).__name__, p._base is not None,
             (p.stride(), p.storage_offset()) if p.numel() else None) for p in parts]


def same(function, ours, theirs):
    for recorded in (False, True):
        if recorded:
            if "float" not in str(ours.dtype):
                return
            ours, theirs = ours.detach().requires_grad_(), theirs.detach().requires_grad_()
        assert outcome(function, ours) == outcome(function, theirs)


SHAPES = st.lists(st.integers(-1, 12), max_size=5)


@settings(max_examples=300, deadline=None)
@given(tensors(), SHAPES, st.sampled_from(("view", "reshape", "expand", "permute")), st.booleans())
def test_windows_of_other_sizes(xs, sizes, name, as_list):
    assume(xs[0].dim() or name != "expand")  # a new dimension of one has a stride of 1, in PyTorch here 0
    same(lambda x: getattr(x, name)(sizes) if as_list else getattr(x, name)(*sizes), *xs)


@settings(max_examples=200, deadline=None)
@given(tensors(), st.data())
def test_windows_that_fit(xs, data):
    """Sizes that have the right number of elements, and permutations: most random ones do not."""
    ours, theirs = xs
    n = ours.numel()
    first = data.draw(st.sampled_from([d for d in range(1, n + 1) if n % d == 0] or [1]))
    sizes = data.draw(st.permutations([first, n // first, 1, *data.draw(st.lists(st.just(1), max_size=2))]))
    if data.draw(st.booleans()) and n:
        sizes[data.draw(st.integers(0, len(sizes) - 1))] = -1
    order = data.draw(st.permutations(range(ours.dim())))
    wider = [data.draw(st.integers(1 if ours.dim() else 2, 3)) for _ in range(data.draw(st.integers(0, 2)))] + [
        data.draw(st.sampled_from((-1, m if m != 1 else 3))) for m in ours.shape]
    for function in (lambda x: x.view(sizes), lambda x: x.reshape(*sizes), lambda x: x.expand(wider), lambda x: x.flatten(),
                     lambda x: x.flatten(min(1, x.dim() - 1)), *([lambda x: x.permute(*order)] if order else [])):
        same(function, ours, theirs)


@settings(max_examples=200, deadline=None)
@given(tensors(), st.integers(-6, 6), st.integers(1, 5), st.sampled_from(("split", "chunk")))
def test_new_dimensions_and_parts(xs, dim, size, name):
    same(lambda x: x.unsqueeze(dim), *xs)
    same(lambda x: getattr(x, name)(size, dim), *xs)


@settings(max_examples=200, deadline=None)
@given(st.data(), st.integers(-4, 4), st.sampled_from(("cat", "stack")), st.sampled_from((list, tuple)))
def test_joins(data, dim, name, kind):
    shape = data.draw(SIZES)
    dtype = data.draw(DTYPES)
    many = []
    for _ in range(data.draw(st.integers(1, 4))):
        sizes = list(shape)
        if sizes and data.draw(st.booleans()) and -len(sizes) <= dim < len(sizes):
            sizes[dim] = data.draw(st.integers(0, 3))
        many.append(pair(sizes, [1] * len(sizes), data.draw(st.integers(0, 4)) == 0, dtype))
    for T, xs in ((flambeau, [m[0] for m in many]), (torch, [m[1] for m in many])):
        results = outcome(lambda _: getattr(T, name)(kind(xs), dim), None)
        recorded = [x.detach().requires_grad_("float" in dtype and i % 2 == 0) for i, x in enumerate(xs)]
        with_history = outcome(lambda _: getattr(T, name)(kind(recorded), dim), None)
        if T is flambeau:
            ours = results, with_history
    assert ours == (results, with_history)


FLOATS = st.sampled_from((0.0, -0.0, 1.0, -2.5, float("inf"), float("-inf"), float("nan")))


@settings(max_examples=200, deadline=None)
@given(st.data(), st.sampled_from(("float32", "float64")), st.sampled_from(("max", "min", "amax", "amin")))
def test_extremes_and_choices(data, dtype, name):
    shape = [data.draw(st.integers(1, 4)) for _ in range(data.draw(st.integers(0, 3)))]
    count = int(np.prod(shape))
    values, others = (data.draw(st.lists(FLOATS, min_size=count, max_size=count)) for _ in range(2))
    flags = data.draw(st.lists(st.booleans(), min_size=count, max_size=count))
    dim = data.draw(st.integers(0, len(shape) - 1)) if shape and name.startswith("a") else None
    found = []
    for T in (flambeau, torch):
        x, y = (T.tensor(v, dtype=getattr(T, dtype)).reshape(shape) for v in (values, others))
        picked = getattr(x, name)() if dim is None else getattr(x, name)(dim)
        chosen = T.where(T.tensor(flags).reshape(shape), x, y)
        found.append([(a.numpy(), a.stride()) for a in (picked, chosen)])
    for (ours, ours_stride), (theirs, theirs_stride) in zip(*found):
        np.testing.assert_array_equal(ours, theirs)
        assert ours_stride == theirs_stride and ours.dtype == theirs.dtype


def test_windows_keep_their_memory_and_nothing_else():
    x = np.ones((4, 6), np.float32)
    before, dtype_before = sys.getrefcount(x), sys.getrefcount(x.dtype)
    for _ in range(1000):
        made = [arrays.reshaped(x, (3, 8), False), arrays.expanded(x, (2, 4, 6)), arrays.unsqueezed(x, 0),
                arrays.permuted(x, (1, 0)), *arrays.parted(x, 2, 0, False)]
        assert all(m.base is x for m in made)
        arrays.room_like(x), arrays.extreme(x, None, False), arrays.reshaped(x, (5,), False), arrays.expanded(x, (3,))
        arrays.selected(x > 0, x, x), arrays.suited(x, x)
    assert sys.getrefcount(x) == before + len(made)
    del made
    gc.collect()
    assert sys.getrefcount(x) == before
    assert sys.getrefcount(x.dtype) - dtype_before < 20


def test_joins_keep_nothing():
    xs = [flambeau.ones(2, 3), flambeau.ones(2, 3)]
    held = xs[0]._array
    before, dtype_before = sys.getrefcount(held), sys.getrefcount(held.dtype)
    for _ in range(1000):
        arrays.joined(xs, 0, False), arrays.joined(xs, 1, True), arrays.joined(xs, 7, True), arrays.any_history(xs)
    assert sys.getrefcount(held) == before and sys.getrefcount(held.dtype) - dtype_before < 20


def test_a_window_onto_memory_that_must_not_change():
    x = np.ones((4, 6), np.float32)
    x.flags.writeable = False
    assert not arrays.reshaped(x, (24,), False).flags.writeable
    assert arrays.reshaped(np.ones(4), (2, 2), False).flags.writeable


@pytest.mark.parametrize("odd", [True, 2.0, "2", None, (2, 2.0), [[2]], 1 << 70, -2])
def test_what_is_no_size_is_left_to_the_general_way(odd):
    x = np.ones((4, 6), np.float32)
    sizes = (odd,) if not isinstance(odd, tuple) else odd
    assert arrays.reshaped(x, sizes, False) is None and arrays.expanded(x, (2, *sizes, 4, 6)) is None
    assert arrays.unsqueezed(x, 1 << 70) is None and arrays.parted(x, odd, 0, False) is None


@pytest.mark.parametrize("odd", [None, 3, "ab", [], (), [1, 2], [flambeau.ones(2), 3], {1: 2}, flambeau.ones(2, 2),
                                 [flambeau.ones(2), flambeau.ones(2).double()], [flambeau.ones(())]])
def test_what_is_no_list_of_like_tensors_is_left_to_the_general_way(odd):
    assert arrays.joined(odd, 0, False) is None
