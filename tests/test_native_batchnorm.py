"""Native batch and group normalization against NumPy's; the statistics that the functions hand out."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from compare import EXACT, Tolerance, native_agrees, same
from lowered import run_lowered

import flambeau
import flambeau.backends.cpu.layers.normalization  # enters its kernels
from flambeau import native
from flambeau.backends.cpu.table import KERNELS

pytestmark = [pytest.mark.skipif(native.library("batchnorm") is None, reason="needs a C compiler"),
              pytest.mark.usefixtures("threads")]
DTYPES = (np.float32, np.float64)
SHAPES = [(4, 3, 5, 5), (16, 8), (1, 6, 7), (3, 130), (2, 4, 1500), (5, 2, 3, 4, 2), (2, 1, 1), (32, 16, 32, 32), (300, 300)]
NEEDS = [(True, True, True), (True, False, False), (False, True, True), (False, False, True)]


def norm_rounding(dtype):
    """The mean is taken off first: what is left has the rounding of a number some 15 times as large."""
    eps = float(np.finfo(dtype).eps)
    return Tolerance(128 * eps, 64 * eps, of_largest=64 * eps)


def numbers(shape, dtype, seed=0, shift=0.0):
    return (np.random.default_rng(seed).standard_normal(shape) * 2 + shift).astype(dtype)


def parameters(channels, dtype, given=True):
    if not given:
        return None, None
    return numbers(channels, dtype, 1), numbers(channels, dtype, 2)


def running(channels, dtype):
    return numbers(channels, dtype, 3), np.abs(numbers(channels, dtype, 4)) + dtype(0.5)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("affine", [True, False])
def test_batch_norm(shape, dtype, affine):
    shift = 30.0 if shape != (2, 1, 1) else 0.0  # (two elements magnify the rounding of their mean)
    x, grad = numbers(shape, dtype, shift=shift), numbers(shape, dtype, 5)
    weight, bias = parameters(shape[1], dtype, affine)
    mean, var = running(shape[1], dtype)
    for training in (True, False):
        _, saved_mean, inverse = native_agrees("batch_norm", x, weight, bias, mean, var, training, 0.1, 1e-5,
                                               tolerance=norm_rounding)
        if not training:
            saved_mean, inverse = mean, (1 / np.sqrt(var + dtype(1e-5))).astype(dtype)
        for needs in NEEDS:
            native_agrees("batch_norm_grad", grad, x, weight, saved_mean, inverse, training, needs, tolerance=norm_rounding)


@pytest.mark.parametrize("dtype", DTYPES)
def test_without_running_statistics(dtype):
    native_agrees("batch_norm", numbers((4, 3, 5), dtype), None, None, None, None, True, 0.1, 1e-5, tolerance=norm_rounding)


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape,groups", [((4, 6, 5, 5), 3), ((2, 8, 9), 1), ((3, 4, 7), 4), ((5, 6), 2), ((2, 64, 40, 40), 8)])
@pytest.mark.parametrize("affine", [True, False])
def test_group_norm(shape, groups, dtype, affine):
    x, grad = numbers(shape, dtype, shift=-10.0), numbers(shape, dtype, 5)
    weight, bias = parameters(shape[1], dtype, affine)
    _, mean, inverse = native_agrees("group_norm", x, groups, weight, bias, 1e-5, tolerance=norm_rounding)
    for needs in NEEDS:
        native_agrees("group_norm_grad", grad, x, groups, mean, inverse, weight, needs, tolerance=norm_rounding)


@pytest.mark.parametrize("dtype", DTYPES)
def test_strides_and_nan(dtype):
    x = numbers((4, 6, 5, 3), dtype).transpose(0, 3, 1, 2)
    x[1, 2, 0, 0], x[0, 0, 1, 1] = np.nan, np.inf
    weight, bias = parameters(3, dtype)
    grad = np.broadcast_to(dtype(0.5), x.shape)
    with np.errstate(invalid="ignore"):
        _, mean, inverse = native_agrees("batch_norm", x, weight, bias, None, None, True, 0.1, 1e-5, tolerance=norm_rounding)
        assert np.isnan(mean[2]) and np.isfinite(mean[1])
        native_agrees("batch_norm_grad", grad, x, weight, mean, inverse, True, (True, True, True), tolerance=norm_rounding)
        _, mean, inverse = native_agrees("group_norm", x, 3, weight, bias, 1e-5, tolerance=norm_rounding)
        native_agrees("group_norm_grad", grad, x, 3, mean, inverse, weight, (True, True, True), tolerance=norm_rounding)


def test_a_large_mean_does_not_drown_the_variance():
    x = numbers((8, 2, 100), np.float32) + np.float32(10000.0)
    made = KERNELS["batch_norm"](x, None, None, None, None, True, 0.1, 0.0)
    expected = x.astype(np.float64).std(axis=(0, 2))
    np.testing.assert_allclose(1 / made[2], expected, rtol=1e-4)


@pytest.mark.parametrize("used", [(0,), (0, 1), (0, 2), (0, 1, 2)])
def test_gradients_from_the_statistics_of_group_norm(used):
    """They count where all three results have a gradient, as in PyTorch; nobody else's do."""
    found = []
    for framework in (torch, flambeau):
        x = framework.tensor(numbers((2, 4, 3), np.float64)).requires_grad_()
        weight = framework.tensor(numbers(4, np.float64, 1)).requires_grad_()
        made = framework.native_group_norm(x, weight, None, 2, 4, 3, 2, 1e-5)
        given = [framework.tensor(numbers(tuple(made[i].shape), np.float64, i)) for i in used]
        found.append(framework.autograd.grad([made[i] for i in used], (x, weight), given))
    same(*found, Tolerance(1e-12, 1e-14))


