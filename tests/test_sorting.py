"""Sorting, order statistics, unique elements, searching and counting, against PyTorch."""

import numpy as np
import pytest
import torch
from compare import EXACT, agree, same
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau

NAN, INF = float("nan"), float("inf")


def convert(lib, value):
    if isinstance(value, np.ndarray):
        return lib.from_numpy(value.copy())
    if isinstance(value, list) and value and isinstance(value[0], np.ndarray):
        return [convert(lib, v) for v in value]
    return value


def call_agrees(name, *args, tolerance=EXACT, **kwargs):
    """The same call of both libraries, with arrays as tensors."""
    agree(lambda lib: getattr(lib, name)(*[convert(lib, a) for a in args], **{k: convert(lib, v) for k, v in kwargs.items()}),
          tolerance)


rng = np.random.default_rng(0)
TIES = np.array([[3.0, NAN, 1.0, 3.0, -INF, 1.0], [0.0, -0.0, NAN, NAN, INF, 0.0]])
LONG = rng.integers(0, 50, (3, 300)).astype(np.float32)
SMOOTH = rng.standard_normal((4, 200))
DATA = [
    TIES,
    LONG,
    SMOOTH,
    TIES[0],
    np.array(3.0),
    np.zeros((0,)),
    np.zeros((2, 0)),
    rng.integers(-5, 5, (5, 7)),
    rng.integers(0, 2, (3, 9)).astype(bool),
    rng.integers(0, 9, 20).astype(np.uint8),
    TIES.astype(np.float16),
]


@pytest.mark.parametrize("x", DATA, ids=lambda x: f"{x.dtype}{x.shape}")
@pytest.mark.parametrize("descending", [False, True])
def test_sort(x, descending):
    for dim in range(-max(x.ndim, 1), max(x.ndim, 1)):
        call_agrees("sort", x, dim=dim, descending=descending, stable=True)
        call_agrees("argsort", x, dim=dim, descending=descending, stable=True)
    call_agrees("msort", x)
    same(
        torch.from_numpy(x).sort(descending=descending).values,
        flambeau.from_numpy(x).sort(descending=descending).values, EXACT,
    )


def test_sort_bfloat16():
    t, f = torch.from_numpy(LONG).bfloat16(), flambeau.from_numpy(LONG).bfloat16()
    same(t.sort(stable=True), f.sort(stable=True), EXACT)


def test_sort_errors():
    call_agrees("sort", np.ones(2) + 1j)
    call_agrees("sort", np.ones(2), 1)
    call_agrees("topk", np.ones(2), 3)
    call_agrees("topk", np.ones(2), -1)
    call_agrees("kthvalue", np.ones(2), 0)
    call_agrees("kthvalue", np.ones(2), 3)
    call_agrees("kthvalue", np.zeros((2, 0)), 1)


@pytest.mark.parametrize("largest", [False, True])
@pytest.mark.parametrize("k", [0, 1, 2, 5])
def test_topk_values(k, largest):
    for x in (TIES, LONG, SMOOTH, SMOOTH.astype(np.float16)):
        t, f = torch.from_numpy(x).topk(k, -1, largest), flambeau.from_numpy(x).topk(k, -1, largest)
        same(t.values, f.values, EXACT)
        picked = flambeau.from_numpy(x).gather(-1, f.indices)
        same(t.values, picked, EXACT)
    call_agrees("topk", SMOOTH, min(k, 4), dim=0, largest=largest)
    assert isinstance(f, flambeau.return_types.topk)


def test_topk_of_long_rows():
    """Equal elements: the earlier one first, whichever way the leaders are found."""
    ties = rng.integers(0, 40, (2, 5000)).astype(np.float32)
    for x in (ties, rng.standard_normal((3, 3000)), rng.integers(0, 9, 4000)):
        for largest in (True, False):
            f = flambeau.from_numpy(x).topk(7, -1, largest)
            t = torch.from_numpy(x).sort(dim=-1, descending=largest, stable=True)
            same((t.values[..., :7], t.indices[..., :7]), tuple(f), EXACT)
    x = rng.standard_normal(3000)
    x[[5, 2999]] = NAN
    same(torch.from_numpy(x).topk(3).values, flambeau.from_numpy(x).topk(3).values, EXACT)


def test_kthvalue():
    for k in (1, 3, 6):
        t, f = torch.from_numpy(TIES).kthvalue(k), flambeau.from_numpy(TIES).kthvalue(k)
        same(t.values, f.values, EXACT)
    call_agrees("kthvalue", SMOOTH, 2, dim=0, keepdim=True)
    call_agrees("kthvalue", np.array(2.0), 1)


UNIQUE = [
    TIES,
    LONG,
    rng.integers(0, 3, (6, 2)),
    rng.integers(0, 2, 9).astype(bool),
    np.zeros(0),
    np.array(4),
    np.zeros((0, 3)),
]


@pytest.mark.parametrize("x", UNIQUE, ids=lambda x: f"{x.dtype}{x.shape}")
@pytest.mark.parametrize("name", ["unique", "unique_consecutive"])
def test_unique(x, name):
    for inverse in (False, True):
        for counts in (False, True):
            call_agrees(name, x, return_inverse=inverse, return_counts=counts)
            if not np.isnan(x.astype(float)).any():
                for dim in range(x.ndim):
                    call_agrees(name, x, return_inverse=inverse, return_counts=counts, dim=dim)
    call_agrees(name, np.zeros((2, 0)), dim=0)


