"""Native picking, putting and adding by position against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from compare import native_agrees, rounding
from lowered import run_all

import flambeau
import flambeau.nn.functional
from flambeau import native
from flambeau.backends.cpu.table import KERNELS

pytestmark = [pytest.mark.skipif(native.library("index") is None, reason="needs a C compiler"),
              pytest.mark.usefixtures("threads")]
SUMS = rounding(64)
FLOATS = (np.float32, np.float64)
MANY = (np.float32, np.float64, np.float16, np.int64, np.int32, np.uint8, np.bool_, np.complex64, np.complex128)


def numbers(shape, dtype, seed=0):
    return (np.random.default_rng(seed).standard_normal(shape) * 20).astype(dtype)


def places(shape, limit, seed=1):
    return np.random.default_rng(seed).integers(0, limit, shape)


# --------------------------------------------------------------------------------------------------------------- picking
@pytest.mark.parametrize("dtype", MANY)
def test_picking(dtype):
    x = numbers((40, 9, 7), dtype)
    for dim, size in enumerate(x.shape):
        native_agrees("index_select", x, dim, places((100,), size))
        native_agrees("index_select", x, dim, places((100,), size).astype(np.int32))
        native_agrees("index", x, [None] * dim + [places((9, 11), size) - size // 2])
    native_agrees("take", x, places((5, 50), x.size) - 100)
    native_agrees("embedding", x.reshape(40, 63), places((3, 50), 40), -1, False, False)
    native_agrees("embedding", numbers((3000, 100), dtype), places((4000,), 3000), -1, False, False)


@pytest.mark.parametrize("dtype", FLOATS)
def test_picking_from_strided_and_empty(dtype):
    x = numbers((30, 50), dtype)
    native_agrees("index_select", x.T, 0, places((80,), 50))
    native_agrees("index_select", x, 1, places((160,), 50)[::2])
    native_agrees("index_select", x[:, :0], 0, places((80,), 30))
    native_agrees("index_select", x, 0, places((0,), 30))
    native_agrees("embedding", x[:, :0], places((80,), 30), -1, False, False)


@pytest.mark.parametrize("dtype", MANY)
@pytest.mark.parametrize("dim", [0, 1, 2])
def test_gather_and_scatter(dtype, dim):
    x = numbers((12, 40, 20), dtype)
    shape = [12, 40, 20]
    shape[dim] = 30
    index = places(shape, x.shape[dim])
    native_agrees("gather", x, dim, index)
    source = numbers(shape, dtype, 2)
    native_agrees("scatter", x, dim, index, source)
    native_agrees("scatter", x, dim, index, 1)
    native_agrees("scatter_into", x, dim, index, source)
    if dtype in FLOATS:
        native_agrees("scatter_add", x, dim, index, source, tolerance=SUMS)
        native_agrees("scatter_add_into", x, dim, index, source, tolerance=SUMS)
        native_agrees("scatter_added", source, dim, index, x.shape, tolerance=SUMS)


@pytest.mark.parametrize("dtype", FLOATS)
def test_scatter_of_uneven_sizes(dtype):
    x = numbers((50, 300), dtype)
    index = places((20, 170), 300)
    native_agrees("gather", x, 1, index)
    native_agrees("scatter_add", x, 1, index, numbers((25, 180), dtype, 2), tolerance=SUMS)
    native_agrees("scatter_added", numbers((20, 170), dtype), 1, index, (50, 300), tolerance=SUMS)
    native_agrees("scatter", x, 1, index, numbers((20, 170), dtype, 2))
    native_agrees("gather", x.T, 0, index.T)
    native_agrees("scatter_add_into", numbers((300, 50), dtype).T, 1, index, numbers((20, 170), dtype), tolerance=SUMS)
    native_agrees("scatter_add", numbers((500,), dtype), 0, places((90000,), 500), numbers((90000,), dtype),
                  tolerance=SUMS)
    native_agrees("gather", numbers((400, 500), dtype), 1, places((400, 300), 500))
    native_agrees("scatter_add", numbers((400, 500), dtype), 0, places((300, 500), 400), numbers((300, 500), dtype),
                  tolerance=SUMS)
    native_agrees("gather", x, 1, np.zeros((50, 0), np.int64))


# ---------------------------------------------------------------------------------------------------------------- adding
@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows,width,count", [(10, 5, 40), (1000, 100, 512), (65, 128, 768), (7, 1, 30), (30, 200, 5000),
                                              (3, 0, 4)])
def test_embedding_backward(dtype, rows, width, count):
    grad, at = numbers((count, width), dtype), places((count,), rows)
    for padding in (-1, int(at[0])):
        native_agrees("embedding_dense_backward", grad, at, rows, padding, False, tolerance=SUMS)
    native_agrees("added_rows", grad, at - rows // 2, (rows, width), tolerance=SUMS)
    native_agrees("index_add", numbers((rows, width), dtype), 0, at, grad, 1, tolerance=SUMS)
    native_agrees("index_add_into", numbers((rows, width), dtype), 0, at, grad, 2.5, tolerance=SUMS)
    native_agrees("index_add", numbers((width, rows), dtype), 1, at, np.ascontiguousarray(grad.T), 1,
                  tolerance=SUMS)
    native_agrees("index_put", numbers((rows, width), dtype), [at], grad, True, tolerance=SUMS)
    native_agrees("index_put", numbers((rows, width), dtype), [at - rows // 2], grad, False)
    native_agrees("index_copy", numbers((rows, width), dtype), 0, at, grad)


@pytest.mark.parametrize("dtype", FLOATS)
def test_sums_do_not_depend_on_the_number_of_threads(dtype):
    grad, at = numbers((3000, 130), dtype), places((3000,), 50)
    made = []
    for count in (1, 2):
        flambeau.set_num_threads(count)
        made.append([KERNELS["embedding_dense_backward"](grad, at, 50, -1, False),
                     KERNELS["embedding_dense_backward"](grad, at, 5000, -1, False)])
    for one, two in zip(*made):
        np.testing.assert_array_equal(one, two)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("rows,count", [(20, 100), (5000, 300), (10_000_000_000, 50), (1, 3)])
def test_coalesced_rows(dtype, rows, count):
    at = places((count,), rows)
    at[-1] = at[0]
    native_agrees("coalesced_rows", at, numbers((count, 33), dtype), rows, tolerance=SUMS)
    native_agrees("coalesced_rows", at, numbers((count,), dtype), rows, tolerance=SUMS)


@pytest.mark.parametrize("dtype", FLOATS)
@pytest.mark.parametrize("maximize", [False, True])
def test_sparse_adam(dtype, maximize):
    for width in (1, 100, 300):
        table, average = numbers((50, width), dtype), numbers((50, width), dtype, 1)
        squares = np.abs(numbers((50, width), dtype, 2))
        native_agrees("sparse_adam", table, average, squares, places((80,), 50), numbers((80, width), dtype, 3), 0.01, 0.9,
                      0.99, 1e-8, maximize, tolerance=SUMS)


# ----------------------------------------------------------------------------------------------------------------- masks
@pytest.mark.parametrize("dtype", [d for d in MANY if d is not np.bool_])
def test_masked_fill(dtype):
    x = numbers((8, 40, 50), dtype)
    for shape in (x.shape, (40, 50), (50,), (1, 40, 50), (8, 1, 1), ()):
        mask = np.asarray(numbers(shape, np.float32, 4) > 0)
        native_agrees("masked_fill", x, mask, 7)
        native_agrees("masked_fill_into", x, mask, 7)
    native_agrees("masked_fill", x.transpose(2, 0, 1), np.asarray(numbers((50, 8, 40), np.float32) > 0), 7)
    if dtype in FLOATS:
        native_agrees("masked_fill", x, mask, -np.inf)
        native_agrees("masked_fill", x, mask, np.array(np.nan))


def test_one_hot():
    native_agrees("one_hot", places((30, 4), 9), 9)


# ---------------------------------------------------------------------------------------------------------------- errors
@pytest.mark.parametrize("bad", [-1, 10, 1 << 40, -(1 << 62)])
def test_out_of_range_leaves_everything_as_it_was(bad):
    x = flambeau.arange(200.0).reshape(10, 20)
    at = flambeau.zeros(100, dtype=flambeau.int64)
    at[70] = bad
    before = x.clone()
    wide = at[:, None].expand(100, 20).contiguous()
    tall = flambeau.ones(100, 20)
    for run in (lambda: flambeau.nn.functional.embedding(at, x), lambda: x.index_select(0, at), lambda: x.gather(0, wide),
                lambda: x.scatter_add_(0, wide, tall), lambda: x.scatter_(0, wide, tall), lambda: x.index_add_(0, at, tall),
                lambda: x.index_copy_(0, at, tall), lambda: flambeau.nn.functional.one_hot(at, 10)):
        with pytest.raises((IndexError, RuntimeError)):
            run()
        assert flambeau.equal(x, before)
    if bad != -1:
        with pytest.raises(IndexError):
            x[at]
        with pytest.raises(IndexError):
            x.index_put_((at,), tall)
        assert flambeau.equal(x, before)


def test_gradients_of_gradients():
    x = flambeau.randn(12, 3, dtype=flambeau.float64, requires_grad=True)
    at = flambeau.tensor(places((80,), 12))
    wide = flambeau.tensor(places((90, 3), 12))
    for function in (lambda x: x.index_select(0, at) ** 2, lambda x: x[at - 6] ** 3, lambda x: x.gather(0, wide) ** 2,
                     lambda x: flambeau.nn.functional.embedding(at, x) ** 2, lambda x: x.masked_fill(x > 0, 2.0) ** 2):
        assert flambeau.autograd.gradcheck(function, (x,))
        assert flambeau.autograd.gradgradcheck(function, (x,))


# ------------------------------------------------------------------------------------------------------------- lowerings
def cases_for(dtype):
    x, grad = numbers((60, 24), dtype), numbers((100, 24), dtype, 1)
    at, wide, across = places((100,), 60), places((100, 24), 60), places((60, 70), 24)
    yield "embedding", (x, at, -1, False, False)
    yield "index_select", (x, 1, places((100,), 24))
    yield "index", (x, [at - 30])
    yield "take", (x, places((100,), 60 * 24))
    yield "embedding_dense_backward", (grad, at, 60, 7, False)
    yield "added_rows", (grad, at, (60, 24))
    yield "index_add", (x, 0, at, grad, 1)
    yield "gather", (x, 0, wide)
    yield "gather", (x, 1, across)
    yield "scatter", (x, 1, across, numbers((60, 70), dtype, 2))
    yield "scatter_add", (x, 0, wide, grad)
    yield "scatter_added", (grad, 0, wide, (60, 24))
    yield "masked_fill", (x, np.asarray(x > 0), -2.5)
    yield "one_hot", (at, 60)


def out_of_range(argument):
    if isinstance(argument, list):
        return list(map(out_of_range, argument))
    if not isinstance(argument, np.ndarray) or argument.dtype != np.int64:
        return argument
    changed = argument.copy()
    changed.reshape(-1)[3] = 10_000
    return changed


@pytest.mark.parametrize("dtype", FLOATS)
def test_lowerings(dtype, threads):
    if threads > 1:
        pytest.skip("the code is the same")
    cases = list(cases_for(dtype))
    wanted = [KERNELS[name](*args) for name, args in cases]
    for (name, _), (status, (made,)), expected in zip(cases, run_all([(*case, None) for case in cases]), wanted):
        assert not status
        np.testing.assert_array_equal(made, expected, err_msg=name)
    spoiled = [(name, tuple(map(out_of_range, args)), like) for (name, args), like in zip(cases, wanted)
               if name != "masked_fill"]
    kinds = [3 if name.startswith(("gather", "scatter")) else 1 for name, _, _ in spoiled]
    assert [status for status, _ in run_all(spoiled)] == kinds  # 1: an IndexError, 3: a RuntimeError, as eager raises
