"""x[key], x[key] = value and the operations on positions and masks, against PyTorch."""

import itertools

import numpy as np
import pytest
import torch
from compare import EXACT, agree, both_raise, outcome, same
from hypothesis import given, settings
from hypothesis import strategies as st

import flambeau

N = None
E = Ellipsis
S = slice


def both(array, grad=False):
    """The array as a tensor of PyTorch and of flambeau."""
    return [lib.from_numpy(np.array(array)).requires_grad_(grad) for lib in (torch, flambeau)]


def key_for(lib, key):
    """Index arrays in a key as tensors of the library."""
    if isinstance(key, np.ndarray):
        return lib.from_numpy(key.copy())
    if isinstance(key, tuple):
        return tuple(key_for(lib, k) for k in key)
    return key


def picked(t, f, key):
    """What t[key] and f[key] give or raise."""
    return [outcome(lambda lib: x[key_for(lib, key)], lib)[0] for lib, x in ((torch, t), (flambeau, f))]


MASK = np.array([[True, False, True], [False, True, True]])
KEYS = [
    0,
    -1,
    1,
    2,
    -3,
    E,
    (),
    N,
    True,
    False,
    S(N),
    S(1, N),
    S(-5, 5),
    S(N, N, 2),
    S(2, 0),
    S(0, 1, -1),
    S(0, 1, 0),
    S(N, -1),
    (0, 1),
    (0, -1, 2),
    (0, 0, 0, 0),
    (S(N), 1),
    (S(N), 5),
    (E, 0),
    (0, E),
    (0, E, 1),
    (E, E),
    (N, 0),
    (0, N, 1),
    (E, N),
    (N, E, N),
    (S(N), S(1, 3), S(N, N, 2)),
    (S(N), N, S(N), N),
    (1, S(N), N, 2),
    1.5,
    "a",
    (1.5, 0),
    [0.5],
    [0, 1],
    [1, -1, 0],
    [],
    [[0, 1], [1, 0]],
    [True, False],
    [True, False, True],
    [0, S(N)],
    ([0, 1], [1, 2]),
    ([0, 1], S(N), [1, 2]),
    (0, S(N), [1, 2]),
    (S(N), [0, 2]),
    (S(N), [0, 2], [1, 1]),
    (S(N), [2], [0, 1]),
    (E, [0, 1]),
    ([0, 1], E, [1, 2]),
    ([0, 1], N, [1, 2]),
    ([0], [[1], [2]]),
    ([5],),
    (S(N), [7]),
    ([0, 1], [0, 1, 2]),
    (S(N), [True, False, True]),
    (True, 0),
    (0, True),
    ([0, 1], True),
    (0, True, [1, 2]),
    (S(N), True, [1, 2]),
    (False, 0),
    range(2),
    (range(2), 1),
    np.array([1, 0]),
    np.array([[0, 1], [1, 1]]),
    np.array(1),
    np.array(-1),
    np.array(True),
    np.array([0.5]),
    np.array([1, 0], np.int16),
    np.array([1, 0], np.int32),
    np.array([1, 0], np.uint8),
    np.array(1, np.uint8),
    MASK,
    (MASK, 0),
    (MASK, S(1, 3)),
    (MASK, E, 0),
    (E, MASK),
    (N, MASK),
    (MASK, N),
    (MASK, [0, 1, 2, 3]),
    (0, MASK[0]),
    (S(N), MASK[0]),
    (MASK[:, 0], MASK[0]),
    np.zeros((2, 3, 4), bool),
    (np.array(0), S(N), np.array([0, 1])),
    (np.array([[0], [1]]), np.array([[0, 2]])),
    np.zeros(0, np.int64),
    (S(N), np.zeros((0, 2), np.int64)),
]


@pytest.mark.parametrize("key", KEYS, ids=lambda k: repr(k).replace("\n", ""))
def test_getitem_like_torch(key):
    t, f = both(np.arange(24.0).reshape(2, 3, 4), grad=True)
    a, b = picked(t, f, key)
    same(a, b, EXACT)
    if not isinstance(a, Exception):
        assert b._is_view() == a._is_view()
        assert b.grad_fn.name() == a.grad_fn.name()
        w = np.arange(1.0, a.numel() + 1).reshape(a.shape)
        (a * torch.from_numpy(w)).sum().backward()
        (b * flambeau.from_numpy(w)).sum().backward()
        same(t.grad, f.grad, EXACT)
        # the same without gradient, which takes other paths
        same(*picked(t.detach(), f.detach(), key), EXACT)