def test_group_norm_with_its_statistics_passes_gradcheck():
    x = flambeau.tensor(numbers((2, 4, 3), np.float64)).requires_grad_()
    weight = flambeau.tensor(numbers(4, np.float64, 1)).requires_grad_()

    def of(x, weight):
        return sum(m.pow(2).sum() for m in flambeau.native_group_norm(x, weight, None, 2, 4, 3, 2, 1e-5))

    assert flambeau.autograd.gradcheck(of, (x, weight))
    assert flambeau.autograd.gradgradcheck(of, (x, weight))


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
@pytest.mark.parametrize("of_weight", [None, "same", "float32"])
def test_statistics_have_the_dtype_of_the_parameters(dtype, of_weight):
    kind = getattr(flambeau, dtype)
    expected = flambeau.float32 if of_weight == "float32" else kind
    x = flambeau.randn(2, 4, 3).to(kind)

    def weight(n):
        return None if of_weight is None else flambeau.ones(n, dtype=expected)

    for made in (flambeau.native_layer_norm(x, (3,), weight(3), weight(3), 1e-5),
                 flambeau.native_group_norm(x, weight(4), weight(4), 2, 4, 3, 2, 1e-5),
                 flambeau.native_batch_norm(x, weight(4), weight(4), None, None, True, 0.1, 1e-5)):
        assert [m.dtype for m in made] == [kind, expected, expected]


@pytest.mark.parametrize("dtype", DTYPES)
def test_lowerings(dtype, threads):
    if threads > 1:
        pytest.skip("the code is the same")
    cases = []
    for shape in SHAPES[:6]:
        x, grad = numbers(shape, dtype), numbers(shape, dtype, 5)
        weight, bias = parameters(shape[1], dtype)
        mean, var = running(shape[1], dtype)
        for training in (True, False):
            cases.append(("batch_norm", (x, weight, bias, mean.copy(), var.copy(), training, 0.1, 1e-5)))
            for needs in NEEDS:
                cases.append(("batch_norm_grad", (grad, x, weight, mean, var, training, needs)))
        groups = 3 if shape[1] % 3 == 0 else 2
        made = KERNELS["group_norm"](x, groups, weight, None, 1e-5)
        cases.append(("group_norm", (x, groups, weight, None, 1e-5)))
        for needs in NEEDS:
            cases.append(("group_norm_grad", (grad, x, groups, *made[1:], weight, needs)))
    wanted = [KERNELS[name](*[a.copy() if isinstance(a, np.ndarray) else a for a in args]) for name, args in cases]
    for (name, _), made, expected in zip(cases, run_lowered(cases), wanted):
        same([e for e in expected if e is not None], made, EXACT, name)
