"""The native kernels over rows (softmax, norms, losses) against NumPy's."""

from __future__ import annotations

import numpy as np
import pytest
from compare import EXACT, Tolerance, native_agrees, rounding, same

import flambeau
import flambeau.nn.functional
from flambeau import native
from flambeau.backends.cpu.layers.normalization import layer_norm_only
from flambeau.backends.cpu.table import KERNELS

pytestmark = [pytest.mark.skipif(native.library("softmax") is None, reason="needs a C compiler"),
              pytest.mark.usefixtures("threads")]
DTYPES = (np.float32, np.float64)
SHAPES = [((5,), 0), ((4, 10), 1), ((4, 10), 0), ((7, 65), 1), ((3, 5, 17), 1), ((2, 3, 70), 2), ((130, 3), 0), ((2, 1500), 1),
          ((3, 1), 1), ((2, 40, 200), 1), ((600, 200), 1)]


def numbers(shape, dtype, seed=0, scale=3.0):
    return (np.random.default_rng(seed).standard_normal(shape) * scale).astype(dtype)


# ------------------------------------------------------------------------------------------------------ softmax
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("shape,axis", SHAPES)
def test_softmax(name, shape, axis, dtype):
    x = numbers(shape, dtype)
    expected = native_agrees(name, x, axis, tolerance=rounding(8))
    grad = numbers(shape, dtype, 1)
    native_agrees(f"{name}_backward", grad, expected, axis, tolerance=rounding(16))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_of_rows_that_end_within_a_block(name, dtype):
    for n in (*range(1, 36), 63, 64, 65, 127, 128, 129, 511, 512, 513, 1023, 1024, 1025, 1041):
        x = numbers((37, n), dtype, n)
        guarded = np.full(x.size + 64, 7, dtype)  # what lies behind the last row stays out of it
        guarded[:x.size] = x.ravel()
        expected = native_agrees(name, guarded[:x.size].reshape(x.shape), 1, tolerance=rounding(8))
        native_agrees(f"{name}_backward", numbers(x.shape, dtype, n + 1), expected, 1, tolerance=rounding(16))


@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
@pytest.mark.parametrize("dtype", DTYPES)
def test_softmax_strides(name, dtype):
    x = numbers((6, 8, 20), dtype)
    for view in (x.transpose(2, 0, 1), x[:, ::2, ::-1], np.broadcast_to(x[:1], x.shape)):
        for axis in range(3):
            expected = native_agrees(name, view, axis, tolerance=rounding(8))
            native_agrees(f"{name}_backward", np.broadcast_to(view[:1], view.shape), expected, axis, tolerance=rounding(16))


@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("name", ["softmax", "log_softmax"])
def test_softmax_special_values(name, dtype, axis):
    inf, nan = np.inf, np.nan
    rows = np.array([[1, 2, 3, -inf], [-inf] * 4, [1, nan, 2, 3], [inf, 1, 2, 3], [-inf, -inf, 5, -inf], [-1e4, 0, 1e4, 1],
                     [-90, 0, -200, -88], [nan] * 4], dtype)
    x = rows if axis == 1 else np.ascontiguousarray(rows.T)
    native_agrees(name, x, axis, tolerance=Tolerance(1e-6, 1e-37))


def test_softmax_of_nothing():
    for shape, axis in (((0, 3), 1), ((3, 0), 1), ((0,), 0), ((), 0)):
        assert native_agrees("softmax", np.zeros(shape, np.float32), axis).shape == shape


# ------------------------------------------------------------------------------------------------------ norms
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape,dims", [((5, 7), 1), ((64, 128), 1), ((3, 4, 33), 2), ((2, 1100), 1), ((9,), 1),
                                        ((700, 130), 1)])
@pytest.mark.parametrize("given", [(True, True), (True, False), (False, True), (False, False)])
def test_layer_norm(shape, dims, dtype, given):
    x, inner = numbers(shape, dtype) + 5, shape[len(shape) - dims:]
    weight, bias = [numbers(inner, dtype, 2 + i) if g else None for i, g in enumerate(given)]
    reference = native_agrees("layer_norm", x, dims, weight, bias, 1e-5, tolerance=rounding(32))
    grad = numbers(shape, dtype, 4)
    for needs in ((True, True, True), (True, False, False), (False, True, False), (False, False, True)):
        made = native_agrees("layer_norm_grad", grad, x, dims, *reference[1:], weight, needs, tolerance=rounding(64))
        assert tuple(gradient is not None for gradient in made) == needs


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape,dims", [((5, 7), 1), ((64, 128), 1), ((3, 4, 33), 2), ((2, 1100), 1), ((700, 130), 1)])
@pytest.mark.parametrize("weighted", [True, False])
def test_rms_norm(shape, dims, dtype, weighted):
    x, inner = numbers(shape, dtype), shape[len(shape) - dims:]
    weight = numbers(inner, dtype, 2) if weighted else None
    reference = native_agrees("rms_norm", x, dims, weight, 1e-6, tolerance=rounding(16))
    grad = numbers(shape, dtype, 4)
    for needs in ((True, weighted), (True, False), (False, weighted)):
        native_agrees("rms_norm_grad", grad, x, dims, reference[1], weight, needs, tolerance=rounding(64))