@pytest.mark.parametrize("key", KEYS, ids=lambda k: repr(k).replace("\n", ""))
@pytest.mark.parametrize("how", ["number", "ones", "full", "extra"])
def test_setitem_like_torch(key, how):
    start = np.arange(24.0).reshape(2, 3, 4)
    shape, _ = outcome(lambda lib: tuple(lib.from_numpy(start)[key_for(lib, key)].shape), torch)
    shape = () if isinstance(shape, Exception) else shape
    value = {
        "number": 7.5,
        "ones": np.full((1,) * len(shape), 3.0),
        "full": np.arange(100.0, 100 + np.prod(shape, dtype=int)).reshape(shape),
        "extra": np.full((1, 1, *shape), 5.0),
    }[how]

    def run(lib, grad, key=key):
        if lib is torch and isinstance(key, np.ndarray) and key.dtype == np.uint8:
            key = key.astype(bool)  # which it means; PyTorch refuses some of these by accident
        x = lib.from_numpy(start.copy())
        v = lib.from_numpy(value.copy()) if isinstance(value, np.ndarray) else value
        if grad:
            x.requires_grad_()
            if how != "number":
                v.requires_grad_()
            y = x * 1
        else:
            y = x
        y[key_for(lib, key)] = v
        if not grad:
            return y
        (y * lib.from_numpy(start * 2 + 1)).sum().backward()
        return (y, x.grad) if how == "number" else (y, x.grad, v.grad if v.grad is not None else lib.zeros_like(v))

    for grad in (False, True):
        agree(lambda lib: run(lib, grad), EXACT, graph=False)


def test_zero_dim():
    t, f = both(3.0)
    for key in (0, E, N, True, False, S(N), (), (E, N), (0, 0), np.array(0)):
        same(*picked(t, f, key), EXACT)
    with pytest.raises(IndexError, match="invalid index of a 0-dim tensor"):
        f[0] = 1


@pytest.mark.parametrize(
    "key, message",
    [
        (5, "index 5 is out of bounds for dimension 0 with size 2"),
        ((S(N), 5), "index 5 is out of bounds for dimension 1 with size 3"),
        ((0, 5), "index 5 is out of bounds for dimension 1 with size 3"),
        ([5], "index 5 is out of bounds for dimension 0 with size 2"),
        ((0, 0, 0, 0), "too many indices for tensor of dimension 3"),
        (np.array([0.5]), "tensors used as indices must be long, int, byte or bool"),
        (MASK[0], "The shape of the mask"),
        (([0, 1], [0, 1, 2]), "indexing tensors could not be broadcast"),
    ],
)
def test_messages(key, message):
    _, f = both(np.zeros((2, 3, 4)))
    with pytest.raises(IndexError, match=message):
        f[key_for(flambeau, key)]
    with pytest.raises(IndexError, match=message):
        f[key_for(flambeau, key)] = 1.0
    assert not f.numpy().any()


def test_uint8_mask_warns():
    _, f = both(np.zeros(2))
    with pytest.warns(UserWarning, match="uint8"):
        f[flambeau.from_numpy(np.array([1, 0], np.uint8))]


def test_views_share_memory_and_versions():
    f = flambeau.from_numpy(np.zeros((3, 4)))
    f[1][2] = 5
    assert f[1, 2].item() == 5
    before = f._version
    f[0] = 1.0
    f[[0, 1]] = 2.0
    assert f._version == before + 2


def test_setitem_of_leaf_is_refused():
    f = flambeau.from_numpy(np.zeros((3, 4))).requires_grad_()
    for key in (0, [0, 1], (0, 1), N):
        with pytest.raises(RuntimeError):
            f[key] = 1.0
    assert not f.detach().numpy().any()