def test_unique_has_no_derivative():
    x = flambeau.ones(3, requires_grad=True)
    with pytest.raises(RuntimeError, match="not implemented"):
        x.unique().sum().backward()


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"right": True},
        {"side": "right"},
        {"side": "left"},
        {"out_int32": True},
        {"side": "foo"},
        {"side": "left", "right": True},
    ],
)
def test_searchsorted(options):
    edges = np.array([[1.0, 3, 3, 5], [0, 2, 4, 6]])
    values = np.array([[3.0, 0, 9, NAN, 5], [2, 2.5, -1, 6, 7]])
    call_agrees("searchsorted", edges, values, **options)
    call_agrees("searchsorted", edges[0], values, **options)
    call_agrees("searchsorted", edges[0], 3.0, **options)
    call_agrees("searchsorted", edges[0], np.array([1, 3]), **options)
    call_agrees("searchsorted", edges[0].astype(np.int64), np.array([2.5]), **options)
    call_agrees("searchsorted", edges, values[0], **options)
    call_agrees("searchsorted", edges[:, ::-1].copy(), values, sorter=np.array([[3, 2, 1, 0]] * 2), **options)
    call_agrees("searchsorted", edges[0], values, sorter=np.array([7, 2, 1, 0]), **options)
    call_agrees("searchsorted", np.zeros(0), values, **options)


def test_bucketize_and_isin():
    call_agrees("bucketize", np.array([[0.5, 1, 7]]), np.array([1.0, 3, 5]))
    call_agrees("bucketize", 3, np.array([1, 3, 5]), right=True, out_int32=True)
    call_agrees("bucketize", np.ones(2), np.ones((1, 2)))
    for args in (
        (np.array([[1, 2], [3, 1]]), np.array([1, 5])),
        (np.array([1, 2]), 2),
        (2, np.array([1, 2])),
        (np.array([1.5, NAN]), np.array([NAN, 1.5])),
        (np.zeros(0), np.ones(1)),
        (np.array([1, 2]), np.array([1.0, 2.5])),
        (2, 2),
    ):
        for invert in (False, True):
            call_agrees("isin", *args, invert=invert)


def test_counting():
    call_agrees("bincount", np.array([1, 2, 2, 7]))
    call_agrees("bincount", np.array([1, 2, 2]), minlength=6)
    call_agrees("bincount", np.array([1, 2, 2]), np.array([0.5, 1, 2], np.float32))
    call_agrees("bincount", np.array([1, 2, 2]), np.array([1, 2, 3]))
    call_agrees("bincount", np.zeros(0, np.int64), minlength=2)
    for bad in (np.array([-1]), np.array([[1]]), np.array([1.0])):
        call_agrees("bincount", bad)
    call_agrees("bincount", np.array([1, 2]), np.ones(3))
    x = rng.standard_normal(500).astype(np.float32)
    call_agrees("histc", x, 10)
    call_agrees("histc", x, 7, -1, 2)
    call_agrees("histc", np.ones(3), 4)
    call_agrees("histc", np.array([NAN, 1.0]), 4)
    call_agrees("histc", x, 0)
    call_agrees("histc", x, 3, 2, 1)
    call_agrees("histc", np.array([1, 2]))


@pytest.mark.parametrize("options", [{}, {"range": (-1.0, 2.0)}, {"density": True}, {"weight": rng.random(60)}])
def test_histogram(options):
    x = rng.standard_normal(60)
    call_agrees("histogram", x, 7, tolerance=1e-12, **options)
    call_agrees("histogram", x, 1, tolerance=1e-12, **options)
    if "range" not in options:
        call_agrees("histogram", x, np.array([-1.0, 0, 0.5, 3]), tolerance=1e-12, **options)
    points = rng.standard_normal((60, 2))
    if "range" in options:
        options = {"range": [-1.0, 1, -2, 2]}
    call_agrees("histogramdd", points, [3, 4], tolerance=1e-12, **options)
    call_agrees("histogramdd", points, 3, tolerance=1e-12, **options)
    call_agrees(
        "histogramdd",
        points,
        [np.array([-1.0, 0, 1]), np.array([0.0, 2])],
        tolerance=1e-12,
        **{k: v for k, v in options.items() if k != "range"},
    )
    call_agrees("histogramdd", points, [3])
    call_agrees("histogramdd", points[0], [3])


def test_diff():
    x = rng.standard_normal((3, 4))
    for n in (0, 1, 2, 5, -1):
        for dim in (0, -1):
            call_agrees("diff", x, n, dim)
    for n in (0, 1, 2):
        call_agrees("diff", x, n, 0, np.ones((1, 4)), np.zeros((2, 4)))
    call_agrees("diff", np.array([True, True, False]))
    call_agrees("diff", np.array(1.0))


def test_nonzero_and_positions():
    for x in (TIES, np.array(1.0), np.array(0.0), np.zeros((0, 2)), np.eye(3, dtype=bool)):
        call_agrees("nonzero", x)
        call_agrees("nonzero", x, as_tuple=True)
        call_agrees("argwhere", x)
        call_agrees("nonzero_static", x, size=2, fill_value=-7)
        call_agrees("nonzero_static", x, size=20)
    call_agrees("unravel_index", np.array([[5, 0], [-1, 7]]), (2, 3))
    call_agrees("unravel_index", np.array(5), 6)
    call_agrees("unravel_index", np.array([1.0]), (2, 3))
    call_agrees("unravel_index", np.array([1]), (2, -3))


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.sampled_from([NAN, INF, -INF, 0.0, 1.0, 2.0, -1.0]) | st.floats(-3, 3, width=32), max_size=80),
    st.booleans(),
)
def test_sort_is_stable_for_any_row(row, descending):
    x = np.array(row, np.float32)
    call_agrees("sort", x, descending=descending, stable=True)
    call_agrees("unique", x, return_inverse=False, return_counts=True)