@pytest.mark.parametrize("dtype", DTYPES)
def test_layer_norm_of_rows_that_end_within_a_block(dtype):
    for rows, n in ((1, 1), (3, 5), (37, 15), (4, 16), (6, 17), (33, 31), (5, 33), (130, 100), (3, 129), (3, 513), (66, 520)):
        x, grad = numbers((rows, n), dtype, n), numbers((rows, n), dtype, n + 1)
        weight, bias = numbers((n,), dtype, 2), numbers((n,), dtype, 3)
        reference = native_agrees("layer_norm", x, 1, weight, bias, 1e-5, tolerance=rounding(32))
        same(KERNELS["layer_norm"](x, 1, weight, bias, 1e-5)[0], layer_norm_only(x, 1, weight, bias, 1e-5), EXACT)
        native_agrees("layer_norm_grad", grad, x, 1, *reference[1:], weight, (True, True, True), tolerance=rounding(64))


def test_layer_norm_is_recorded_like_its_row():
    torch, F = flambeau, flambeau.nn.functional
    x, w, b = [torch.tensor(numbers(s, np.float64, i), requires_grad=True) for i, s in enumerate([(6, 20), (20,), (20,)])]
    grad = torch.tensor(numbers((6, 20), np.float64, 5))
    made, row = F.layer_norm(x, (20,), w, b, 1e-5), torch.native_layer_norm(x, (20,), w, b, 1e-5)[0]
    assert type(made.grad_fn) is type(row.grad_fn) and torch.equal(made, row)
    for ours, theirs in zip(*[torch.autograd.grad(y, (x, w, b), grad, retain_graph=True) for y in (made, row)]):
        assert torch.equal(ours, theirs)
    once = [torch.autograd.grad(y, x, grad, create_graph=True)[0] for y in (made, row)]
    for ours, theirs in zip(*[torch.autograd.grad(g.sin().sum(), (x, w)) for g in once]):
        assert torch.allclose(ours, theirs, rtol=1e-12, atol=1e-12)
    only = torch.autograd.grad(F.layer_norm(x.detach(), (20,), w, b), w, grad)[0]
    assert torch.allclose(only, torch.autograd.grad(row, w, grad)[0])
    with pytest.raises(RuntimeError, match="second time"):
        made.backward(grad)
        made.backward(grad)


def test_layer_norm_sees_changes_of_what_it_saved():
    torch, F = flambeau, flambeau.nn.functional
    x, w, b = torch.randn(4, 8), torch.ones(8, requires_grad=True), torch.zeros(8, requires_grad=True)
    made = F.layer_norm(x, (8,), w, b)
    x.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        made.sum().backward()
    with torch.no_grad():
        w.mul_(2)
    F.layer_norm(x, (8,), w, b).sum().backward()  # a weight that was changed before is as good as any
    with pytest.raises(RuntimeError, match="at least 1-dimensional"):
        F.layer_norm(torch.tensor(1.0), (), torch.tensor(1.0), torch.tensor(1.0))


def test_norms_of_strided_arrays():
    x = numbers((16, 12, 10), np.float32).transpose(2, 0, 1)
    native_agrees("layer_norm", x, 1, None, None, 1e-5, tolerance=rounding(32))
    mean, rstd = KERNELS["layer_norm"](x, 1, None, None, 1e-5)[1:]
    grad = np.broadcast_to(numbers((12,), np.float32, 3), x.shape)
    native_agrees("layer_norm_grad", grad, x, 1, mean, rstd, None, (True, True, True), tolerance=rounding(64))


def test_norm_of_a_row_with_nan():
    x = numbers((4, 20), np.float32)
    x[1, 3] = np.nan
    native_agrees("layer_norm", x, 1, None, None, 1e-5, tolerance=rounding(32))


# ------------------------------------------------------------------------------------------------------ losses
@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(1, 1), (4, 10), (33, 65), (3, 2000), (400, 300)])
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("ignore", [-100, 0])
@pytest.mark.parametrize("weighted", [False, True])
def test_cross_entropy(shape, dtype, reduction, ignore, weighted):
    weight = np.abs(numbers(shape[1:], dtype, 3)) if weighted else None
    x, target = numbers(shape, dtype), np.random.default_rng(1).integers(0, shape[1], shape[0])
    ours = list(KERNELS["cross_entropy"](x, target, weight, reduction, ignore, True))
    with native.off():
        reference = list(KERNELS["cross_entropy"](x, target, weight, reduction, ignore, True))
    counted = target != ignore  # rows that do not count may hold anything
    same([reference[0], reference[1][counted], *reference[2:]], [ours[0], ours[1][counted], *ours[2:]], rounding(32))
    same(reference[0], KERNELS["cross_entropy"](x, target, weight, reduction, ignore, False)[0], rounding(32))
    grad = numbers(reference[0].shape, dtype, 2)
    args = [np.asarray(grad), *reference[1:3], target, weight, reference[3], ignore]
    native_agrees("cross_entropy_backward", *args, tolerance=rounding(16))