@pytest.mark.parametrize(
    "dtype, value",
    [
        ("uint8", 300),
        ("uint8", -1),
        ("int64", 1.7),
        ("int64", float("inf")),
        ("float32", 1e40),
        ("float16", 1e6),
        ("float32", 1j),
        ("bool", 2),
        ("float32", float("inf")),
        ("float32", "a"),
        ("float32", [1.0]),
        ("float32", np.ones(1)),
        ("complex64", 1j),
        ("int8", True),
    ],
)
@pytest.mark.parametrize("key", [0, [0], (0,)])
def test_numbers_that_do_not_fit(dtype, value, key):
    def run(lib):
        x = lib.zeros(2, dtype=getattr(lib, dtype))
        x[key] = value
        return x

    agree(run, EXACT)


def test_value_dtypes():
    for key, source in itertools.product((0, [0]), ("float64", "int64", "complex64")):

        def run(lib):
            x = lib.zeros(2)
            x[key] = lib.ones(1, dtype=getattr(lib, source)) if key == [0] else lib.ones((), dtype=getattr(lib, source))
            return x

        agree(run, EXACT)


# ------------------------------------------------------------------------------------------------- random keys
@st.composite
def keys(draw):
    parts = []
    for size in (2, 3, 4)[: draw(st.integers(0, 3))]:
        kind = draw(st.sampled_from(["int", "slice", "list", "none", "array"]))
        if kind == "none":
            parts.append(None)
            kind = "slice"
        if kind == "int":
            parts.append(draw(st.integers(-size, size - 1)))
        elif kind == "slice":
            bound = st.none() | st.integers(-size - 1, size + 1)
            parts.append(slice(draw(bound), draw(bound), draw(st.none() | st.integers(1, 3))))
        elif kind == "list":
            parts.append(draw(st.lists(st.integers(-size, size - 1), min_size=2, max_size=2)))
        elif kind == "array":
            parts.append(np.array(draw(st.lists(st.integers(-size, size - 1), min_size=1, max_size=1)))[:, None])
    if draw(st.booleans()):
        parts.insert(draw(st.integers(0, len(parts))), Ellipsis)
    return tuple(parts)


@settings(max_examples=150, deadline=None)
@given(keys())
def test_random_keys(key):
    t, f = both(np.arange(24.0).reshape(2, 3, 4), grad=True)
    a, b = picked(t, f, key)
    same(a, b, EXACT)
    if not isinstance(a, Exception):
        (a * a).sum().backward()
        (b * b).sum().backward()
        same(t.grad, f.grad, EXACT)
    x, y = both(np.arange(24.0).reshape(2, 3, 4))
    x[key_for(torch, key)] = -1.0
    y[key_for(flambeau, key)] = -1.0
    same(x, y, EXACT)


# --------------------------------------------------------------------------------------------- operations, errors
I = lambda *v: np.array(v, np.int64)  # noqa: E741
ERRORS = [
    ("gather", (0, np.full((1, 3), 5))),
    ("gather", (0, np.zeros((1, 3)))),
    ("gather", (0, np.zeros((1, 4), np.int64))),
    ("gather", (0, I(0))),
    ("gather", (3, np.zeros((1, 3), np.int64))),
    ("index_select", (0, I(5))),
    ("index_select", (0, I(-1))),
    ("index_select", (0, I([0]))),
    ("index_select", (0, np.zeros(1))),
    ("take", (I(50),)),
    ("take", (np.zeros(1),)),
    ("scatter", (0, np.full((1, 3), 5), 1.0)),
    ("scatter", (0, np.full((1, 3), -1), 1.0)),
    ("scatter", (0, np.zeros((1, 3), np.int64), np.ones((1, 2)))),
    ("scatter", (0, np.zeros((1, 3)), 1.0)),
    ("scatter_add", (0, np.full((1, 3), 5), np.ones((1, 3)))),
    ("scatter_add", (0, np.zeros((1, 3), np.int64), np.ones((1, 3), np.float32))),
    ("index_add", (0, I(5), np.ones((1, 3)))),
    ("index_add", (0, I(0), np.ones((2, 3)))),
    ("index_add", (0, I(0), np.ones((1, 2)))),
    ("index_copy", (0, I(5), np.ones((1, 3)))),
    ("index_copy", (0, I(0), np.ones((1, 3), np.float32))),
    ("index_fill", (0, I(5), 1.0)),
    ("index_fill", (0, I(0), np.ones(2))),
    ("put", (I(0, 1), np.ones(3))),
    ("put", (I(50), np.ones(1))),
    ("masked_fill", (np.array([1, 0, 1]), 1.0)),
    ("masked_fill", (np.array([True, False]), 1.0)),
    ("masked_fill", (np.array([True, False, True]), np.ones(3))),
    ("masked_select", (np.array([1, 0, 1]),)),
    ("masked_scatter", (np.array([True, True, True]), np.ones(2))),
    ("take_along_dim", (I([[0]]), 0)),
    ("scatter_reduce", (0, np.zeros((1, 3), np.int64), np.ones((1, 3)), "foo")),
    ("index_reduce", (0, I(0), np.ones((1, 3)), "sum")),
]


@pytest.mark.parametrize("name, args", ERRORS, ids=lambda v: v if isinstance(v, str) else "")
def test_errors_like_torch(name, args):
    t, f = both(np.ones((2, 3)))
    for suffix in ("", "_"):
        if not hasattr(torch.Tensor, name + suffix):
            continue
        both_raise(lambda lib: getattr(t if lib is torch else f, name + suffix)(*[key_for(lib, v) for v in args]))
        assert (f.numpy() == 1).all(), "nothing may be written on error"


INPLACE = [
    ("index_put_", ((I(0, 1, 0),), np.ones((3, 3)), True)),
    ("index_add_", (1, I(0, 2, 0), np.ones((4, 3)))),
    ("index_copy_", (1, I(2, 0), np.ones((4, 2)))),
    ("index_fill_", (1, I(0, 2), 5.0)),
    ("scatter_", (1, np.array([[0, 2], [1, 1]]), np.ones((2, 2)))),
    ("scatter_", (1, np.array([[0, 2], [1, 1]]), 3.0)),
    ("scatter_add_", (1, np.array([[0, 2], [1, 1]]), np.ones((2, 2)))),
    ("scatter_reduce_", (1, np.array([[0, 2], [1, 1]]), np.ones((2, 2)), "amax")),
    ("index_reduce_", (1, I(0, 2, 0), np.full((4, 3), 2.0), "prod")),
    ("masked_fill_", (np.array([True, False, True]), 9.0)),
    ("masked_scatter_", (np.array([True, False, True]), np.arange(8.0))),
    ("put_", (I(0, 5, 5), np.ones(3), True)),
]


@pytest.mark.parametrize("name, args", INPLACE, ids=lambda v: v if isinstance(v, str) else "")
@pytest.mark.parametrize("layout", ["plain", "transposed", "slice"])
def test_inplace_on_any_layout(name, args, layout):
    def run(lib, grad):
        base = lib.from_numpy(np.arange(24.0).reshape(3, 8))
        if grad:
            base.requires_grad_()
        whole = base * 1
        view = {
            "plain": lambda: whole.reshape(-1)[:12].view(4, 3),
            "transposed": lambda: whole[:, :4].t(),
            "slice": lambda: whole.t()[::2],
        }[layout]()
        same_as = view
        assert getattr(view, name)(*[key_for(lib, v) for v in args]) is same_as
        if grad:
            (whole * whole).sum().backward()
            return whole, base.grad
        return whole

    same(run(torch, False), run(flambeau, False), EXACT)
    same(run(torch, True), run(flambeau, True))


def test_repeated_rows_are_all_added():
    rng = np.random.default_rng(0)
    for rows, count, width in ((5, 300, 64), (50, 60, 100), (3, 7, 2), (1, 40, 200), (9, 9, 1)):
        index, source = rng.integers(0, rows, count), rng.standard_normal((count, width))
        t, f = both(np.zeros((rows, width)))
        same(
            t.index_add(0, torch.from_numpy(index), torch.from_numpy(source)),
            f.index_add(0, flambeau.from_numpy(index), flambeau.from_numpy(source)),
        )
        for dtype in ("float16", "bfloat16"):
            half = flambeau.from_numpy(source).to(getattr(flambeau, dtype))
            made = flambeau.zeros(rows, width, dtype=getattr(flambeau, dtype)).index_add(
                0, flambeau.from_numpy(index), half
            )
            assert str(made.dtype) == f"torch.{dtype}"