def test_cross_entropy_targets_out_of_range():
    x = numbers((20, 5), np.float32)
    target = np.zeros(20, np.int64)
    target[[7, 13]] = 5, -3
    for name, rest in (("cross_entropy", (None, 1, -100, True)), ("nll_loss", (None, 1, -100))):
        args = (x, target, *rest)
        with pytest.raises(IndexError, match="Target 5 is out of bounds"):
            KERNELS[name](*args)


def test_cross_entropy_of_infinite_logits():
    x = np.zeros((4, 3), np.float32)
    x[0, 1], x[1, 0], x[2, 2] = -np.inf, np.inf, np.nan
    x[3] = -np.inf
    target = np.array([1, 0, 0, 0])
    ours = KERNELS["cross_entropy"](x, target, None, 0, -100, True)[0]
    with native.off():
        same(KERNELS["cross_entropy"](x, target, None, 0, -100, True)[0], ours, EXACT)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(5,), (6, 5), (3, 5, 4), (2, 3, 4, 5), (300, 500)])
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("weighted,ignore", [(False, -100), (True, 1)])
def test_nll_loss(shape, dtype, reduction, weighted, ignore):
    classes = shape[0] if len(shape) == 1 else shape[1]
    x, places = numbers(shape, dtype), () if len(shape) == 1 else (shape[0], *shape[2:])
    target = np.asarray(np.random.default_rng(1).integers(0, classes, places))
    weight = np.abs(numbers((classes,), dtype, 2)) if weighted else None
    reference = native_agrees("nll_loss", x, target, weight, reduction, ignore, tolerance=rounding(32))
    grad = np.asarray(numbers(reference[0].shape, dtype, 2))
    native_agrees("nll_loss_backward", grad, shape, target, weight, reduction, ignore, reference[1], tolerance=rounding(16))


PAIRS = [("mse_loss", ()), ("huber_loss", (0.7,)), ("smooth_l1_loss", (0.5,)), ("soft_margin_loss", ())]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (7, 5), (3, 4000), (300, 400)])
@pytest.mark.parametrize("reduction", [0, 1, 2])
@pytest.mark.parametrize("name,rest", [*PAIRS, ("binary_cross_entropy", (None,)), ("bce_with_logits", (None, None))])
def test_losses_of_pairs(name, rest, shape, reduction, dtype):
    x, y = np.asarray(numbers(shape, dtype)), np.asarray(numbers(shape, dtype, 1))
    if rest and rest[0] is None:
        y = np.asarray(1 / (1 + np.exp(-y)))
        x = np.asarray(1 / (1 + np.exp(-x))) if name == "binary_cross_entropy" else x
        last = (*rest, reduction)
    else:
        last = (reduction, *rest)
    reference = native_agrees(name, x, y, *last, tolerance=rounding(64))
    grad = np.asarray(numbers(reference.shape, dtype, 2))
    native_agrees(f"{name}_backward", grad, x, y, *last, tolerance=rounding(64))


@pytest.mark.parametrize("name,rest", [*PAIRS, ("bce_with_logits", (None, None))])
def test_losses_of_pairs_at_the_ends(name, rest):
    ends = np.array([np.inf, -np.inf, np.nan, 0, -0.0, 1e30, -1e30, 200, -200, 1], np.float32)
    x, y = np.repeat(ends, len(ends)), np.tile(ends, len(ends))
    last = (*rest, 0) if rest and rest[0] is None else (0, *rest)
    native_agrees(name, x, y, *last, tolerance=Tolerance(1e-6, 0))
    native_agrees(f"{name}_backward", np.ones_like(x), x, y, *last, tolerance=Tolerance(1e-6, 1e-37))


def test_binary_cross_entropy_wants_probabilities():
    y = np.full(3000, 0.5, np.float32)
    for value in (-0.1, 1.1, np.nan):
        x = y.copy()
        x[2500] = value
        with pytest.raises(RuntimeError, match="between 0 and 1"):
            KERNELS["binary_cross_entropy"](x, y, None, 1)
    x[2500] = 0
    x[2] = 1
    native_agrees("binary_cross_entropy", x, y, None, 1, tolerance=rounding(32))
    native_agrees("binary_cross_entropy_backward", np.asarray(np.float32(0.5)), x, y, None, 1, tolerance=rounding(32))


def test_results_repeat():
    x = numbers((300, 700), np.float32)
    first, second = (KERNELS["layer_norm_grad"](x, x, 1, *KERNELS["layer_norm"](x, 1, None, None, 1e-5)[1:], None,
                                                (True, True, True)) for _ in range(2))
    for a, b in zip(first, second):
        np.testing.assert_array_equal(a, b)