@pytest.mark.parametrize(
    "call",
    [
        lambda lib, x, w: x[lib.tensor([0, 1, 0])] * w[:3],
        lambda lib, x, w: x.gather(0, lib.tensor([[0, 1], [2, 2], [0, 0]])) * w,
        lambda lib, x, w: x.scatter_reduce(0, lib.tensor([[0, 1], [0, 1], [0, 0]]), w * x, "prod"),
        lambda lib, x, w: x.scatter_reduce(0, lib.tensor([[0, 1], [0, 1], [0, 0]]), w * x, "mean", include_self=False),
        lambda lib, x, w: x.index_put((lib.tensor([0, 2, 0]),), w * x, accumulate=True),
        lambda lib, x, w: x.masked_fill(w > 0, 2.0) * x,
        lambda lib, x, w: x.masked_select(w > 0) ** 2,
        lambda lib, x, w: x.masked_scatter(w > 0, w * w) * x,
        lambda lib, x, w: x.take(lib.tensor([0, 0, 3])) ** 3,
        lambda lib, x, w: x.index_select(0, lib.tensor([0, 0, 1])) * w,
        lambda lib, x, w: (x * w).index_add(0, lib.tensor([0, 0, 1]), w * w) ** 2,
        lambda lib, x, w: x.sort(0)[0] * w,
        lambda lib, x, w: x.topk(2, 0)[0] ** 2,
        lambda lib, x, w: x.kthvalue(2, 0)[0] ** 2,
        lambda lib, x, w: x.index_fill(0, lib.tensor([0, 0]), (w * w).sum()) ** 2,
        lambda lib, x, w: x.put(lib.tensor([0, 3]), w[0] ** 2) ** 2,
    ],
)
def test_second_derivatives(call):
    def run(lib):
        rng = np.random.default_rng(1)
        x = lib.from_numpy(rng.standard_normal((3, 2))).requires_grad_()
        w = lib.from_numpy(rng.standard_normal((3, 2))).requires_grad_()
        y = call(lib, x, w)
        (gx,) = lib.autograd.grad((y * y).sum(), x, create_graph=True)
        return lib.autograd.grad((gx**2).sum(), (x, w), allow_unused=True, materialize_grads=True)

    same(run(torch), run(flambeau))


def _filled_rows(lib, y, w):
    y[0] += w
    y[lib.tensor([1, 1])] += w
    y[y > 20] = 0


def _strided(lib, y, w):
    y[:, 1:3] *= w[1:3]
    y.t().index_fill_(0, lib.tensor([1]), 3.0)


def _through_a_view(lib, y, w):
    row = y[1]
    row[2] = w[0]
    y[0] = row
    y.view(-1)[lib.tensor([3, 5])] = w[:2]


def _scattered(lib, y, w):
    y.scatter_(0, lib.tensor([[0, 1, 2, 0]]), (w * w).unsqueeze(0))
    y.scatter_reduce_(0, lib.tensor([[0, 1, 2, 0]]), w.unsqueeze(0), "prod")
    y.index_reduce_(1, lib.tensor([0, 0]), w[:3].reshape(3, 1).expand(3, 2), "amax")


def _overwritten_input(lib, y, w):
    y[0] = y[1] * w
    y[1] = y[2] * y[1]


@pytest.mark.parametrize("change", [_filled_rows, _strided, _through_a_view, _scattered, _overwritten_input])
def test_gradients_of_writing(change):
    def run(lib):
        x = lib.from_numpy(np.arange(1.0, 13).reshape(3, 4)).requires_grad_()
        w = lib.from_numpy(np.arange(1.0, 5)).requires_grad_()
        y = x * 2
        change(lib, y, w)
        (y * y).sum().backward()
        return y, x.grad, w.grad

    agree(run)


def test_errors_of_autograd():
    x = flambeau.ones(3, 4, requires_grad=True)
    y = x.exp()
    y[0] = 0.0
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()
    positions = flambeau.tensor([0, 1])
    z = (x * 2)[positions]
    positions += 1
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        z.sum().backward()
    with flambeau.no_grad():
        view = (x * 2)[0]
    with pytest.raises(RuntimeError, match="no_grad"):
        view[0] = x[0, 0]
